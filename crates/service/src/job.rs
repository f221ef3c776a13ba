//! One job and its state. The tracker writes it; everybody else reads it or waits for it.

mod input;
mod restored;
mod transitions;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::{BufMut, Bytes, BytesMut};
use jiff::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tidegate_core::planted;
use tidegate_core::policy::{InterimOutput, JobPolicies};
use tidegate_core::record::{Api, JobSummary, Target, WebhookSpec};
use tidegate_core::remote::RemoteFacts;
use tidegate_core::status::IllegalStep;
use tidegate_core::{Account, JobId, JobKind, Status, Step};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::snapshot::{OutputDelta, ReadPosition, Snapshot};
use crate::stream::{History, MAX_READERS, StreamBatch, StreamEvent, StreamReader, StreamRefusal};

pub(crate) use transitions::JobEnd;

/// Logs of one job end here, with a notice.
const MAX_LOGS: usize = 16 * 1024 * 1024;
/// Notes of the model about one job; what comes after is left out.
const MAX_METRICS: usize = 10_000;
/// How long a job took, among the notes of the model about it.
pub(crate) const PREDICT_TIME: &str = "predict_time";
/// What keeping one value costs beside its bytes.
const VALUE_OVERHEAD: usize = 64;

/// One job, in the hands of somebody. All who have it share what is known about it, but for the input: that of a job
/// that waits may be in the store only, and whoever needs it has a `Job` of their own with it (`job/input.rs`).
pub struct Job {
    /// The checked input as it went to the model, if it is at hand.
    input: Option<Bytes>,
    live: Arc<Live>,
}

/// What is known about a job besides its input.
struct Live {
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
    data_removed: bool,
    born: Instant,
    /// The most that it may give, in bytes.
    max_output: usize,
    /// Asks the tracker to stop the job.
    cancel: CancellationToken,
    /// Made for those who read its stream: canceled when the last of them leaves.
    for_readers: bool,
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    status: Status,
    started_at: Option<Timestamp>,
    completed_at: Option<Timestamp>,
    output: Vec<Bytes>,
    output_bytes: usize,
    /// Whether the output is the one returned value and not a list of yielded ones.
    returned: bool,
    /// Whether the values became one text when the job was written down.
    joined: bool,
    logs: String,
    logs_full: bool,
    metrics: Map<String, Value>,
    /// What is known about the remote worker that runs it.
    remote: Option<Box<RemoteFacts>>,
    metrics_count: usize,
    predict_time: Option<f64>,
    error: Option<String>,
    /// Somebody was told that it stops.
    cancel_requested: bool,
    /// How it ends is decided, and being written down: nothing changes that any more.
    end_decided: bool,
    history: Option<History>,
}

/// A job has given more than it may.
#[derive(Debug, thiserror::Error)]
#[error(
    "the output has more than the {limit} bytes that one job may give; the limit is --max-output"
)]
pub(crate) struct OutputTooLarge {
    limit: usize,
}

/// What a new job is made of.
pub(crate) struct NewJob {
    pub(crate) account: Account,
    pub(crate) id: JobId,
    pub(crate) kind: JobKind,
    /// By which API it came.
    pub(crate) api: Api,
    pub(crate) policies: JobPolicies,
    pub(crate) target: Arc<Target>,
    pub(crate) input: Bytes,
    pub(crate) secrets: Vec<String>,
    /// When it was accepted, by this server or one before it.
    pub(crate) created_at: Timestamp,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) hook: Option<Arc<WebhookSpec>>,
    pub(crate) for_readers: bool,
    /// How many events are kept for late readers; `None` for models that do not stream.
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
            metrics: Map::new(),
            remote: None,
            metrics_count: 0,
            predict_time: None,
            error: None,
            cancel_requested: false,
            end_decided: false,
            history: new.history.map(History::new),
        };
        let live = Live {
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
            data_removed: false,
            born: Instant::now(),
            max_output: new.max_output,
            cancel: CancellationToken::new(),
            for_readers: new.for_readers,
            state: Mutex::new(state),
            changed: Notify::new(),
        };
        Self {
            input: Some(new.input),
            live: Arc::new(live),
        }
    }

    /// Whose it is.
    pub fn account(&self) -> &Account {
        &self.live.account
    }

    /// Its id, unique within its account.
    pub fn id(&self) -> &JobId {
        &self.live.id
    }

    /// Which function it is for.
    pub fn kind(&self) -> JobKind {
        self.live.kind
    }

    /// Which model it is for.
    pub(crate) fn target(&self) -> &Target {
        &self.live.target
    }

    /// The API that accepted it.
    pub(crate) fn api(&self) -> Api {
        self.live.api
    }

    /// How it is treated where the APIs differ.
    pub(crate) fn policies(&self) -> JobPolicies {
        self.live.policies
    }

    /// After this moment nobody wants it any more.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.live.deadline
    }

    /// Who is told about it.
    pub(crate) fn hook(&self) -> Option<&WebhookSpec> {
        self.live.hook.as_deref()
    }

    /// When it was accepted.
    pub(crate) fn created_at(&self) -> Timestamp {
        self.live.created_at
    }

    /// Where it is in its life.
    pub fn status(&self) -> Status {
        self.with(|state| state.status)
    }

    /// The job in a few words.
    pub fn summary(&self) -> JobSummary {
        let (status, started_at, completed_at) =
            self.with(|state| (state.status, state.started_at, state.completed_at));
        JobSummary {
            id: self.live.id.clone(),
            account: self.live.account.clone(),
            kind: self.live.kind,
            target: (*self.live.target).clone(),
            api: self.live.api,
            status,
            created_at: self.live.created_at,
            started_at,
            completed_at,
        }
    }

    /// The job as it is now.
    pub fn snapshot(&self) -> Snapshot {
        self.with(|state| self.picture(state, state.output.len(), state.logs.len()))
    }

    /// The job as it was when it had given this many values and printed this many bytes.
    pub(crate) fn snapshot_at(&self, outputs: usize, logs: usize) -> Snapshot {
        self.with(|state| {
            let mut then = self.picture(state, outputs, logs);
            let is_ended = state.status.is_terminal();
            planted!(EarlyEnd, let is_ended = is_ended && outputs != 1);
            if is_ended {
                then.status = Status::Processing;
                then.predict_time = None;
                then.error = None;
                then.output = self.output_in(state, outputs, Status::Processing);
            }
            then
        })
    }

    /// Asks the job to stop. Says whether there was something to stop.
    pub(crate) fn cancel(&self) -> bool {
        let running = self.with(|state| {
            state.cancel_requested |= !state.end_decided;
            !state.end_decided && !state.status.is_terminal()
        });
        self.live.cancel.cancel();
        running
    }

    pub(crate) fn cancel_token(&self) -> &CancellationToken {
        &self.live.cancel
    }

    /// Waits until the job is over.
    pub async fn ended(&self) {
        self.until(|state| state.status.is_terminal().then_some(()))
            .await;
    }

    /// What has come beyond what was seen; waits for something, or for the end.
    pub async fn progress(&self, seen: ReadPosition) -> OutputDelta {
        self.until(|state| state.progress(seen)).await
    }

    /// Waits for the events after `cursor`.
    pub(crate) async fn events_after(&self, cursor: usize) -> StreamBatch {
        self.until(|state| state.history.as_ref()?.after(cursor))
            .await
    }

    /// Follows the job. A job without history shows nothing until its end.
    pub fn follow(self: &Arc<Self>) -> Result<StreamReader, StreamRefusal> {
        let entry = self.with(|state| {
            let history = state.history.get_or_insert_with(|| History::new(0));
            if history.readers >= MAX_READERS {
                return Err(StreamRefusal::TooManyReaders);
            }
            history.readers += 1;
            Ok(history.entry(state.status.is_terminal()))
        })?;
        Ok(StreamReader::new(Arc::clone(self), entry))
    }

    pub(crate) fn reader_left(&self) {
        let last = self.with(|state| {
            let Some(history) = &mut state.history else {
                return false;
            };
            history.readers -= 1;
            history.readers == 0 && !state.status.is_terminal()
        });
        if last && self.live.for_readers {
            self.live.cancel.cancel();
        }
    }

    async fn until<T>(&self, mut look: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            let changed = self.live.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(found) = self.with(&mut look) {
                return found;
            }
            changed.await;
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self
            .live
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner))
    }

    fn picture(&self, state: &State, outputs: usize, logs: usize) -> Snapshot {
        Snapshot {
            id: self.live.id.clone(),
            account: self.live.account.clone(),
            target: Arc::clone(&self.live.target),
            kind: self.live.kind,
            status: state.status,
            logs: state.logs[..logs].to_owned(),
            // What was removed is not an empty list.
            output: if self.live.data_removed {
                None
            } else {
                self.output_in(state, outputs, state.status)
            },
            error: state.error.clone(),
            metrics: state.metrics.clone(),
            remote: state.remote.clone(),
            predict_time: state.predict_time,
            input: self.masked_input(),
            created_at: self.live.created_at,
            started_at: state.started_at,
            completed_at: state.completed_at,
            deadline: self.live.deadline,
            hook: self.live.hook.clone(),
            data_removed: self.live.data_removed,
        }
    }

    /// The output of a job with this status as one JSON text. The one returned value of a job that is not over
    /// is a list in Cog's words, but not in Replicate's.
    fn output_in(&self, state: &State, count: usize, status: Status) -> Option<Bytes> {
        let is_bare =
            status.is_terminal() || self.live.policies.interim_output == InterimOutput::Value;
        match &state.output[..count] {
            [only] if state.returned && is_bare => Some(only.clone()),
            [] if status != Status::Succeeded => None,
            values => Some(list(values)),
        }
    }
}

impl State {
    fn step(&mut self, step: Step) -> Result<(), IllegalStep> {
        self.status = self.status.after(step)?;
        Ok(())
    }

    fn tell(&mut self, event: impl FnOnce() -> StreamEvent) {
        if let Some(history) = &mut self.history {
            history.push(event());
        }
    }

    fn mark(&self) -> ReadPosition {
        ReadPosition {
            outputs: self.output.len(),
            logs: self.logs.len(),
        }
    }

    fn progress(&self, seen: ReadPosition) -> Option<OutputDelta> {
        let values = if self.joined {
            self.output.iter().flat_map(parted).collect()
        } else {
            self.output.clone()
        };
        let outputs: Vec<Bytes> = values.into_iter().skip(seen.outputs).collect();
        let logs = self.logs.get(seen.logs..).unwrap_or_default().to_owned();
        let over = self.status.is_terminal();
        (over || !outputs.is_empty() || !logs.is_empty()).then_some(OutputDelta {
            outputs,
            logs,
            over,
        })
    }
}

/// The values of a list; anything else is one value.
fn parted(json: &Bytes) -> Vec<Bytes> {
    match serde_json::from_slice::<Vec<&RawValue>>(json) {
        Ok(values) => values
            .into_iter()
            .map(|value| json.slice_ref(value.get().as_bytes()))
            .collect(),
        Err(_) => vec![json.clone()],
    }
}

fn list(values: &[Bytes]) -> Bytes {
    let mut all =
        BytesMut::with_capacity(values.iter().map(|value| value.len() + 1).sum::<usize>() + 2);
    all.put_u8(b'[');
    for (i, value) in values.iter().enumerate() {
        if i > 0 {
            all.put_u8(b',');
        }
        all.put_slice(value);
    }
    all.put_u8(b']');
    all.freeze()
}

/// To the microsecond, as it is written down: a job must not change by being kept.
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}
