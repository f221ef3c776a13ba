//! The state of the process that waits to replace a child. It is neither a child nor capacity.

use tidegate_core::gpu::GpuId;
use tidegate_core::pool_status::{ProcessState, SpareKind, SpareStatus};

use super::{ChildState, ModelState};
use crate::child_stats::ChildStats;

/// The state of a spare.
pub(super) struct SpareState {
    kind: SpareKind,
    state: ProcessState,
    stats: ChildStats,
}

impl SpareState {
    pub(super) fn status(&self) -> SpareStatus {
        SpareStatus {
            kind: self.kind,
            process: self.stats.status(0, self.state, &[]),
        }
    }
}

impl ModelState {
    /// Records that the process of a spare was started.
    pub(crate) fn spare_starting(&self, kind: SpareKind, pid: u32) {
        self.with_spare(kind, ProcessState::Starting, |stats| stats.started(pid));
    }

    /// Records the GPUs that the process of a spare can use.
    pub(crate) fn spare_gpus(&self, kind: SpareKind, gpus: &[GpuId]) {
        self.with_spare(kind, ProcessState::Starting, |stats| stats.assigned(gpus));
    }

    /// Records that the spare can replace a child.
    pub(crate) fn spare_ready(&self, kind: SpareKind) {
        self.with_spare(kind, ProcessState::Ready, |stats| stats.ready(0));
    }

    /// Records that the spare has become a child, or has exited with the model.
    pub(crate) fn spare_gone(&self, kind: SpareKind) {
        self.with_spare(kind, ProcessState::Starting, |stats| {
            stats.scaled_down();
            stats.assigned(&[]);
        });
    }

    /// Records that a spare has taken the place of a child that ended. Callers do not notice it.
    pub(crate) fn taken_over(&self, number: usize, reason: &str, pid: u32) {
        self.with(|inner| {
            inner.stats[number].ended(reason);
            inner.stats[number].started(pid);
        });
    }

    /// Records that the spare could not be started, or has died.
    pub(crate) fn spare_failed(&self, kind: SpareKind, reason: &str) {
        self.with_spare(kind, ProcessState::SetupFailed, |stats| {
            stats.ended(reason);
            // The next spare replaces no child.
            stats.scaled_down();
            stats.assigned(&[]);
        });
    }

    /// Whether the model is complete, so that a spare does not take resources from the setup of a
    /// child: all children that the load needs are ready.
    pub(crate) fn may_start_spare(&self) -> bool {
        self.is_open()
            && self.with(|inner| {
                let mut wanted = inner.children.iter().zip(&inner.wanted);
                wanted.all(|(child, wanted)| !wanted || matches!(child, ChildState::Ready(_)))
            })
    }

    fn with_spare(
        &self,
        kind: SpareKind,
        state: ProcessState,
        change: impl FnOnce(&mut ChildStats),
    ) {
        self.with(|inner| {
            let spare = inner.spare.get_or_insert_with(|| SpareState {
                kind,
                state,
                stats: ChildStats::new(),
            });
            spare.state = state;
            change(&mut spare.stats);
        });
    }
}
