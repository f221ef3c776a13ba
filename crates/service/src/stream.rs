//! The event stream of a job: past events first, then new ones, for any number of readers.
//!
//! Readers pull from one shared history at their own pace, so a slow reader does not slow the
//! model. Old events are dropped above a limit; a reader that needed them gets
//! [`StreamBatch::Lagged`].

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::{LogSource, Metric};

use crate::Job;

/// The most readers of one job; more are refused.
pub(crate) const MAX_READERS: usize = 1024;
/// The number of events that are kept for slow readers while a job has readers.
const LIVE_CAPACITY: usize = 65_536;

/// One event of a job.
#[derive(Debug, Clone)]
pub enum StreamEvent {
    /// The model began.
    Start,
    /// The model produced a value.
    Output {
        /// The index of the value, from zero.
        index: usize,
        /// The value as JSON.
        chunk: Bytes,
    },
    /// The model wrote to stdout or stderr.
    Log {
        /// The stream that it wrote to.
        source: LogSource,
        /// The text.
        text: Arc<str>,
    },
    /// The model recorded a metric.
    Metric(Arc<Metric>),
    /// The last event: the job has ended. [`Job::snapshot`] has the result.
    Completed,
}

/// The result of one read.
#[derive(Debug)]
pub enum StreamBatch {
    /// The next events, at least one.
    Events(Vec<StreamEvent>),
    /// The reader was too slow: it lost this many events, and its stream ends.
    Lagged(usize),
    /// The job runs again, and what the reader has received does not count: its stream ends.
    Restarted,
}

/// Why a reader was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamRefusal {
    /// The job has the maximum number of readers.
    #[error("too many readers")]
    TooManyReaders,
}

/// The events of one job.
pub(crate) struct History {
    events: VecDeque<StreamEvent>,
    /// The number of events that were dropped before the first one that is kept.
    dropped: usize,
    /// The number of the first event of the last run of the job.
    run_start: usize,
    /// The number of events that are kept for future readers.
    capacity: usize,
    pub(crate) readers: usize,
}

impl History {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            events: VecDeque::new(),
            dropped: 0,
            run_start: 0,
            capacity,
            readers: 0,
        }
    }

    /// A history of these events, which are all kept.
    pub(crate) fn of(events: Vec<StreamEvent>) -> Self {
        Self {
            capacity: events.len(),
            events: events.into(),
            ..Self::new(0)
        }
    }

    pub(crate) fn push(&mut self, event: StreamEvent) {
        let limit = if self.readers > 0 {
            self.capacity.max(LIVE_CAPACITY)
        } else {
            self.capacity
        };
        self.events.push_back(event);
        while self.events.len() > limit {
            self.events.pop_front();
            self.dropped += 1;
        }
    }

    /// Drops all events: the job runs again. The streams of readers end that may have received some.
    pub(crate) fn restart(&mut self) {
        if self.end() == self.run_start {
            return;
        }
        // A reader that has received all events is not yet at the next run.
        self.dropped = self.end() + 1;
        self.run_start = self.dropped;
        self.events.clear();
    }

    fn end(&self) -> usize {
        self.dropped + self.events.len()
    }

    /// Where a new reader begins: at the first event, or at the end when no history is kept. In the
    /// latter case, if the job has ended, the reader still receives [`StreamEvent::Completed`].
    pub(crate) fn start_position(&mut self, ended: bool) -> StartPosition {
        if self.capacity == 0 {
            let at = self.end();
            if ended {
                self.push(StreamEvent::Completed);
            }
            StartPosition::At(at)
        } else if self.dropped > self.run_start || self.events.len() > self.capacity {
            let count = self.end() - self.run_start;
            StartPosition::Truncated(count.saturating_sub(self.capacity))
        } else {
            StartPosition::At(self.run_start)
        }
    }

    /// The approximate memory that it takes, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.events.len() * 64
    }

    /// The events from `cursor` on; `None` when there are none yet.
    pub(crate) fn after(&self, cursor: usize) -> Option<StreamBatch> {
        if cursor < self.run_start {
            return Some(StreamBatch::Restarted);
        }
        if cursor < self.dropped {
            return Some(StreamBatch::Lagged(self.dropped - cursor));
        }
        let events: Vec<_> = self
            .events
            .iter()
            .skip(cursor - self.dropped)
            .cloned()
            .collect();
        (!events.is_empty()).then_some(StreamBatch::Events(events))
    }
}

/// Where a new reader begins.
pub(crate) enum StartPosition {
    At(usize),
    /// The history does not reach back to the first event: this many are missing.
    Truncated(usize),
}

/// Reads the events of one job. When the last reader of a streaming request is dropped, the job is
/// canceled.
pub struct StreamReader {
    job: Arc<Job>,
    cursor: usize,
    truncated: Option<usize>,
    ended: bool,
}

impl StreamReader {
    pub(crate) fn new(job: Arc<Job>, start: StartPosition) -> Self {
        let (cursor, truncated) = match start {
            StartPosition::At(cursor) => (cursor, None),
            StartPosition::Truncated(missing) => (0, Some(missing)),
        };
        Self {
            job,
            cursor,
            truncated,
            ended: false,
        }
    }

    /// The job.
    pub fn job(&self) -> &Arc<Job> {
        &self.job
    }

    /// The number of events that are missing at the start, if any.
    pub fn truncated(&self) -> Option<usize> {
        self.truncated
    }

    /// Waits for at least one event and returns all that are available; `None` after the last.
    pub async fn next(&mut self) -> Option<StreamBatch> {
        if self.ended {
            return None;
        }
        let batch = self.job.events_after(self.cursor).await;
        match &batch {
            StreamBatch::Events(events) => {
                self.cursor += events.len();
                self.ended = matches!(events.last(), Some(StreamEvent::Completed));
            }
            StreamBatch::Lagged(_) | StreamBatch::Restarted => self.ended = true,
        }
        Some(batch)
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        self.job.reader_dropped();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history_with(capacity: usize, readers: usize, count: usize) -> History {
        let mut history = History::new(capacity);
        history.readers = readers;
        for index in 0..count {
            history.push(StreamEvent::Output {
                index,
                chunk: Bytes::from_static(b"1"),
            });
        }
        history
    }

    #[test]
    fn a_late_reader_gets_all_events_or_the_number_of_missing_ones() {
        assert!(matches!(
            history_with(4, 0, 4).start_position(false),
            StartPosition::At(0)
        ));
        assert!(matches!(
            history_with(4, 0, 7).start_position(false),
            StartPosition::Truncated(3)
        ));
        assert!(
            matches!(
                history_with(4, 1, 7).start_position(true),
                StartPosition::Truncated(3)
            ),
            "the extra events are kept for the live reader, not for late ones"
        );
        assert!(matches!(
            history_with(0, 0, 7).start_position(false),
            StartPosition::At(7)
        ));
    }

    #[test]
    fn a_job_that_runs_again_ends_the_streams_of_its_readers_and_begins_new_ones() {
        let mut history = history_with(4, 1, 3);
        history.restart();
        assert!(matches!(history.after(0), Some(StreamBatch::Restarted)));
        assert!(
            matches!(history.after(3), Some(StreamBatch::Restarted)),
            "it has received all events of the first run"
        );
        let StartPosition::At(cursor) = history.start_position(false) else {
            panic!("no event of the second run is missing")
        };
        assert!(history.after(cursor).is_none());
        history.restart();
        assert!(
            history.after(cursor).is_none(),
            "it has received nothing of the second run"
        );
        history.push(StreamEvent::Start);
        assert!(
            matches!(history.after(cursor), Some(StreamBatch::Events(events)) if events.len() == 1)
        );
    }

    #[test]
    fn a_reader_after_the_end_gets_completed_even_without_history() {
        let mut history = History::new(0);
        history.readers = 1;
        let StartPosition::At(cursor) = history.start_position(true) else {
            panic!("no event is missing")
        };
        assert!(
            matches!(history.after(cursor), Some(StreamBatch::Events(events)) if matches!(events[..], [StreamEvent::Completed]))
        );
    }

    #[test]
    fn a_slow_live_reader_loses_events_above_the_limit() {
        let history = history_with(4, 1, 1000);
        assert!(
            matches!(history.after(0), Some(StreamBatch::Events(events)) if events.len() == 1000)
        );
        let history = history_with(4, 1, LIVE_CAPACITY + 10);
        assert!(matches!(history.after(0), Some(StreamBatch::Lagged(10))));
        assert!(history.after(LIVE_CAPACITY + 10).is_none());
    }
}
