//! The queue entries of jobs, and what happens to an entry of a job that does not wait in this process:
//! queues outside of the process have such entries, of a previous process or of others.

use std::sync::Arc;

use tidegate_core::queue::{EntryDetails, Priority, QueueEntry};
use tidegate_core::record::JobRecord;
use tidegate_core::store::{Store, StoreError};

use super::claims::ClaimGuard;
use super::stored_job::StoredJob;
use super::waiting_jobs::TakenJob;
use crate::job_service::JobService;
use crate::run::load_open_jobs::LOST;
use crate::snapshot::TerminalState;
use crate::submit::PreparedJob;

/// The queue entry of a job that was just accepted.
pub(crate) fn entry_of_job(prepared: &PreparedJob) -> QueueEntry {
    let job = &prepared.job;
    QueueEntry {
        account: job.account().clone(),
        id: job.id().clone(),
        priority: Priority::from_context(&prepared.context),
        deadline: job.deadline(),
        details: Some(Arc::new(EntryDetails {
            kind: job.kind(),
            target: job.shared_target(),
            stream_publish_url: None,
        })),
    }
}

/// The queue entry of a recorded job.
pub(crate) fn entry_of_record(record: &JobRecord) -> QueueEntry {
    let spec = &record.spec;
    QueueEntry {
        account: spec.account.clone(),
        id: spec.id.clone(),
        priority: Priority::from_context(&spec.context),
        deadline: spec.deadline,
        details: Some(Arc::new(EntryDetails {
            kind: spec.kind,
            target: Arc::new(spec.target.clone()),
            stream_publish_url: None,
        })),
    }
}

impl JobService {
    /// Takes over the job of a claimed entry that does not wait here, if the store says that it may run;
    /// otherwise removes the entry. If the store cannot be read, the entry waits again.
    pub(super) async fn adopt(
        &self,
        claim: ClaimGuard,
    ) -> Result<Option<(TakenJob, ClaimGuard)>, StoreError> {
        let (shared, entry) = (self.shared(), claim.entry().clone());
        // The job runs here, or its end is being committed.
        let is_here = shared.registry.get(&entry.account, &entry.id).is_some();
        let Some(store) = self.store().filter(|_| !is_here) else {
            claim.ack().await;
            return Ok(None);
        };
        let record = match store.get(&entry.account, &entry.id).await {
            Ok(record) => record.filter(|record| !record.status.is_terminal()),
            Err(error) => {
                claim.put_back().await;
                return Err(error);
            }
        };
        let Some(record) = record else {
            claim.ack().await;
            return Ok(None);
        };
        if record.cancel_requested || !self.may_run_again(&record) {
            return self.end_adopted(store, record, claim).await;
        }
        let key = (entry.account.clone(), entry.id.clone());
        let stored = StoredJob::of_record(&record);
        shared.waiting_jobs.insert_stored(self, key, stored, None);
        match shared.waiting_jobs.take(&entry.account, &entry.id) {
            Some(taken) => Ok(Some((taken, claim))),
            None => {
                claim.ack().await;
                Ok(None)
            }
        }
    }

    async fn end_adopted(
        &self,
        store: &Arc<dyn Store>,
        record: JobRecord,
        claim: ClaimGuard,
    ) -> Result<Option<(TakenJob, ClaimGuard)>, StoreError> {
        let terminal = if record.cancel_requested {
            TerminalState::Canceled
        } else {
            TerminalState::Failed(LOST.to_owned())
        };
        match self.end_recorded(store, record, terminal).await {
            Ok(()) => claim.ack().await,
            Err(error) => {
                claim.put_back().await;
                return Err(error);
            }
        }
        Ok(None)
    }
}
