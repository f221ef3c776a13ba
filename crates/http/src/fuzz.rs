//! Fuzz targets: see `docs/fuzzing.md`. Each is next to the code that it tests.

pub use crate::cog::fuzz::{envelope, events};
pub use crate::edge::fuzz::framing;
pub use crate::shared::fuzz::headers;

#[cfg(test)]
mod tests {
    use tidegate_fuzzing::short_run;

    #[test]
    fn envelopes_hold_for_generated_inputs() {
        short_run("envelope", super::envelope);
    }

    #[test]
    fn event_streams_hold_for_generated_inputs() {
        short_run("events", super::events);
    }

    #[test]
    fn framing_holds_for_generated_inputs() {
        short_run("framing", super::framing);
    }

    #[test]
    fn headers_hold_for_generated_inputs() {
        short_run("headers", super::headers);
    }
}
