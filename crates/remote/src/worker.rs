//! A worker as it is known from what it asks and says.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use tidegate_core::JobId;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Config;

/// The longest name of a worker, in bytes.
const MAX_LEN: usize = 128;

/// The name that a worker gave itself, unique among those of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(Arc<str>);

/// A text cannot be the name of a worker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a worker's name has 1 to {MAX_LEN} bytes of visible ASCII without `/`")]
pub struct InvalidWorkerId;

impl WorkerId {
    /// Takes a worker's word for who it is.
    pub fn parse(text: &str) -> Result<Self, InvalidWorkerId> {
        let allowed = |byte: &u8| byte.is_ascii_graphic() && *byte != b'/';
        let fits = !text.is_empty() && text.len() <= MAX_LEN && text.as_bytes().iter().all(allowed);
        if fits {
            Ok(Self(text.into()))
        } else {
            Err(InvalidWorkerId)
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// AssignmentState many workers do what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// They wait for jobs.
    pub idle: usize,
    /// They have jobs.
    pub running: usize,
    /// They live and have not asked for a job yet.
    pub initializing: usize,
    /// They have said that they cannot work.
    pub unhealthy: usize,
}

impl WorkerCounts {
    /// Those that have jobs or could.
    pub fn at_work(&self) -> usize {
        self.idle + self.running
    }
}

/// What is known about one worker.
pub(crate) struct WorkerState {
    /// The last time that it did anything but ping.
    pub(crate) seen: Instant,
    pub(crate) pinged: Option<Instant>,
    /// When it left a question without waiting for the answer.
    vanished: Option<Instant>,
    pub(crate) unhealthy: bool,
    /// Whether it has ever asked for a job.
    pub(crate) asked: bool,
    /// Its questions for jobs that are open: one process has one.
    asking: usize,
    /// Whether it was seen to be two.
    doubled: bool,
    /// Jobs that it is to stop.
    pub(crate) stops: BTreeSet<JobId>,
    /// Something has changed for whoever waits in [`crate::RemoteExecutor::stops`].
    pub(crate) stops_changed: Arc<Notify>,
}

impl WorkerState {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            seen: now,
            pinged: None,
            vanished: None,
            unhealthy: false,
            asked: false,
            asking: 0,
            doubled: false,
            stops: BTreeSet::new(),
            stops_changed: Arc::default(),
        }
    }

    /// It asks for jobs. Says whether it is seen for the first time to be two workers with one name.
    pub(crate) fn begins_to_ask(&mut self) -> bool {
        let first = self.asking > 0 && !self.doubled;
        self.doubled |= first;
        self.asked = true;
        self.asking += 1;
        first
    }

    /// It does not wait for jobs any more.
    pub(crate) fn has_asked(&mut self) {
        // It may have been forgotten meanwhile.
        self.asking = self.asking.saturating_sub(1);
    }

    /// It has done something that only a worker does whose main part lives.
    pub(crate) fn is_there(&mut self, now: Instant) {
        self.seen = now;
        self.vanished = None;
    }

    pub(crate) fn has_vanished(&mut self, now: Instant) {
        self.vanished.get_or_insert(now);
    }

    /// Why its jobs should not be left to it any longer, if so.
    pub(crate) fn is_lost(&self, config: &Config, now: Instant) -> Option<&'static str> {
        let longer = |since: Instant, than| now.saturating_duration_since(since) > than;
        if self
            .vanished
            .is_some_and(|at| longer(at, config.reconnect_timeout))
        {
            return Some("its connection broke and it did not come back");
        }
        // One that has never pinged may be at work without a word.
        let silent = self
            .pinged
            .is_some_and(|at| longer(at, config.ping_timeout))
            && longer(self.seen, config.ping_timeout);
        silent.then_some("it is silent")
    }

    /// The last sign of life of any kind.
    pub(crate) fn last_sign(&self) -> Instant {
        self.pinged
            .map_or(self.seen, |pinged| pinged.max(self.seen))
    }
}
