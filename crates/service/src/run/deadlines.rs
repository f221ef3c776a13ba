//! The times at which a job is stopped without a cancel: the client's deadline and the operator's limit.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::snapshot::TerminalState;

/// The time limits of one job.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Deadlines {
    /// The client's deadline.
    pub(crate) at: Option<Instant>,
    /// The longest time that the model may run it.
    pub(crate) run: Option<Duration>,
}

/// Why a job is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// It was canceled, or the client that waited for it disconnected.
    Canceled,
    /// The client's deadline passed before the model began.
    DeadlineBeforeStart,
    /// The client's deadline passed while the model ran.
    DeadlineWhileRunning,
    /// The model ran longer than this limit.
    JobTimeout(Duration),
}

impl StopReason {
    /// The terminal state of a job that is stopped for this reason.
    pub(crate) fn terminal(self) -> TerminalState {
        match self {
            Self::Canceled | Self::DeadlineWhileRunning => TerminalState::Canceled,
            Self::DeadlineBeforeStart => TerminalState::Aborted,
            Self::JobTimeout(limit) => TerminalState::Failed(format!(
                "the model did not finish within {limit:?} and was stopped; the limit is --job-timeout"
            )),
        }
    }
}

impl Deadlines {
    /// Why the job must not begin now. Reads the clock, because a timer may fire a millisecond late.
    pub(crate) fn at_start(&self, canceled: &CancellationToken) -> Option<StopReason> {
        if canceled.is_cancelled() {
            return Some(StopReason::Canceled);
        }
        self.at
            .is_some_and(|at| at <= Instant::now())
            .then_some(StopReason::DeadlineBeforeStart)
    }

    /// Waits until the job must no longer begin.
    pub(crate) fn before_start(
        self,
        canceled: &CancellationToken,
    ) -> impl Future<Output = StopReason> + use<> {
        first(
            canceled.clone(),
            self.at.map(|at| (at, StopReason::DeadlineBeforeStart)),
        )
    }

    /// Waits until the running job must stop; the run limit counts from now.
    pub(crate) fn while_running(
        self,
        canceled: &CancellationToken,
    ) -> impl Future<Output = StopReason> + use<> {
        let deadline = self.at.map(|at| (at, StopReason::DeadlineWhileRunning));
        let limit = self.run.and_then(|limit| {
            Some((
                Instant::now().checked_add(limit)?,
                StopReason::JobTimeout(limit),
            ))
        });
        first(
            canceled.clone(),
            deadline.into_iter().chain(limit).min_by_key(|(at, _)| *at),
        )
    }
}

async fn first(canceled: CancellationToken, timed: Option<(Instant, StopReason)>) -> StopReason {
    let Some((at, stop)) = timed else {
        canceled.cancelled().await;
        return StopReason::Canceled;
    };
    tokio::select! {
        biased;
        () = canceled.cancelled() => StopReason::Canceled,
        () = tokio::time::sleep_until(at) => stop,
    }
}
