//! Results that arrive before their job is started here, and the jobs that have ended here.
//!
//! A worker got such a job from the previous server process, which died. The result is kept until
//! the job is started, which then ends at once.

use std::collections::{HashMap, VecDeque};

use tidegate_core::JobId;

use crate::event_queue::EndCommit;
use crate::reports::WorkerResult;

/// The most results that are kept, and their total size.
const MAX_RESULTS: usize = 256;
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// How many ended jobs are remembered: late reports about them are ignored.
const MAX_ENDED: usize = 8192;

/// Results that wait for their job, and the jobs that have ended.
#[derive(Default)]
pub(crate) struct EarlyResults {
    results: HashMap<JobId, WorkerResult>,
    order: VecDeque<JobId>,
    bytes: usize,
    /// With what says whether the end is committed; `None` for a job that was never started here.
    ended: HashMap<JobId, Option<EndCommit>>,
    ended_order: VecDeque<JobId>,
}

impl EarlyResults {
    /// Keeps a result for a job that may be started later; the first one counts. Returns whether a
    /// result is kept.
    pub(crate) fn insert(&mut self, id: &JobId, result: WorkerResult) -> bool {
        if self.results.contains_key(id) {
            return true;
        }
        if self.ended.contains_key(id) || result.size() > MAX_BYTES {
            return false;
        }
        self.bytes += result.size();
        self.order.push_back(id.clone());
        self.results.insert(id.clone(), result);
        while self.order.len() > MAX_RESULTS || self.bytes > MAX_BYTES {
            let Some(oldest) = self.order.front().cloned() else {
                break;
            };
            self.take(&oldest);
        }
        true
    }

    /// Whether the job has ended or its result is here.
    pub(crate) fn contains(&self, id: &JobId) -> bool {
        self.ended.contains_key(id) || self.results.contains_key(id)
    }

    /// Whether the result of the job waits for its start.
    pub(crate) fn is_waiting(&self, id: &JobId) -> bool {
        self.results.contains_key(id)
    }

    /// Whether the end of a job that has ended here is committed.
    pub(crate) fn end_commit(&self, id: &JobId) -> Option<EndCommit> {
        self.ended.get(id)?.clone()
    }

    /// Removes and returns the result of a job that is about to start.
    pub(crate) fn take(&mut self, id: &JobId) -> Option<WorkerResult> {
        let result = self.results.remove(id)?;
        self.bytes -= result.size();
        self.order.retain(|other| other != id);
        Some(result)
    }

    /// Records that a job starts: a job that is retried under its id has not ended.
    pub(crate) fn mark_started(&mut self, id: &JobId) {
        if self.ended.remove(id).is_some() {
            self.ended_order.retain(|other| other != id);
        }
    }

    /// Records that a job has ended.
    pub(crate) fn mark_ended(&mut self, id: &JobId, commit: Option<EndCommit>) {
        if self.ended.insert(id.clone(), commit).is_none() {
            self.ended_order.push_back(id.clone());
        }
        if self.ended_order.len() > MAX_ENDED
            && let Some(oldest) = self.ended_order.pop_front()
        {
            self.ended.remove(&oldest);
        }
    }
}
