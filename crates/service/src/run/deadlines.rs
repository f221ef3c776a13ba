//! When a job is stopped although nobody asked: the caller's deadline and the operator's limit.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::snapshot::TerminalState;

/// The times that bound one job.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Deadlines {
    /// The caller wants nothing of it any more after this moment.
    pub(crate) at: Option<Instant>,
    /// The longest that the model may work on it.
    pub(crate) run: Option<Duration>,
}

/// Why a job is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// Somebody asked, or whoever waited for it has left.
    Asked,
    /// The caller's deadline has come before the model began.
    TooLate,
    /// The caller's deadline has come while the model worked.
    Deadline,
    /// The model has worked on it for longer than this.
    TookTooLong(Duration),
}

impl StopReason {
    /// What the job ends as.
    pub(crate) fn terminal(self) -> TerminalState {
        match self {
            Self::Asked | Self::Deadline => TerminalState::Canceled,
            Self::TooLate => TerminalState::Aborted,
            Self::TookTooLong(limit) => TerminalState::Failed(format!(
                "the model did not finish within {limit:?} and was stopped; the limit is --job-timeout"
            )),
        }
    }
}

impl Deadlines {
    /// Why the job must not begin at this moment. The clock is asked, and not a timer, which may be a millisecond late.
    pub(crate) fn at_start(&self, canceled: &CancellationToken) -> Option<StopReason> {
        if canceled.is_cancelled() {
            return Some(StopReason::Asked);
        }
        self.at
            .is_some_and(|at| at <= Instant::now())
            .then_some(StopReason::TooLate)
    }

    /// Waits until the job must not begin any more.
    pub(crate) fn before_start(
        self,
        canceled: &CancellationToken,
    ) -> impl Future<Output = StopReason> + use<> {
        first(
            canceled.clone(),
            self.at.map(|at| (at, StopReason::TooLate)),
        )
    }

    /// Waits until the job must stop, counted from now.
    pub(crate) fn while_running(
        self,
        canceled: &CancellationToken,
    ) -> impl Future<Output = StopReason> + use<> {
        let deadline = self.at.map(|at| (at, StopReason::Deadline));
        let limit = self.run.and_then(|limit| {
            Some((
                Instant::now().checked_add(limit)?,
                StopReason::TookTooLong(limit),
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
        return StopReason::Asked;
    };
    tokio::select! {
        biased;
        () = canceled.cancelled() => StopReason::Asked,
        () = tokio::time::sleep_until(at) => stop,
    }
}
