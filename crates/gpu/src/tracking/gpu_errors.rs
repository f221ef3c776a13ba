//! Decides which child a critical error (Xid) of a GPU concerns.
//!
//! An error of the GPU itself concerns every child on it. For an error of a process, the driver does not say
//! which process it was: it was that of a child only if no other process uses the GPU or did so just before. In
//! all other cases the children find a broken context themselves, when they synchronise after a job.

use std::collections::HashMap;
use std::time::Duration;

use tidegate_core::gpu::{Gpu, GpuId, GpuReport, LeaseEnd};
use tokio::time::Instant;

use super::TrackedLedger;
use crate::ledger::{EntryId, EntryState};

/// How long an error can belong to a process that has exited: the driver reports the end of a process that was
/// killed as an error, and reports are a second apart.
const EXIT_WINDOW: Duration = Duration::from_secs(10);

/// What happened on each GPU.
#[derive(Debug, Default)]
pub(super) struct ErrorHistory {
    last_exit: HashMap<GpuId, Instant>,
    /// How many errors of processes were known at the last report.
    of_processes: HashMap<GpuId, u64>,
}

impl ErrorHistory {
    /// A child that used these GPUs has exited.
    pub(super) fn exited(&mut self, gpus: &[GpuId]) {
        let now = Instant::now();
        self.last_exit
            .extend(gpus.iter().map(|gpu| (gpu.clone(), now)));
    }

    fn had_exit(&self, gpu: &GpuId) -> bool {
        self.last_exit
            .get(gpu)
            .is_some_and(|at| at.elapsed() < EXIT_WINDOW)
    }
}

impl TrackedLedger {
    /// Records the critical errors of a report. Returns whether one concerns a child.
    pub(crate) fn record_errors(&mut self, report: &GpuReport) -> bool {
        let mut has_errors = false;
        for gpu in &report.gpus {
            let new = gpu.xids.of_processes;
            let known = self.errors.of_processes.insert(gpu.id.clone(), new);
            let concerned = if gpu.xids.cordoned_by.is_some() {
                self.running_on(&gpu.id)
            } else if new > known.unwrap_or_default() {
                self.only_user(gpu, report).into_iter().collect()
            } else {
                Vec::new()
            };
            for id in concerned {
                let track = self.tracks.get_mut(&id);
                if let Some(track) = track.filter(|track| track.error.is_none()) {
                    track.error = Some(description(gpu));
                    has_errors = true;
                }
            }
        }
        has_errors
    }

    /// Why the process of a reservation has to give its GPUs back, if so.
    pub(crate) fn end_of(&self, id: EntryId) -> Option<LeaseEnd> {
        if self.ledger.get(id)?.state == EntryState::Revoked {
            return Some(LeaseEnd::Revoked);
        }
        self.tracks.get(&id)?.error.clone().map(LeaseEnd::Failed)
    }

    /// The reservations whose child runs and may use a GPU.
    fn running_on(&self, gpu: &GpuId) -> Vec<EntryId> {
        let entries = self.ledger.entries().filter(|(id, entry)| {
            let track = self.tracks.get(id);
            let is_running = track.is_some_and(|track| track.pid.is_some());
            is_running && entry.state != EntryState::Ending && entry.gpus.contains(gpu)
        });
        entries.map(|(id, _)| id).collect()
    }

    /// The reservation whose child alone uses a GPU and did so for a while.
    fn only_user(&self, gpu: &Gpu, report: &GpuReport) -> Option<EntryId> {
        if self.errors.had_exit(&gpu.id) {
            return None;
        }
        let [id] = self.running_on(&gpu.id)[..] else {
            return None;
        };
        let own = &self.tracks.get(&id)?.pids;
        let processes = gpu.processes.as_ref().filter(|_| report.pids_match);
        let is_alone =
            processes.is_none_or(|all| all.iter().all(|process| own.contains(&process.pid)));
        is_alone.then_some(id)
    }
}

fn description(gpu: &Gpu) -> String {
    let xids = &gpu.xids;
    match xids.cordoned_by {
        Some(xid) => format!("critical error of GPU {} (Xid {xid})", gpu.id),
        None => format!(
            "critical error of the process on GPU {} (Xid {})",
            gpu.id,
            xids.last.unwrap_or_default()
        ),
    }
}
