//! The door of the desk: submit, find, cancel, wait.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use tidegate_core::health::Report;
use tidegate_core::port::{Executor, Later};
use tidegate_core::{Account, JobId, JobKind, Refusal, Work, chain};
use tidegate_net::{Client, Url};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit;
use crate::deadline::Deadlines;
use crate::files::Files;
use crate::heavy::heavy;
use crate::input::{Checked, ModelSchema};
use crate::job::{Job, NewJob};
use crate::random;
use crate::registry::{Registry, Retention};
use crate::stream::Reader;
use crate::tracker::Tracker;
use crate::webhook::{Bounds, Deliveries, Secrets, Sender, SenderTools, Waiting, Webhook};

/// Webhooks that wait to be sent again.
const WAITING: Bounds = Bounds { messages: 10_000, bytes: 256 * 1024 * 1024 };
/// Nobody waits longer for a webhook; beyond it clocks overflow.
const LONGEST_RETRY: Duration = Duration::from_secs(365 * 24 * 60 * 60);

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

/// A job that somebody wants done.
pub struct Submission {
    /// Whose it will be.
    pub account: Account,
    /// The caller's own id for it.
    pub id: Option<JobId>,
    /// Which function.
    pub kind: JobKind,
    /// The input, one JSON text.
    pub input: Bytes,
    /// Who else is told.
    pub webhook: Option<Webhook>,
    /// Notes for the model.
    pub context: BTreeMap<String, String>,
    /// How the caller gets the answer.
    pub delivery: Delivery,
    /// What happens when the id is known already.
    pub replay: Replay,
    /// The caller wants nothing of it any more after this time.
    pub deadline: Option<Duration>,
}

/// How a caller gets the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Waits for it; the job is canceled when it leaves.
    Wait,
    /// Comes back for it, or is told by webhook; the job goes on without it.
    Later,
    /// Follows the job; it is canceled when the last who follows leaves.
    Stream,
}

/// What happens when the id of a submission is known already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// The same request again: show what became of it.
    Answer,
    /// A new request: refused while the other runs.
    Refuse,
}

/// What became of a submission.
pub enum Submitted {
    /// A new job runs.
    New(Ticket),
    /// A job with this id runs already.
    Running(Arc<Job>),
    /// A job with this id and input is over.
    Over(Arc<Job>),
}

/// A new job in the hands of its caller.
pub struct Ticket {
    job: Arc<Job>,
    /// The job's tracker, when the caller waits: it runs inside [`Ticket::ended`], so that the answer
    /// comes without a change of task.
    tracker: Option<Later<()>>,
    tasks: TaskTracker,
    /// The caller waits: gone caller, gone job.
    cancel_on_drop: bool,
    reader: Option<Reader>,
}

impl Ticket {
    /// The job.
    pub fn job(&self) -> &Arc<Job> {
        &self.job
    }

    /// Waits until the job is over. A job that was submitted with [`Delivery::Wait`] runs in this call.
    pub async fn ended(&mut self) {
        if let Some(tracker) = &mut self.tracker {
            tracker.await;
            self.tracker = None;
        }
        self.job.ended().await;
    }

    /// The stream of a job that was submitted with [`Delivery::Stream`].
    pub fn into_reader(mut self) -> Option<Reader> {
        self.reader.take()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.cancel_on_drop {
            // Nothing happens when it is over already, which is nearly always.
            self.job.cancel();
        }
        if let Some(tracker) = self.tracker.take() {
            self.tasks.spawn(tracker);
        }
    }
}

/// The desk. Cloning gives another handle.
#[derive(Clone)]
pub struct Jobs {
    inner: Arc<Inner>,
}

struct Inner {
    tools: Arc<Tools>,
    senders: Arc<SenderTools>,
    registry: Arc<Registry>,
    schema: ArcSwapOption<ModelSchema>,
    stream_history: usize,
    predictions_are: JobKind,
    job_timeout: Option<Duration>,
    max_output: usize,
    tasks: TaskTracker,
    closing: CancellationToken,
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
            tasks: TaskTracker::new(),
            closing,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Takes a job in, shows the one that is meant, or refuses. Nothing here waits.
    pub fn submit(&self, submission: Submission) -> Result<Submitted, Refusal> {
        let inner = &*self.inner;
        // Until the job has its own place among the tasks, closing waits for this call.
        let _counted = inner.tasks.token();
        if let Some(known) = submission
            .id
            .as_ref()
            .filter(|_| submission.replay == Replay::Answer)
            .and_then(|id| inner.registry.get(&submission.account, id))
        {
            return self.replay(known, &submission);
        }
        let schema = self.schema();
        if submission.delivery == Delivery::Stream && !schema.as_ref().is_some_and(|schema| schema.streaming) {
            return Err(Refusal::NotStreaming);
        }
        let checked = self.check(schema.as_deref(), &submission)?;
        if inner.closing.is_cancelled() {
            return Err(Refusal::Closing);
        }
        inner.tools.room_for(&checked)?;
        let turn = inner.tools.executor.admit(&submission.account)?;
        let history = schema.filter(|schema| schema.streaming).map(|_| inner.stream_history);
        let job = Arc::new(Job::new(NewJob {
            account: submission.account,
            id: submission.id.unwrap_or_else(|| JobId::from_random(random::bits())),
            kind: submission.kind,
            input: checked.json.clone(),
            secrets: checked.secrets,
            for_readers: submission.delivery == Delivery::Stream,
            history,
            max_output: inner.max_output,
        }));
        if let Err(known) = inner.registry.insert(Arc::clone(&job), submission.replay) {
            // Dropping the turn gives the slot back.
            return match submission.replay {
                Replay::Answer => known_again(known, &checked.json),
                Replay::Refuse => Err(Refusal::IdInUse(known.id().clone())),
            };
        }
        audit::created(&job);
        // Before the tracker runs, so that nothing is missed.
        let reader = if submission.delivery == Delivery::Stream { job.follow().ok() } else { None };
        let tracker = Tracker {
            work: Work {
                id: job.id().clone(),
                kind: submission.kind,
                input: checked.json,
                files: BTreeMap::new(),
                context: submission.context,
                scratch: (inner.tools.scratch)(),
            },
            addresses: checked.files,
            hook: submission.webhook.map(|webhook| Sender::spawn(&inner.senders, webhook, Arc::clone(&job))),
            tools: Arc::clone(&inner.tools),
            registry: Arc::clone(&inner.registry),
            deadlines: Deadlines {
                at: submission.deadline.and_then(|after| tokio::time::Instant::now().checked_add(after)),
                run: inner.job_timeout,
            },
            scratch_used: false,
            job: Arc::clone(&job),
        };
        let waits = submission.delivery == Delivery::Wait;
        let tracker: Option<Later<()>> = if waits {
            Some(Box::pin(inner.tasks.track_future(tracker.run(turn))))
        } else {
            inner.tasks.spawn(tracker.run(turn));
            None
        };
        Ok(Submitted::New(Ticket { job, tracker, tasks: inner.tasks.clone(), cancel_on_drop: waits, reader }))
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

    /// A job of this account that runs, or that was over not long ago.
    pub fn get(&self, account: &Account, id: &JobId) -> Option<Arc<Job>> {
        self.inner.registry.get(account, id)
    }

    /// Asks a job of this account to stop. Says whether it was running.
    pub fn cancel(&self, account: &Account, id: &JobId) -> bool {
        let Some(job) = self.inner.registry.get(account, id) else { return false };
        let running = job.cancel();
        if running {
            audit::canceled(&job);
        }
        running
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

    /// How the model is, as its own health check says too.
    pub async fn health(&self) -> Report {
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
