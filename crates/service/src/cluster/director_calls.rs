//! The calls of directors: heartbeats, leases, events and ends of jobs. The HTTP layer checks the token of
//! the directors; here the token of each lease is checked.

use std::future::Future;
use std::sync::Arc;

use tidegate_core::director_api::{
    FinishCall, FinishReply, HeartbeatCall, HeartbeatReply, LeaseCall, LeaseReply, LeaseToken,
    LeasedJob, PublishCall, PublishReply, RegisterCall, RegisterReply, ReleaseCall, UnlistedLease,
    UpdateCall, UpdateReply,
};
use tidegate_core::leases::{
    AcquireRequest, AcquireResult, GrantedLease, HeldLease, JobRef, LeaseHeartbeat,
};
use tidegate_core::live::{LiveError, WakeReason};
use tidegate_core::outbox::OutboxMessage;
use tidegate_core::record::{JobRecord, JobSpec};
use tidegate_core::store::{FinishOutcome, StoreError};
use tidegate_core::{Status, planted};

use super::director_files::DirectorFiles;
use super::hints::HINT_TIMEOUT;
use super::trained_jobs::VersionOfJob;
use super::{Cluster, LeaseRequestResult, ModelCatalog, hints};
use crate::config::OnLost;
use crate::files::store::FileStoreError;
use crate::models::ModelRegistry;
use crate::snapshot::TerminalState;

/// Why a job failed that was started too often.
const EXHAUSTED: &str =
    "the director that ran the job was lost, and the job does not run again (--on-lost)";

/// Why a call of a director was refused.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The token is not the token of this lease.
    #[error("the token does not belong to this lease")]
    InvalidToken,
    /// The store failed; the call can be repeated.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The live events failed; the call can be repeated.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// This process stores no files.
    #[error("this API process stores no files; start it with `--data-dir` or `--files-store`")]
    NoFileStore,
    /// There is no such file of the account of the job.
    #[error("there is no such file")]
    UnknownFile,
    /// The file could not be stored or read.
    #[error(transparent)]
    File(#[from] FileStoreError),
}

/// Answers the calls of directors.
pub struct DirectorCalls {
    pub(super) models: ModelRegistry,
    pub(super) catalog: Arc<ModelCatalog>,
    pub(super) cluster: Cluster,
    stream_urls: Option<StreamUrls>,
    pub(super) files: Option<DirectorFiles>,
}

/// Signs the URL of the output stream in the webhooks of a job.
pub type StreamUrls = Box<dyn Fn(&JobSpec) -> Option<String> + Send + Sync>;

impl DirectorCalls {
    /// Answers calls about the jobs of these models.
    pub fn new(models: ModelRegistry, catalog: Arc<ModelCatalog>, cluster: Cluster) -> Self {
        Self {
            models,
            catalog,
            cluster,
            stream_urls: None,
            files: None,
        }
    }

    /// Adds what signs the URLs of output streams in webhooks.
    pub fn with_stream_urls(self, stream_urls: StreamUrls) -> Self {
        Self {
            stream_urls: Some(stream_urls),
            ..self
        }
    }

    /// Completes a call, also if the director does not wait for the reply: after a commit there is more to
    /// do, such as sending a webhook.
    pub async fn complete<R: Send + 'static>(
        &self,
        call: impl Future<Output = Result<R, CallError>> + Send + 'static,
    ) -> Result<R, CallError> {
        let task = self.models.lookup().model.tasks.spawn(call);
        let failed = || StoreError::Unavailable("the call was interrupted".to_owned());
        task.await.unwrap_or_else(|_| Err(failed().into()))
    }

    /// A heartbeat of a director. The reply comes before the director gives up, also if it is only that the
    /// store does not answer: a director without a reply must assume that it is cut off.
    pub async fn heartbeat(&self, call: HeartbeatCall) -> Result<HeartbeatReply, CallError> {
        let limit = self.cluster.settings.heartbeat_limit();
        tokio::time::timeout(limit, self.keep_alive(call))
            .await
            .unwrap_or_else(|_| {
                let reason = format!("no reply within {} ms", limit.as_millis());
                Err(StoreError::Unavailable(reason).into())
            })
    }

    async fn keep_alive(&self, call: HeartbeatCall) -> Result<HeartbeatReply, CallError> {
        let settings = self.cluster.settings;
        self.cluster.directors.record(&call);
        let HeartbeatCall {
            holder,
            leases,
            models,
            job_kind,
            is_draining,
        } = call;
        if is_draining && leases.is_empty() {
            self.cluster.leases.retire(&holder).await?;
        }
        let beat = LeaseHeartbeat {
            holder,
            lasts: settings.lease,
            leases,
        };
        let result = self.cluster.leases.heartbeat(beat).await?;
        let offers = models
            .iter()
            .map(|offer| (&*offer.version, offer.schema_hash.as_deref()));
        Ok(HeartbeatReply {
            is_superseded: result.is_superseded,
            cancel: result.cancel,
            lost: result.lost,
            unlisted: self.signed(result.unlisted),
            unknown_versions: self.catalog.unknown(offers, job_kind),
            queues: models
                .iter()
                .flat_map(|offer| self.cluster.queues.assigned(offer, job_kind))
                .collect(),
            trained_queues: models
                .iter()
                .filter_map(|offer| self.cluster.queues.assigned_trained(offer, job_kind))
                .collect(),
            lease: settings.lease,
            interval: settings.heartbeat_interval,
        })
    }

    /// The leases with their tokens.
    fn signed(&self, leases: Vec<HeldLease>) -> Vec<UnlistedLease> {
        let sign = |lease: HeldLease| UnlistedLease {
            token: self.cluster.tokens.sign(&lease),
            lease,
        };
        leases.into_iter().map(sign).collect()
    }

    /// Registers models.
    pub async fn register(&self, call: RegisterCall) -> Result<RegisterReply, CallError> {
        let refused = self.catalog.register(call.models).await?;
        Ok(RegisterReply { refused })
    }

    /// Leases a job to a director. A job that must not run is ended.
    pub async fn lease(&self, call: LeaseCall) -> Result<LeaseReply, CallError> {
        let OnLost::Retry { attempts } = self.models.lookup().model.on_lost else {
            return self.lease_up_to(call, 1).await;
        };
        self.lease_up_to(call, attempts).await
    }

    async fn lease_up_to(
        &self,
        call: LeaseCall,
        max_attempts: u32,
    ) -> Result<LeaseReply, CallError> {
        let request = AcquireRequest {
            job: call.job,
            holder: call.holder,
            nonce: call.nonce,
            lasts: self.cluster.settings.lease,
            max_attempts,
        };
        let result = self.cluster.leases.acquire(request).await?;
        self.count_request(&result);
        let (record, terminal) = match result {
            AcquireResult::Granted(granted) => {
                return self.grant(*granted).await;
            }
            AcquireResult::HeldByAnother => return Ok(LeaseReply::HeldByAnother),
            AcquireResult::Superseded => return Ok(LeaseReply::Superseded),
            AcquireResult::Ended | AcquireResult::Unknown => return Ok(LeaseReply::Over),
            AcquireResult::CancelRequested(record) => (record, TerminalState::Canceled),
            AcquireResult::Overdue(record) => {
                let terminal = overdue(&record);
                (record, terminal)
            }
            AcquireResult::Exhausted(record) => {
                (record, TerminalState::Failed(EXHAUSTED.to_owned()))
            }
        };
        self.models
            .service_or_lookup(&record.spec.target)
            .end_in_cluster(&self.cluster, *record, terminal)
            .await?;
        Ok(LeaseReply::Over)
    }

    fn count_request(&self, result: &AcquireResult) {
        let metrics = &self.cluster.metrics;
        let label = match result {
            AcquireResult::Granted(granted) => {
                if granted.fence.attempt > 1 {
                    metrics.reruns.inc();
                }
                LeaseRequestResult::Granted
            }
            AcquireResult::HeldByAnother => LeaseRequestResult::HeldByAnother,
            AcquireResult::Ended | AcquireResult::Unknown => LeaseRequestResult::Ended,
            AcquireResult::CancelRequested(_) => LeaseRequestResult::Canceled,
            AcquireResult::Overdue(_) => LeaseRequestResult::Overdue,
            AcquireResult::Exhausted(_) => LeaseRequestResult::Exhausted,
            AcquireResult::Superseded => LeaseRequestResult::Superseded,
        };
        metrics.lease_requests.of(label).inc();
    }

    /// Adds what the director needs to run a job that it has the lease of.
    async fn grant(&self, granted: GrantedLease) -> Result<LeaseReply, CallError> {
        let spec = &granted.record.spec;
        self.cluster.queued_marks.remove(&JobRef::from(spec));
        let target = &spec.target;
        let trained = match self.version_of_job(target).await? {
            VersionOfJob::Registered => None,
            VersionOfJob::Trained(trained) => Some(trained.version.clone()),
            VersionOfJob::Removed => {
                self.end_removed(granted).await?;
                return Ok(LeaseReply::Over);
            }
        };
        let leased = LeasedJob {
            trained,
            ..self.leased_job(granted)
        };
        Ok(LeaseReply::Granted(Box::new(leased)))
    }

    fn leased_job(&self, granted: GrantedLease) -> LeasedJob {
        let GrantedLease {
            mut record,
            fence,
            remaining,
        } = granted;
        if let Some(sign) = &self.stream_urls {
            let stream_url = sign(&record.spec);
            if let Some(hook) = &mut record.spec.hook {
                hook.stream_url = stream_url;
            }
        }
        let token = self.cluster.tokens.sign(&HeldLease {
            job: JobRef::from(&record.spec),
            fence,
        });
        let began_at = record.started_at.unwrap_or(record.spec.created_at);
        LeasedJob {
            spec: record.spec,
            fence,
            began_at,
            remaining_ms: remaining.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            token,
            trained: None,
        }
    }

    /// Takes a lease back whose job did not start, and offers the job to others.
    pub async fn release(&self, call: ReleaseCall) -> Result<(), CallError> {
        self.check(&call.token, &call.lease)?;
        self.cluster.leases.release(&call.lease).await?;
        Ok(())
    }

    /// Ends a job. The reply means that the end is committed, together with its webhook message.
    pub async fn finish(&self, call: FinishCall) -> Result<FinishReply, CallError> {
        let FinishCall { mut finish, token } = call;
        let job = JobRef {
            account: finish.account.clone(),
            id: finish.id.clone(),
        };
        let lease = HeldLease {
            job,
            fence: finish.fence,
        };
        self.check(&token, &lease)?;
        if let Some(message) = &mut finish.message {
            self.add_urls(&lease.job, message, Some(finish.completion.completed_at));
        }
        let lookup = self.models.lookup();
        let outbox = lookup.model.senders.outbox.as_ref();
        if let Some((message, outbox)) = finish.message.as_mut().zip(outbox) {
            outbox.complete(message, &lease.job);
            // An interim message may be on its way from another process: the store lets the final one
            // follow it.
            if has_interim_messages(message) {
                message.claim = None;
            }
        }
        planted!(AckBeforeCommit, {
            finish
                .message
                .iter_mut()
                .for_each(|message| message.claim = None);
            let lookup = lookup.clone();
            lookup.model.tasks.clone().spawn(async move {
                lookup
                    .store()
                    .expect("a cluster has a store")
                    .finish(finish)
                    .await
                    .ok();
                lookup
                    .model
                    .senders
                    .outbox
                    .iter()
                    .for_each(|outbox| outbox.poll_soon());
            });
            return Ok(FinishReply {
                outcome: FinishOutcome::Committed,
            });
        });
        let message = finish.message.clone();
        let store = lookup.store().expect("a cluster has a store");
        let outcome = store.finish(finish).await?;
        match outcome {
            FinishOutcome::Committed => {
                match (outbox, message) {
                    (Some(outbox), Some(message)) if message.claim.is_some() => {
                        outbox.spawn_committed(&lookup.model.senders, message);
                    }
                    (Some(outbox), Some(_)) => outbox.poll_soon(),
                    (None, _) | (_, None) => {}
                }
                self.wake_ended(&lease.job).await;
            }
            FinishOutcome::AlreadyCommitted => self.wake_ended(&lease.job).await,
            FinishOutcome::ByAnother | FinishOutcome::CancelRequested => {}
        }
        Ok(FinishReply { outcome })
    }

    async fn wake_ended(&self, job: &JobRef) {
        let wake = self.cluster.live.wake(job, WakeReason::Ended);
        hints::send("wake", &job.id, wake).await;
    }

    /// Publishes live events.
    pub async fn publish(&self, call: PublishCall) -> Result<PublishReply, CallError> {
        let lease = self.verified(&call.token)?;
        if lease.job != call.job || lease.fence.attempt != call.batch.attempt {
            return Err(CallError::InvalidToken);
        }
        let closing = &self.models.lookup().shared().closing;
        let closed = async {
            closing.cancelled().await;
            tokio::time::sleep(HINT_TIMEOUT).await;
        };
        let next_offset = tokio::select! {
            published = self.cluster.live.publish(&call.job, call.batch) => published?,
            // The director repeats the call at another process.
            () = closed => return Err(LiveError("the process stops".to_owned()).into()),
        };
        Ok(PublishReply {
            next_offset,
            cancel_requested: false,
        })
    }

    /// Stores an interim webhook message; it is sent soon.
    pub async fn update(&self, call: UpdateCall) -> Result<UpdateReply, CallError> {
        let UpdateCall {
            lease,
            token,
            mut message,
        } = call;
        self.check(&token, &lease)?;
        message.account.clone_from(&lease.job.account);
        message.job.clone_from(&lease.job.id);
        message.claim = None;
        self.add_urls(&lease.job, &mut message, None);
        let is_current = self.cluster.leases.put_interim(&lease, message).await?;
        if let Some(outbox) = &self.models.lookup().model.senders.outbox {
            outbox.poll_soon();
        }
        Ok(UpdateReply { is_current })
    }

    pub(super) fn verified(&self, token: &LeaseToken) -> Result<HeldLease, CallError> {
        self.cluster
            .tokens
            .verify(token)
            .ok_or(CallError::InvalidToken)
    }

    pub(super) fn check(&self, token: &LeaseToken, lease: &HeldLease) -> Result<(), CallError> {
        if self.verified(token)? == *lease {
            Ok(())
        } else {
            Err(CallError::InvalidToken)
        }
    }
}

/// Whether messages precede the final one.
fn has_interim_messages(message: &OutboxMessage) -> bool {
    message.hook.events.iter().any(|event| event != "completed")
}

/// How a job ends whose deadline has passed: aborted if it never started.
pub(super) fn overdue(record: &JobRecord) -> TerminalState {
    match record.status {
        Status::Queued if record.runs() == 0 => TerminalState::Aborted,
        _ => TerminalState::Canceled,
    }
}
