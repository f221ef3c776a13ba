//! Results of jobs that nobody has begun here: a worker got them from a server before this one, which
//! died. They are kept until the job's turn comes, which then is over at once.

use std::collections::{HashMap, HashSet, VecDeque};

use tidegate_core::JobId;

use crate::reports::WorkerResult;

/// AssignmentState many results wait at most, and their bytes together.
const MOST: usize = 256;
const MOST_BYTES: usize = 64 * 1024 * 1024;
/// AssignmentState many jobs are remembered as over: late reports about them are nobody's result.
const PAST: usize = 8192;

/// Results that are ahead of their jobs, and jobs whose results were told.
#[derive(Default)]
pub(crate) struct EarlyResults {
    results: HashMap<JobId, WorkerResult>,
    order: VecDeque<JobId>,
    bytes: usize,
    over: HashSet<JobId>,
    over_order: VecDeque<JobId>,
}

impl EarlyResults {
    /// Keeps a result for a job that may come; says whether it does.
    pub(crate) fn keep(&mut self, id: &JobId, finish: WorkerResult) -> bool {
        if self.over.contains(id) || self.results.contains_key(id) || finish.weight() > MOST_BYTES {
            return false;
        }
        self.bytes += finish.weight();
        self.order.push_back(id.clone());
        self.results.insert(id.clone(), finish);
        while self.order.len() > MOST || self.bytes > MOST_BYTES {
            let Some(oldest) = self.order.front().cloned() else {
                break;
            };
            self.take(&oldest);
        }
        true
    }

    /// Whether a job is over, or its result is here.
    pub(crate) fn knows(&self, id: &JobId) -> bool {
        self.over.contains(id) || self.results.contains_key(id)
    }

    /// The result of a job that is about to begin.
    pub(crate) fn take(&mut self, id: &JobId) -> Option<WorkerResult> {
        let finish = self.results.remove(id)?;
        self.bytes -= finish.weight();
        self.order.retain(|other| other != id);
        Some(finish)
    }

    /// A job begins: one that is run again under its id is not over.
    pub(crate) fn begins(&mut self, id: &JobId) {
        if self.over.remove(id) {
            self.over_order.retain(|other| other != id);
        }
    }

    /// A job is over.
    pub(crate) fn is_over(&mut self, id: &JobId) {
        if self.over.insert(id.clone()) {
            self.over_order.push_back(id.clone());
        }
        if self.over_order.len() > PAST
            && let Some(oldest) = self.over_order.pop_front()
        {
            self.over.remove(&oldest);
        }
    }
}
