//! What an operator sees of the desk: who waits, who works, what was counted. Nothing here changes a job.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use tidegate_core::health::HealthReport;
use tidegate_core::pool_status::PoolStatus;
use tidegate_core::record::{Api, JobSummary};
use tidegate_core::store::{JobFilter, StoreError};
use tidegate_core::{Account, JobId, Refusal, Status, chain};

use crate::job::Job;
use crate::job_service::JobService;
use crate::metrics::JobMetrics;

/// The jobs of a desk that are not over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueStatus {
    /// All of them.
    pub total: QueueCounts,
    /// Those of each account that has some.
    pub accounts: BTreeMap<Account, QueueCounts>,
}

/// Jobs that are not over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// How many wait for a slot.
    pub waiting: usize,
    /// How many have one.
    pub running: usize,
    /// When the oldest of those that wait was accepted.
    pub oldest_waiting_since: Option<Timestamp>,
}

impl QueueCounts {
    fn count(&mut self, status: Status, accepted_at: Timestamp) {
        if status == Status::Queued {
            self.waiting += 1;
            self.oldest_waiting_since = Some(
                self.oldest_waiting_since
                    .map_or(accepted_at, |oldest| oldest.min(accepted_at)),
            );
        } else {
            self.running += 1;
        }
    }
}

impl JobService {
    /// What was counted.
    pub fn metrics(&self) -> &JobMetrics {
        &self.model.metrics
    }

    /// Counts a request that a face has refused in our name before it came to us.
    pub fn count_refusal(&self, api: Api, refusal: &Refusal) {
        self.model.metrics.refused(api, refusal);
    }

    /// Who works on the jobs.
    pub fn pool_status(&self) -> PoolStatus {
        self.model.executor.pool_status()
    }

    /// How the model is, without asking its own health check.
    pub fn report(&self) -> HealthReport {
        self.model.executor.report()
    }

    /// How many webhooks wait to be sent again.
    pub fn pending_webhook_retries(&self) -> usize {
        self.model.senders.retry_buffer.len()
    }

    /// Who waits and who runs.
    pub fn queue(&self) -> QueueStatus {
        let mut queue = QueueStatus::default();
        for job in self.shared().registry.all() {
            let status = job.status();
            if !status.is_terminal() && job.target().model == self.model.target.model {
                queue.total.count(status, job.created_at());
                queue
                    .accounts
                    .entry(job.account().clone())
                    .or_default()
                    .count(status, job.created_at());
            }
        }
        queue
    }

    /// The wanted jobs that are in memory: those that are not over, and some that are.
    pub fn list_in_memory(&self, wanted: &JobFilter) -> Vec<JobSummary> {
        self.shared()
            .registry
            .all()
            .iter()
            .map(|job| job.summary())
            .filter(|brief| wanted.matches(brief))
            .collect()
    }

    /// The wanted jobs that are written down, newest first. All desks of a server have one store.
    pub async fn list_recorded(&self, wanted: &JobFilter) -> Result<Vec<JobSummary>, StoreError> {
        match self.store() {
            Some(store) => store.recent(wanted.clone()).await,
            None => Ok(Vec::new()),
        }
    }

    /// A job that is in memory, over or not; its input may be elsewhere.
    pub fn get_in_memory(&self, account: &Account, id: &JobId) -> Option<Arc<Job>> {
        self.shared().registry.get(account, id)
    }

    /// A job, over or not, in memory or written down.
    pub async fn find(&self, account: &Account, id: &JobId) -> Option<Arc<Job>> {
        if let Some(job) = self.shared().registry.get(account, id) {
            return Some(self.with_input(job).await);
        }
        match self.store()?.get(account, id).await {
            Ok(record) => record.map(|record| Arc::new(Job::restored(record))),
            Err(error) => {
                tracing::error!(job = %id, error = %chain(&error), "a job could not be looked up");
                None
            }
        }
    }
}
