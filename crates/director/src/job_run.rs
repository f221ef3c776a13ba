//! One message: lease its job, run it, report the end, acknowledge the message.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Account;
use tidegate_core::chain;
use tidegate_core::director_api::{
    LeaseCall, LeaseReply, LeaseToken, LeasedJob, ReleaseCall, UnlistedLease,
};
use tidegate_core::director_metrics::{LeaseRequestReply, LeasedRunEnd};
use tidegate_core::lease::Nonce;
use tidegate_core::leases::{HeldLease, JobRef};
use tidegate_core::port::{Admitted, WaitPolicy};
use tidegate_core::queue::Claim;
use tidegate_core::random;
use tidegate_service::{LeasedRun, OnRefused, RunOutcome, ServedVersion};
use tokio_util::sync::CancellationToken;

use crate::capacity::{ModelCapacity, Place};
use crate::claims::HeldClaim;
use crate::director::{DirectorError, Inner};
use crate::held_leases::{AbandonCause, LeaseGuard};
use crate::hooks::hooked;
use crate::job_ports::LeasedJobPorts;
use crate::live_events::EventPublisher;
use crate::version_loop::JobsOf;

/// How often a trained version is started for a job. If it cannot be loaded, the fault may be this machine's, or
/// the version was removed, which the API says about the next lease. But a message that is put back is taken
/// before all others, so it must not be put back for ever.
const MAX_STARTS: u32 = 3;
/// The pause before a job is given back that this machine cannot start.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A message that was taken, and where its job runs.
pub(crate) struct TakenMessage {
    pub(crate) claim: Claim,
    pub(crate) place: Place,
    pub(crate) capacity: Arc<ModelCapacity>,
    /// The version that runs the job, or whose code runs it.
    pub(crate) version: Arc<ServedVersion>,
    pub(crate) jobs_of: JobsOf,
}

/// How a leased job starts.
struct JobStart {
    version: Arc<ServedVersion>,
    admitted: Admitted,
    on_refused: OnRefused,
    /// The place of a job that has it until its end.
    place: Option<Place>,
}

impl Inner {
    /// Runs the job of a message to its end.
    pub(crate) async fn run_message(self: Arc<Self>, message: TakenMessage) {
        let TakenMessage {
            claim,
            place,
            capacity,
            version,
            jobs_of,
        } = message;
        let claim = self.claims.hold(claim);
        let entry = &claim.claim.entry;
        let job = JobRef {
            account: entry.account.clone(),
            id: entry.id.clone(),
        };
        let request = self.leases.request(Nonce(random::bits()));
        let reply = self.lease(job.clone(), request.nonce(), &claim).await;
        self.count_reply(reply.as_ref());
        match reply {
            Some(LeaseReply::Granted(leased)) => {
                let lease = HeldLease {
                    job,
                    fence: leased.fence,
                };
                let guard = self.leases.hold(lease, leased.spec.kind);
                drop(request);
                let start = match jobs_of {
                    JobsOf::Version => start_version(&leased, place, &capacity, version),
                    JobsOf::Trained => self.start_trained(&leased, place, &version).await,
                };
                match start {
                    Ok(start) => self.run_leased(*leased, guard, claim, start).await,
                    Err(reason) => {
                        tracing::warn!(job = %leased.spec.id, reason, "released job: the model does not accept it");
                        self.count_end(LeasedRunEnd::GivenBack);
                        self.give_back(guard.lease(), leased.token, claim).await;
                    }
                }
            }
            Some(LeaseReply::Over) => {
                drop(place);
                claim.ack().await;
            }
            // The message is left: the upkeep of the queue removes it when the job is over.
            Some(LeaseReply::HeldByAnother) => {
                tracing::debug!(job = %job.id, "left message: another director has the job");
            }
            Some(LeaseReply::Superseded) => self.fail(DirectorError::Superseded {
                name: self.holder.name.clone(),
            }),
            None => {}
        }
    }

    /// Serves the trained version of a job and admits the job. An error is a fault of this machine or of an
    /// old process of the API, so the job is left to others, after a pause.
    async fn start_trained(
        &self,
        leased: &LeasedJob,
        place: Place,
        source: &ServedVersion,
    ) -> Result<JobStart, String> {
        let served = match (&leased.trained, &self.trained) {
            (Some(trained), Some(models)) => models.serve(trained, source).await,
            (None, _) | (_, None) => Err("the lease has no trained version".to_owned()),
        };
        let version = match served {
            Ok(version) => version,
            Err(reason) => {
                tokio::time::sleep(RETRY_AFTER).await;
                return Err(reason);
            }
        };
        let executor = version.executor();
        let admitted = executor.admit(&Account::shared(), WaitPolicy::Unbounded);
        Ok(JobStart {
            version,
            admitted: admitted
                .unwrap_or_else(|refusal| Admitted::Queued(Box::pin(ready(Err(refusal))))),
            on_refused: if leased.fence.attempt < MAX_STARTS {
                OnRefused::Leave
            } else {
                OnRefused::Fail
            },
            place: Some(place),
        })
    }

    /// Asks for the lease until the API replies. If a reply is lost, the lease may be granted, so the same
    /// request is repeated for as long as it takes.
    async fn lease(&self, job: JobRef, nonce: Nonce, claim: &HeldClaim) -> Option<LeaseReply> {
        let call = LeaseCall {
            holder: self.holder.clone(),
            job,
            nonce,
        };
        loop {
            match self.api.lease(&call).await {
                Ok(reply) => return Some(reply),
                Err(error) if error.is_permanent() => {
                    tracing::error!(job = %call.job.id, error = %chain(&error), "failed to lease job");
                    return None;
                }
                Err(_) => {
                    if self.is_isolated() {
                        claim.stop_renewing();
                    }
                    tokio::time::sleep(self.api.pause()).await;
                }
            }
        }
    }

    async fn run_leased(
        self: &Arc<Self>,
        leased: LeasedJob,
        guard: LeaseGuard,
        claim: HeldClaim,
        start: JobStart,
    ) {
        let JobStart {
            version,
            admitted,
            on_refused,
            place,
        } = start;
        let LeasedJob {
            mut spec,
            fence,
            began_at,
            remaining_ms,
            token,
            trained: _,
        } = leased;
        // Only the API can sign the URL of a stream. It comes with the lease, if there is one.
        if let Some(hook) = &mut spec.hook {
            hook.streams = false;
        }
        let about = (&spec, fence.attempt, self.holder.name.as_str());
        let admitted = hooked(admitted, &self.hooks, about);
        let ports = Arc::new(LeasedJobPorts {
            api: Arc::clone(&self.api),
            lease: guard.lease(),
            token: token.clone(),
            metrics: Arc::clone(&self.metrics),
        });
        let (job, run) = version.jobs.run_leased(LeasedRun {
            spec,
            fence,
            began_at,
            remaining: remaining_ms.map(Duration::from_millis),
            admitted,
            on_refused,
            records: Arc::clone(&ports) as _,
            interim: Arc::clone(&ports) as _,
            uploads: Some(Arc::clone(&ports) as _),
            downloads: Some(Arc::clone(&ports) as _),
            versions: Some(ports),
            abandon: guard.abandoned().clone(),
        });
        let publisher = EventPublisher {
            api: Arc::clone(&self.api),
            job_ref: guard.lease().job,
            token: token.clone(),
            attempt: fence.attempt,
            job: Arc::clone(&job),
            service: version.jobs.clone(),
            metrics: Arc::clone(&self.metrics),
        };
        let is_over = CancellationToken::new();
        self.tasks.spawn(publisher.run(is_over.clone()));
        let outcome = run.await;
        drop(place);
        is_over.cancel();
        self.count_end(end_of(&outcome, guard.abandon_cause()));
        match outcome {
            RunOutcome::Committed => claim.ack().await,
            RunOutcome::ByAnother => {
                tracing::warn!(job = %job.id(), "dropped result: the lease of the job was lost");
            }
            RunOutcome::Left => match guard.abandon_cause() {
                Some(AbandonCause::Lost) => {
                    tracing::warn!(job = %job.id(), "stopped job: its lease was lost");
                }
                Some(AbandonCause::Isolated) => {
                    claim.stop_renewing();
                    self.release(guard.lease(), token).await;
                }
                Some(AbandonCause::Stopping) | None => {
                    self.give_back(guard.lease(), token, claim).await;
                }
            },
        }
    }

    fn count_reply(&self, reply: Option<&LeaseReply>) {
        let label = match reply {
            Some(LeaseReply::Granted(_)) => LeaseRequestReply::Granted,
            Some(LeaseReply::HeldByAnother) => LeaseRequestReply::HeldByAnother,
            Some(LeaseReply::Over) => LeaseRequestReply::Over,
            Some(LeaseReply::Superseded) => LeaseRequestReply::Superseded,
            None => LeaseRequestReply::Refused,
        };
        self.metrics.leases.of(label).inc();
    }

    fn count_end(&self, end: LeasedRunEnd) {
        self.metrics.runs.of(end).inc();
    }

    /// Lets another director run a job at once.
    async fn give_back(&self, lease: HeldLease, token: LeaseToken, claim: HeldClaim) {
        self.release(lease, token).await;
        claim.put_back().await;
    }

    /// Gives a lease back: the attempt does not count. Repeated until the API replies, because the lease
    /// lives as long as this director.
    async fn release(&self, lease: HeldLease, token: LeaseToken) {
        let call = ReleaseCall { lease, token };
        loop {
            match self.api.release(&call).await {
                Ok(()) => return,
                Err(error) if error.is_permanent() => {
                    tracing::warn!(job = %call.lease.job.id, error = %chain(&error), "failed to release job");
                    return;
                }
                Err(_) => tokio::time::sleep(self.api.pause()).await,
            }
        }
    }
}

impl Inner {
    /// Gives leases back that this director does not know: a request for a lease may arrive when the director
    /// has the reply to its repetition, and may have ended the run by then. If a call fails, the next
    /// heartbeat brings the lease again.
    pub(crate) fn release_unknown(self: &Arc<Self>, unlisted: Vec<UnlistedLease>) {
        for UnlistedLease { lease, token } in unlisted {
            if self.leases.knows(&lease) {
                continue;
            }
            let director = Arc::clone(self);
            self.tasks.spawn(async move {
                let call = ReleaseCall { lease, token };
                let (job, released) = (&call.lease.job.id, director.api.release(&call).await);
                match released {
                    Ok(()) => tracing::warn!(%job, "released a lease that was granted late"),
                    Err(error) => {
                        tracing::warn!(%job, error = %chain(&error), "failed to release a lease that was granted late, retrying");
                    }
                }
            });
        }
    }
}

/// Admits a job of the version itself.
fn start_version(
    leased: &LeasedJob,
    place: Place,
    capacity: &ModelCapacity,
    version: Arc<ServedVersion>,
) -> Result<JobStart, String> {
    if leased.trained.is_some() {
        return Err("the job is for a trained version".to_owned());
    }
    let admitted = capacity.admit(place);
    Ok(JobStart {
        version,
        admitted: admitted.map_err(|refusal| refusal.to_string())?,
        on_refused: OnRefused::Leave,
        place: None,
    })
}

/// The result of a run.
fn end_of(outcome: &RunOutcome, cause: Option<AbandonCause>) -> LeasedRunEnd {
    match (outcome, cause) {
        (RunOutcome::Committed, _) => LeasedRunEnd::Committed,
        (RunOutcome::ByAnother, _) => LeasedRunEnd::ByAnother,
        (RunOutcome::Left, Some(AbandonCause::Lost)) => LeasedRunEnd::Lost,
        (RunOutcome::Left, Some(AbandonCause::Isolated)) => LeasedRunEnd::Isolated,
        (RunOutcome::Left, Some(AbandonCause::Stopping) | None) => LeasedRunEnd::GivenBack,
    }
}
