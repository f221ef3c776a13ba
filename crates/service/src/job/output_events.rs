//! The output and logs of a job as one sequence of events, the same for every reader: values and log
//! texts in the order in which the model produced them. An event is identified by the position after
//! it, so a client can continue at any event that another client has received.

use bytes::Bytes;
use tidegate_core::Status;

use super::{Job, State, split_list};
use crate::snapshot::{
    JobChange, JobRestarted, OutputCursor, OutputEvent, OutputEvents, ReadPosition,
};

/// The most events that one read returns, because they are copied under the job's lock.
const MAX_EVENTS: usize = 1024;
/// From this many events on, log texts are combined: a model may write its logs byte by byte.
const MAX_SHORT_LOGS: usize = 65_536;
/// The length of a combined log text, in bytes.
const COMBINED_LOGS: usize = 4096;

/// Where each event ends, in order. Neither part of a position decreases.
#[derive(Debug, Default)]
pub(super) struct EventPositions(Vec<ReadPosition>);

impl EventPositions {
    /// The approximate memory that they take, in bytes.
    pub(super) fn weight(&self) -> usize {
        self.0.capacity() * size_of::<ReadPosition>()
    }

    fn last(&self) -> ReadPosition {
        self.0.last().copied().unwrap_or_default()
    }

    /// Records the logs that were added since the last event, if there are any.
    pub(super) fn end_logs(&mut self, logs: usize) {
        let last = self.last();
        if logs > last.logs {
            self.0.push(ReadPosition { logs, ..last });
        }
    }

    /// Records logs, unless there are so many events that more logs are awaited.
    pub(super) fn add_logs(&mut self, logs: usize) {
        if self.0.len() < MAX_SHORT_LOGS || logs - self.last().logs >= COMBINED_LOGS {
            self.end_logs(logs);
        }
    }

    /// Records a value, after the logs that precede it.
    pub(super) fn add_output(&mut self, position: ReadPosition) {
        self.end_logs(position.logs);
        self.0.push(position);
    }

    /// The index of the first event that is not entirely before `seen`.
    fn index_after(&self, seen: ReadPosition) -> usize {
        self.0
            .partition_point(|end| end.outputs <= seen.outputs && end.logs <= seen.logs)
    }
}

impl Job {
    /// Waits for events after `cursor`, or for the end. Fails if another attempt has produced what was read
    /// before.
    pub async fn output_events(&self, cursor: OutputCursor) -> Result<OutputEvents, JobRestarted> {
        self.wait_for(|state| {
            if state.has_restarted_since(cursor) {
                return Some(Err(JobRestarted));
            }
            state.output_events(cursor.position).map(Ok)
        })
        .await
    }

    /// Waits until the job has another status than `shown`, or for events after `cursor`. Fails if another
    /// attempt has produced what was read before.
    pub async fn next_change(
        &self,
        shown: Option<Status>,
        cursor: OutputCursor,
    ) -> Result<JobChange, JobRestarted> {
        self.wait_for(|state| {
            if state.has_restarted_since(cursor) {
                return Some(Err(JobRestarted));
            }
            let events = state.output_events(cursor.position);
            let is_changed = shown != Some(state.status) || events.is_some();
            is_changed.then_some(Ok(JobChange {
                status: state.status,
                events,
            }))
        })
        .await
    }
}

impl State {
    fn has_restarted_since(&self, cursor: OutputCursor) -> bool {
        let has_read = cursor.position != ReadPosition::default();
        has_read
            && self
                .attempt
                .zip(cursor.attempt)
                .is_some_and(|(shown, read)| shown != read)
    }

    fn output_events(&self, seen: ReadPosition) -> Option<OutputEvents> {
        let (events, is_last) = if self.joined {
            (self.stored_events(seen), true)
        } else {
            self.recorded_events(seen)
        };
        let ended = is_last && self.status.is_terminal();
        (ended || !events.is_empty()).then_some(OutputEvents {
            attempt: self.attempt,
            events,
            ended,
        })
    }

    /// The next events, and whether there are no more.
    fn recorded_events(&self, seen: ReadPosition) -> (Vec<OutputEvent>, bool) {
        let ends = &self.event_positions.0;
        let first = self.event_positions.index_after(seen);
        let mut start = match first {
            0 => ReadPosition::default(),
            first => ends[first - 1],
        };
        let mut events = Vec::new();
        for end in &ends[first..] {
            if events.len() == MAX_EVENTS {
                return (events, false);
            }
            // A position that is not of this sequence may be before the event in one part only.
            let position = ReadPosition {
                outputs: end.outputs.max(seen.outputs),
                logs: end.logs.max(seen.logs),
            };
            if end.outputs > start.outputs.max(seen.outputs) {
                let json = self.output[start.outputs].clone();
                events.push(OutputEvent::Output { json, position });
            } else if end.logs > start.logs.max(seen.logs) {
                let text = self.logs_between(start.logs, seen.logs, end.logs);
                events.push(OutputEvent::Logs { text, position });
            }
            start = *end;
        }
        (events, true)
    }

    /// The logs from `start` on, without what was read before; all of them if `seen` is inside a
    /// character, as no position of an event is.
    fn logs_between(&self, start: usize, seen: usize, end: usize) -> String {
        let unread = self.logs.get(start.max(seen)..end);
        unread.unwrap_or(&self.logs[start..end]).to_owned()
    }

    /// The events of a job that is read from the store, which does not keep their order: its logs, then
    /// its values.
    fn stored_events(&self, seen: ReadPosition) -> Vec<OutputEvent> {
        let logs = self.logs.len().max(seen.logs);
        let unread_logs = (logs > seen.logs).then(|| OutputEvent::Logs {
            text: self.logs_between(0, seen.logs, logs),
            position: ReadPosition { logs, ..seen },
        });
        let values: Vec<Bytes> = self.output.iter().flat_map(split_list).collect();
        let unread_values = values.into_iter().enumerate().skip(seen.outputs);
        let outputs = unread_values.map(|(index, json)| OutputEvent::Output {
            json,
            position: ReadPosition {
                outputs: index + 1,
                logs,
            },
        });
        unread_logs.into_iter().chain(outputs).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(outputs: usize, logs: usize) -> ReadPosition {
        ReadPosition { outputs, logs }
    }

    #[test]
    fn logs_before_a_value_are_an_event_of_their_own() {
        let mut positions = EventPositions::default();
        positions.add_logs(3);
        positions.add_output(at(1, 3));
        positions.add_output(at(2, 5));
        assert_eq!(positions.0, [at(0, 3), at(1, 3), at(1, 5), at(2, 5)]);
        assert_eq!(positions.index_after(at(1, 3)), 2);
        assert_eq!(
            positions.index_after(at(2, 4)),
            2,
            "part of the logs is unread"
        );
        assert_eq!(positions.index_after(at(9, 9)), 4);
    }

    #[test]
    fn many_short_logs_are_combined() {
        let mut positions = EventPositions::default();
        let written = MAX_SHORT_LOGS + 3 * COMBINED_LOGS;
        for logs in 1..=written + 1 {
            positions.add_logs(logs);
        }
        assert_eq!(positions.0.len(), MAX_SHORT_LOGS + 3);
        assert!(
            positions.weight() > 1024 * 1024,
            "more than the logs themselves"
        );
        positions.end_logs(written + 1);
        assert_eq!(
            positions.last(),
            at(0, written + 1),
            "nothing is missing at the end"
        );
    }
}
