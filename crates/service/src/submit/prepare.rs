//! The part of a submission before the job exists for others: existing ids, input validation, and the
//! reservation of a slot or of memory for waiting.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::health::Health;
use tidegate_core::planted;
use tidegate_core::policy::QueueingPolicy;
use tidegate_core::port::{Admitted, WaitPolicy};
use tidegate_core::refusal::WaitingLimit;
use tidegate_core::trace::SpanContext;
use tidegate_core::{JobId, JobKind, Refusal};

use super::{OnDuplicateId, ResponseMode, Submission, Submitted};
use crate::files::StoredInputs;
use crate::input::{CheckedInput, ModelSchema};
use crate::job::{Job, NewJob, now};
use crate::job_service::{JobService, PerModel};
use crate::random;
use crate::run_blocking::run_blocking_if_large;
use crate::waiting::input_memory::InputLocation;
use crate::webhook::Webhook;

/// How many jobs of one account may wait for a model: each costs memory besides its input.
const MAX_WAITING: usize = 1_000_000;

/// The result of preparing a submission.
pub(super) enum Preparation {
    Existing(Submitted),
    New(PreparedJob, Placement),
}

/// Where a job starts or waits.
pub(super) enum Placement {
    /// At the model: in a slot, or in the bounded queue in front of it.
    Admitted(Admitted),
    /// In the durable queue of the model.
    Queue(InputLocation),
}

/// A job that is ready to run.
pub(crate) struct PreparedJob {
    pub(crate) job: Arc<Job>,
    pub(crate) checked: CheckedInput,
    pub(crate) context: BTreeMap<String, String>,
    /// For a training: the model that gets a new version from its output.
    pub(crate) destination: Option<String>,
    pub(crate) webhook: Option<Arc<Webhook>>,
    pub(crate) response_mode: ResponseMode,
    pub(crate) deadline: Option<tokio::time::Instant>,
}

impl JobService {
    pub(super) fn prepare(
        &self,
        submission: Submission,
        stored: &StoredInputs,
        trace: Option<SpanContext>,
    ) -> Result<Preparation, Refusal> {
        let registry = &self.shared().registry;
        if let Some(existing) = submission
            .id
            .as_ref()
            .filter(|_| submission.on_duplicate == OnDuplicateId::Answer)
            .and_then(|id| registry.get(&submission.account, id))
        {
            return self
                .replay(existing, &submission, stored)
                .map(Preparation::Existing);
        }
        self.refuse_waiting_id(&submission)?;
        let schema = self.schema_for(&submission)?;
        let checked = self.check(schema.as_deref(), &submission, stored)?;
        if self.shared().closing.is_cancelled() {
            return Err(Refusal::Closing);
        }
        self.shared().deps.check_free_space(&checked)?;
        let placement = match submission.policies.queueing {
            QueueingPolicy::AtModel if self.cluster().is_none() => {
                let executor = &self.model.executor;
                Placement::Admitted(executor.admit(&submission.account, WaitPolicy::Bounded)?)
            }
            QueueingPolicy::AtModel | QueueingPolicy::Queue => {
                self.slot_or_queue(&submission, &checked)?
            }
        };
        planted!(
            LeakedDescriptor,
            std::mem::forget(std::fs::File::open("/dev/null"))
        );
        let history = schema
            .filter(|schema| schema.can_stream)
            .map(|_| self.model.stream_history);
        let prepared = self.create_job(submission, checked, history, trace)?;
        Ok(match prepared {
            Ok(prepared) => Preparation::New(prepared, placement),
            // Dropping the placement releases the slot.
            Err(existing) => Preparation::Existing(existing),
        })
    }

    /// Refuses a new request with the id of a job that waits in the store only, which is not in the
    /// registry.
    fn refuse_waiting_id(&self, submission: &Submission) -> Result<(), Refusal> {
        match &submission.id {
            Some(id) if submission.on_duplicate == OnDuplicateId::Refuse => {
                let key = (submission.account.clone(), id.clone());
                if self.shared().waiting_jobs.has(&key) {
                    return Err(Refusal::IdInUse(id.clone()));
                }
                Ok(())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The schema that the input is validated against. Refuses what cannot be validated.
    fn schema_for(&self, submission: &Submission) -> Result<Option<Arc<ModelSchema>>, Refusal> {
        let schema = match submission.policies.queueing {
            // The job is refused until the model is loaded, so its input does not matter before.
            QueueingPolicy::AtModel => self.schema(),
            QueueingPolicy::Queue => self.description(),
        };
        if submission.response_mode == ResponseMode::Stream
            && !schema.as_ref().is_some_and(|schema| schema.can_stream)
        {
            return Err(Refusal::NotStreaming);
        }
        if schema.is_none() && submission.policies.queueing == QueueingPolicy::Queue {
            match self.model.executor.report().health {
                // Remote workers have no schema.
                Health::Ready | Health::Busy => {}
                // The job would wait in the queue with an input that was never validated.
                health @ (Health::Unknown
                | Health::Starting
                | Health::SetupFailed
                | Health::Defunct) => return Err(Refusal::NotReady { health }),
            }
        }
        Ok(schema)
    }

    /// A slot if one is free and no job waits for it; else a place in the queue of the model.
    fn slot_or_queue(
        &self,
        submission: &Submission,
        checked: &CheckedInput,
    ) -> Result<Placement, Refusal> {
        let PerModel {
            shared,
            executor,
            queue_name,
            ..
        } = &*self.model;
        let (waiting_jobs, account) = (&shared.waiting_jobs, &submission.account);
        if waiting_jobs.is_empty(queue_name)
            && !shared.loading.is_active()
            && let Ok(now @ Admitted::Now(_)) = executor.admit(account, WaitPolicy::NoWait)
        {
            return Ok(Placement::Admitted(now));
        }
        executor.accepts()?;
        if waiting_jobs.count(queue_name, account) >= MAX_WAITING {
            return Err(Refusal::QueueFull(WaitingLimit::Jobs(MAX_WAITING)));
        }
        let memory = &waiting_jobs.memory;
        let is_recorded =
            submission.response_mode == ResponseMode::Async || shared.deps.cluster.is_some();
        if shared.deps.store.is_some() && is_recorded {
            return Ok(Placement::Queue(memory.reserve_recorded(checked.weight())));
        }
        memory
            .reserve_unrecorded(checked.weight())
            .map(Placement::Queue)
            .ok_or(Refusal::QueueFull(WaitingLimit::Memory))
    }

    /// Creates and registers the job; or returns the existing one with its id.
    fn create_job(
        &self,
        submission: Submission,
        mut checked: CheckedInput,
        history: Option<usize>,
        trace: Option<SpanContext>,
    ) -> Result<Result<PreparedJob, Submitted>, Refusal> {
        let deadline = submission
            .deadline
            .and_then(|after| tokio::time::Instant::now().checked_add(after));
        let created_at = now();
        let job = Arc::new(Job::new(NewJob {
            account: submission.account,
            id: submission.id.unwrap_or_else(random_id),
            kind: submission.kind,
            api: submission.api,
            policies: submission.policies,
            target: self.model.target_of(submission.deployment),
            created_at,
            deadline: submission
                .deadline
                .and_then(|after| created_at.checked_add(after).ok()),
            hook: submission
                .webhook
                .as_ref()
                .map(|webhook| Arc::new(webhook.to_spec())),
            trace,
            input: checked.json.clone(),
            secrets: checked.secrets.clone(),
            for_readers: submission.response_mode == ResponseMode::Stream,
            history,
            max_output: self.shared().settings.max_output,
        }));
        for warning in submission
            .warnings
            .into_iter()
            .chain(checked.warnings.drain(..))
        {
            tracing::info!(target: "model", job = %job.id(), "Warning: {warning}");
            job.warn(warning);
        }
        let registry = &self.shared().registry;
        if let Err(existing) = registry.insert(Arc::clone(&job), submission.on_duplicate) {
            return match submission.on_duplicate {
                OnDuplicateId::Answer => replay_existing(existing, &checked.json).map(Err),
                OnDuplicateId::Refuse => Err(Refusal::IdInUse(existing.id().clone())),
            };
        }
        job.count_in(&self.model.metrics.open_jobs);
        Ok(Ok(PreparedJob {
            job,
            checked,
            context: submission.context,
            destination: submission.destination,
            webhook: submission.webhook,
            response_mode: submission.response_mode,
            deadline,
        }))
    }

    /// Returns an existing job to a request that repeats its id.
    pub(super) fn replay(
        &self,
        existing: Arc<Job>,
        submission: &Submission,
        stored: &StoredInputs,
    ) -> Result<Submitted, Refusal> {
        if !existing.status().is_terminal() {
            return Ok(Submitted::Running(existing));
        }
        let checked = self.check(self.schema().as_deref(), submission, stored)?;
        replay_existing(existing, &checked.json)
    }

    fn check(
        &self,
        schema: Option<&ModelSchema>,
        submission: &Submission,
        stored: &StoredInputs,
    ) -> Result<CheckedInput, Refusal> {
        // Before the model is loaded nothing can be validated; the job is refused as not ready.
        let Some(schema) = schema else {
            return Ok(CheckedInput::unchanged(&submission.input));
        };
        let validator = schema.validator(match submission.kind {
            JobKind::Prediction => self.shared().settings.predictions_are,
            JobKind::Training => JobKind::Training,
        });
        let files = &self.shared().deps.files;
        if let Some(checked) = validator.check_quickly(&submission.input, files, stored) {
            return Ok(checked);
        }
        run_blocking_if_large(submission.input.len(), || {
            validator.check(&submission.input, files, stored)
        })
        .map_err(Refusal::InvalidInput)
    }
}

fn random_id() -> JobId {
    let bits = random::bits();
    planted!(RepeatedId, let bits = bits & 0xff);
    JobId::from_random(bits)
}

/// The answer to a request that repeats the id of an existing job.
pub(super) fn replay_existing(existing: Arc<Job>, input: &Bytes) -> Result<Submitted, Refusal> {
    if !existing.status().is_terminal() {
        Ok(Submitted::Running(existing))
    } else if existing.is_without_data()
        || existing
            .input()
            .is_some_and(|existing| is_same_json(input, existing))
    {
        Ok(Submitted::Ended(existing))
    } else {
        Err(Refusal::InputDiffers(existing.id().clone()))
    }
}

fn is_same_json(a: &Bytes, b: &Bytes) -> bool {
    a == b
        || run_blocking_if_large(
            a.len().max(b.len()),
            || matches!((parse(a), parse(b)), (Some(a), Some(b)) if a == b),
        )
}

fn parse(json: &Bytes) -> Option<serde_json::Value> {
    serde_json::from_slice(json).ok()
}
