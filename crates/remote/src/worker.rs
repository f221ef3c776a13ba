//! The state of one worker, as known from its requests.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::JobId;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The maximum length of a worker's id, in bytes.
const MAX_LEN: usize = 128;

/// The id that a worker chose for itself, unique within an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(Arc<str>);

/// A text that is not a valid worker id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a worker id has 1 to {MAX_LEN} bytes of visible ASCII without `/`")]
pub struct InvalidWorkerId;

impl WorkerId {
    /// Checks a worker's id.
    pub fn parse(text: &str) -> Result<Self, InvalidWorkerId> {
        let allowed = |byte: &u8| byte.is_ascii_graphic() && *byte != b'/';
        let valid =
            !text.is_empty() && text.len() <= MAX_LEN && text.as_bytes().iter().all(allowed);
        if valid {
            Ok(Self(text.into()))
        } else {
            Err(InvalidWorkerId)
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerActivity {
    /// It waits for jobs.
    Idle,
    /// It has jobs.
    Running,
    /// It pings and has not asked for a job yet.
    Initializing,
    /// It reported itself unhealthy.
    Unhealthy,
    /// It has ended or cannot be reached.
    Gone,
}

impl WorkerActivity {
    /// The name that operators see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Initializing => "initializing",
            Self::Unhealthy => "unhealthy",
            Self::Gone => "gone",
        }
    }
}

/// One worker, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerStatus {
    /// Its id.
    pub id: WorkerId,
    /// What it does.
    pub state: WorkerActivity,
    /// The number of its jobs.
    pub jobs: usize,
    /// How long ago its last request was.
    pub last_seen: Duration,
}

/// The number of workers in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Workers that wait for jobs.
    pub idle: usize,
    /// Workers that have jobs.
    pub running: usize,
    /// Workers that ping and have not asked for a job yet.
    pub initializing: usize,
    /// Workers that reported themselves unhealthy.
    pub unhealthy: usize,
}

impl WorkerCounts {
    /// Workers that have jobs or can take one.
    pub fn available(&self) -> usize {
        self.idle + self.running
    }
}

/// What the server knows about one worker.
pub(crate) struct WorkerState {
    /// The last request other than a ping.
    pub(crate) last_request: Instant,
    pub(crate) last_ping: Option<Instant>,
    /// When the worker dropped a long poll before the response.
    pub(crate) disconnected: Option<Instant>,
    pub(crate) unhealthy: bool,
    /// Whether the worker ever asked for a job.
    pub(crate) asked_for_jobs: bool,
    /// Open requests for jobs: one process has at most one.
    open_takes: usize,
    /// Open requests for jobs to stop, and the time when the last one ended.
    open_stop_polls: usize,
    last_stop_poll: Option<Instant>,
    /// Whether two processes were seen to share this id.
    duplicated: bool,
    /// Jobs that the worker must stop.
    pub(crate) stops: BTreeSet<JobId>,
    /// Wakes [`crate::RemoteExecutor::jobs_to_stop`].
    pub(crate) stops_changed: Arc<Notify>,
}

impl WorkerState {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            last_request: now,
            last_ping: None,
            disconnected: None,
            unhealthy: false,
            asked_for_jobs: false,
            open_takes: 0,
            open_stop_polls: 0,
            last_stop_poll: None,
            duplicated: false,
            stops: BTreeSet::new(),
            stops_changed: Arc::default(),
        }
    }

    /// Records the start of a request for jobs. Returns whether this is the first sign that two
    /// processes share one id.
    pub(crate) fn begin_take(&mut self) -> bool {
        let first = self.open_takes > 0 && !self.duplicated;
        self.duplicated |= first;
        self.asked_for_jobs = true;
        self.open_takes += 1;
        first
    }

    /// Records the end of a request for jobs.
    pub(crate) fn end_take(&mut self) {
        // The worker may have been removed and added again meanwhile.
        self.open_takes = self.open_takes.saturating_sub(1);
    }

    /// Records the start of a request for jobs to stop.
    pub(crate) fn begin_stop_poll(&mut self) {
        self.open_stop_polls += 1;
    }

    /// Records the end of a request for jobs to stop.
    pub(crate) fn end_stop_poll(&mut self, now: Instant) {
        // The worker may have been removed and added again meanwhile.
        self.open_stop_polls = self.open_stop_polls.saturating_sub(1);
        self.last_stop_poll = Some(now);
    }

    /// When the worker last listened for jobs to stop; `now` while it does.
    pub(crate) fn last_listened(&self, now: Instant) -> Option<Instant> {
        if self.open_stop_polls > 0 {
            Some(now)
        } else {
            self.last_stop_poll
        }
    }

    /// Records a request that only a worker whose main process lives can send.
    pub(crate) fn record_request(&mut self, now: Instant) {
        self.last_request = now;
        self.disconnected = None;
    }

    /// Records that the worker dropped a long poll.
    pub(crate) fn record_disconnect(&mut self, now: Instant) {
        self.disconnected.get_or_insert(now);
    }

    /// The last request of any kind.
    pub(crate) fn last_seen(&self) -> Instant {
        self.last_ping
            .map_or(self.last_request, |ping| ping.max(self.last_request))
    }
}
