//! The handle of a job that a director runs: it shows what the director reports.

use std::sync::PoisonError;

use bytes::Bytes;
use jiff::Timestamp;
use tidegate_core::record::JobRecord;
use tidegate_core::{LogSource, Status, Step};

use super::output_events::EventPositions;
use super::{Job, State, now, split_list};
use crate::cluster::followers::FollowRequest;
use crate::stream::{History, StreamEvent};

/// The error of a job whose record was removed while clients waited for it.
const REMOVED: &str = "the record of the job was removed before its result was read (--keep-for)";

impl Job {
    /// Makes the job one that is followed from the first time that a client waits for it.
    pub(crate) fn follow_on_wait(&self, request: FollowRequest) {
        let mut waiting = self
            .inner
            .follow_request
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *waiting = Some(request);
    }

    /// A client waits for the job.
    pub(super) fn request_follow(&self) {
        let mut waiting = self
            .inner
            .follow_request
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(request) = waiting.take() {
            request.send();
        }
    }

    /// Shows that a director began the job. Has no effect on a job that is shown as begun or ended.
    pub(crate) fn show_started(&self, at: Timestamp) {
        let is_new = self.with(|state| {
            if !matches!(state.status, Status::Queued | Status::Starting) {
                return false;
            }
            state.step(Step::Assign).ok();
            state.step(Step::Begin).ok();
            state.started_at = Some(at);
            state.record_event(|| StreamEvent::Start);
            true
        });
        if is_new {
            self.inner.changed.notify_waiters();
        }
    }

    /// Shows this attempt. What an earlier one has produced is removed: the job runs again, and readers of
    /// its events cannot go back, so their streams end. Returns `false` if a later attempt is shown.
    pub(crate) fn show_attempt(&self, attempt: u32) -> bool {
        let (is_shown, is_restarted) = self.with(|state| match state.attempt {
            _ if state.status.is_terminal() => (false, false),
            Some(shown) if shown < attempt => {
                state.restart(attempt);
                (true, true)
            }
            Some(shown) => (shown == attempt, false),
            None => {
                state.attempt = Some(attempt);
                (true, false)
            }
        });
        if is_restarted {
            self.inner.changed.notify_waiters();
        }
        is_shown
    }

    /// Shows what the record of an ended job has beyond the live events: a short job publishes none, and the
    /// last ones may be lost. Nothing is added after events that are missing.
    pub(crate) fn show_rest(&self, record: &JobRecord) {
        let Some(completion) = &record.completion else {
            return;
        };
        if let Some(at) = record.started_at {
            self.show_started(at);
        }
        let rest = self.with(|state| {
            completion
                .logs
                .strip_prefix(&*state.logs)
                .map(str::to_owned)
        });
        if let Some(text) = rest.filter(|text| !text.is_empty()) {
            self.log(LogSource::Stdout, &text);
        }
        let values: Vec<Bytes> = completion.output.iter().flat_map(split_list).collect();
        let shown = self.with(|state| {
            (!state.returned && values.starts_with(&state.output)).then_some(state.output.len())
        });
        for json in values.into_iter().skip(shown.unwrap_or(usize::MAX)) {
            // The record has the whole output, if it is larger than the limit.
            self.output(json).ok();
        }
    }

    /// Says which attempt has produced the recorded end.
    pub(crate) fn ended_in_attempt(self, attempt: u32) -> Self {
        // A job that never ran has none.
        self.with(|state| state.attempt = (attempt > 0).then_some(attempt));
        self
    }

    /// Ends a job whose record was removed while clients waited for it.
    pub(crate) fn show_removed(&self) {
        self.with(|state| {
            if state.status.is_terminal() {
                return;
            }
            state.status = Status::Failed;
            state.error = Some(REMOVED.to_owned());
            state.completed_at = Some(now());
            state.end_decided = true;
            state.record_event(|| StreamEvent::Completed);
        });
        self.inner.changed.notify_waiters();
    }
}

impl State {
    /// Removes what an attempt has produced.
    fn restart(&mut self, attempt: u32) {
        self.attempt = Some(attempt);
        self.status = Status::Queued;
        self.started_at = None;
        self.output.clear();
        self.output_bytes = 0;
        self.returned = false;
        self.logs.clear();
        self.logs_full = false;
        self.metrics.clear();
        self.metrics_count = 0;
        self.event_positions = EventPositions::default();
        self.history.as_mut().map(History::restart);
    }
}
