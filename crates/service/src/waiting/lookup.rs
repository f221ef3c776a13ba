//! Looks up jobs that wait in the store only, also while the jobs of the previous server process are
//! loaded.

use std::sync::Arc;

use tidegate_core::record::JobRecord;
use tidegate_core::store::JobFilter;
use tidegate_core::{JobId, Status, chain};

use crate::job::Job;
use crate::job_service::JobService;
use crate::run::load_open_jobs::JoinQueue;

/// How many accounts may have a job with the same id. The ids are random.
const MAX_ACCOUNTS: usize = 10;

impl JobService {
    /// The job of a record that was read when the job was not in the registry: a handle that follows it,
    /// or the recorded end. An open job that does not wait or run here shows its record.
    pub(crate) async fn job_of_record(&self, record: JobRecord) -> Arc<Job> {
        match self.ended_or_followed(&record).await {
            Some(job) => job,
            None => Arc::new(Job::restored(record)),
        }
    }

    /// The same; `None` for an open job that does not wait or run here.
    pub(crate) async fn ended_or_followed(&self, record: &JobRecord) -> Option<Arc<Job>> {
        if record.status.is_terminal() {
            let job = Job::restored(record.clone());
            return Some(Arc::new(match self.cluster() {
                Some(_) => job.ended_in_attempt(record.attempt),
                None => job,
            }));
        }
        if let Some(cluster) = self.cluster() {
            return Some(self.follow_record(cluster, record.clone()).await);
        }
        self.load_now(record).await;
        let (shared, spec) = (self.shared(), &record.spec);
        let key = (spec.account.clone(), spec.id.clone());
        let create = || {
            let job = self.job_of_spec(spec);
            job.set_own_attempt(record.attempt);
            job
        };
        let waiting = shared.waiting_jobs.handle(&key, create);
        // It may have started since it was read.
        let job = waiting.or_else(|| shared.registry.get(&key.0, &key.1))?;
        Some(match job.input() {
            Some(_) => job,
            None => Arc::new(job.with_input(spec.input.clone())),
        })
    }

    /// Loads the job of this model with this id, if the previous server process left it open and its turn
    /// has not come yet. For remote workers, which do not know the account.
    pub async fn load_by_id(&self, id: &JobId) {
        let Some(store) = self.store() else { return };
        if !self.shared().loading.is_active() || self.has_open_job(id) {
            return;
        }
        let filter = JobFilter {
            id: Some(id.clone()),
            model: Some(self.target().model.clone()),
            statuses: vec![Status::Queued, Status::Starting, Status::Processing],
            limit: MAX_ACCOUNTS,
            ..JobFilter::default()
        };
        let found = match store.recent(filter).await {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(job = %id, error = %chain(&error), "failed to look up job, waiting for its turn");
                return self.loaded().await;
            }
        };
        for job in found {
            // Loads it. A failure is logged, and the job is loaded later.
            self.get(&job.account, id).await.ok();
        }
    }

    /// Loads a job of the previous server process that a client asks for before its turn.
    async fn load_now(&self, record: &JobRecord) {
        let (shared, spec) = (self.shared(), &record.spec);
        let key = (spec.account.clone(), spec.id.clone());
        let (Some(service_of), Some(store)) = (shared.loading.service_lookup(), self.store())
        else {
            return;
        };
        if shared.waiting_jobs.has(&key) || shared.registry.get(&key.0, &key.1).is_some() {
            return;
        }
        let join = JoinQueue::InOrder;
        let resumed = self.resume_record(store, &service_of, record.clone().into(), join);
        if let Err(error) = resumed.await {
            tracing::error!(job = %spec.id, error = %chain(&error), "failed to resume job, retrying later");
        }
    }
}
