//! Which children of a model the load needs.

use std::sync::Arc;

use tidegate_core::health::SetupStatus;

use super::{ChildState, Inner, ModelState};
use crate::child::process::ChildProcess;

/// The children of a model, by what they can do for waiting callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChildCount {
    /// Children that get jobs.
    pub(crate) ready: usize,
    /// Children that are being set up, or are about to be started.
    pub(crate) starting: usize,
}

impl ModelState {
    /// Chooses the lowest free number for an additional child, which is starting from now on. `None`
    /// if there is no free number: the limit is reached, or the last child that was stopped has not
    /// exited yet.
    pub(crate) fn add_child(&self) -> Option<usize> {
        self.with(|inner| {
            let is_free = |number: &usize| {
                let state = &inner.children[*number];
                !inner.wanted[*number]
                    && matches!(state, ChildState::Stopped | ChildState::SetupFailed)
            };
            let number = (0..inner.children.len()).find(is_free)?;
            inner.wanted[number] = true;
            inner.children[number] = ChildState::Starting;
            Some(number)
        })
    }

    /// Chooses the ready child without jobs that has the highest number, and returns it with the number;
    /// it is not replaced when it exits. `idle` has the process id of each free slot.
    pub(crate) fn remove_idle_child(&self, idle: &[u32]) -> Option<(usize, Arc<ChildProcess>)> {
        self.with(|inner| {
            let Inner {
                children,
                stats,
                wanted,
                ..
            } = inner;
            let numbers = (0..children.len()).rev().filter(|number| wanted[*number]);
            let (number, child) = numbers
                .filter(|number| stats[*number].jobs(idle) == 0)
                .find_map(|number| match &children[number] {
                    ChildState::Ready(child) => Some((number, Arc::clone(child))),
                    ChildState::Stopped
                    | ChildState::Starting
                    | ChildState::SetupFailed
                    | ChildState::Defunct => None,
                })?;
            wanted[number] = false;
            Some((number, child))
        })
    }

    /// Does without a child, unless only `min` are left. Returns whether it is not replaced.
    pub(crate) fn give_up_child(&self, number: usize, min: usize) -> bool {
        self.with(|inner| {
            let wanted = inner.wanted.iter().filter(|wanted| **wanted).count();
            let can_spare = wanted > min;
            inner.wanted[number] &= !can_spare;
            can_spare
        })
    }

    /// Whether the load needs the child with this number.
    pub(crate) fn is_wanted(&self, number: usize) -> bool {
        self.with(|inner| inner.wanted[number])
    }

    /// Records that a child has ended, unless the load does not need it.
    pub(crate) fn starting_if_wanted(&self, number: usize, reason: &str) {
        if self.is_wanted(number) {
            self.starting(number, reason);
        }
    }

    /// Records that a child has exited that the load did not need.
    pub(crate) fn scaled_down(&self, number: usize) {
        self.with(|inner| {
            inner.children[number] = ChildState::Stopped;
            inner.stats[number].scaled_down();
        });
        self.children_changed.notify_one();
    }

    /// Records that an additional child could not be set up. The others are not affected.
    pub(crate) fn scale_up_failed(&self, number: usize, reason: &str) {
        self.with(|inner| {
            inner.scale_up_failures += 1;
            inner.wanted[number] = false;
            inner.children[number] = ChildState::SetupFailed;
            inner.stats[number].ended(reason);
        });
        self.children_changed.notify_one();
    }

    /// How many additional children could not be set up.
    pub(crate) fn scale_up_failures(&self) -> u64 {
        self.with(|inner| inner.scale_up_failures)
    }

    /// The status of the model's first setup.
    pub(crate) fn setup_status(&self) -> SetupStatus {
        self.with(|inner| inner.setup.status)
    }

    /// Records whether callers wait although the largest allowed number of children runs.
    pub(crate) fn set_short(&self, is_short: bool) {
        self.with(|inner| inner.is_short = is_short);
    }

    /// The children that are ready or starting.
    pub(crate) fn child_count(&self) -> ChildCount {
        self.with(|inner| {
            // A child that is not wanted may still finish its jobs.
            let children = inner.children.iter().zip(&inner.wanted);
            let wanted = children.filter_map(|(child, wanted)| wanted.then_some(child));
            let mut count = ChildCount {
                ready: 0,
                starting: 0,
            };
            for child in wanted {
                count.ready += usize::from(matches!(child, ChildState::Ready(_)));
                count.starting += usize::from(matches!(child, ChildState::Starting));
            }
            count
        })
    }
}

impl Inner {
    /// The number of children that the load needs.
    pub(super) fn number_wanted(&self) -> usize {
        let wanted = self.wanted.iter().filter(|wanted| **wanted).count();
        wanted + usize::from(self.is_short)
    }
}
