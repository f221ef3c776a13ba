//! Taking a job in: look whether it is known, check it, give it a place, write it down, let it run.

mod submission;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tidegate_core::health::Health;
use tidegate_core::planted::{Planted, planted, planted_now_and_then};
use tidegate_core::port::{Admitted, BoxFuture, WaitPolicy};
use tidegate_core::record::{Api, JobSpec};
use tidegate_core::store::{Inserted, Store, StoreError};
use tidegate_core::{JobId, JobKind, Refusal, Work, chain};

use crate::audit;
use crate::input::{Checked, ModelSchema};
use crate::job::{Job, NewJob, now};
use crate::job_service::{Inner, JobService};
use crate::random;
use crate::run::deadlines::Deadlines;
use crate::run::recorder::{BeginWrite, Caller, JobRecorder};
use crate::run::tracker::Tracker;
use crate::run_blocking::run_blocking_if_large;
use crate::waiting::claims::ClaimGuard;
use crate::waiting::input_memory::InputPlace;
use crate::waiting::waiting_jobs::FromPreviousRun;
use crate::webhook::{Webhook, WebhookSender};
pub use submission::{OnDuplicateId, ResponseMode, Submission, Submitted, Ticket};
use tokio::sync::oneshot;

/// How many jobs of one account may wait for a model: what is not their inputs is held in memory.
const MAX_WAITING: usize = 1_000_000;

impl JobService {
    /// Takes a job in, shows the one that is meant, or refuses. One that somebody may come back for is
    /// written down first; for the others nothing here waits.
    pub async fn submit(&self, submission: Submission) -> Result<Submitted, Refusal> {
        let api = submission.api;
        match self.accept_or_reject(submission).await {
            Ok(Submitted::Running(job)) => Ok(Submitted::Running(self.with_input(job).await)),
            Ok(submitted) => Ok(submitted),
            Err(refusal) => {
                self.inner.metrics.refused(api, &refusal);
                Err(refusal)
            }
        }
    }

    async fn accept_or_reject(&self, submission: Submission) -> Result<Submitted, Refusal> {
        match &self.inner.deps.store {
            Some(store) if submission.is_recorded() && !planted(Planted::UnwrittenJob) => {
                // A task of its own: a caller that leaves while it is written down must not leave a job
                // behind that is known and never run.
                let (jobs, store) = (self.clone(), Arc::clone(store));
                let submitting = self
                    .inner
                    .tasks
                    .spawn(async move { jobs.submit_recorded(store, submission).await });
                submitting.await.unwrap_or(Err(Refusal::StoreUnavailable))
            }
            Some(_) | None => {
                // Until the job has its own place among the tasks, closing waits for this call.
                let _counted = self.inner.tasks.token();
                match self.prepare(submission)? {
                    Preparation::Known(submitted) => Ok(submitted),
                    Preparation::New(prepared, place) => {
                        Ok(self.accept(prepared, place, None).await)
                    }
                }
            }
        }
    }

    async fn submit_recorded(
        &self,
        store: Arc<dyn Store>,
        submission: Submission,
    ) -> Result<Submitted, Refusal> {
        let _counted = self.inner.tasks.token();
        if let Some(id) = submission
            .id
            .as_ref()
            .filter(|_| submission.replay == OnDuplicateId::Answer)
            && self.inner.registry.get(&submission.account, id).is_none()
            && let Some(record) = store
                .get(&submission.account, id)
                .await
                .map_err(store_refusal)?
        {
            return self.replay(Arc::new(Job::restored(record)), &submission);
        }
        let (replay, api, named) = (submission.replay, submission.api, submission.id.is_some());
        let (prepared, place) = match self.prepare(submission)? {
            Preparation::Known(submitted) => return Ok(submitted),
            Preparation::New(prepared, place) => (prepared, place),
        };
        let spec = self.spec(&prepared, api);
        let place = match place {
            Placement::Admitted(admitted @ Admitted::Now(_))
                if !named && self.may_begin_before_insert(&prepared) =>
            {
                return self
                    .begin_during_insert(store, prepared, admitted, spec)
                    .await;
            }
            place => place,
        };
        // A new request may take the id of one that is over.
        let inserted = match replay {
            OnDuplicateId::Answer => store.insert(spec).await,
            OnDuplicateId::Refuse => store.replace(spec).await,
        };
        match inserted {
            Ok(Inserted::New) => {}
            Ok(Inserted::Known(record)) => {
                self.inner.registry.forget(&prepared.job);
                let known = Arc::new(Job::restored(*record));
                return match replay {
                    OnDuplicateId::Answer => replay_known(known, &prepared.checked.json),
                    OnDuplicateId::Refuse => Err(Refusal::IdInUse(known.id().clone())),
                };
            }
            Err(error) => {
                self.inner.registry.forget(&prepared.job);
                return Err(store_refusal(error));
            }
        }
        self.inner
            .last_insert_failed
            .store(false, Ordering::Relaxed);
        Ok(self.accept(prepared, place, Some((store, 0))).await)
    }

    /// Whether the model may begin with a job that is not written down yet. Nobody knows of the job before it is: if
    /// the server dies first, it was never accepted. One that must not run twice waits; and all do while the store
    /// takes nothing, or the model would work for nobody.
    fn may_begin_before_insert(&self, prepared: &PreparedJob) -> bool {
        let keeps = !self.inner.last_insert_failed.load(Ordering::Relaxed);
        // Files would be fetched from somebody who was not to be called yet.
        let alone = prepared.checked.files.is_empty();
        keeps
            && alone
            && prepared.delivery == ResponseMode::Async
            && self.inner.begin_write() == BeginWrite::Deferred
    }

    /// Lets a job begin while it is written down: the disk is slower than the model's first step. Until it is
    /// written, nothing that it does is told to anybody.
    async fn begin_during_insert(
        &self,
        store: Arc<dyn Store>,
        prepared: PreparedJob,
        admitted: Admitted,
        spec: JobSpec,
    ) -> Result<Submitted, Refusal> {
        let job = Arc::clone(&prepared.job);
        let (tell, written) = oneshot::channel();
        let mut tracker = self.tracker(prepared, Some((Arc::clone(&store), 0)), None);
        tracker.written = Some(written);
        self.inner.tasks.spawn(tracker.run(admitted));
        match store.insert(spec).await {
            Ok(Inserted::New) => {}
            // Its id was made a moment ago.
            Ok(Inserted::Known(_)) => return Err(Refusal::IdInUse(job.id().clone())),
            Err(error) => {
                self.inner.last_insert_failed.store(true, Ordering::Relaxed);
                return Err(store_refusal(error));
            }
        }
        audit::created(&job);
        self.inner.metrics.accepted(job.api(), job.kind());
        // A tracker that is gone has nothing to hear.
        tell.send(()).ok();
        Ok(Submitted::New(Ticket {
            job,
            tracker: None,
            tasks: self.inner.tasks.clone(),
            cancel_on_drop: false,
            reader: None,
        }))
    }

    /// Everything up to the point where the job begins to exist for others.
    fn prepare(&self, submission: Submission) -> Result<Preparation, Refusal> {
        let inner = &*self.inner;
        if let Some(known) = submission
            .id
            .as_ref()
            .filter(|_| submission.replay == OnDuplicateId::Answer)
            .and_then(|id| inner.registry.get(&submission.account, id))
        {
            return self.replay(known, &submission).map(Preparation::Known);
        }
        let schema = match submission.api {
            // It is refused until the model is loaded, and its input is of no interest until then.
            Api::Cog => self.schema(),
            Api::Replicate | Api::Runpod => self.description(),
        };
        if submission.delivery == ResponseMode::Stream
            && !schema.as_ref().is_some_and(|schema| schema.streaming)
        {
            return Err(Refusal::NotStreaming);
        }
        if schema.is_none() && submission.api != Api::Cog {
            match inner.deps.executor.report().health {
                // Workers elsewhere say nothing about what they take.
                Health::Ready | Health::Busy => {}
                // It would wait in the line until the model is ready, and nobody would have looked at it.
                health @ (Health::Unknown
                | Health::Starting
                | Health::SetupFailed
                | Health::Defunct) => {
                    return Err(Refusal::NotReady { health });
                }
            }
        }
        let checked = self.check(schema.as_deref(), &submission)?;
        if inner.closing.is_cancelled() {
            return Err(Refusal::Closing);
        }
        inner.deps.room_for(&checked)?;
        let place = match submission.api {
            Api::Cog => Placement::Admitted(
                inner
                    .deps
                    .executor
                    .admit(&submission.account, WaitPolicy::Bounded)?,
            ),
            // Whoever comes by an API of a queue expects one.
            Api::Replicate | Api::Runpod => self.placement_in_queue(&submission, &checked)?,
        };
        if planted(Planted::LeakedDescriptor) {
            std::mem::forget(std::fs::File::open("/dev/null"));
        }
        let history = schema
            .filter(|schema| schema.streaming)
            .map(|_| inner.stream_history);
        let deadline = submission
            .deadline
            .and_then(|after| tokio::time::Instant::now().checked_add(after));
        let created_at = now();
        let job = Arc::new(Job::new(NewJob {
            account: submission.account,
            id: submission.id.unwrap_or_else(|| {
                JobId::from_random(
                    random::bits()
                        & if planted(Planted::RepeatedId) {
                            0xff
                        } else {
                            u128::MAX
                        },
                )
            }),
            kind: submission.kind,
            api: submission.api,
            target: inner.target_of(submission.deployment),
            created_at,
            deadline: submission
                .deadline
                .and_then(|after| created_at.checked_add(after).ok()),
            hook: submission
                .webhook
                .as_ref()
                .map(|webhook| Arc::new(webhook.to_hook())),
            input: checked.json.clone(),
            secrets: checked.secrets.clone(),
            for_readers: submission.delivery == ResponseMode::Stream,
            history,
            max_output: inner.max_output,
        }));
        if let Err(known) = inner.registry.insert(Arc::clone(&job), submission.replay) {
            // Dropping the place gives the slot back.
            return match submission.replay {
                OnDuplicateId::Answer => replay_known(known, &checked.json).map(Preparation::Known),
                OnDuplicateId::Refuse => Err(Refusal::IdInUse(known.id().clone())),
            };
        }
        let Submission {
            context,
            webhook,
            delivery,
            destination,
            ..
        } = submission;
        Ok(Preparation::New(
            PreparedJob {
                job,
                checked,
                context,
                destination,
                webhook,
                delivery,
                deadline,
                previous_run: None,
            },
            place,
        ))
    }

    /// A slot if one is free and nobody waits for it; else a place in the line of the model.
    fn placement_in_queue(
        &self,
        submission: &Submission,
        checked: &Checked,
    ) -> Result<Placement, Refusal> {
        let Inner {
            deps,
            waiting_jobs,
            line,
            ..
        } = &*self.inner;
        let account = &submission.account;
        if waiting_jobs.is_empty(line)
            && let Ok(now @ Admitted::Now(_)) = deps.executor.admit(account, WaitPolicy::NoWait)
        {
            return Ok(Placement::Admitted(now));
        }
        deps.executor.accepts()?;
        if waiting_jobs.count(line, account) >= MAX_WAITING {
            return Err(Refusal::AtCapacity);
        }
        if deps.store.is_some() && submission.delivery == ResponseMode::Async {
            return Ok(Placement::Queue(
                waiting_jobs.memory.reserve_recorded(checked.weight()),
            ));
        }
        waiting_jobs
            .memory
            .reserve_unrecorded(checked.weight())
            .map(Placement::Queue)
            .ok_or(Refusal::AtCapacity)
    }

    /// Lets a job run, now or when its turn comes.
    async fn accept(
        &self,
        prepared: PreparedJob,
        place: Placement,
        kept: Option<(Arc<dyn Store>, u32)>,
    ) -> Submitted {
        let inner = &*self.inner;
        let (job, delivery) = (Arc::clone(&prepared.job), prepared.delivery);
        audit::created(&job);
        inner.metrics.accepted(job.api(), job.kind());
        // Before the tracker runs, so that nothing is missed.
        let reader = if delivery == ResponseMode::Stream {
            job.follow().ok()
        } else {
            None
        };
        let waits = delivery == ResponseMode::Wait;
        let mut tracker: Option<BoxFuture<()>> = None;
        match place {
            _ if planted_now_and_then(Planted::ForgottenJob) && !waits => {}
            Placement::Queue(place) => self.enqueue(prepared, place, kept).await,
            Placement::Admitted(admitted) => {
                let run = self.tracker(prepared, kept, None).run(admitted);
                if waits {
                    tracker = Some(Box::pin(inner.tasks.track_future(run)));
                } else {
                    inner.tasks.spawn(run);
                }
            }
        }
        Submitted::New(Ticket {
            job,
            tracker,
            tasks: inner.tasks.clone(),
            cancel_on_drop: waits,
            reader,
        })
    }

    /// The task of a job. `claim` is its entry, if it stood in a line.
    pub(crate) fn tracker(
        &self,
        prepared: PreparedJob,
        kept: Option<(Arc<dyn Store>, u32)>,
        claim: Option<ClaimGuard>,
    ) -> Tracker {
        let inner = &*self.inner;
        let PreparedJob {
            job,
            checked,
            context,
            destination,
            webhook,
            delivery,
            deadline,
            previous_run: _,
        } = prepared;
        let waits = if delivery == ResponseMode::Async {
            Caller::Detached
        } else {
            Caller::Waiting
        };
        let kept = kept.map(|(store, attempt)| {
            Box::new(JobRecorder::new(
                store,
                webhook.as_ref(),
                attempt,
                inner.begin_write(),
                waits,
                inner.closing.clone(),
            ))
        });
        Tracker {
            work: Work {
                id: job.id().clone(),
                kind: job.kind(),
                input: checked.json,
                files: BTreeMap::new(),
                context,
                scratch: (inner.deps.scratch)(),
            },
            addresses: checked.files,
            destination,
            hook: webhook
                .map(|webhook| WebhookSender::spawn(&inner.senders, webhook, Arc::clone(&job))),
            deps: Arc::clone(&inner.deps),
            maker: Arc::clone(&inner.maker),
            succession: inner.succession.clone(),
            registry: Arc::clone(&inner.registry),
            metrics: Arc::clone(&inner.metrics),
            recorder: kept,
            deadlines: Deadlines {
                at: deadline,
                run: inner.job_timeout,
            },
            scratch_used: false,
            written: None,
            began_at: None,
            claim,
            job,
        }
    }

    /// What is written down about a new job.
    fn spec(&self, prepared: &PreparedJob, api: Api) -> JobSpec {
        let job = &prepared.job;
        JobSpec {
            id: job.id().clone(),
            account: job.account().clone(),
            kind: job.kind(),
            target: job.target().clone(),
            input: prepared.checked.json.clone(),
            files: prepared
                .checked
                .files
                .iter()
                .map(|(pointer, _)| pointer.clone())
                .collect(),
            secrets: prepared.checked.secrets.clone(),
            context: prepared.context.clone(),
            destination: prepared.destination.clone(),
            hook: job.hook().cloned(),
            api,
            deadline: job.deadline(),
            created_at: job.created_at(),
        }
    }

    fn replay(&self, known: Arc<Job>, submission: &Submission) -> Result<Submitted, Refusal> {
        if !known.status().is_terminal() {
            return Ok(Submitted::Running(known));
        }
        let checked = self.check(self.schema().as_deref(), submission)?;
        replay_known(known, &checked.json)
    }

    fn check(
        &self,
        schema: Option<&ModelSchema>,
        submission: &Submission,
    ) -> Result<Checked, Refusal> {
        // Before the model is loaded nothing can be checked; it will be refused as not ready.
        let Some(schema) = schema else {
            return Ok(Checked::untouched(&submission.input));
        };
        let check = schema.check(match submission.kind {
            JobKind::Prediction => self.inner.predictions_are,
            JobKind::Training => JobKind::Training,
        });
        run_blocking_if_large(submission.input.len(), || {
            check.check(
                &submission.input,
                &self.inner.deps.files,
                &submission.account,
            )
        })
        .map_err(Refusal::InvalidInput)
    }
}

/// What came of looking at a submission.
enum Preparation {
    Known(Submitted),
    New(PreparedJob, Placement),
}

/// Where a job begins.
enum Placement {
    /// At the model, or in the short line in front of it.
    Admitted(Admitted),
    /// In the line that jobs wait in however long it takes.
    Queue(InputPlace),
}

/// A job that is ready to run.
pub(crate) struct PreparedJob {
    pub(crate) job: Arc<Job>,
    pub(crate) checked: Checked,
    pub(crate) context: BTreeMap<String, String>,
    /// Of a training: the model that what it gives becomes a version of.
    pub(crate) destination: Option<String>,
    pub(crate) webhook: Option<Arc<Webhook>>,
    pub(crate) delivery: ResponseMode,
    pub(crate) deadline: Option<tokio::time::Instant>,
    /// Absent when this server has taken it in.
    pub(crate) previous_run: Option<FromPreviousRun>,
}

/// The store did not take a job.
fn store_refusal(error: StoreError) -> Refusal {
    tracing::error!(error = %chain(&error), "a job could not be written down and was refused");
    match error {
        StoreError::Full(_) => Refusal::NoSpace,
        StoreError::Unavailable(_) | StoreError::Corrupt(_) | StoreError::Invalid(_) => {
            Refusal::StoreUnavailable
        }
    }
}

/// What a request for a job that is known gets.
fn replay_known(known: Arc<Job>, input: &Bytes) -> Result<Submitted, Refusal> {
    if !known.status().is_terminal() {
        Ok(Submitted::Running(known))
    } else if known.is_without_data() || known.input().is_some_and(|known| same_json(input, known))
    {
        Ok(Submitted::Over(known))
    } else {
        Err(Refusal::InputDiffers(known.id().clone()))
    }
}

fn same_json(a: &Bytes, b: &Bytes) -> bool {
    a == b
        || run_blocking_if_large(
            a.len().max(b.len()),
            || matches!((parsed(a), parsed(b)), (Some(a), Some(b)) if a == b),
        )
}

fn parsed(json: &Bytes) -> Option<serde_json::Value> {
    serde_json::from_slice(json).ok()
}
