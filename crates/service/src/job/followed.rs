//! The handle of a job that a director runs: it shows what the director reports.

use std::sync::PoisonError;

use jiff::Timestamp;
use tidegate_core::{Status, Step};

use super::Job;
use super::output_events::EventPositions;
use crate::cluster::followers::FollowRequest;
use crate::stream::{History, StreamEvent};

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

    /// Removes what an attempt that was lost has produced: the job runs again. Readers of its events cannot
    /// go back, so their streams end.
    pub(crate) fn restart(&self) {
        self.with(|state| {
            state.output.clear();
            state.output_bytes = 0;
            state.logs.clear();
            state.metrics.clear();
            state.event_positions = EventPositions::default();
            state.history.as_mut().map(History::restart);
        });
        self.inner.changed.notify_waiters();
    }
}
