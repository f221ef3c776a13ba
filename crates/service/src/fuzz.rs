//! Fuzz targets, see `docs/fuzzing.md`. Targets for private items are in the modules of those
//! items.

use bytes::Bytes;

pub use crate::files::fuzz::{data_uri, file_name, splice_files};
pub use crate::input::fuzz::input;
use crate::stream::{History, StartPosition, StreamBatch, StreamEvent};

/// Readers of a job's history get every event after their cursor, or the number of missed events.
///
/// The first byte is the capacity of the history; each other byte pushes an event, or adds or
/// removes a reader.
pub fn history(input: &[u8]) {
    let Some((capacity, steps)) = input.split_first() else {
        return;
    };
    let capacity = usize::from(capacity % 16);
    let mut history = History::new(capacity);
    let mut pushed = 0;
    for step in steps {
        match step {
            0..192 => {
                history.push(StreamEvent::Output {
                    index: pushed,
                    chunk: Bytes::new(),
                });
                pushed += 1;
            }
            192..224 => history.readers += 1,
            224.. => history.readers = history.readers.saturating_sub(1),
        }
        for cursor in [
            0,
            pushed / 2,
            pushed.saturating_sub(usize::from(*step)),
            pushed,
        ] {
            check_reader(&history, cursor, pushed);
        }
        match history.start_position(false) {
            StartPosition::At(0) => check_reader(&history, 0, pushed),
            StartPosition::At(at) => assert_eq!((at, capacity), (pushed, 0)),
            StartPosition::Truncated(missing) => assert_eq!(missing, pushed - capacity),
        }
    }
}

fn check_reader(history: &History, cursor: usize, pushed: usize) {
    match history.after(cursor) {
        None => assert_eq!(cursor, pushed, "unread events are left"),
        Some(StreamBatch::Lagged(missed)) => assert!(
            missed > 0 && cursor + missed <= pushed,
            "{missed} events cannot be missing"
        ),
        Some(StreamBatch::Restarted) => unreachable!("the job does not run again"),
        Some(StreamBatch::Events(events)) => {
            let seen = events.iter().map(|event| {
                if let StreamEvent::Output { index, .. } = event {
                    *index
                } else {
                    usize::MAX
                }
            });
            assert!(
                seen.eq(cursor..pushed),
                "events are missing or out of order"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_fuzzing::short_run;

    #[test]
    fn data_uri_holds_for_generated_inputs() {
        short_run("data_uri", super::data_uri);
    }

    #[test]
    fn file_name_holds_for_generated_inputs() {
        short_run("file_name", super::file_name);
    }

    #[test]
    fn splice_files_holds_for_generated_inputs() {
        short_run("splice_files", super::splice_files);
    }

    #[test]
    fn input_holds_for_generated_inputs() {
        short_run("input", super::input);
    }

    #[test]
    fn history_holds_for_generated_inputs() {
        short_run("history", super::history);
    }
}
