//! Cancels a job in a cluster. The cancel is committed first; then a waiting job is ended here, and the
//! director of a running one receives a request to stop it. The reply to the director's next heartbeat repeats it.

use tidegate_core::leases::JobRef;
use tidegate_core::live::WakeReason;
use tidegate_core::record::JobRecord;
use tidegate_core::store::{CancelRequestResult, StoreError};
use tidegate_core::{Account, JobId, Refusal, chain, planted};

use super::{Cluster, hints};
use crate::job_service::JobService;
use crate::snapshot::TerminalState;

impl JobService {
    /// Waits until this process must end the streams of jobs that directors run; another process continues them.
    /// Never ends without a cluster.
    pub async fn ends_streams(&self) {
        match self.cluster() {
            Some(_) => self.shared().unfollowed.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until this process stops while its jobs run on directors: the ends of canceled jobs are not waited
    /// for. Never ends without a cluster.
    pub async fn leaves_jobs(&self) {
        match self.cluster() {
            Some(_) => self.shared().closing.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Cancels a job. Returns whether it had not ended.
    pub(crate) async fn cancel_in_cluster(
        &self,
        cluster: &Cluster,
        account: &Account,
        id: &JobId,
    ) -> Result<bool, Refusal> {
        let refuse = |error: StoreError| {
            tracing::error!(job = %id, error = %chain(&error), "failed to record cancel request, refused it");
            Refusal::StoreUnavailable
        };
        let store = self.store().ok_or(Refusal::StoreUnavailable)?;
        planted!(CancelInMemory, {
            let key = JobRef {
                account: account.clone(),
                id: id.clone(),
            };
            if let Some(holder) = cluster.leases.holder_of(&key).await.map_err(refuse)? {
                cluster.live.request_stop(&holder.name, &key).await.ok();
            }
            return Ok(true);
        });
        match store.request_cancel(account, id).await.map_err(refuse)? {
            CancelRequestResult::Recorded => {}
            CancelRequestResult::Ended | CancelRequestResult::Unknown => return Ok(false),
        }
        let key = JobRef {
            account: account.clone(),
            id: id.clone(),
        };
        tracing::info!(target: "audit", job = %id, account = %account, "canceled");
        // The cancel is committed, so errors from here on only delay it.
        if let Err(error) = self.stop_or_end(cluster, &key).await {
            tracing::warn!(job = %id, error = %chain(&error), "failed to stop canceled job, its director learns of it later");
        }
        Ok(true)
    }

    async fn stop_or_end(&self, cluster: &Cluster, key: &JobRef) -> Result<(), StoreError> {
        if let Some(holder) = cluster.leases.holder_of(key).await? {
            let request = cluster.live.request_stop(&holder.name, key);
            hints::send("stop", &key.id, request).await;
            return Ok(());
        }
        let Some(store) = self.store() else {
            return Ok(());
        };
        match store.get(&key.account, &key.id).await? {
            Some(record) if !record.status.is_terminal() => {
                self.end_in_cluster(cluster, record, TerminalState::Canceled)
                    .await
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Ends a job that no director runs, and wakes those that wait for it. A job that was leased or ended
    /// meanwhile is left alone.
    pub(crate) async fn end_in_cluster(
        &self,
        cluster: &Cluster,
        record: JobRecord,
        terminal: TerminalState,
    ) -> Result<(), StoreError> {
        let store = self.store().cloned().expect("a cluster has a store");
        let key = JobRef::from(&record.spec);
        let queue_name = cluster
            .queues
            .queue_of(record.spec.kind, &record.spec.target);
        self.end_recorded(&store, record, terminal).await?;
        let queue = &self.shared().deps.queue;
        let removal = queue.remove(&queue_name, &key.account, &key.id);
        let wake = cluster.live.wake(&key, WakeReason::Ended);
        tokio::join!(
            hints::send("remove", &key.id, removal),
            hints::send("wake", &key.id, wake),
        );
        Ok(())
    }
}
