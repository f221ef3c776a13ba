//! The door of the desk: submit, find, cancel, wait.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use tidegate_core::health::{Health, Report};
use tidegate_core::planted::{Planted, planted, planted_now_and_then};
use tidegate_core::port::{Executor, Later, Patience, Turn};
use tidegate_core::record::{Face, Order, Record, Target};
use tidegate_core::store::{Inserted, Page, Query, Store, StoreError};
use tidegate_core::{Account, JobId, JobKind, Refusal, Work, chain};
use tidegate_net::{Client, Url};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit;
use crate::deadline::Deadlines;
use crate::files::Files;
use crate::heavy::heavy;
use crate::input::{Checked, ModelSchema};
use crate::job::{Job, NewJob, now};
use crate::keeping::{Kept, Waits};
use crate::random;
use crate::registry::{Registry, Retention};
use crate::submission::{Delivery, Replay, Submission, Submitted, Ticket};
use crate::tracker::Tracker;
use crate::webhook::{Bounds, Deliveries, Secrets, Sender, SenderTools, Waiting, Webhook, Wording};

/// Webhooks that wait to be sent again.
const WAITING: Bounds = Bounds { messages: 10_000, bytes: 256 * 1024 * 1024 };
/// Nobody waits longer for a webhook; beyond it clocks overflow.
const LONGEST_RETRY: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How often is looked whether the model is loaded.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How the desk is set up.
pub struct Config {
    /// Sent as a bearer token with every webhook.
    pub webhook_token: Option<String>,
    /// Sign every webhook.
    pub webhook_secrets: Secrets,
    /// Webhooks about logs come at most this often.
    pub webhook_throttle: Duration,
    /// How long the last webhook of a job is sent again.
    pub webhook_retry_for: Duration,
    /// How many events of a stream are kept for late readers.
    pub stream_history: usize,
    /// How long a job that is over can still be looked up.
    pub keep_for: Duration,
    /// Which of the model's functions predictions are for, and so which inputs they take.
    pub predictions_are: JobKind,
    /// The longest that the model may work on one job.
    pub job_timeout: Option<Duration>,
    /// The most that one job may give, all its values together, in bytes.
    pub max_output: usize,
    /// Which model this is.
    pub target: Target,
    /// What becomes of jobs that the model worked on when the server died.
    pub on_lost: OnLost,
    /// How a face writes a job, for webhooks of jobs that are taken up again.
    pub wording: WordingOf,
}

/// How a face writes a job for who reached us by this address.
pub type WordingOf = Box<dyn Fn(Face, Option<&str>) -> Wording + Send + Sync>;

/// What becomes of a job that the model worked on when the server died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLost {
    /// It has failed.
    Fail,
    /// It is run again, up to this many times in all.
    Retry {
        /// Times that it may be given to a model.
        attempts: u32,
    },
}

/// What the desk works with.
pub struct Tools {
    /// Runs the jobs.
    pub executor: Arc<dyn Executor>,
    /// Gets files in and out.
    pub files: Files,
    /// The way out.
    pub net: Arc<Client>,
    /// Names a place for the files of a job.
    pub scratch: Box<dyn Fn() -> PathBuf + Send + Sync>,
    /// How many bytes may be written there, if that is known.
    pub room: Box<dyn Fn() -> Option<u64> + Send + Sync>,
    /// Inputs of more bytes than this pass through a file.
    pub spill_above: usize,
    /// Where jobs are written down; without it they live in memory only.
    pub store: Option<Arc<dyn Store>>,
}

impl Tools {
    /// Refuses a job whose files do not fit on the disk. Most jobs have none and are not asked.
    fn room_for(&self, checked: &Checked) -> Result<(), Refusal> {
        let spilled = if checked.json.len() > self.spill_above { checked.json.len() } else { 0 };
        if checked.files.is_empty() && spilled == 0 {
            return Ok(());
        }
        // What is downloaded has at least a byte.
        let needed = (checked.file_bytes + spilled as u64).max(1);
        match (self.room)() {
            Some(room) if room < needed => {
                tracing::warn!(room, needed, "no space for the files of a job: it was refused");
                Err(Refusal::NoSpace)
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// The desk. Cloning gives another handle.
#[derive(Clone)]
pub struct Jobs {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) tools: Arc<Tools>,
    pub(crate) senders: Arc<SenderTools>,
    pub(crate) registry: Arc<Registry>,
    schema: ArcSwapOption<ModelSchema>,
    pub(crate) stream_history: usize,
    predictions_are: JobKind,
    job_timeout: Option<Duration>,
    pub(crate) max_output: usize,
    pub(crate) target: Target,
    pub(crate) keep_for: Duration,
    pub(crate) on_lost: OnLost,
    pub(crate) wording: WordingOf,
    pub(crate) tasks: TaskTracker,
    pub(crate) closing: CancellationToken,
}

impl Jobs {
    /// Opens the desk.
    pub fn new(tools: Tools, config: Config) -> Self {
        let closing = CancellationToken::new();
        let senders = SenderTools {
            net: Arc::clone(&tools.net),
            tasks: TaskTracker::new(),
            token: config.webhook_token,
            secrets: config.webhook_secrets,
            throttle: config.webhook_throttle,
            retry_for: config.webhook_retry_for.min(LONGEST_RETRY),
            waiting: Arc::new(Waiting::new(WAITING)),
            deliveries: Deliveries::default(),
            store: tools.store.clone(),
            closing: closing.clone(),
        };
        let retention = Retention { jobs: 1024, bytes: 32 * 1024 * 1024, age: config.keep_for };
        let inner = Inner {
            tools: Arc::new(tools),
            senders: Arc::new(senders),
            registry: Arc::new(Registry::new(retention)),
            schema: ArcSwapOption::empty(),
            stream_history: config.stream_history,
            predictions_are: config.predictions_are,
            job_timeout: config.job_timeout,
            max_output: config.max_output,
            target: config.target,
            keep_for: config.keep_for,
            on_lost: config.on_lost,
            wording: config.wording,
            tasks: TaskTracker::new(),
            closing,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Takes a job in, shows the one that is meant, or refuses. One that somebody may come back for is
    /// written down first; for the others nothing here waits.
    pub async fn submit(&self, submission: Submission) -> Result<Submitted, Refusal> {
        match &self.inner.tools.store {
            Some(store) if submission.is_kept() => {
                // A task of its own: a caller that leaves while it is written down must not leave a job
                // behind that is known and never run.
                let (jobs, store) = (self.clone(), Arc::clone(store));
                let submitting = self.inner.tasks.spawn(async move { jobs.submit_kept(store, submission).await });
                submitting.await.unwrap_or(Err(Refusal::StoreUnavailable))
            }
            Some(_) | None => self.submit_now(submission),
        }
    }

    fn submit_now(&self, submission: Submission) -> Result<Submitted, Refusal> {
        // Until the job has its own place among the tasks, closing waits for this call.
        let _counted = self.inner.tasks.token();
        let prepared = match self.prepare(submission)? {
            Prepared::Known(submitted) => return Ok(submitted),
            Prepared::New(prepared) => prepared,
        };
        Ok(self.launch(*prepared, None))
    }

    async fn submit_kept(&self, store: Arc<dyn Store>, submission: Submission) -> Result<Submitted, Refusal> {
        let _counted = self.inner.tasks.token();
        if let Some(id) = submission.id.as_ref().filter(|_| submission.replay == Replay::Answer)
            && self.inner.registry.get(&submission.account, id).is_none()
            && let Some(record) = store.get(&submission.account, id).await.map_err(unkept)?
        {
            return self.replay(Arc::new(Job::restored(record)), &submission);
        }
        let (replay, face) = (submission.replay, submission.face);
        let prepared = match self.prepare(submission)? {
            Prepared::Known(submitted) => return Ok(submitted),
            Prepared::New(prepared) => *prepared,
        };
        let order = self.order(&prepared, face);
        // A new request may take the id of one that is over.
        let inserted = match replay {
            Replay::Answer => store.insert(order).await,
            Replay::Refuse => store.replace(order).await,
        };
        match inserted {
            Ok(Inserted::New) => {}
            Ok(Inserted::Known(record)) => {
                self.inner.registry.forget(&prepared.job);
                let known = Arc::new(Job::restored(*record));
                return match replay {
                    Replay::Answer => known_again(known, &prepared.checked.json),
                    Replay::Refuse => Err(Refusal::IdInUse(known.id().clone())),
                };
            }
            Err(error) => {
                self.inner.registry.forget(&prepared.job);
                return Err(unkept(error));
            }
        }
        Ok(self.launch(prepared, Some((store, 0))))
    }

    /// Everything up to the point where the job begins to exist for others.
    fn prepare(&self, submission: Submission) -> Result<Prepared, Refusal> {
        let inner = &*self.inner;
        if let Some(known) = submission
            .id
            .as_ref()
            .filter(|_| submission.replay == Replay::Answer)
            .and_then(|id| inner.registry.get(&submission.account, id))
        {
            return self.replay(known, &submission).map(Prepared::Known);
        }
        let schema = self.schema();
        if submission.delivery == Delivery::Stream && !schema.as_ref().is_some_and(|schema| schema.streaming) {
            return Err(Refusal::NotStreaming);
        }
        if schema.is_none() && submission.face == Face::Replicate {
            // It would wait in the line until the model is ready, and nobody would have looked at it.
            return Err(Refusal::NotReady { health: inner.tools.executor.report().health });
        }
        let checked = self.check(schema.as_deref(), &submission)?;
        if inner.closing.is_cancelled() {
            return Err(Refusal::Closing);
        }
        inner.tools.room_for(&checked)?;
        let patience = match submission.face {
            Face::Cog => Patience::Short,
            // Whoever comes by an API of a queue expects one.
            Face::Replicate => Patience::Endless,
        };
        let turn = inner.tools.executor.admit(&submission.account, patience)?;
        if planted(Planted::LeakedDescriptor) {
            std::mem::forget(std::fs::File::open("/dev/null"));
        }
        let history = schema.filter(|schema| schema.streaming).map(|_| inner.stream_history);
        let deadline = submission.deadline.and_then(|after| tokio::time::Instant::now().checked_add(after));
        let job = Arc::new(Job::new(NewJob {
            account: submission.account,
            id: submission
                .id
                .unwrap_or_else(|| JobId::from_random(random::bits() & if planted(Planted::RepeatedId) { 0xff } else { u128::MAX })),
            kind: submission.kind,
            target: inner.target.clone(),
            deadline: submission.deadline.and_then(|after| now().checked_add(after).ok()),
            input: checked.json.clone(),
            secrets: checked.secrets.clone(),
            for_readers: submission.delivery == Delivery::Stream,
            history,
            max_output: inner.max_output,
        }));
        if let Err(known) = inner.registry.insert(Arc::clone(&job), submission.replay) {
            // Dropping the turn gives the slot back.
            return match submission.replay {
                Replay::Answer => known_again(known, &checked.json).map(Prepared::Known),
                Replay::Refuse => Err(Refusal::IdInUse(known.id().clone())),
            };
        }
        Ok(Prepared::New(Box::new(Launch {
            job,
            checked,
            context: submission.context,
            webhook: submission.webhook,
            delivery: submission.delivery,
            deadline,
            turn,
        })))
    }

    /// Lets a job run.
    pub(crate) fn launch(&self, launch: Launch, kept: Option<(Arc<dyn Store>, u32)>) -> Submitted {
        let inner = &*self.inner;
        let Launch { job, checked, context, webhook, delivery, deadline, turn } = launch;
        audit::created(&job);
        // Before the tracker runs, so that nothing is missed.
        let reader = if delivery == Delivery::Stream { job.follow().ok() } else { None };
        let waits = if delivery == Delivery::Later { Waits::Nobody } else { Waits::Somebody };
        let kept = kept.map(|(store, attempt)| Kept::new(store, webhook.as_ref(), attempt, waits, inner.closing.clone()));
        let tracker = Tracker {
            work: Work {
                id: job.id().clone(),
                kind: job.kind(),
                input: checked.json,
                files: BTreeMap::new(),
                context,
                scratch: (inner.tools.scratch)(),
            },
            addresses: checked.files,
            hook: webhook.map(|webhook| Sender::spawn(&inner.senders, webhook, Arc::clone(&job))),
            tools: Arc::clone(&inner.tools),
            registry: Arc::clone(&inner.registry),
            kept,
            deadlines: Deadlines { at: deadline, run: inner.job_timeout },
            scratch_used: false,
            job: Arc::clone(&job),
        };
        let waits = delivery == Delivery::Wait;
        let tracker: Option<Later<()>> = if waits {
            Some(Box::pin(inner.tasks.track_future(tracker.run(turn))))
        } else {
            if !planted_now_and_then(Planted::ForgottenJob) {
                inner.tasks.spawn(tracker.run(turn));
            }
            None
        };
        Submitted::New(Ticket { job, tracker, tasks: inner.tasks.clone(), cancel_on_drop: waits, reader })
    }

    /// What is written down about a new job.
    fn order(&self, launch: &Launch, face: Face) -> Order {
        let job = &launch.job;
        Order {
            id: job.id().clone(),
            account: job.account().clone(),
            kind: job.kind(),
            target: self.inner.target.clone(),
            input: launch.checked.json.clone(),
            files: launch.checked.files.iter().map(|(pointer, _)| pointer.clone()).collect(),
            secrets: launch.checked.secrets.clone(),
            context: launch.context.clone(),
            hook: launch.webhook.as_ref().map(Webhook::to_hook),
            face,
            deadline: job.deadline(),
            created_at: job.created_at(),
        }
    }

    fn replay(&self, known: Arc<Job>, submission: &Submission) -> Result<Submitted, Refusal> {
        if !known.status().is_terminal() {
            return Ok(Submitted::Running(known));
        }
        let checked = self.check(self.schema().as_deref(), submission)?;
        known_again(known, &checked.json)
    }

    fn check(&self, schema: Option<&ModelSchema>, submission: &Submission) -> Result<Checked, Refusal> {
        // Before the model is loaded nothing can be checked; it will be refused as not ready.
        let Some(schema) = schema else {
            return Ok(Checked::untouched(&submission.input));
        };
        let check = schema.check(match submission.kind {
            JobKind::Prediction => self.inner.predictions_are,
            JobKind::Training => JobKind::Training,
        });
        heavy(submission.input.len(), || check.check(&submission.input, &self.inner.tools.files)).map_err(Refusal::InvalidInput)
    }

    /// Reads the address of a webhook; private ones are refused unless they are allowed.
    pub fn webhook_url(&self, text: &str) -> Result<Url, Refusal> {
        self.inner.tools.net.check(text).map_err(|error| Refusal::BadWebhook { reason: error.to_string() })
    }

    /// A job of this account that runs, or that was over not too long ago.
    pub async fn get(&self, account: &Account, id: &JobId) -> Option<Arc<Job>> {
        if let Some(job) = self.inner.registry.get(account, id) {
            return Some(job);
        }
        let store = self.inner.tools.store.as_ref()?;
        match store.get(account, id).await {
            Ok(record) => record.filter(|record| record.status.is_terminal()).map(|record| Arc::new(Job::restored(record))),
            Err(error) => {
                tracing::error!(job = %id, error = %chain(&error), "a job could not be looked up");
                None
            }
        }
    }

    /// Jobs of an account that are written down, newest first. Those that are not over are as they are now.
    pub async fn list(&self, query: Query) -> Result<Page<Arc<Job>>, StoreError> {
        let Some(store) = &self.inner.tools.store else { return Ok(Page { items: Vec::new(), next: None, previous: None }) };
        let Page { items, next, previous } = store.list(query).await?;
        let live = |record: Record| {
            let known = self.inner.registry.get(&record.order.account, &record.order.id);
            known.unwrap_or_else(|| Arc::new(Job::restored(record)))
        };
        Ok(Page { items: items.into_iter().map(live).collect(), next, previous })
    }

    /// Asks a job of this account to stop. Says whether it was running.
    pub fn cancel(&self, account: &Account, id: &JobId) -> bool {
        let Some(job) = self.inner.registry.get(account, id) else { return false };
        let running = if planted(Planted::DeafCancel) { !job.status().is_terminal() } else { job.cancel() };
        if running {
            audit::canceled(&job);
        }
        running
    }

    /// Which model the jobs are for.
    pub fn target(&self) -> &Target {
        &self.inner.target
    }

    /// What became of the last webhooks.
    pub fn deliveries(&self) -> &Deliveries {
        &self.inner.senders.deliveries
    }

    /// The model's schema, once it has been loaded.
    pub fn schema(&self) -> Option<Arc<ModelSchema>> {
        let document = self.inner.tools.executor.schema()?;
        let known = self.inner.schema.load_full();
        if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.document, &document)) {
            return Some(known);
        }
        match ModelSchema::read(document) {
            Ok(schema) => {
                let schema = Arc::new(schema);
                self.inner.schema.store(Some(Arc::clone(&schema)));
                Some(schema)
            }
            Err(error) => {
                tracing::error!(error = %chain(&error), "the model's schema cannot be used");
                None
            }
        }
    }

    /// Waits until the model is loaded, as long as that may still happen and `patience` lasts.
    pub async fn loaded(&self, patience: Duration) {
        let still_loads = || match self.inner.tools.executor.report().health {
            Health::Unknown | Health::Starting => self.schema().is_none(),
            Health::Ready | Health::Busy | Health::SetupFailed | Health::Defunct => false,
        };
        let until_loaded = async {
            while still_loads() {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        tokio::time::timeout(patience, until_loaded).await.ok();
    }

    /// How the model is, as its own health check says too.
    pub async fn health(&self) -> Report {
        if planted(Planted::SlowHealth) && !self.inner.registry.running().is_empty() {
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        self.inner.tools.executor.check().await
    }

    /// Takes no more jobs, waits up to `patience` for those that run and then stops them, and sends
    /// what is still to be told within the same time. Says whether all ended by themselves.
    pub async fn close(&self, patience: Duration) -> bool {
        let deadline = tokio::time::Instant::now() + patience;
        self.inner.closing.cancel();
        self.inner.tasks.close();
        let in_time = tokio::time::timeout_at(deadline, self.inner.tasks.wait()).await.is_ok();
        if !in_time {
            for job in self.inner.registry.running() {
                job.cancel();
            }
            self.inner.tasks.wait().await;
        }
        self.inner.senders.tasks.close();
        // A receiver gets at least a moment for the last message, even when the time is up.
        let deadline = deadline.max(tokio::time::Instant::now() + Duration::from_secs(5));
        if tokio::time::timeout_at(deadline, self.inner.senders.tasks.wait()).await.is_err() {
            tracing::error!(count = self.inner.senders.tasks.len(), "webhooks were not delivered before the end");
        }
        in_time
    }
}

/// What came of looking at a submission.
enum Prepared {
    Known(Submitted),
    New(Box<Launch>),
}

/// A job that is ready to run.
pub(crate) struct Launch {
    pub(crate) job: Arc<Job>,
    pub(crate) checked: Checked,
    pub(crate) context: BTreeMap<String, String>,
    pub(crate) webhook: Option<Webhook>,
    pub(crate) delivery: Delivery,
    pub(crate) deadline: Option<tokio::time::Instant>,
    pub(crate) turn: Turn,
}

/// The store did not take a job.
fn unkept(error: StoreError) -> Refusal {
    tracing::error!(error = %chain(&error), "a job could not be written down and was refused");
    match error {
        StoreError::Full(_) => Refusal::NoSpace,
        StoreError::Unavailable(_) | StoreError::Corrupt(_) | StoreError::Invalid(_) => Refusal::StoreUnavailable,
    }
}

/// What a request for a job that is known gets.
fn known_again(known: Arc<Job>, input: &Bytes) -> Result<Submitted, Refusal> {
    if !known.status().is_terminal() {
        Ok(Submitted::Running(known))
    } else if same_json(input, known.input()) {
        Ok(Submitted::Over(known))
    } else {
        Err(Refusal::InputDiffers(known.id().clone()))
    }
}

fn same_json(a: &Bytes, b: &Bytes) -> bool {
    a == b || heavy(a.len().max(b.len()), || matches!((parsed(a), parsed(b)), (Some(a), Some(b)) if a == b))
}

fn parsed(json: &Bytes) -> Option<serde_json::Value> {
    serde_json::from_slice(json).ok()
}
