//! One job and its state. The tracker is the only writer; all other tasks read it or wait for a
//! change.

mod counted;
mod followed;
mod input;
mod output_events;
mod restored;
mod times;
mod transitions;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::{BufMut, Bytes, BytesMut};
use jiff::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tidegate_core::clock;
use tidegate_core::planted;
use tidegate_core::policy::{InterimOutput, JobPolicies};
use tidegate_core::record::{Api, JobSummary, Target, WebhookSpec};
use tidegate_core::remote::RemoteFacts;
use tidegate_core::status::IllegalStep;
use tidegate_core::store::JobHead;
use tidegate_core::trace::SpanContext;
use tidegate_core::{Account, JobId, JobKind, Status, Step};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::cluster::followers::FollowRequest;
use crate::open_jobs::OpenJobs;
use crate::snapshot::{OutputDelta, ReadPosition, Snapshot};
use crate::stream::{History, MAX_READERS, StreamBatch, StreamEvent, StreamReader, StreamRefusal};
use crate::webhook::{EventFilter, WebhookEvent};
use output_events::EventPositions;

pub(crate) use input::WeakJob;
pub use times::JobTimes;
pub(crate) use transitions::JobEnd;

/// The most bytes of logs that are kept per job. A notice marks where the logs were truncated.
const MAX_LOGS: usize = 16 * 1024 * 1024;
/// The most metric values that are recorded per job; later ones are ignored. Replacing a value does
/// not count.
const MAX_METRICS: usize = 10_000;
/// The memory overhead of one output value, in bytes, beside its content.
const VALUE_OVERHEAD: usize = 64;

/// A handle to one job. All handles share the state but not the input: the input of a waiting job
/// may be in the store only, and code that needs it creates a handle that has it (`job/input.rs`).
pub struct Job {
    /// The validated input as the model receives it; `None` when it is only in the store.
    input: Option<Bytes>,
    inner: Arc<Inner>,
}

/// The part of a job that all handles share: everything but the input.
struct Inner {
    account: Account,
    id: JobId,
    kind: JobKind,
    api: Api,
    policies: JobPolicies,
    target: Arc<Target>,
    secrets: Vec<String>,
    created_at: Timestamp,
    deadline: Option<Timestamp>,
    hook: Option<Arc<WebhookSpec>>,
    /// The span of the request that created it, if traces are exported.
    trace: Option<SpanContext>,
    data_removed: bool,
    /// The most bytes of output.
    max_output: usize,
    /// Tells the tracker to stop the job.
    cancel: CancellationToken,
    /// Whether the job exists for its stream readers: it is canceled when the last one disconnects.
    for_readers: bool,
    state: Mutex<State>,
    changed: Notify,
    /// Set until a client waits for a job that a director runs.
    follow_request: Mutex<Option<FollowRequest>>,
}

struct State {
    status: Status,
    started_at: Option<Timestamp>,
    completed_at: Option<Timestamp>,
    output: Vec<Bytes>,
    output_bytes: usize,
    /// Whether the output is one returned value and not a list of yielded values.
    returned: bool,
    /// Whether the values were joined into one JSON text when the job was stored.
    joined: bool,
    logs: String,
    logs_full: bool,
    /// The warnings about input and output, which are in the logs as well. They are not stored.
    warnings: Vec<String>,
    metrics: Map<String, Value>,
    /// Facts about the remote worker that runs the job.
    remote: Option<Box<RemoteFacts>>,
    metrics_count: usize,
    /// Set when the job has ended.
    times: Option<Box<JobTimes>>,
    error: Option<String>,
    /// Whether a client was promised that the job stops.
    cancel_requested: bool,
    /// Whether the final status is decided and being stored: a later cancel has no effect.
    end_decided: bool,
    history: Option<History>,
    event_positions: EventPositions,
    /// The attempt that produces what is shown; known for jobs that directors run.
    attempt: Option<u32>,
    /// The last attempt that the store has granted to a server that runs the job itself; 0 before the first.
    /// Readers of events cannot continue by it: a server that was killed may have lost it, and then the next
    /// attempt has the same number.
    own_attempt: u32,
    /// Where the job is counted until it ends; absent for a job that this server does not run.
    counted_in: Option<Arc<OpenJobs>>,
}

/// The output of a job exceeds the limit.
#[derive(Debug, thiserror::Error)]
#[error(
    "the output is larger than the limit of {limit} bytes per job; raise it with `--max-output`"
)]
pub(crate) struct OutputTooLarge {
    limit: usize,
}

/// The arguments of [`Job::new`].
pub(crate) struct NewJob {
    pub(crate) account: Account,
    pub(crate) id: JobId,
    pub(crate) kind: JobKind,
    /// The API that accepted the job.
    pub(crate) api: Api,
    pub(crate) policies: JobPolicies,
    pub(crate) target: Arc<Target>,
    pub(crate) input: Bytes,
    pub(crate) secrets: Vec<String>,
    /// When it was accepted, by this server or by a previous run.
    pub(crate) created_at: Timestamp,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) hook: Option<Arc<WebhookSpec>>,
    /// The span of the request that created it, if traces are exported.
    pub(crate) trace: Option<SpanContext>,
    pub(crate) for_readers: bool,
    /// The number of events that are kept for late readers; `None` for models that do not stream.
    pub(crate) history: Option<usize>,
    pub(crate) max_output: usize,
}

impl Job {
    pub(crate) fn new(new: NewJob) -> Self {
        let state = State {
            status: Status::Queued,
            started_at: None,
            completed_at: None,
            output: Vec::new(),
            output_bytes: 0,
            returned: false,
            joined: false,
            logs: String::new(),
            logs_full: false,
            warnings: Vec::new(),
            metrics: Map::new(),
            remote: None,
            metrics_count: 0,
            times: None,
            error: None,
            cancel_requested: false,
            end_decided: false,
            history: new.history.map(History::new),
            event_positions: EventPositions::default(),
            attempt: None,
            own_attempt: 0,
            counted_in: None,
        };
        let inner = Inner {
            account: new.account,
            id: new.id,
            kind: new.kind,
            api: new.api,
            policies: new.policies,
            target: new.target,
            secrets: new.secrets,
            created_at: new.created_at,
            deadline: new.deadline,
            hook: new.hook,
            trace: new.trace,
            data_removed: false,
            max_output: new.max_output,
            cancel: CancellationToken::new(),
            for_readers: new.for_readers,
            state: Mutex::new(state),
            changed: Notify::new(),
            follow_request: Mutex::default(),
        };
        Self {
            input: Some(new.input),
            inner: Arc::new(inner),
        }
    }

    /// The account that owns the job.
    pub fn account(&self) -> &Account {
        &self.inner.account
    }

    /// The id, unique within the account.
    pub fn id(&self) -> &JobId {
        &self.inner.id
    }

    /// The function of the model that it calls.
    pub fn kind(&self) -> JobKind {
        self.inner.kind
    }

    /// The model and version that run it.
    pub(crate) fn target(&self) -> &Target {
        &self.inner.target
    }

    /// The same, to share it.
    pub(crate) fn shared_target(&self) -> Arc<Target> {
        Arc::clone(&self.inner.target)
    }

    /// The API that accepted the job.
    pub(crate) fn api(&self) -> Api {
        self.inner.api
    }

    /// The policies that differ between the APIs.
    pub(crate) fn policies(&self) -> JobPolicies {
        self.inner.policies
    }

    /// When the job is aborted or canceled if it has not ended.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.inner.deadline
    }

    /// The receiver of its webhooks.
    pub(crate) fn hook(&self) -> Option<&WebhookSpec> {
        self.inner.hook.as_deref()
    }

    /// The parent of its spans.
    pub(crate) fn trace(&self) -> Option<SpanContext> {
        self.inner.trace
    }

    /// When it was accepted.
    pub(crate) fn created_at(&self) -> Timestamp {
        self.inner.created_at
    }

    /// The current status.
    pub fn status(&self) -> Status {
        self.with(|state| state.status)
    }

    /// Whether the output is one returned value, and not a list of yielded values.
    pub fn is_output_returned(&self) -> bool {
        self.with(|state| state.returned)
    }

    /// Whether the output is a list of values that the model yielded one by one. A job that was read from the
    /// store after its end has no record of that; its output counts as one if it is a list.
    pub fn is_output_list(&self) -> bool {
        self.with(|state| match state.output.first() {
            Some(json) if state.joined => json.trim_ascii_start().starts_with(b"["),
            Some(_) | None => !state.returned,
        })
    }

    /// The number of the attempt that produces what is shown; 0 if it is not known that there was one.
    pub fn attempt(&self) -> u32 {
        self.with(|state| state.attempt.unwrap_or(state.own_attempt))
    }

    /// Whether a reader that has received events of the job from another server process can continue here:
    /// directors run it, so every process has the same number for an attempt.
    pub fn can_continue_elsewhere(&self) -> bool {
        self.with(|state| state.attempt.is_some())
    }

    /// Says which attempt was the last that the store has granted to a server that runs the job itself.
    pub(crate) fn set_own_attempt(&self, attempt: u32) {
        self.with(|state| state.own_attempt = attempt);
    }

    /// The warnings about its input and output.
    pub fn warnings(&self) -> Vec<String> {
        self.with(|state| state.warnings.clone())
    }

    /// What filters and orders of lists use.
    pub(crate) fn head(&self) -> JobHead<'_> {
        JobHead {
            account: &self.inner.account,
            id: &self.inner.id,
            target: &self.inner.target,
            status: self.status(),
            created_at: self.inner.created_at,
        }
    }

    /// The summary that lists of jobs show.
    pub fn summary(&self) -> JobSummary {
        let (status, started_at, completed_at, error) = self.with(|state| {
            let error = state.error.as_deref();
            let error = error.map(|error| error.chars().take(JobSummary::MAX_ERROR).collect());
            (state.status, state.started_at, state.completed_at, error)
        });
        JobSummary {
            id: self.inner.id.clone(),
            account: self.inner.account.clone(),
            kind: self.inner.kind,
            target: (*self.inner.target).clone(),
            api: self.inner.api,
            status,
            created_at: self.inner.created_at,
            started_at,
            completed_at,
            error,
        }
    }

    /// The current state of the job.
    pub fn snapshot(&self) -> Snapshot {
        self.with(|state| self.snapshot_of(state, state.output.len(), state.logs.len()))
    }

    /// The current state of the job without its output and logs, for readers that read these in parts.
    pub fn snapshot_without_output(&self) -> Snapshot {
        self.with(|state| Snapshot {
            output: None,
            ..self.snapshot_of(state, 0, 0)
        })
    }

    /// The state of the job when it had this many output values and bytes of logs.
    pub(crate) fn snapshot_at(&self, outputs: usize, logs: usize) -> Snapshot {
        self.with(|state| {
            let mut snapshot = self.snapshot_of(state, outputs, logs);
            let is_ended = state.status.is_terminal();
            planted!(EarlyEnd, let is_ended = is_ended && outputs != 1);
            if is_ended {
                snapshot.status = Status::Processing;
                snapshot.times = None;
                snapshot.error = None;
                snapshot.output = self.output_json(state, outputs, Status::Processing);
            }
            snapshot
        })
    }

    /// What the newest interim message shows; `None` if the receiver did not subscribe to anything that the
    /// job has produced.
    pub(crate) fn newest_interim(&self, filter: EventFilter) -> Option<Snapshot> {
        let position = self.with(|state| state.position());
        let is_sent = filter.includes(WebhookEvent::Output) && position.outputs > 0
            || filter.includes(WebhookEvent::Logs) && position.logs > 0;
        is_sent.then(|| self.snapshot_at(position.outputs, position.logs))
    }

    /// Requests that the job stops. Returns `false` if it has ended or its end is decided.
    pub(crate) fn cancel(&self) -> bool {
        let running = self.with(|state| {
            state.cancel_requested |= !state.end_decided;
            !state.end_decided && !state.status.is_terminal()
        });
        self.inner.cancel.cancel();
        running
    }

    pub(crate) fn cancel_token(&self) -> &CancellationToken {
        &self.inner.cancel
    }

    /// Waits until the job has ended.
    pub async fn ended(&self) {
        self.wait_for(|state| state.status.is_terminal().then_some(()))
            .await;
    }

    /// Waits for output or logs after `seen`, or for the end.
    pub async fn progress(&self, seen: ReadPosition) -> OutputDelta {
        self.wait_for(|state| state.progress(seen)).await
    }

    /// Waits for the events after `cursor`.
    pub(crate) async fn events_after(&self, cursor: usize) -> StreamBatch {
        self.wait_for(|state| state.history.as_ref()?.after(cursor))
            .await
    }

    /// Subscribes to the events of the job. The reader of a job without history receives events
    /// from now on, or those of its record if it has ended.
    pub fn follow(self: &Arc<Self>) -> Result<StreamReader, StreamRefusal> {
        let start = self.with(|state| {
            let history = match state.history.take() {
                Some(history) => history,
                None => History::of(state.recorded_stream()),
            };
            let history = state.history.insert(history);
            if history.readers >= MAX_READERS {
                return Err(StreamRefusal::TooManyReaders);
            }
            history.readers += 1;
            Ok(history.start_position(state.status.is_terminal()))
        })?;
        Ok(StreamReader::new(Arc::clone(self), start))
    }

    pub(crate) fn reader_dropped(&self) {
        let last = self.with(|state| {
            let Some(history) = &mut state.history else {
                return false;
            };
            history.readers -= 1;
            history.readers == 0 && !state.status.is_terminal()
        });
        if last && self.inner.for_readers {
            self.inner.cancel.cancel();
        }
    }

    async fn wait_for<T>(&self, mut condition: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            let changed = self.inner.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(found) = self.with(&mut condition) {
                return found;
            }
            self.request_follow();
            changed.await;
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self
            .inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner))
    }

    fn snapshot_of(&self, state: &State, outputs: usize, logs: usize) -> Snapshot {
        Snapshot {
            id: self.inner.id.clone(),
            account: self.inner.account.clone(),
            target: Arc::clone(&self.inner.target),
            kind: self.inner.kind,
            status: state.status,
            logs: state.logs[..logs].to_owned(),
            // Without the check, removed output would look like an empty list.
            output: if self.inner.data_removed {
                None
            } else {
                self.output_json(state, outputs, state.status)
            },
            warnings: state.warnings.clone(),
            error: state.error.clone(),
            metrics: state.metrics.clone(),
            remote: state.remote.clone(),
            times: state.times.as_deref().copied(),
            input: self.masked_input(),
            created_at: self.inner.created_at,
            started_at: state.started_at,
            completed_at: state.completed_at,
            deadline: self.inner.deadline,
            hook: self.inner.hook.clone(),
            data_removed: self.inner.data_removed,
        }
    }

    /// The first `count` values as one JSON text, for a job with this status. Before the end, Cog's
    /// API shows a returned value as a list and Replicate's shows the bare value
    /// (`interim_output`).
    fn output_json(&self, state: &State, count: usize, status: Status) -> Option<Bytes> {
        let is_bare =
            status.is_terminal() || self.inner.policies.interim_output == InterimOutput::Value;
        match &state.output[..count] {
            [only] if state.returned && is_bare => Some(only.clone()),
            [] if status != Status::Succeeded => None,
            values => Some(join_list(values)),
        }
    }
}

impl State {
    fn step(&mut self, step: Step) -> Result<(), IllegalStep> {
        self.status = self.status.after(step)?;
        Ok(())
    }

    fn record_event(&mut self, event: impl FnOnce() -> StreamEvent) {
        if let Some(history) = &mut self.history {
            history.push(event());
        }
    }

    fn position(&self) -> ReadPosition {
        ReadPosition {
            outputs: self.output.len(),
            logs: self.logs.len(),
        }
    }

    fn progress(&self, seen: ReadPosition) -> Option<OutputDelta> {
        let outputs: Vec<Bytes> = if self.joined {
            let values = self.output.iter().flat_map(split_list);
            values.skip(seen.outputs).collect()
        } else {
            // Only these are copied: a reader that waits for each value would take quadratic time.
            self.output.get(seen.outputs..).unwrap_or_default().to_vec()
        };
        let logs = self.logs.get(seen.logs..).unwrap_or_default().to_owned();
        let ended = self.status.is_terminal();
        (ended || !outputs.is_empty() || !logs.is_empty()).then_some(OutputDelta {
            outputs,
            logs,
            ended,
        })
    }
}

/// The elements of a JSON list; any other JSON is one value.
fn split_list(json: &Bytes) -> Vec<Bytes> {
    match serde_json::from_slice::<Vec<&RawValue>>(json) {
        Ok(values) => values
            .into_iter()
            .map(|value| json.slice_ref(value.get().as_bytes()))
            .collect(),
        Err(_) => vec![json.clone()],
    }
}

fn join_list(values: &[Bytes]) -> Bytes {
    let mut joined =
        BytesMut::with_capacity(values.iter().map(|value| value.len() + 1).sum::<usize>() + 2);
    joined.put_u8(b'[');
    for (i, value) in values.iter().enumerate() {
        if i > 0 {
            joined.put_u8(b',');
        }
        joined.put_slice(value);
    }
    joined.put_u8(b']');
    joined.freeze()
}

/// The current time in microseconds, the precision of the store: a job must not change when it is
/// stored and read again.
pub(crate) fn now() -> Timestamp {
    let now = clock::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}
