//! Follows what the children of reservations hold, from the reports of the driver.
//!
//! Where the driver names processes, a child holds what it and its descendants hold. Where it does not, a
//! child that was loaded alone holds what the use of its GPUs grew by. Otherwise it is unknown.
//!
//! What a child needs is the most that it has held. The driver is read once a second, and a job that runs out of
//! memory holds all there is. So the allocator of the child's library decides where it reports its own peak.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::gpu::{AllocatorMemory, Gpu, GpuId, GpuReport};
use tokio::time::Instant;

use self::gpu_errors::ErrorHistory;

use crate::ledger::{EntryId, EntryState, Ledger};
use crate::requirements::MeasuredRequirements;

/// How long the memory of a child that has exited is waited for.
const RETURN_LIMIT: Duration = Duration::from_secs(10);
/// How many parents of a process are read.
const MAX_PARENTS: usize = 16;
/// The part of the memory of a child that must be free again, in percent: other children change theirs.
const RETURNED_PERCENT: u64 = 90;

/// The reservations, and what is known about their processes.
#[derive(Debug, Default)]
pub(crate) struct TrackedLedger {
    pub(crate) ledger: Ledger,
    pub(crate) requirements: MeasuredRequirements,
    tracks: HashMap<EntryId, Track>,
    errors: ErrorHistory,
}

/// What is known about the process of a reservation.
#[derive(Debug)]
struct Track {
    version: String,
    pid: Option<u32>,
    /// The processes that held memory for it.
    pids: BTreeSet<u32>,
    /// The use of each GPU when the child was started; empty if others changed theirs meanwhile.
    used_before: BTreeMap<GpuId, u64>,
    /// The use of each GPU when the child had exited.
    used_at_end: BTreeMap<GpuId, u64>,
    ready_at: Option<Timestamp>,
    ended_at: Option<Instant>,
    /// The critical error that keeps the process from using its GPUs.
    error: Option<String>,
    /// What the allocator of the child's library has reserved, if it has reported that.
    allocator: Option<AllocatorMemory>,
    /// The least that the child has held beside its allocator.
    beside_allocator: Option<u64>,
}

impl Track {
    /// What the child needs on a GPU, when it holds `held` on the GPU where it holds the most.
    fn need(&mut self, held: u64) -> u64 {
        let Some(allocator) = self.allocator else {
            return held;
        };
        // During a job the allocator may have reserved more than it has reported.
        let beside = held.saturating_sub(allocator.reserved);
        let beside = beside.min(self.beside_allocator.unwrap_or(u64::MAX));
        self.beside_allocator = Some(beside);
        beside.saturating_add(allocator.peak)
    }
}

impl TrackedLedger {
    pub(crate) fn new(requirements: MeasuredRequirements) -> Self {
        Self {
            requirements,
            ..Self::default()
        }
    }

    /// Begins to follow a new reservation of a version.
    pub(crate) fn track(&mut self, id: EntryId, version: &str) {
        let track = Track {
            version: version.to_owned(),
            pid: None,
            pids: BTreeSet::new(),
            used_before: BTreeMap::new(),
            used_at_end: BTreeMap::new(),
            ready_at: None,
            ended_at: None,
            error: None,
            allocator: None,
            beside_allocator: None,
        };
        self.tracks.insert(id, track);
    }

    /// The child of a reservation was started.
    pub(crate) fn started(&mut self, id: EntryId, pid: u32, report: &GpuReport) {
        let Some(entry) = self.ledger.get_mut(id) else {
            return;
        };
        entry.state = EntryState::Loading;
        entry.held.clear();
        let gpus = entry.gpus.clone();
        self.disturb(id, &gpus);
        let is_alone = self.is_alone(id, &gpus);
        let Some(track) = self.tracks.get_mut(&id) else {
            return;
        };
        track.pid = Some(pid);
        track.pids = BTreeSet::from([pid]);
        track.ready_at = None;
        track.ended_at = None;
        track.error = None;
        track.allocator = None;
        track.beside_allocator = None;
        track.used_before = if is_alone {
            used(report, &gpus)
        } else {
            BTreeMap::new()
        };
    }

    /// The child of a reservation is set up.
    pub(crate) fn ready(&mut self, id: EntryId) {
        if let Some(entry) = self.ledger.get_mut(id) {
            entry.state = EntryState::Ready;
            entry.is_unread = true;
        }
        if let Some(track) = self.tracks.get_mut(&id) {
            track.ready_at = Some(Timestamp::now());
        }
    }

    /// The allocator of a child's library has reported what it has reserved.
    pub(crate) fn allocated(&mut self, id: EntryId, memory: AllocatorMemory) {
        if let Some(track) = self.tracks.get_mut(&id) {
            track.allocator = Some(memory);
        }
    }

    /// The child of a reservation has exited, and may be replaced.
    pub(crate) fn exited(&mut self, id: EntryId, report: &GpuReport) {
        let Some(entry) = self.ledger.get(id) else {
            return;
        };
        let gpus = entry.gpus.clone();
        self.disturb(id, &gpus);
        self.errors.exited(&gpus);
        if let Some(track) = self.tracks.get_mut(&id) {
            track.used_at_end = used(report, &gpus);
            track.ended_at.get_or_insert_with(Instant::now);
        }
    }

    /// The reservation is over. It is removed when its memory is free.
    pub(crate) fn release(&mut self, id: EntryId, report: &GpuReport) {
        if !self.was_started(id) {
            return self.forget(id);
        }
        self.exited(id, report);
        if let Some(entry) = self.ledger.get_mut(id) {
            entry.state = EntryState::Ending;
        }
    }

    /// Whether a child of the reservation was started.
    pub(crate) fn was_started(&self, id: EntryId) -> bool {
        self.tracks
            .get(&id)
            .is_some_and(|track| track.pid.is_some())
    }

    /// Whether the memory of a child that has exited is free.
    pub(crate) fn is_returned(&self, id: EntryId, report: &GpuReport) -> bool {
        let (Some(entry), Some(track)) = (self.ledger.get(id), self.tracks.get(&id)) else {
            return true;
        };
        let Some(ended_at) = track.ended_at else {
            return true;
        };
        let is_free = |id: &GpuId| {
            let Some(gpu) = report.find(id) else {
                return true;
            };
            if let Some(processes) = gpu.processes.as_ref().filter(|_| report.pids_match) {
                return !processes
                    .iter()
                    .any(|process| track.pids.contains(&process.pid));
            }
            let (Some(memory), Some(before)) = (gpu.memory, track.used_at_end.get(id)) else {
                return true;
            };
            let held = entry
                .held
                .get(id)
                .copied()
                .or(entry.promised)
                .unwrap_or_default();
            memory.used + held / 100 * RETURNED_PERCENT <= *before
        };
        entry.gpus.iter().all(is_free) || ended_at.elapsed() >= RETURN_LIMIT
    }

    /// Takes over what a report says. Reads `/proc`, which blocks.
    pub(crate) fn observe(&mut self, report: &GpuReport) {
        let ids: Vec<EntryId> = self.ledger.entries().map(|(id, _)| id).collect();
        let owners = self.owners(report);
        for id in ids {
            match self.ledger.get(id).map(|entry| entry.state) {
                Some(EntryState::Ending) if self.is_returned(id, report) => self.forget(id),
                Some(EntryState::Loading | EntryState::Ready | EntryState::Revoked) => {
                    self.measure(id, report, &owners)
                }
                Some(EntryState::Ending) | None => {}
            }
        }
    }

    /// The reservation that each process of a GPU belongs to.
    fn owners(&self, report: &GpuReport) -> HashMap<u32, EntryId> {
        let children: HashMap<u32, EntryId> = self
            .tracks
            .iter()
            .filter(|(_, track)| track.ended_at.is_none())
            .filter_map(|(id, track)| Some((track.pid?, *id)))
            .collect();
        let processes = report.gpus.iter().filter_map(|gpu| gpu.processes.as_ref());
        let pids = processes.flatten().map(|process| process.pid);
        pids.filter(|_| report.pids_match)
            .filter_map(|pid| {
                let line = std::iter::successors(Some(pid), |pid| parent_of(*pid));
                let owner = line.take(MAX_PARENTS).find_map(|pid| children.get(&pid));
                Some((pid, *owner?))
            })
            .collect()
    }

    fn measure(&mut self, id: EntryId, report: &GpuReport, owners: &HashMap<u32, EntryId>) {
        let (Some(entry), Some(track)) = (self.ledger.get_mut(id), self.tracks.get_mut(&id)) else {
            return;
        };
        if track.ready_at.is_some() && report.at >= track.ready_at {
            entry.is_unread = false;
        }
        if track.pid.is_none() || track.ended_at.is_some() {
            return;
        }
        let mut most = 0;
        for gpu_id in entry.gpus.clone() {
            let Some(gpu) = report.find(&gpu_id) else {
                continue;
            };
            let held = match gpu.processes.as_ref().filter(|_| report.pids_match) {
                Some(processes) => {
                    let own = processes
                        .iter()
                        .filter(|process| owners.get(&process.pid) == Some(&id));
                    let own: Vec<_> = own.collect();
                    track.pids.extend(own.iter().map(|process| process.pid));
                    own.iter()
                        .map(|process| process.memory)
                        .sum::<Option<u64>>()
                }
                None => None,
            };
            if let Some(held) = held.or_else(|| growth(gpu, &track.used_before)) {
                entry.held.insert(gpu_id, held);
                most = most.max(held);
            }
        }
        if entry.state == EntryState::Ready && most > 0 {
            let need = track.need(most);
            entry.promised = entry.promised.max(Some(need));
            let found = entry.gpus.iter().filter_map(|gpu| report.find(gpu));
            let kinds: BTreeSet<String> = found.map(kind_of).collect();
            for kind in kinds {
                self.requirements
                    .record(&entry.model, &track.version, &kind, need);
            }
        }
    }

    /// The growth of the use of these GPUs no longer tells anything about the children on them.
    fn disturb(&mut self, id: EntryId, gpus: &[GpuId]) {
        let shares = |other: &[GpuId]| other.iter().any(|gpu| gpus.contains(gpu));
        let others: Vec<EntryId> = self
            .ledger
            .entries()
            .filter(|(other, entry)| *other != id && shares(&entry.gpus))
            .map(|(other, _)| other)
            .collect();
        for other in others {
            if let Some(track) = self.tracks.get_mut(&other) {
                track.used_before.clear();
            }
        }
    }

    /// Whether no other child changes its memory on these GPUs while this one is loaded.
    fn is_alone(&self, id: EntryId, gpus: &[GpuId]) -> bool {
        let mut others = self.ledger.entries().filter(|(other, _)| *other != id);
        others.all(|(_, entry)| {
            entry.state == EntryState::Ready || !entry.gpus.iter().any(|gpu| gpus.contains(gpu))
        })
    }

    fn forget(&mut self, id: EntryId) {
        self.ledger.remove(id);
        self.tracks.remove(&id);
    }
}

/// What the use of a GPU has grown by since a child was started.
fn growth(gpu: &Gpu, used_before: &BTreeMap<GpuId, u64>) -> Option<u64> {
    let before = used_before.get(&gpu.id)?;
    Some(gpu.memory?.used.saturating_sub(*before))
}

fn used(report: &GpuReport, gpus: &[GpuId]) -> BTreeMap<GpuId, u64> {
    let used = |id: &GpuId| Some((id.clone(), report.find(id)?.memory?.used));
    gpus.iter().filter_map(used).collect()
}

/// What the requirement of a model on a GPU depends on.
pub(crate) fn kind_of(gpu: &Gpu) -> String {
    gpu.name.clone().unwrap_or_default()
}

/// The parent of a process, if there is one.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, in parentheses, may contain any character.
    let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
    parent.parse().ok().filter(|parent| *parent > 1)
}

mod gpu_errors;
#[cfg(test)]
mod tests;
