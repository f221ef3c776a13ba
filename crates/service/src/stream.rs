//! Following a job live: what has happened so far, then what happens, to any number of readers.
//!
//! Readers pull from one shared history at their own pace, so a slow one costs the model nothing. Old
//! events are dropped above a limit; a reader that needed them is told so instead of being misled.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::{LogSource, Metric};

use crate::Job;

/// More readers than this on one job are refused.
pub(crate) const MAX_READERS: usize = 1024;
/// While somebody reads, this many events wait for a slow reader before the oldest go.
const LIVE_CAPACITY: usize = 65_536;

/// Something that happened to a job.
#[derive(Debug, Clone)]
pub enum StreamEvent {
    /// The model began.
    Start,
    /// The model gave a value.
    Output {
        /// Counted from zero.
        index: usize,
        /// The value as JSON.
        chunk: Bytes,
    },
    /// The model printed something.
    Log {
        /// Where.
        source: LogSource,
        /// What.
        text: Arc<str>,
    },
    /// The model noted something.
    Metric(Arc<Metric>),
    /// Nothing more will come; [`Job::snapshot`] has the result.
    Completed,
}

/// What a reader gets.
#[derive(Debug)]
pub enum StreamBatch {
    /// The next events, at least one.
    Events(Vec<StreamEvent>),
    /// The reader was too slow: this many events are lost, and the stream is over for it.
    Lagged(usize),
}

/// Why a job cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamRefusal {
    /// Too many follow it already.
    #[error("too many readers")]
    TooManyReaders,
}

/// The events of one job.
pub(crate) struct History {
    events: VecDeque<StreamEvent>,
    /// How many were dropped before the first that is kept.
    dropped: usize,
    /// How many are kept for readers to come.
    capacity: usize,
    pub(crate) readers: usize,
}

impl History {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            events: VecDeque::new(),
            dropped: 0,
            capacity,
            readers: 0,
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

    fn end(&self) -> usize {
        self.dropped + self.events.len()
    }

    /// Where a new reader begins: at the start, or at the end when no history is kept. If the job is
    /// over by then, the reader is at least told that.
    pub(crate) fn entry(&mut self, over: bool) -> StartPosition {
        if self.capacity == 0 {
            let at = self.end();
            if over {
                self.push(StreamEvent::Completed);
            }
            StartPosition::At(at)
        } else if self.dropped > 0 || self.events.len() > self.capacity {
            StartPosition::Truncated(self.end().saturating_sub(self.capacity))
        } else {
            StartPosition::At(0)
        }
    }

    /// Roughly what it costs, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.events.len() * 64
    }

    /// What comes after `cursor`; `None` when there is nothing yet.
    pub(crate) fn after(&self, cursor: usize) -> Option<StreamBatch> {
        if cursor < self.dropped {
            return Some(StreamBatch::Lagged(self.dropped - cursor));
        }
        let fresh: Vec<_> = self
            .events
            .iter()
            .skip(cursor - self.dropped)
            .cloned()
            .collect();
        (!fresh.is_empty()).then_some(StreamBatch::Events(fresh))
    }
}

/// Where a new reader begins.
pub(crate) enum StartPosition {
    At(usize),
    /// This many events are missing from the start.
    Truncated(usize),
}

/// Follows one job. Dropping it is noticed: a job made for its readers is canceled with the last.
pub struct StreamReader {
    job: Arc<Job>,
    cursor: usize,
    truncated: Option<usize>,
    over: bool,
}

impl StreamReader {
    pub(crate) fn new(job: Arc<Job>, entry: StartPosition) -> Self {
        let (cursor, truncated) = match entry {
            StartPosition::At(cursor) => (cursor, None),
            StartPosition::Truncated(missing) => (0, Some(missing)),
        };
        Self {
            job,
            cursor,
            truncated,
            over: false,
        }
    }

    /// The job that is followed.
    pub fn job(&self) -> &Arc<Job> {
        &self.job
    }

    /// How many events are missing from the start of the replay, if any are.
    pub fn truncated(&self) -> Option<usize> {
        self.truncated
    }

    /// All events that are ready, waiting for at least one. `None` after the last.
    pub async fn next(&mut self) -> Option<StreamBatch> {
        if self.over {
            return None;
        }
        let batch = self.job.events_after(self.cursor).await;
        match &batch {
            StreamBatch::Events(events) => {
                self.cursor += events.len();
                self.over = matches!(events.last(), Some(StreamEvent::Completed));
            }
            StreamBatch::Lagged(_) => self.over = true,
        }
        Some(batch)
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        self.job.reader_left();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(capacity: usize, readers: usize, count: usize) -> History {
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
    fn a_late_reader_gets_all_or_is_told_what_is_missing() {
        assert!(matches!(pushed(4, 0, 4).entry(false), StartPosition::At(0)));
        assert!(matches!(
            pushed(4, 0, 7).entry(false),
            StartPosition::Truncated(3)
        ));
        assert!(
            matches!(pushed(4, 1, 7).entry(true), StartPosition::Truncated(3)),
            "kept for the live reader, not for late ones"
        );
        assert!(matches!(pushed(0, 0, 7).entry(false), StartPosition::At(7)));
    }

    #[test]
    fn who_comes_after_the_end_is_told_so_even_without_history() {
        let mut history = History::new(0);
        history.readers = 1;
        let StartPosition::At(cursor) = history.entry(true) else {
            panic!("nothing is missing")
        };
        assert!(
            matches!(history.after(cursor), Some(StreamBatch::Events(events)) if matches!(events[..], [StreamEvent::Completed]))
        );
    }

    #[test]
    fn a_live_reader_may_be_slow_but_not_for_ever() {
        let history = pushed(4, 1, 1000);
        assert!(
            matches!(history.after(0), Some(StreamBatch::Events(events)) if events.len() == 1000)
        );
        let history = pushed(4, 1, LIVE_CAPACITY + 10);
        assert!(matches!(history.after(0), Some(StreamBatch::Lagged(10))));
        assert!(history.after(LIVE_CAPACITY + 10).is_none());
    }
}
