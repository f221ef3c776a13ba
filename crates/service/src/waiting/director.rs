//! Takes jobs from the queue of a model, as many as its executor has capacity for, and runs them.
//!
//! Capacity first, then a job: a job that is not taken can still be canceled, or taken by another
//! consumer. Each service that has ever had a waiting job has one director task.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use jiff::Timestamp;
use tidegate_core::port::{Admission, Admitted, BoxFuture, WaitPolicy};
use tidegate_core::queue::{QueueEntry, QueueError, TakeOptions};
use tidegate_core::store::Store;
use tidegate_core::{Account, JobId, Refusal, chain};

use super::claims::ClaimGuard;
use super::entries::entry_of_job;
use super::input_memory::InputLocation;
use super::stored_job::StoredJob;
use super::waiting_jobs::{JobKey, ResidentJob, TakenJob, key_of};
use crate::job::Job;
use crate::job_service::{JobService, PerModel};
use crate::submit::PreparedJob;

/// The pause after the executor refused an admission, or the queue could not be read.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long a client waits for the queue. Pushing can be repeated, so it goes on in the background.
const PUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// How often claims are renewed.
const RENEW_INTERVAL: Duration = Duration::from_secs(2);

/// An admission that becomes available later.
type PendingAdmission = BoxFuture<Result<Box<dyn Admission>, Refusal>>;

impl JobService {
    /// Puts a job in the queue of this model. The job is registered and recorded already.
    pub(crate) async fn enqueue(
        &self,
        prepared: PreparedJob,
        location: InputLocation,
        recorded: Option<(Arc<dyn Store>, u32)>,
    ) {
        let job = Arc::clone(&prepared.job);
        let entry = entry_of_job(&prepared);
        let shared = self.shared();
        let insert = || match location {
            InputLocation::Store if recorded.is_some() => {
                let stored = StoredJob::of_prepared(&prepared);
                let jobs = &shared.waiting_jobs;
                jobs.insert_stored(self, key_of(&job), stored, Some(&job))
            }
            location => {
                let resident = ResidentJob {
                    prepared,
                    location,
                    recorded,
                };
                shared.waiting_jobs.insert_resident(self.clone(), resident);
                true
            }
        };
        if let Some(entry) = shared.loading.add(self, entry, insert) {
            self.push_entry(entry).await;
        }
        if job.cancel_token().is_cancelled() {
            // It was canceled before it could be found among the waiting jobs.
            self.wake(&job);
        }
    }

    /// Adds the entry of a waiting job to the queue of this model.
    pub(crate) async fn push_entry(&self, entry: QueueEntry) {
        let queue = &self.shared().deps.queue;
        let pushed = queue.push(&self.model.queue_name, entry.clone());
        let pushed = tokio::time::timeout(PUSH_TIMEOUT, pushed).await;
        let pushed = pushed.unwrap_or_else(|_| Err(QueueError("it does not answer".to_owned())));
        if let Err(error) = pushed {
            tracing::error!(job = %entry.id, %error, "failed to enqueue job, retrying");
            self.model.tasks.spawn(push_later(self.clone(), entry));
        }
        // After the insert, so that a director that is about to exit either sees the job or is replaced.
        if !self.model.has_director.swap(true, Ordering::SeqCst) {
            self.model.tasks.spawn(direct(self.clone()));
        }
    }

    /// Ends the wait of a job that was canceled or whose deadline has passed.
    pub(crate) fn wake(&self, job: &Arc<Job>) {
        if let Some(taken) = self.shared().waiting_jobs.take_exact(job) {
            end_wait(taken);
        }
    }

    /// Ends the wait of the job with this id, if it waits.
    pub(crate) fn wake_by_id(&self, account: &Account, id: &JobId) {
        if let Some(taken) = self.shared().waiting_jobs.take(account, id) {
            end_wait(taken);
        }
    }

    /// Runs a job that a remote worker has since a previous server process: it no longer waits.
    /// `admission` gets the time at which the job began, as far as that is recorded. Has no effect on a
    /// job that does not wait here. Returns whether the job waited.
    pub fn hand_over(
        &self,
        id: &JobId,
        admission: impl FnOnce(Option<Timestamp>) -> Box<dyn Admission>,
    ) -> bool {
        let waiting_jobs = &self.shared().waiting_jobs;
        let Some(taken) = waiting_jobs.take_from_previous_run(&self.model.queue_name, id) else {
            return false;
        };
        let began_at = taken.began_at;
        let (service, admission) = (taken.service.clone(), admission(began_at));
        service.model.tasks.clone().spawn(async move {
            service.remove_from_queue(&taken.key).await;
            taken.run(None, Admitted::Now(admission), began_at).await;
        });
        true
    }

    async fn remove_from_queue(&self, (account, id): &JobKey) {
        let queue = &self.shared().deps.queue;
        let removed = queue.remove(&self.model.queue_name, account, id).await;
        if let Err(error) = removed {
            tracing::warn!(job = %id, %error, "failed to remove job from queue");
        }
        self.model.wake_director.notify_one();
    }

    fn start(&self, taken: TakenJob, admitted: Admitted, claim: ClaimGuard) {
        let run = taken.run(Some(claim), admitted, None);
        self.model.tasks.spawn(run);
    }

    /// Whether waiting jobs are left to the next server process.
    fn leaves_waiting_jobs(&self) -> bool {
        self.shared().closing.is_cancelled() && self.store().is_some()
    }

    /// Cancels the waiting jobs that exist in this process only.
    fn cancel_unrecorded(&self) {
        for job in self
            .shared()
            .waiting_jobs
            .unrecorded(&self.model.queue_name)
        {
            job.cancel();
            self.wake(&job);
        }
    }

    /// Whether the director has nothing left to do. A job enqueued after that starts another director.
    fn may_exit(&self, leaves_waiting_jobs: bool) -> bool {
        let PerModel {
            shared,
            queue_name,
            has_director,
            ..
        } = &*self.model;
        let is_idle = || {
            shared.claims.of(queue_name).is_empty()
                && (leaves_waiting_jobs || shared.waiting_jobs.is_empty(queue_name))
        };
        if !is_idle() {
            return false;
        }
        has_director.store(false, Ordering::SeqCst);
        // A job may have been enqueued since; if no new director was started for it, this one goes on.
        is_idle() || has_director.swap(true, Ordering::SeqCst)
    }

    /// An admission at the version that the jobs were accepted for, or at its successor if that version
    /// takes no jobs.
    fn admission(&self) -> PendingAdmission {
        let PerModel {
            executor,
            succession,
            ..
        } = &*self.model;
        // All jobs of this queue together take turns with each account that waits at the model itself.
        let account = Account::shared();
        let own = executor.admit(&account, WaitPolicy::Unbounded);
        let admitted = own.or_else(|refusal| match succession.executor(executor) {
            Some(next) if !Arc::ptr_eq(&next, executor) => {
                next.admit(&account, WaitPolicy::Unbounded)
            }
            Some(_) | None => Err(refusal),
        });
        match admitted {
            Ok(Admitted::Now(admission)) => Box::pin(std::future::ready(Ok(admission))),
            Ok(Admitted::Queued(pending)) => pending,
            Err(refusal) => Box::pin(async move {
                tokio::time::sleep(RETRY_AFTER).await;
                Err(refusal)
            }),
        }
    }

    /// Starts the next job of the queue with this admission.
    async fn start_next(&self, admission: Result<Box<dyn Admission>, Refusal>) {
        let admission = match admission {
            Ok(admission) => admission,
            Err(refusal) => return self.fail_if_retired(&refusal).await,
        };
        if let Some((waiting, claim)) = self.take_next().await {
            self.start(waiting, Admitted::Now(admission), claim);
        }
    }

    /// The executor admits nothing. Recorded jobs go on waiting, unless the model is no longer served.
    async fn fail_if_retired(&self, refusal: &Refusal) {
        let is_retired = self
            .model
            .succession
            .executor(&self.model.executor)
            .is_none();
        if !is_retired && self.store().is_some() {
            return;
        }
        while let Some((waiting, claim)) = self.take_next().await {
            let refused = std::future::ready(Err(refusal.clone()));
            self.start(waiting, Admitted::Queued(Box::pin(refused)), claim);
        }
    }

    async fn take_next(&self) -> Option<(TakenJob, ClaimGuard)> {
        let PerModel {
            shared,
            queue_name,
            wake_director,
            ..
        } = &*self.model;
        let queue = &shared.deps.queue;
        loop {
            let options = TakeOptions::within(Duration::ZERO);
            let claim = match queue.take(queue_name, options).await {
                Ok(claim) => claim?,
                Err(error) => {
                    tracing::error!(queue = %queue_name, %error, "failed to take next job");
                    return None;
                }
            };
            let (account, id) = (&claim.entry.account, &claim.entry.id);
            let waiting = shared.waiting_jobs.take(account, id);
            let claim = shared
                .claims
                .guard(Arc::clone(queue), claim, Arc::clone(wake_director));
            match waiting {
                Some(waiting) => return Some((waiting, claim)),
                // The job ended before it started, or its end is being committed.
                None if !queue.is_shared() => claim.ack().await,
                None => match self.adopt(claim).await {
                    Ok(Some(adopted)) => return Some(adopted),
                    Ok(None) => {}
                    Err(error) => {
                        tracing::error!(queue = %queue_name, error = %chain(&error), "failed to read the job of a queue entry, retrying");
                        tokio::time::sleep(RETRY_AFTER).await;
                        return None;
                    }
                },
            }
        }
    }
}

/// Pushes an entry that the queue did not take, until it does or the server shuts down. The next server
/// process finds the jobs of the store.
async fn push_later(service: JobService, entry: QueueEntry) {
    let shared = service.shared();
    let key = (entry.account.clone(), entry.id.clone());
    loop {
        let pause = tokio::time::sleep(RETRY_AFTER);
        let is_open = shared.closing.run_until_cancelled(pause).await.is_some();
        if !is_open || !shared.waiting_jobs.has(&key) {
            return;
        }
        let pushed = shared
            .deps
            .queue
            .push(&service.model.queue_name, entry.clone());
        if pushed.await.is_ok() {
            tracing::info!(job = %entry.id, "enqueued job after retries");
            return;
        }
    }
}

/// Ends a job that no longer waits, because it was canceled or its deadline has passed.
fn end_wait(taken: TakenJob) {
    let service = taken.service.clone();
    service.model.tasks.clone().spawn(async move {
        service.remove_from_queue(&taken.key).await;
        let never = Admitted::Queued(Box::pin(std::future::pending()));
        taken.run(None, never, None).await;
    });
}

/// Takes jobs until the service is retired and has no jobs.
async fn direct(service: JobService) {
    let PerModel {
        shared,
        executor,
        queue_name,
        wake_director,
        retired,
        ..
    } = &*service.model;
    let queue = &*shared.deps.queue;
    let mut admissions: FuturesUnordered<PendingAdmission> = FuturesUnordered::new();
    let mut renewals = tokio::time::interval(RENEW_INTERVAL);
    loop {
        let leaves = service.leaves_waiting_jobs();
        if leaves {
            admissions.clear();
            service.cancel_unrecorded();
        }
        if (leaves || retired.is_cancelled()) && service.may_exit(leaves) {
            return;
        }
        let (pending, max_pending) = (admissions.len(), executor.max_pending());
        let mut closing_now = pin!(shared.closing.cancelled());
        let mut retired_now = pin!(retired.cancelled());
        tokio::select! {
            biased;
            Some(admission) = admissions.next() => service.start_next(admission).await,
            waiting = queue.wait_for_more_than(queue_name, pending), if !leaves && pending < max_pending => match waiting {
                Ok(waiting) => {
                    let wanted = pending..waiting.min(max_pending);
                    admissions.extend(wanted.map(|_| service.admission()));
                }
                Err(error) => {
                    tracing::error!(queue = %queue_name, %error, "failed to read queue");
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            },
            _ = renewals.tick() => {
                match queue.renew(&shared.claims.of(queue_name)).await {
                    // The lease of the job decides who may end it, not the claim.
                    Ok(lost) => lost.iter().for_each(|claim| {
                        tracing::debug!(queue = %queue_name, job = %claim.entry.id, "lost the claim of a running job");
                    }),
                    Err(error) => tracing::warn!(queue = %queue_name, %error, "failed to renew claims"),
                }
            }
            () = wake_director.notified() => {}
            () = &mut closing_now, if !shared.closing.is_cancelled() => {}
            () = &mut retired_now, if !retired.is_cancelled() => {}
        }
    }
}
