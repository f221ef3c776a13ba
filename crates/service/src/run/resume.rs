//! Resumes what a previous server process left in the store: jobs that have not ended, and webhooks that
//! were not delivered.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tidegate_core::clock;
use tidegate_core::policy::QueueingPolicy;
use tidegate_core::port::WaitPolicy;
use tidegate_core::record::{Api, JobRecord, JobSpec, Target, WebhookSpec};
use tidegate_core::store::{Store, StoreError};

use super::finish::{EndedJob, TerminalWebhook};
use super::load_open_jobs::{JoinQueue, RecordedJob};
use super::recorder::{Caller, OnStoreError};
use super::retention::{RetentionSweep, RetentionTarget};
use crate::config::OnLost;
use crate::input::CheckedInput;
use crate::job::{Job, NewJob};
use crate::job_service::JobService;
use crate::snapshot::TerminalState;
use crate::submit::stored_context::{model_context, restore_warnings, stored_trace};
use crate::submit::{OnDuplicateId, PreparedJob, ResponseMode};
use crate::waiting::loading::ServiceLookup;
use crate::webhook::{OutboxPoller, Webhook, WebhookRenderer};

/// What was resumed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Resumed {
    /// Jobs that wait for the model again.
    pub queued: usize,
    /// Jobs that were ended: the model ran them when the server died, or they were to be canceled.
    pub failed: usize,
    /// Webhooks that are not delivered yet.
    pub messages: usize,
    /// Whether there are more jobs, which are being loaded in the background.
    pub is_loading: bool,
}

impl JobService {
    /// Resumes what the store holds, each job at the service of its model. Called once, before the
    /// server accepts requests; when there are many jobs, most are loaded after it returns.
    pub async fn resume(&self, service_of: ServiceLookup) -> Result<Resumed, StoreError> {
        let Some(store) = self.store().cloned() else {
            return Ok(Resumed::default());
        };
        self.spawn_retention(&store);
        let messages = self.start_outbox(&*store).await?;
        let resumed = self.load_open_jobs(store, service_of).await?;
        Ok(Resumed {
            messages,
            ..resumed
        })
    }

    /// Loads the open jobs that another process has left in the store, each at the service of its model.
    /// Webhooks and old jobs are the concern of others.
    pub(crate) async fn take_over(&self, service_of: ServiceLookup) -> Result<Resumed, StoreError> {
        match self.store().cloned() {
            Some(store) => self.load_open_jobs(store, service_of).await,
            None => Ok(Resumed::default()),
        }
    }

    /// Starts what every API process of a cluster does: sends webhooks, removes old jobs, and keeps the
    /// handles of jobs up to date that clients wait for. Returns the number of pending webhooks.
    pub async fn start_in_cluster(&self) -> Result<usize, StoreError> {
        let (Some(store), Some(cluster)) = (self.store().cloned(), self.cluster().cloned()) else {
            return Ok(0);
        };
        self.spawn_retention(&store);
        let followers = self.clone().run_followers(cluster);
        self.model.tasks.spawn(followers);
        self.start_outbox(&*store).await
    }

    /// Starts to send the webhooks that are not delivered yet; returns how many there are.
    async fn start_outbox(&self, store: &dyn Store) -> Result<usize, StoreError> {
        let senders = &self.model.senders;
        if let Some(outbox) = &senders.outbox {
            let poller = OutboxPoller::new(Arc::clone(outbox), Arc::clone(senders));
            senders.tasks.spawn(poller.run());
        }
        Ok(store.outbox_counts().await?.pending)
    }

    fn spawn_retention(&self, store: &Arc<dyn Store>) {
        let settings = &self.shared().settings;
        let jobs = RetentionSweep {
            store: Arc::clone(store),
            target: RetentionTarget::Jobs,
            after: settings.keep_for,
        };
        let data = settings
            .keep_data_for
            .filter(|data| *data < settings.keep_for)
            .map(|after| RetentionSweep {
                target: RetentionTarget::Data,
                after,
                ..jobs.clone()
            });
        for sweep in data.into_iter().chain([jobs]) {
            self.model
                .tasks
                .spawn(sweep.run(self.shared().closing.clone()));
        }
    }

    /// Whether a recorded job may run. A job that the model had not begun is merely late.
    pub(crate) fn may_run_again(&self, record: &JobRecord) -> bool {
        match self.model.on_lost {
            _ if record.runs() == 0 => true,
            OnLost::Fail => false,
            OnLost::Retry { attempts } => record.runs() < attempts,
        }
    }

    /// Queues a recorded job for the model again.
    pub(crate) async fn run_again(
        &self,
        store: &Arc<dyn Store>,
        recorded: RecordedJob,
        join: JoinQueue,
    ) {
        let record = &recorded.record;
        let at_model = match record.spec.policies.queueing {
            // Callers wait at the model itself, so the job keeps its place in their order.
            QueueingPolicy::AtModel => self
                .model
                .executor
                .admit(&record.spec.account, WaitPolicy::Unbounded)
                .ok(),
            QueueingPolicy::Queue => None,
        };
        let Some(admitted) = at_model else {
            return self.enqueue_recorded(&recorded, join).await;
        };
        let job = Arc::new(self.job_of_spec(&record.spec));
        job.set_own_attempt(record.attempt);
        let registry = &self.shared().registry;
        let is_new = registry.insert(Arc::clone(&job), OnDuplicateId::Answer);
        if is_new.is_err() {
            return;
        }
        job.count_in(&self.model.metrics.open_jobs);
        let attempt = record.attempt;
        let prepared = self.prepared_from_spec(recorded.record.spec, job);
        let tracker = self.tracker(prepared, Some((Arc::clone(store), attempt)), None);
        self.model.tasks.spawn(tracker.run(admitted));
    }

    /// A recorded job that has not ended.
    pub(crate) fn job_of_spec(&self, spec: &JobSpec) -> Job {
        let settings = &self.shared().settings;
        let job = Job::new(NewJob {
            account: spec.account.clone(),
            id: spec.id.clone(),
            kind: spec.kind,
            api: spec.api,
            policies: spec.policies,
            target: Arc::new(spec.target.clone()),
            input: spec.input.clone(),
            secrets: spec.secrets.clone(),
            created_at: spec.created_at,
            deadline: spec.deadline,
            hook: spec.hook.clone().map(Arc::new),
            trace: stored_trace(spec),
            for_readers: false,
            history: Some(self.model.stream_history),
            max_output: settings.max_output,
        });
        restore_warnings(&job, spec);
        job
    }

    /// What a recorded job needs to run.
    pub(crate) fn prepared_from_spec(&self, spec: JobSpec, job: Arc<Job>) -> PreparedJob {
        let deadline = spec
            .deadline
            .map(|at| tokio::time::Instant::now() + until(at));
        let webhook = self.webhook_of(&job);
        let checked = CheckedInput {
            files: file_urls(&spec),
            secrets: spec.secrets,
            ..CheckedInput::unchanged(&spec.input)
        };
        PreparedJob {
            job,
            checked,
            context: model_context(spec.context),
            destination: spec.destination,
            webhook,
            response_mode: ResponseMode::Async,
            deadline,
        }
    }

    /// Ends a recorded job that has no tracker.
    pub(crate) async fn end_recorded(
        &self,
        store: &Arc<dyn Store>,
        record: JobRecord,
        terminal: TerminalState,
    ) -> Result<(), StoreError> {
        let attempt = record.attempt;
        let job = Arc::new(Job::restored(record));
        let Some(end) = job.end_without_run(terminal) else {
            return Ok(());
        };
        let webhook = self.webhook_of(&job);
        let recorder = self.recorder(
            Arc::clone(store),
            attempt,
            webhook.as_ref(),
            Caller::Detached,
        );
        self.finish_job(EndedJob {
            job,
            end,
            recorder: Some(recorder),
            claim: None,
            webhook: TerminalWebhook::Outbox,
            on_error: OnStoreError::Return,
        })
        .await
        .map(drop)
    }

    /// The webhook of a recorded job.
    pub(crate) fn webhook_of(&self, job: &Job) -> Option<Arc<Webhook>> {
        let spec = job.hook()?;
        let renderer = self.renderer(job.api(), job.target(), spec);
        Webhook::from_spec(spec, job.policies().updates, renderer).map(Arc::new)
    }

    fn renderer(&self, api: Api, target: &Target, spec: &WebhookSpec) -> WebhookRenderer {
        (self.shared().settings.renderer)(api, target, spec)
    }
}

/// The time until `at`; zero when it has passed.
fn until(at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(clock::now())).unwrap_or_default()
}

/// The URLs of files in an input, by JSON pointer.
fn file_urls(spec: &JobSpec) -> Vec<(String, String)> {
    if spec.files.is_empty() {
        return Vec::new();
    }
    let input: Value = serde_json::from_slice(&spec.input).unwrap_or_default();
    let url = |pointer: &String| {
        let text = input.pointer(pointer)?.as_str()?;
        Some((pointer.clone(), text.to_owned()))
    };
    spec.files.iter().filter_map(url).collect()
}
