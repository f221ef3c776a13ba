//! Decides about queue entries whose consumer is gone, for the upkeep loops of the queue.

use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::chain;
use tidegate_core::queue::{Claim, Disposition, QueueEntry, UpkeepHandler};
use tidegate_core::store::StoreError;

use crate::models::ModelRegistry;
use crate::run::finish::{EndedJob, TerminalWebhook};
use crate::run::load_open_jobs::JoinQueue;
use crate::run::recorder::{Caller, OnStoreError};
use crate::snapshot::TerminalState;

/// Why a job failed whose task was lost.
const LOST: &str = "the task that ran the job was lost, and the job does not run again (--on-lost)";

#[async_trait]
impl UpkeepHandler for ModelRegistry {
    async fn overdue(&self, entry: &QueueEntry) -> bool {
        // A running job stops at its deadline by itself.
        self.lookup().wake_by_id(&entry.account, &entry.id);
        true
    }

    fn active_claims(&self) -> Vec<Claim> {
        self.lookup().shared().claims.all()
    }

    async fn lost(&self, claim: &Claim) -> Disposition {
        match self.rerun_or_end(&claim.entry).await {
            Ok(disposition) => disposition,
            Err(error) => {
                tracing::error!(job = %claim.entry.id, error = %chain(&error), "failed to resume lost job, retrying later");
                Disposition::Keep
            }
        }
    }

    async fn exhausted(&self, claim: &Claim) -> Disposition {
        // The number of leases decides, as for every lost job: `--on-lost`.
        self.lost(claim).await
    }

    async fn prune(&self, entry: &QueueEntry) -> bool {
        if self.lookup().is_waiting(&entry.account, &entry.id) {
            return false;
        }
        match self.lookup().find(&entry.account, &entry.id).await {
            Ok(Some(job)) => job.status().is_terminal(),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    async fn requeue(&self, _epoch: &str) -> bool {
        let count = self.push_waiting().await;
        if let Some(count) = count {
            tracing::info!(count, "pushed the waiting jobs again");
        }
        count.is_some()
    }

    async fn recheck(&self, _age: Duration) {
        self.push_waiting().await;
    }
}

impl ModelRegistry {
    /// Pushes all waiting jobs; returns how many, or `None` if one could not be pushed.
    async fn push_waiting(&self) -> Option<usize> {
        let waiting = self.lookup().shared().waiting_jobs.entries();
        let count = waiting.len();
        for (service, entry) in waiting {
            let queue = &service.shared().deps.queue;
            let (name, id) = (&service.model.queue_name, entry.id.clone());
            if let Err(error) = queue.push(name, entry).await {
                tracing::warn!(queue = %name, job = %id, %error, "failed to push waiting job again, retrying");
                return None;
            }
        }
        Some(count)
    }

    async fn rerun_or_end(&self, entry: &QueueEntry) -> Result<Disposition, StoreError> {
        let lookup = self.lookup();
        let live = lookup
            .get_in_memory(&entry.account, &entry.id)
            .filter(|job| !job.status().is_terminal());
        let record = match lookup.store() {
            Some(store) => store.get(&entry.account, &entry.id).await?,
            None => None,
        };
        let (attempt, terminal, service) = match record {
            Some(record) if !record.status.is_terminal() => {
                let service = self.service_for_resumed_job(&record.spec.target);
                let store = lookup.store().expect("it gave the record");
                // Its task was lost before the job was registered.
                let key = (entry.account.clone(), entry.id.clone());
                drop(lookup.shared().waiting_jobs.remove_stored(&key));
                if let Some(service) = service
                    .as_ref()
                    .filter(|service| !record.cancel_requested && service.may_run_again(&record))
                {
                    live.inspect(|job| lookup.shared().registry.forget(job));
                    service
                        .run_again(store, record.into(), JoinQueue::InOrder)
                        .await;
                    return Ok(Disposition::Remove);
                }
                let terminal = if record.cancel_requested {
                    TerminalState::Canceled
                } else {
                    TerminalState::Failed(LOST.to_owned())
                };
                let service = service.unwrap_or_else(|| lookup.clone());
                let Some(_) = &live else {
                    service.end_recorded(store, record, terminal).await?;
                    return Ok(Disposition::Remove);
                };
                (record.attempt, terminal, service)
            }
            Some(record) => (
                record.attempt,
                TerminalState::Failed(LOST.to_owned()),
                lookup.clone(),
            ),
            None => (0, TerminalState::Failed(LOST.to_owned()), lookup.clone()),
        };
        if let Some(job) = live
            && let Some(end) = job.decide_end(terminal)
        {
            let webhook = service.webhook_of(&job);
            let recorder = lookup.store().map(|store| {
                service.recorder(store.clone(), attempt, webhook.as_ref(), Caller::Detached)
            });
            let ended = EndedJob {
                job,
                end,
                recorder,
                claim: None,
                webhook: TerminalWebhook::Outbox,
                on_error: OnStoreError::Return,
            };
            service.finish_job(ended).await?;
        }
        Ok(Disposition::Remove)
    }
}
