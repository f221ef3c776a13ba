//! Finds jobs that no director runs: their director was lost, or the queue has lost their entry. Every API
//! process looks for them; the store lets one of them end a job or offer it again.

use tidegate_core::chain;
use tidegate_core::clock;
use tidegate_core::queue::Disposition;
use tidegate_core::record::JobRecord;
use tidegate_core::store::StoreError;

use super::Cluster;
use super::director_calls::overdue;
use crate::models::ModelRegistry;
use crate::snapshot::TerminalState;

/// How many jobs are handled in one round.
const BATCH: usize = 500;

/// Why a job failed whose director was lost.
const LOST: &str =
    "the director that ran the job was lost, and the job does not run again (--on-lost)";

impl ModelRegistry {
    /// Reconciles store and queue, forever.
    pub async fn reconcile(&self, cluster: &Cluster) {
        loop {
            tokio::time::sleep(cluster.settings.reconcile_interval).await;
            if let Err(error) = self.reconcile_once(cluster).await {
                tracing::warn!(error = %chain(&error), "failed to look for lost jobs, retrying");
            }
        }
    }

    async fn reconcile_once(&self, cluster: &Cluster) -> Result<(), StoreError> {
        let settings = cluster.settings;
        for record in cluster.leases.expired(settings.lease, BATCH).await? {
            let spec = record.spec.clone();
            if self.rerun_or_end_lost(cluster, record).await? == Disposition::PutBack {
                let service = self.service_or_lookup(&spec.target);
                service.requeue_lost(cluster, &spec).await;
            }
        }
        let unqueued = cluster
            .leases
            .unqueued(settings.reconcile_interval, BATCH)
            .await?;
        for record in unqueued {
            tracing::debug!(job = %record.spec.id, "queueing recorded job again");
            let service = self.service_or_lookup(&record.spec.target);
            // A lost director may still have the message of a job that was started before.
            if record.attempt > 0 {
                service.requeue_lost(cluster, &record.spec).await;
            } else {
                service.queue_again(cluster, &record.spec).await;
            }
        }
        Ok(())
    }

    /// Decides about a job that no director has: it runs again, or is ended.
    pub(super) async fn rerun_or_end_lost(
        &self,
        cluster: &Cluster,
        record: JobRecord,
    ) -> Result<Disposition, StoreError> {
        let service = self.service_or_lookup(&record.spec.target);
        let deadline = record.spec.deadline;
        let terminal = if record.cancel_requested {
            TerminalState::Canceled
        } else if deadline.is_some_and(|deadline| deadline <= clock::now()) {
            overdue(&record)
        } else if service.may_run_again(&record) {
            return Ok(Disposition::PutBack);
        } else {
            tracing::warn!(job = %record.spec.id, attempt = record.attempt, "the director of a job was lost");
            TerminalState::Failed(LOST.to_owned())
        };
        service.end_in_cluster(cluster, record, terminal).await?;
        Ok(Disposition::Remove)
    }
}
