//! Pulls jobs out of the line of a desk, as many as its executor has places for, and lets them run.
//!
//! A place first, then a job: what is not taken can be taken by another, or canceled. There is one director for
//! each desk that has ever had a job waiting.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use jiff::Timestamp;
use tidegate_core::port::{Admission, Admitted, BoxFuture, WaitPolicy};
use tidegate_core::queue::{Consumer, Priority, QueueEntry};
use tidegate_core::store::Store;
use tidegate_core::{Account, JobId, Refusal};

use crate::job::Job;
use crate::job_service::{Inner, JobService};
use crate::submit::PreparedJob;
use crate::waiting::claims::ClaimGuard;
use crate::waiting::input_memory::InputPlace;
use crate::waiting::waiting_jobs::WaitingJob;

/// The pause after the executor had no place for anybody.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How often is said that what is in hand is still worked on.
const RENEW_EVERY: Duration = Duration::from_secs(2);

/// A place to run, as soon as there is one.
type Place = BoxFuture<Result<Box<dyn Admission>, Refusal>>;

impl JobService {
    /// Leaves a job in the line of this desk. It is known and written down already.
    pub(crate) async fn enqueue(
        &self,
        prepared: PreparedJob,
        place: InputPlace,
        kept: Option<(Arc<dyn Store>, u32)>,
    ) {
        let priority = Priority::from_context(&prepared.context);
        let waiting = WaitingJob::new(self.clone(), prepared, place, kept);
        let job = Arc::clone(waiting.job());
        let entry = QueueEntry {
            account: job.account().clone(),
            id: job.id().clone(),
            priority,
            deadline: job.deadline(),
        };
        if job.input().is_none() {
            // Before anybody can take it, who shows it with its input again.
            self.inner.registry.show(&job);
        }
        self.inner.waiting_jobs.insert(waiting);
        if let Err(error) = self.inner.deps.queue.push(&self.inner.line, entry).await {
            tracing::error!(job = %job.id(), %error, "a job is written down and cannot be put in its line; the next server finds it");
        }
        if job.cancel_token().is_cancelled() {
            // Somebody asked before it could be found here.
            self.wake(&job);
        }
        // After it is parked, so that a director that is about to leave sees the one or is replaced by the other.
        if !self.inner.has_director.swap(true, Ordering::SeqCst) {
            self.inner.tasks.spawn(direct(self.clone()));
        }
    }

    /// Lets a job that waits in a line see that it must not wait any longer: it was canceled, or its deadline has come.
    pub(crate) fn wake(&self, job: &Arc<Job>) {
        let Some(waiting) = self.inner.waiting_jobs.take_exact(job) else {
            return;
        };
        let service = waiting.service.clone();
        service.inner.tasks.clone().spawn(async move {
            service.remove(waiting.job()).await;
            waiting
                .run(
                    None,
                    Admitted::Queued(Box::pin(std::future::pending())),
                    None,
                )
                .await;
        });
    }

    /// Somebody has a job already, from a server before this one: it does not wait any longer. `seat` is told when
    /// it was begun, as far as that is known. Nothing happens to one that does not wait here.
    pub fn hand_over(
        &self,
        id: &JobId,
        seat: impl FnOnce(Option<Timestamp>) -> Box<dyn Admission>,
    ) {
        let Some(waiting) = self
            .inner
            .waiting_jobs
            .take_from_previous_run(&self.inner.line, id)
        else {
            return;
        };
        let began_at = waiting
            .previous_run()
            .and_then(|previous_run| previous_run.began_at);
        let (service, admission) = (waiting.service.clone(), seat(began_at));
        service.inner.tasks.clone().spawn(async move {
            service.remove(waiting.job()).await;
            waiting.run(None, Admitted::Now(admission), began_at).await;
        });
    }

    /// Takes the entry of a job out of the line.
    async fn remove(&self, job: &Job) {
        if let Err(error) = self
            .inner
            .deps
            .queue
            .remove(&self.inner.line, job.account(), job.id())
            .await
        {
            tracing::warn!(job = %job.id(), %error, "a job that does not wait any longer stays in its line");
        }
        self.inner.wake_director.notify_one();
    }

    fn start(&self, waiting: WaitingJob, admitted: Admitted, claim: ClaimGuard) {
        self.inner
            .tasks
            .spawn(waiting.run(Some(claim), admitted, None));
    }

    /// Whether those who wait are left to the next server.
    fn leaves_them(&self) -> bool {
        self.inner.closing.is_cancelled() && self.inner.deps.store.is_some()
    }

    /// Ends those who wait and are known to this process only.
    fn send_unwritten_away(&self) {
        for job in self.inner.waiting_jobs.unrecorded(&self.inner.line) {
            job.cancel();
            self.wake(&job);
        }
    }

    /// Whether the director has nothing left to do. Whoever comes after that brings another one.
    fn may_leave(&self, leaves_them: bool) -> bool {
        let Inner {
            claims,
            waiting_jobs,
            line,
            has_director,
            ..
        } = &*self.inner;
        let is_over = || claims.of(line).is_empty() && (leaves_them || waiting_jobs.is_empty(line));
        if !is_over() {
            return false;
        }
        has_director.store(false, Ordering::SeqCst);
        // Somebody may have come since; if nobody else takes care of them, this one goes on.
        is_over() || has_director.swap(true, Ordering::SeqCst)
    }

    /// A place at the version that the jobs were accepted for, or at the one that came after it if it takes nobody.
    fn place(&self) -> Place {
        let Inner {
            deps, succession, ..
        } = &*self.inner;
        // Those who wait in the line together take turns with each who waits at the model itself.
        let together = Account::shared();
        let own = deps.executor.admit(&together, WaitPolicy::Unbounded);
        let admitted = own.or_else(|refusal| match succession.executor(&deps.executor) {
            Some(next) if !Arc::ptr_eq(&next, &deps.executor) => {
                next.admit(&together, WaitPolicy::Unbounded)
            }
            Some(_) | None => Err(refusal),
        });
        match admitted {
            Ok(Admitted::Now(admission)) => Box::pin(std::future::ready(Ok(admission))),
            Ok(Admitted::Queued(place)) => place,
            Err(refusal) => Box::pin(async move {
                tokio::time::sleep(ASK_AGAIN).await;
                Err(refusal)
            }),
        }
    }

    /// Gives a place to the next of the line.
    async fn seat(&self, consumer: &Consumer, admitted: Result<Box<dyn Admission>, Refusal>) {
        let admission = match admitted {
            Ok(admission) => admission,
            Err(refusal) => return self.without_places(consumer, &refusal).await,
        };
        if let Some((waiting, claim)) = self.next_in_line(consumer).await {
            self.start(waiting, Admitted::Now(admission), claim);
        }
    }

    /// There are no places. Those who wait go on waiting, unless there never will be one.
    async fn without_places(&self, consumer: &Consumer, refusal: &Refusal) {
        let gone = self
            .inner
            .succession
            .executor(&self.inner.deps.executor)
            .is_none();
        if !gone && self.inner.deps.store.is_some() {
            return;
        }
        while let Some((waiting, claim)) = self.next_in_line(consumer).await {
            self.start(
                waiting,
                Admitted::Queued(Box::pin(std::future::ready(Err(refusal.clone())))),
                claim,
            );
        }
    }

    async fn next_in_line(&self, consumer: &Consumer) -> Option<(WaitingJob, ClaimGuard)> {
        let queue = &self.inner.deps.queue;
        loop {
            let claim = match queue.take(&self.inner.line, consumer, Duration::ZERO).await {
                Ok(claim) => claim?,
                Err(error) => {
                    tracing::error!(line = %self.inner.line, %error, "the next job cannot be taken");
                    return None;
                }
            };
            let waiting = self
                .inner
                .waiting_jobs
                .take(&claim.entry.account, &claim.entry.id);
            let claim = self.inner.claims.guard(
                Arc::clone(queue),
                claim,
                Arc::clone(&self.inner.wake_director),
            );
            match waiting {
                Some(waiting) => return Some((waiting, claim)),
                // It was over before its turn, or its end is being written.
                None => claim.ack().await,
            }
        }
    }
}

/// Pulls until the desk gets no more jobs and has none.
async fn direct(service: JobService) {
    let inner = &*service.inner;
    let (queue, consumer) = (&*inner.deps.queue, Consumer::new("here"));
    let mut places: FuturesUnordered<Place> = FuturesUnordered::new();
    let mut renews = tokio::time::interval(RENEW_EVERY);
    loop {
        let leaves = service.leaves_them();
        if leaves {
            places.clear();
            service.send_unwritten_away();
        }
        if (leaves || inner.leaving.is_cancelled()) && service.may_leave(leaves) {
            return;
        }
        let (asked, max_pending) = (places.len(), inner.deps.executor.max_pending());
        let mut closing = pin!(inner.closing.cancelled());
        let mut leaving = pin!(inner.leaving.cancelled());
        tokio::select! {
            biased;
            Some(admitted) = places.next() => service.seat(&consumer, admitted).await,
            waiting = queue.waits(&inner.line, asked), if !leaves && asked < max_pending => match waiting {
                Ok(waiting) => places.extend((asked..waiting.min(max_pending)).map(|_| service.place())),
                Err(error) => {
                    tracing::error!(line = %inner.line, %error, "it cannot be seen who waits");
                    tokio::time::sleep(ASK_AGAIN).await;
                }
            },
            _ = renews.tick() => {
                if let Err(error) = queue.renew(&inner.claims.of(&inner.line)).await {
                    tracing::warn!(line = %inner.line, %error, "what is worked on could not be renewed");
                }
            }
            () = inner.wake_director.notified() => {}
            () = &mut closing, if !inner.closing.is_cancelled() => {}
            () = &mut leaving, if !inner.leaving.is_cancelled() => {}
        }
    }
}
