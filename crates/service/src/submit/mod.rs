//! Accepts a job: finds an existing one with its id, validates the input, reserves a slot or a place in
//! the queue, records the job, and starts its tracker.

mod prepare;
pub(crate) mod stored_context;
mod submission;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_core::lease::LeaseDurability;
use tidegate_core::planted;
use tidegate_core::port::{Admitted, BoxFuture};
use tidegate_core::record::JobSpec;
use tidegate_core::store::{Inserted, Store, StoreError};
use tidegate_core::trace::{self, SpanContext};
use tidegate_core::{Refusal, Work, chain};
use tokio::sync::oneshot;

use crate::audit;
use crate::files::StoredInputs;
use crate::job_service::JobService;
use crate::run::deadlines::Deadlines;
use crate::run::job_spans::JobSpans;
use crate::run::recorder::{Caller, JobRecorder};
use crate::run::tracker::{RunClock, Tracker};
use crate::waiting::claims::ClaimGuard;
use crate::webhook::{InterimTarget, WebhookSender};
use prepare::{Placement, Preparation, replay_existing};

pub(crate) use prepare::PreparedJob;
pub use submission::{OnDuplicateId, ResponseMode, Submission, Submitted, Ticket};

impl JobService {
    /// Accepts a job, returns the existing one with its id, or refuses. A job that its client may ask
    /// for later is recorded first; for other jobs nothing here waits.
    pub async fn submit(&self, submission: Submission) -> Result<Submitted, Refusal> {
        let api = submission.api;
        trace::keep_request_span();
        match self.submit_uncounted(submission).await {
            Ok(Submitted::Running(job)) => Ok(Submitted::Running(self.with_input(job).await)),
            Ok(submitted) => Ok(submitted),
            Err(refusal) => {
                self.model.metrics.refused(api, &refusal);
                Err(refusal)
            }
        }
    }

    async fn submit_uncounted(&self, submission: Submission) -> Result<Submitted, Refusal> {
        // In a cluster another process runs the job.
        let is_recorded = submission.is_recorded() || self.cluster().is_some();
        let trace = trace::request_context();
        planted!(UnrecordedJob, let is_recorded = false);
        match self.store() {
            Some(store) if is_recorded => {
                // A task of its own: a client that disconnects during the insert must not leave a job
                // behind that is registered and never run.
                let (service, store) = (self.clone(), Arc::clone(store));
                let submitting = self
                    .model
                    .tasks
                    .spawn(async move { service.submit_recorded(store, submission, trace).await });
                submitting.await.unwrap_or(Err(Refusal::StoreUnavailable))
            }
            Some(_) | None => {
                // Closing waits for this call until the job has a task of its own.
                let _counted = self.model.tasks.token();
                let stored = self.stored_inputs(&submission).await?;
                match self.prepare(submission, &stored, trace)? {
                    Preparation::Existing(submitted) => Ok(submitted),
                    Preparation::New(prepared, placement) => {
                        Ok(self.accept(prepared, placement, None).await)
                    }
                }
            }
        }
    }

    /// The stored files that the input names.
    async fn stored_inputs(&self, submission: &Submission) -> Result<StoredInputs, Refusal> {
        let files = &self.shared().deps.files;
        let found = files.stored_inputs(&submission.account, &submission.input);
        found.await.map_err(store_refusal)
    }

    async fn submit_recorded(
        &self,
        store: Arc<dyn Store>,
        submission: Submission,
        trace: Option<SpanContext>,
    ) -> Result<Submitted, Refusal> {
        let _counted = self.model.tasks.token();
        let stored = self.stored_inputs(&submission).await?;
        if let Some(id) = submission
            .id
            .as_ref()
            .filter(|_| submission.on_duplicate == OnDuplicateId::Answer)
            && self
                .shared()
                .registry
                .get(&submission.account, id)
                .is_none()
            && let Some(record) = store
                .get(&submission.account, id)
                .await
                .map_err(store_refusal)?
        {
            let existing = self.job_of_record(record).await;
            return self.replay(existing, &submission, &stored);
        }
        let (on_duplicate, has_id) = (submission.on_duplicate, submission.id.is_some());
        let (prepared, placement) = match self.prepare(submission, &stored, trace)? {
            Preparation::Existing(submitted) => return Ok(submitted),
            Preparation::New(prepared, placement) => (prepared, placement),
        };
        let spec = spec(&prepared);
        let placement = match placement {
            Placement::Admitted(admitted @ Admitted::Now(_))
                if !has_id && self.may_begin_before_insert(&prepared) =>
            {
                return self
                    .begin_during_insert(store, prepared, admitted, spec)
                    .await;
            }
            placement => placement,
        };
        // A new request may take the id of a job that has ended.
        let inserted = match on_duplicate {
            OnDuplicateId::Answer => store.insert(spec).await,
            OnDuplicateId::Refuse => store.replace(spec).await,
        };
        match inserted {
            Ok(Inserted::New) => {}
            Ok(Inserted::Known(record)) => {
                self.shared().registry.forget(&prepared.job);
                let existing = self.job_of_record(*record).await;
                return match on_duplicate {
                    OnDuplicateId::Answer => replay_existing(existing, &prepared.checked.json),
                    OnDuplicateId::Refuse => Err(Refusal::IdInUse(existing.id().clone())),
                };
            }
            Err(error) => {
                self.shared().registry.forget(&prepared.job);
                return Err(store_refusal(error));
            }
        }
        self.model
            .last_insert_failed
            .store(false, Ordering::Relaxed);
        Ok(self.accept(prepared, placement, Some((store, 0))).await)
    }

    /// Whether the model may begin a job that is not recorded yet. No client knows of the job until it
    /// is: if the server dies first, the job was never accepted. A job that must not run twice waits for
    /// the insert; so do all jobs while the store rejects inserts, or the model would work in vain.
    fn may_begin_before_insert(&self, prepared: &PreparedJob) -> bool {
        let store_works = !self.model.last_insert_failed.load(Ordering::Relaxed);
        // Files of the input would be downloaded for a job that may not be accepted.
        let has_no_files = prepared.checked.files.is_empty();
        store_works
            && has_no_files
            && prepared.response_mode == ResponseMode::Async
            && self.model.lease_durability() == LeaseDurability::Process
    }

    /// Starts a job while it is inserted: the disk is slower than the model's first step. Until the
    /// insert is committed, nothing that the job does is visible.
    async fn begin_during_insert(
        &self,
        store: Arc<dyn Store>,
        prepared: PreparedJob,
        admitted: Admitted,
        spec: JobSpec,
    ) -> Result<Submitted, Refusal> {
        let job = Arc::clone(&prepared.job);
        let (committed, insert) = oneshot::channel();
        let mut tracker = self.tracker(prepared, Some((Arc::clone(&store), 0)), None);
        tracker.insert = Some(insert);
        let lease = tracker
            .recorder
            .as_mut()
            .map(|recorder| recorder.lease_with_insert(&job, job.start_time()));
        self.model.tasks.spawn(tracker.run(admitted));
        let inserted = match lease {
            Some(lease) => store.insert_leased(spec, lease).await,
            None => store.insert(spec).await,
        };
        match inserted {
            Ok(Inserted::New) => {}
            // The id is random, so this does not happen in practice.
            Ok(Inserted::Known(_)) => return Err(Refusal::IdInUse(job.id().clone())),
            Err(error) => {
                self.model.last_insert_failed.store(true, Ordering::Relaxed);
                return Err(store_refusal(error));
            }
        }
        audit::created(&job);
        self.model.metrics.accepted(job.api(), job.kind());
        // Fails when the tracker has ended, which needs no message.
        committed.send(()).ok();
        Ok(Submitted::New(Ticket {
            job,
            tracker: None,
            tasks: self.model.tasks.clone(),
            cancel_on_drop: false,
            reader: None,
        }))
    }

    /// Starts a job, or puts it in the queue.
    async fn accept(
        &self,
        prepared: PreparedJob,
        placement: Placement,
        recorded: Option<(Arc<dyn Store>, u32)>,
    ) -> Submitted {
        let (job, response_mode) = (Arc::clone(&prepared.job), prepared.response_mode);
        audit::created(&job);
        self.model.metrics.accepted(job.api(), job.kind());
        // Before the tracker runs, so that the reader misses nothing.
        let reader = if response_mode == ResponseMode::Stream {
            job.follow().ok()
        } else {
            None
        };
        let caller_waits = response_mode == ResponseMode::Wait;
        let mut tracker: Option<BoxFuture<()>> = None;
        planted!(sometimes ForgottenJob if !caller_waits, return Submitted::New(Ticket { job, tracker, tasks: self.model.tasks.clone(), cancel_on_drop: false, reader }));
        if let Some(cluster) = self.cluster() {
            return self.accept_for_directors(cluster, &prepared).await;
        }
        match placement {
            Placement::Queue(location) => self.enqueue(prepared, location, recorded).await,
            Placement::Admitted(admitted) => {
                let run = self.tracker(prepared, recorded, None).run(admitted);
                if caller_waits {
                    tracker = Some(Box::pin(self.model.tasks.track_future(run)));
                } else {
                    self.model.tasks.spawn(run);
                }
            }
        }
        Submitted::New(Ticket {
            job,
            tracker,
            tasks: self.model.tasks.clone(),
            cancel_on_drop: caller_waits,
            reader,
        })
    }

    /// Creates the tracker of a job. `recorded` is its store and how often it was started before;
    /// `claim` is its queue entry, if it was queued.
    pub(crate) fn tracker(
        &self,
        prepared: PreparedJob,
        recorded: Option<(Arc<dyn Store>, u32)>,
        claim: Option<ClaimGuard>,
    ) -> Tracker {
        let PreparedJob {
            job,
            checked,
            context,
            destination,
            webhook,
            response_mode,
            deadline,
            ..
        } = prepared;
        let caller = if response_mode == ResponseMode::Async {
            Caller::Detached
        } else {
            Caller::Waiting
        };
        let recorder = recorded
            .map(|(store, attempt)| self.recorder(store, attempt, webhook.as_ref(), caller))
            .map(Box::new);
        Tracker {
            work: Work {
                id: job.id().clone(),
                kind: job.kind(),
                input: checked.json,
                files: BTreeMap::new(),
                context,
                scratch: (self.shared().deps.scratch)(),
            },
            input_files: checked.files,
            destination,
            webhook: webhook.map(|webhook| {
                let target = InterimTarget::Receiver;
                WebhookSender::spawn(&self.model.senders, webhook, Arc::clone(&job), target)
            }),
            recorder,
            deadlines: Deadlines {
                at: deadline,
                run: self.model.job_timeout,
            },
            scratch_used: false,
            insert: None,
            began_at: None,
            on_committed: None,
            files_in_use: None,
            clock: RunClock::default(),
            spans: JobSpans::default(),
            claim,
            leased: None,
            job,
            service: self.clone(),
        }
    }

    /// The recorder of a job that was started `attempt` times before.
    pub(crate) fn recorder(
        &self,
        store: Arc<dyn Store>,
        attempt: u32,
        webhook: Option<&Arc<crate::Webhook>>,
        caller: Caller,
    ) -> JobRecorder {
        let closing = self.shared().closing.clone();
        JobRecorder::new(
            store,
            webhook,
            attempt,
            self.model.lease_durability(),
            caller,
            closing,
        )
        .with_messages(
            self.model
                .senders
                .outbox
                .as_ref()
                .map(|outbox| outbox.messages()),
        )
    }
}

/// The record of a new job.
fn spec(prepared: &PreparedJob) -> JobSpec {
    let PreparedJob { job, checked, .. } = prepared;
    let pointers = checked.files.iter().map(|(pointer, _)| pointer.clone());
    JobSpec {
        id: job.id().clone(),
        account: job.account().clone(),
        kind: job.kind(),
        target: job.target().clone(),
        input: checked.json.clone(),
        files: pointers.collect(),
        secrets: checked.secrets.clone(),
        context: stored_context::stored_context(prepared),
        destination: prepared.destination.clone(),
        hook: job.hook().cloned(),
        api: job.api(),
        policies: job.policies(),
        deadline: job.deadline(),
        created_at: job.created_at(),
    }
}

/// The refusal for a job that the store did not accept.
fn store_refusal(error: StoreError) -> Refusal {
    tracing::error!(error = %chain(&error), "failed to record job, refused it");
    match error {
        StoreError::Full(_) => Refusal::NoSpace,
        StoreError::Unavailable(_) | StoreError::Corrupt(_) | StoreError::Invalid(_) => {
            Refusal::StoreUnavailable
        }
    }
}
