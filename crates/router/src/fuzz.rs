//! Fuzz targets: see `docs/fuzzing.md`.

use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use tidegate_fuzzing::pieces;

use crate::body_scan::{BodyProblem, BodyScanner, InvalidBody, ScannedBody};

/// What is found in a body does not depend on how it is divided, and is what a parser finds. A text that
/// a parser refuses is refused. The first byte selects the division.
pub fn body_scan(input: &[u8]) {
    let Some((seed, input)) = input.split_first() else {
        return;
    };
    let whole = scan([input]);
    assert_eq!(scan(pieces(*seed, input)), whole, "the division matters");
    let is_json = serde_json::from_slice::<IgnoredAny>(input).is_ok();
    match whole {
        Ok(found) => {
            assert!(is_json, "the scanner accepts what is not JSON");
            check_found(&found, input);
        }
        Err(error) => {
            assert!(error.position <= input.len());
            let is_syntax = matches!(error.problem, BodyProblem::Syntax | BodyProblem::Incomplete);
            assert!(!(is_syntax && is_json), "the scanner refuses JSON: {error}");
        }
    }
}

fn scan<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Result<ScannedBody, InvalidBody> {
    let mut scanner = BodyScanner::default();
    for part in parts {
        scanner.push(part)?;
    }
    scanner.finish()
}

/// A parser also checks whether texts are Unicode, so it may refuse more.
fn check_found(found: &ScannedBody, input: &[u8]) {
    let Ok(body) = serde_json::from_slice::<Map<String, Value>>(input) else {
        return;
    };
    let model = found.model.as_ref();
    assert_eq!(
        model.map(|model| model.name()),
        body.get("model").and_then(Value::as_str)
    );
    assert_eq!(found.stream, body.get("stream").and_then(Value::as_bool));
    if let Some(model) = model {
        let replaced = model.replace_in(input, "other \"model\"");
        let replaced: Map<String, Value> =
            serde_json::from_slice(&replaced).expect("a body with another model is JSON");
        assert_eq!(replaced["model"], "other \"model\"");
    }
}

#[cfg(test)]
mod tests {
    use tidegate_fuzzing::short_run;

    #[test]
    fn body_scans_hold() {
        short_run("body_scan", super::body_scan);
    }
}
