//! Finds jobs that no director runs: their director was lost, or the queue has lost their entry. Every API
//! process looks for them; the store lets one of them end a job or offer it again.

use futures_util::{StreamExt, future, stream};
use tidegate_core::chain;
use tidegate_core::clock;
use tidegate_core::leases::JobRef;
use tidegate_core::queue::Disposition;
use tidegate_core::record::{JobRecord, Target};
use tidegate_core::store::StoreError;

use super::Cluster;
use super::director_calls::overdue;
use super::trained_catalog::VERSION_REMOVED;
use crate::models::ModelRegistry;
use crate::snapshot::TerminalState;

/// How many jobs are handled in one round.
const BATCH: usize = 500;

/// How many jobs are put into the queue at the same time.
const PUSHES: usize = 32;

/// Why a job failed whose director was lost.
const LOST: &str =
    "the director that ran the job was lost, and the job does not run again (--on-lost)";

impl ModelRegistry {
    /// Reconciles store and queue, forever.
    pub async fn reconcile(&self, cluster: &Cluster) {
        loop {
            tokio::time::sleep(cluster.settings.reconcile_interval).await;
            if let Err(error) = self.rerun_lost(cluster).await {
                tracing::warn!(error = %chain(&error), "failed to look for lost jobs, retrying");
            }
            if let Err(error) = self.queue_unqueued(cluster).await {
                tracing::warn!(error = %chain(&error), "failed to look for jobs outside the queue, retrying");
            }
        }
    }

    async fn rerun_lost(&self, cluster: &Cluster) -> Result<(), StoreError> {
        let lost = cluster
            .leases
            .expired(cluster.settings.lease, BATCH)
            .await?;
        for record in lost {
            cluster.metrics.lost_leases.inc();
            let spec = record.spec.clone();
            if self.rerun_or_end_lost(cluster, record).await? != Disposition::PutBack {
                continue;
            }
            // Without an epoch the queue is down. The job is not in the queue then, and is found as such.
            let Ok(epoch) = self.queue().epoch().await else {
                continue;
            };
            let service = self.service_or_lookup(&spec.target);
            if service.requeue_lost(cluster, &spec).await {
                let queued = [JobRef::from(&spec)];
                cluster.leases.mark_queued(&queued, &epoch).await?;
            }
        }
        Ok(())
    }

    /// Puts recorded jobs into the queue that are not in it. After the loss of a Redis server these are all
    /// waiting jobs, so this goes on until none is left.
    async fn queue_unqueued(&self, cluster: &Cluster) -> Result<(), StoreError> {
        let age = cluster.settings.reconcile_interval;
        loop {
            // Before the pushes: what the queue loses after them must not be marked.
            let epoch = match self.queue().epoch().await {
                Ok(epoch) => epoch,
                Err(error) => {
                    tracing::debug!(%error, "failed to read the epoch of the queue, not queueing jobs");
                    return Ok(());
                }
            };
            let records = cluster.leases.claim_unqueued(age, BATCH).await?;
            let count = records.len();
            // The pushes of a stream begin in order, so jobs of an account stay in order.
            let queued: Vec<JobRef> = stream::iter(records)
                .map(|record| self.queue_record(cluster, record))
                .buffered(PUSHES)
                .filter_map(future::ready)
                .collect()
                .await;
            // What could not be pushed now is found again after `age`.
            if queued.is_empty() {
                return Ok(());
            }
            cluster.leases.mark_queued(&queued, &epoch).await?;
            if count < BATCH {
                return Ok(());
            }
        }
    }

    /// Puts a recorded job into the queue; returns it if that succeeded.
    async fn queue_record(&self, cluster: &Cluster, record: JobRecord) -> Option<JobRef> {
        if record.spec.target.is_endpoint() {
            // It waits in the process that owns the endpoint.
            return Some(JobRef::from(&record.spec));
        }
        if self.is_removed_version(&record.spec.target) {
            let id = record.spec.id.clone();
            if let Err(error) = self.rerun_or_end_lost(cluster, record).await {
                tracing::warn!(job = %id, error = %chain(&error), "failed to end the job of a removed version, retrying");
            }
            return None;
        }
        if self.waits_for_source(&record.spec.target) {
            return None;
        }
        tracing::debug!(job = %record.spec.id, "queueing recorded job again");
        let service = self.service_or_lookup(&record.spec.target);
        // A lost director may still have the message of a job that was started before.
        let is_queued = if record.attempt > 0 {
            service.requeue_lost(cluster, &record.spec).await
        } else {
            service.queue_again(cluster, &record.spec).await
        };
        if is_queued {
            cluster.metrics.requeued.inc();
        }
        is_queued.then(|| JobRef::from(&record.spec))
    }

    /// Whether a job is for a trained version that was removed.
    fn is_removed_version(&self, target: &Target) -> bool {
        self.was_removed(&target.version) && self.trained_model_by_any_id(target).is_none()
    }

    /// Whether a job is for a trained version whose source is not registered: it has no queue yet.
    fn waits_for_source(&self, target: &Target) -> bool {
        let trained = self.trained_model_by_any_id(target);
        trained.is_some_and(|trained| trained.jobs().is_none())
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
        } else if self.is_removed_version(&record.spec.target) {
            TerminalState::Failed(VERSION_REMOVED.to_owned())
        } else if service.may_run_again(&record) {
            return Ok(Disposition::PutBack);
        } else {
            tracing::warn!(job = %record.spec.id, attempt = record.attempt, "the director of a job was lost");
            cluster.metrics.lost_jobs.inc();
            TerminalState::Failed(LOST.to_owned())
        };
        service.end_in_cluster(cluster, record, terminal).await?;
        Ok(Disposition::Remove)
    }
}
