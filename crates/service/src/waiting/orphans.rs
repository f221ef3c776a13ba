//! What became of the jobs that entries of a line name, for those who keep the lines in order.

use async_trait::async_trait;
use tidegate_core::chain;
use tidegate_core::queue::{Claim, Disposition, QueueEntry, UpkeepHandler};
use tidegate_core::store::StoreError;

use crate::models::ModelRegistry;
use crate::snapshot::TerminalState;

/// Why a job failed whose task was lost.
const LOST: &str = "whoever worked on the job is gone, and it will not be tried again (--on-lost)";

#[async_trait]
impl UpkeepHandler for ModelRegistry {
    async fn overdue(&self, entry: &QueueEntry) {
        // One that runs knows its deadline itself.
        if let Some(job) = self.lookup().known(&entry.account, &entry.id) {
            self.lookup().wake(&job);
        }
    }

    fn in_hand(&self) -> Vec<Claim> {
        self.lookup().inner.claims.all()
    }

    async fn lost(&self, claim: &Claim) -> Disposition {
        match self.take_up(&claim.entry).await {
            Ok(fate) => fate,
            Err(error) => {
                tracing::error!(job = %claim.entry.id, error = %chain(&error), "a job that was lost cannot be taken up yet");
                Disposition::Keep
            }
        }
    }

    async fn is_over(&self, entry: &QueueEntry) -> bool {
        match self.lookup().find(&entry.account, &entry.id).await {
            Some(job) => job.status().is_terminal(),
            None => true,
        }
    }
}

impl ModelRegistry {
    async fn take_up(&self, entry: &QueueEntry) -> Result<Disposition, StoreError> {
        let lookup = self.lookup();
        let live = lookup
            .known(&entry.account, &entry.id)
            .filter(|job| !job.status().is_terminal());
        let record = match &lookup.inner.deps.store {
            Some(store) => store
                .get(&entry.account, &entry.id)
                .await?
                .map(|record| (store, record)),
            None => None,
        };
        if let Some((store, record)) = record.filter(|(_, record)| !record.status.is_terminal()) {
            let service = self.service_for(&record.spec.target);
            if let Some(service) = service
                .as_ref()
                .filter(|service| !record.cancel_asked && service.may_run_again(&record))
            {
                live.inspect(|job| lookup.inner.registry.forget(job));
                service.run_again(store, record).await;
                return Ok(Disposition::Remove);
            }
            let terminal = if record.cancel_asked {
                TerminalState::Canceled
            } else {
                TerminalState::Failed(LOST.to_owned())
            };
            service
                .as_ref()
                .unwrap_or(lookup)
                .end_lost(store, record, terminal)
                .await?;
        }
        if let Some(job) = live
            && let Some(end) = job.settle(TerminalState::Failed(LOST.to_owned()))
        {
            job.end(end);
            lookup.inner.registry.over(job);
        }
        Ok(Disposition::Remove)
    }
}
