//! Accepts a job in a cluster: the store has it, the queue offers it to directors.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::leases::JobRef;
use tidegate_core::queue::{EntryDetails, Priority, PutBackResult, QueueEntry};
use tidegate_core::record::{DeploymentRef, JobSpec, Target};
use tidegate_core::{JobKind, chain};

use super::Cluster;
use crate::job::Job;
use crate::job_service::JobService;
use crate::submit::{PreparedJob, ResponseMode, Submitted, Ticket};

/// How long a client waits for the queue.
const PUSH_TIMEOUT: Duration = Duration::from_secs(1);

impl JobService {
    /// Queues a job that was just inserted. Its handle follows the job when a client waits.
    pub(crate) async fn accept_for_directors(
        &self,
        cluster: &Cluster,
        prepared: &PreparedJob,
    ) -> Submitted {
        let job = &prepared.job;
        let key = JobRef {
            account: job.account().clone(),
            id: job.id().clone(),
        };
        let followed = self.follow_new(&key, job);
        self.shared().registry.forget(job);
        // Before a director can take the job, so that the reader misses nothing.
        let reader = match prepared.response_mode {
            ResponseMode::Stream => followed.follow().ok(),
            ResponseMode::Wait | ResponseMode::Async => None,
        };
        let entry = QueueEntry {
            account: key.account.clone(),
            id: key.id.clone(),
            priority: Priority::from_context(&prepared.context),
            deadline: job.deadline(),
            details: Some(self.entry_details(cluster, job.kind(), job.target())),
        };
        if self
            .push_to_queue(cluster, (job.kind(), job.target()), entry)
            .await
        {
            cluster.queued_marks.add(key);
        }
        if prepared.response_mode != ResponseMode::Async {
            self.cancel_when_abandoned(&followed);
        }
        Submitted::New(Ticket {
            job: followed,
            tracker: None,
            tasks: self.model.tasks.clone(),
            cancel_on_drop: prepared.response_mode == ResponseMode::Wait,
            reader,
        })
    }

    /// Cancels the job when the client that waits for it disconnects.
    fn cancel_when_abandoned(&self, job: &Arc<Job>) {
        let (service, token) = (self.clone(), job.cancel_token().clone());
        let (account, id) = (job.account().clone(), job.id().clone());
        let job = Arc::clone(job);
        self.model.tasks.spawn(async move {
            tokio::select! {
                () = token.cancelled() => {}
                () = job.ended() => return,
                () = service.shared().unfollowed.cancelled() => return,
            }
            if let Err(refusal) = service.cancel(&account, &id).await {
                tracing::warn!(job = %id, %refusal, "failed to cancel job whose client has disconnected");
            }
        });
    }

    /// Lets a job whose director was lost wait again; returns whether it is in the queue.
    pub(crate) async fn requeue_lost(&self, cluster: &Cluster, spec: &JobSpec) -> bool {
        let name = cluster.queues.queue_of(spec.kind, &spec.target);
        let queue = &self.shared().deps.queue;
        match queue.put_back_job(&name, &spec.account, &spec.id).await {
            Ok(PutBackResult::Waiting) => true,
            Ok(PutBackResult::PutBack) => {
                tracing::warn!(job = %spec.id, "the director of a job was lost, the job runs again");
                true
            }
            Ok(PutBackResult::NoEntry) => self.queue_again(cluster, spec).await,
            Err(error) => {
                tracing::warn!(job = %spec.id, %error, "failed to queue lost job again, retrying later");
                false
            }
        }
    }

    /// Queues the job of a record again; returns whether it is in the queue.
    pub(crate) async fn queue_again(&self, cluster: &Cluster, spec: &JobSpec) -> bool {
        let entry = QueueEntry {
            account: spec.account.clone(),
            id: spec.id.clone(),
            priority: Priority::from_context(&spec.context),
            deadline: spec.deadline,
            details: Some(self.entry_details(cluster, spec.kind, &spec.target)),
        };
        self.push_to_queue(cluster, (spec.kind, &spec.target), entry)
            .await
    }

    /// Records the queue of a deployment before its first job, so that directors read it by then.
    pub async fn prepare_deployment(&self, deployment: DeploymentRef) {
        let Some(cluster) = self.cluster() else {
            return;
        };
        let target = Target {
            deployment: Some(deployment),
            ..self.target().clone()
        };
        if let Err(error) = cluster.queues.open(JobKind::Prediction, &target).await {
            tracing::debug!(error = %chain(&error), "failed to record the queue of a deployment, its first job does it");
        }
    }

    fn entry_details(
        &self,
        cluster: &Cluster,
        kind: JobKind,
        target: &Target,
    ) -> Arc<EntryDetails> {
        let can_stream = self.schema().is_some_and(|schema| schema.can_stream);
        Arc::new(EntryDetails {
            kind,
            target: Arc::new(target.clone()),
            stream_publish_url: can_stream.then(|| cluster.publish_url.to_string()),
        })
    }

    /// Adds the entry of a job to its queue; returns whether that succeeded. If not, the next reconciliation
    /// does it: the store has the job.
    async fn push_to_queue(
        &self,
        cluster: &Cluster,
        (kind, target): (JobKind, &Target),
        entry: QueueEntry,
    ) -> bool {
        let id = entry.id.clone();
        let name = match cluster.queues.open(kind, target).await {
            Ok(name) => name,
            Err(error) => {
                tracing::warn!(job = %id, error = %chain(&error), "failed to record the queue of a deployment, retrying later");
                return false;
            }
        };
        // A client waits for this, and the reconciliation can do it as well.
        let push = self.shared().deps.queue.push(&name, entry);
        match tokio::time::timeout(PUSH_TIMEOUT, push).await {
            Ok(Ok(_)) => return true,
            Ok(Err(error)) => {
                tracing::warn!(job = %id, %error, "failed to queue recorded job, retrying later");
            }
            Err(_) => {
                tracing::warn!(job = %id, timeout = ?PUSH_TIMEOUT, "the queue does not answer, retrying later");
            }
        }
        false
    }
}
