//! Jobs that are read from the store.

use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use tidegate_core::record::{Completion, JobRecord};
use tidegate_core::{LogSource, Status};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::output_events::EventPositions;
use super::{Inner, Job, JobTimes, MAX_METRICS, State, split_list};
use crate::stream::StreamEvent;

impl Job {
    /// A job that has ended, from its record.
    pub(crate) fn restored(record: JobRecord) -> Self {
        let JobRecord {
            spec,
            status,
            attempt,
            started_at,
            completion,
            data_removed,
            ..
        } = record;
        let state = State {
            own_attempt: attempt,
            ..recorded_state(status, started_at, completion)
        };
        let inner = Inner {
            account: spec.account,
            id: spec.id,
            kind: spec.kind,
            api: spec.api,
            policies: spec.policies,
            target: Arc::new(spec.target),
            secrets: spec.secrets,
            created_at: spec.created_at,
            deadline: spec.deadline,
            hook: spec.hook.map(Arc::new),
            trace: None,
            data_removed,
            max_output: 0,
            cancel: CancellationToken::new(),
            for_readers: false,
            state: Mutex::new(state),
            changed: Notify::new(),
            follow_request: Mutex::default(),
        };
        Self {
            input: Some(spec.input),
            inner: Arc::new(inner),
        }
    }

    /// Makes the end visible that another attempt or another server has recorded.
    pub(crate) fn adopt_end(&self, record: JobRecord) {
        let recorded = recorded_state(record.status, record.started_at, record.completion);
        self.with(|state| {
            state.stop_counting(&self.inner.account, self.inner.created_at);
            *state = State {
                history: state.history.take(),
                attempt: state.attempt,
                own_attempt: record.attempt,
                ..recorded
            };
            state.record_event(|| StreamEvent::Completed);
        });
        self.inner.changed.notify_waiters();
    }
}

impl State {
    /// The event stream of a job that has ended, from its record; no events for one that has not.
    pub(super) fn recorded_stream(&self) -> Vec<StreamEvent> {
        if !self.status.is_terminal() {
            return Vec::new();
        }
        let start = self.started_at.map(|_| StreamEvent::Start);
        let logs = (!self.logs.is_empty()).then(|| StreamEvent::Log {
            source: LogSource::Stdout,
            text: self.logs.as_str().into(),
        });
        let values = self.output.iter().flat_map(split_list).enumerate();
        let outputs = values.map(|(index, chunk)| StreamEvent::Output { index, chunk });
        let end = [StreamEvent::Completed];
        let before = start.into_iter().chain(logs).chain(outputs);
        before.chain(end).collect()
    }
}

/// The state of a job in its record. It does not change any more.
fn recorded_state(
    status: Status,
    started_at: Option<Timestamp>,
    completion: Option<Completion>,
) -> State {
    let completed_at = completion
        .as_ref()
        .map(|completion| completion.completed_at);
    let Completion {
        output,
        logs,
        error,
        mut metrics,
        remote,
        ..
    } = completion.unwrap_or_else(Completion::empty);
    State {
        status,
        started_at,
        completed_at,
        output: output.into_iter().collect(),
        output_bytes: 0,
        returned: true,
        joined: true,
        logs,
        logs_full: true,
        warnings: Vec::new(),
        times: JobTimes::take(&mut metrics).map(Box::new),
        metrics,
        remote: remote.map(Box::new),
        metrics_count: MAX_METRICS,
        error,
        cancel_requested: false,
        end_decided: true,
        history: None,
        event_positions: EventPositions::default(),
        attempt: None,
        own_attempt: 0,
        counted_in: None,
    }
}
