//! Decides about queue entries that the upkeep of the shared queue finds. The store knows whether a job is
//! leased; the age of its entry does not.

use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::leases::JobRef;
use tidegate_core::queue::{Claim, Disposition, QueueEntry, UpkeepHandler};
use tidegate_core::record::JobRecord;
use tidegate_core::store::StoreError;
use tidegate_core::{chain, planted};

use super::Cluster;
use super::director_calls::overdue;
use crate::models::ModelRegistry;
use crate::snapshot::TerminalState;

/// How many jobs are rechecked at the same time.
const RECHECK_BATCH: usize = 500;
/// Why a job failed that was handed out too often.
const NEVER_STARTED: &str =
    "directors took the job several times, and each was lost before it started the model";
/// Why a job failed that waited too long.
const TOO_OLD: &str = "no director took the job in time (--prune-age)";

/// The upkeep handler of an API process.
pub struct ClusterUpkeep {
    /// The models whose jobs are in the queue.
    pub models: ModelRegistry,
    /// The other processes of the cluster.
    pub cluster: Cluster,
    /// How often a job may be handed out without a lease.
    pub max_deliveries: u32,
}

impl ClusterUpkeep {
    /// The record of an open job, and whether a director holds its lease.
    async fn open_record(
        &self,
        entry: &QueueEntry,
    ) -> Result<Option<(JobRecord, bool)>, StoreError> {
        let store = self.models.lookup().store().expect("a cluster has a store");
        let record = store.get(&entry.account, &entry.id).await?;
        let Some(record) = record.filter(|record| !record.status.is_terminal()) else {
            return Ok(None);
        };
        let job = JobRef {
            account: entry.account.clone(),
            id: entry.id.clone(),
        };
        let holder = self.cluster.leases.holder_of(&job).await?;
        Ok(Some((record, holder.is_some())))
    }

    /// How often an entry was handed out without a lease, at least: each hand-out leads to one lease at most.
    fn unleased(&self, claim: &Claim, record: &JobRecord) -> u32 {
        claim.deliveries.saturating_sub(record.attempt)
    }

    async fn end(&self, record: JobRecord, terminal: TerminalState) -> Result<(), StoreError> {
        let service = self.models.service_or_lookup(&record.spec.target);
        service
            .end_in_cluster(&self.cluster, record, terminal)
            .await
    }

    /// The result; `later` if the store failed, so that the entry is found again.
    fn or_later<T>(&self, entry: &QueueEntry, result: Result<T, StoreError>, later: T) -> T {
        result.unwrap_or_else(|error| {
            tracing::warn!(job = %entry.id, error = %chain(&error), "failed to handle queue entry, retrying later");
            later
        })
    }
}

#[async_trait]
impl UpkeepHandler for ClusterUpkeep {
    async fn overdue(&self, entry: &QueueEntry) -> bool {
        let settled = async {
            // The director of a running job stops it at its deadline.
            if let Some((record, false)) = self.open_record(entry).await? {
                let terminal = overdue(&record);
                self.end(record, terminal).await?;
            }
            Ok(true)
        };
        self.or_later(entry, settled.await, false)
    }

    /// Directors renew their own claims.
    fn active_claims(&self) -> Vec<Claim> {
        Vec::new()
    }

    async fn lost(&self, claim: &Claim) -> Disposition {
        let decided = async {
            Ok(match self.open_record(&claim.entry).await? {
                None => Disposition::Remove,
                Some((_, true)) => Disposition::Keep,
                Some((record, false)) => {
                    self.models.rerun_or_end_lost(&self.cluster, record).await?
                }
            })
        };
        self.or_later(&claim.entry, decided.await, Disposition::Keep)
    }

    async fn exhausted(&self, claim: &Claim) -> Disposition {
        let decided = async {
            Ok(match self.open_record(&claim.entry).await? {
                None => Disposition::Remove,
                Some((_, true)) => Disposition::Keep,
                // The number of its leases decides, unless directors take it without a lease too often.
                Some((record, false)) if self.unleased(claim, &record) < self.max_deliveries => {
                    self.models.rerun_or_end_lost(&self.cluster, record).await?
                }
                Some((record, false)) => {
                    let terminal = TerminalState::Failed(NEVER_STARTED.to_owned());
                    self.end(record, terminal).await?;
                    Disposition::Bury(NEVER_STARTED.to_owned())
                }
            })
        };
        self.or_later(&claim.entry, decided.await, Disposition::Keep)
    }

    async fn prune(&self, entry: &QueueEntry) -> bool {
        let obsolete = async {
            Ok(match self.open_record(entry).await? {
                None => true,
                Some((_, true)) => false,
                Some((record, false)) => {
                    let terminal = TerminalState::Failed(TOO_OLD.to_owned());
                    self.end(record, terminal).await?;
                    true
                }
            })
        };
        self.or_later(entry, obsolete.await, false)
    }

    async fn requeue(&self, epoch: &str) -> bool {
        planted!(LostEntries, return true);
        match self.cluster.leases.mark_all_unqueued(epoch).await {
            Ok(is_complete) => is_complete,
            Err(error) => {
                tracing::warn!(error = %chain(&error), "failed to queue all open jobs again, retrying later");
                false
            }
        }
    }

    /// The reconciliation pushes the jobs. Of all processes, one chooses a job.
    async fn recheck(&self, age: Duration) {
        loop {
            let found = self.cluster.leases.unmark_queued(age, RECHECK_BATCH).await;
            match found {
                Ok(RECHECK_BATCH..) => {}
                Ok(_) => return,
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "failed to check jobs that have waited for long, retrying later");
                    return;
                }
            }
        }
    }

    async fn complete_since(&self, _known: &str) -> Option<String> {
        match self.cluster.leases.queue_epoch().await {
            // Without a record, the queue may have lost entries before this process started.
            Ok(epoch) => Some(epoch.unwrap_or_default()),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "failed to read the epoch of the queue, retrying later");
                None
            }
        }
    }
}
