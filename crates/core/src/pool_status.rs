//! The status of the processes that run the jobs of a model, and how earlier processes ended.

use jiff::Timestamp;
use serde::Serialize;

use crate::counters::HistogramSnapshot;
use crate::gpu::GpuId;
use crate::label;

/// The slots and processes of one model at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoolStatus {
    /// The number of jobs that can currently run at the same time.
    pub slots: usize,
    /// The number of free slots.
    pub free: usize,
    /// The status of each process.
    pub children: Vec<ProcessStatus>,
    /// The processes that wait to replace one of `children`. They run no jobs and have no slots.
    pub spares: Vec<SpareStatus>,
    /// The number of processes that the load needs; `None` where it is not known. It is above the
    /// largest allowed number while jobs wait although all allowed processes run.
    pub wanted: Option<usize>,
    /// How many times a process was replaced, over all processes that ever ran.
    pub restarts: u64,
    /// How many times a process died of each cause.
    pub deaths: Vec<(DeathCause, u64)>,
    /// The batches; `None` if the model does not batch.
    pub batches: Option<BatchStatus>,
}

/// The batches of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchStatus {
    /// The number of jobs that wait for a batch.
    pub waiting: usize,
    /// The number of jobs in each call of the model so far.
    pub sizes: HistogramSnapshot,
}

/// The slots of a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlotCounts {
    /// The number of jobs that can currently run at the same time.
    pub slots: usize,
    /// The number of free slots.
    pub free: usize,
}

impl PoolStatus {
    /// Adds another status to this one. The processes of `other` get the numbers after those of
    /// `self`.
    pub fn merge(&mut self, other: Self) {
        self.slots += other.slots;
        self.free += other.free;
        self.spares.extend(other.spares);
        self.restarts += other.restarts;
        self.wanted = match (self.wanted, other.wanted) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        };
        let first = self.children.len();
        self.children
            .extend(
                other
                    .children
                    .into_iter()
                    .enumerate()
                    .map(|(n, child)| ProcessStatus {
                        number: first + n,
                        ..child
                    }),
            );
        for (cause, n) in other.deaths {
            match self.deaths.iter_mut().find(|(known, _)| *known == cause) {
                Some((_, sum)) => *sum += n,
                None => self.deaths.push((cause, n)),
            }
        }
        if let Some(batches) = other.batches {
            match &mut self.batches {
                Some(sum) => {
                    sum.waiting += batches.waiting;
                    sum.sizes.add(&batches.sizes);
                }
                None => self.batches = Some(batches),
            }
        }
    }
}

/// One process of the pool, and the processes that it replaced.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessStatus {
    /// The number of the process in the pool, from zero.
    pub number: usize,
    /// The process id; absent while the process is being replaced.
    pub pid: Option<u32>,
    /// The state of the process.
    pub state: ProcessState,
    /// When the process entered this state.
    pub since: Timestamp,
    /// The number of jobs that it can run at the same time.
    pub slots: usize,
    /// The number of jobs that it is running.
    pub jobs: usize,
    /// Its resident memory in bytes, if the system reports it.
    pub memory: Option<u64>,
    /// The GPUs that it was given.
    pub gpus: Vec<GpuId>,
    /// How many times the process was replaced.
    pub restarts: u64,
    /// How the previous process ended.
    pub last_end: Option<String>,
}

/// A process that waits to replace another one.
#[derive(Debug, Clone, PartialEq)]
pub struct SpareStatus {
    /// How much of the model it has loaded.
    pub kind: SpareKind,
    /// The process; it is ready when it can take over.
    pub process: ProcessStatus,
}

/// How much of a model a spare has loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SpareKind {
    /// The modules are imported; the setup runs when the spare takes over.
    Imported,
    /// The setup has run.
    Loaded,
}

/// The state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessState {
    /// The process loads the model, or is about to be started.
    Starting,
    /// The process accepts jobs.
    Ready,
    /// The model could not be loaded.
    SetupFailed,
    /// The process died too often, or may not be replaced.
    Defunct,
}

/// Why a process died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeathCause {
    /// The process exited by itself.
    Exit,
    /// A signal that the server did not send.
    Signal,
    /// The system killed it because memory ran out.
    OutOfMemory,
    /// The server killed it: a canceled job did not stop, or the process no longer responded.
    Killed,
    /// The process died before its setup ended.
    Setup,
    /// The server replaced it because it could no longer use its GPU.
    GpuError,
}

label!(DeathCause: Exit = "exit", Signal = "signal", OutOfMemory = "out_of_memory", Killed = "killed", Setup = "setup", GpuError = "gpu_error");
label!(ProcessState: Starting = "starting", Ready = "ready", SetupFailed = "setup_failed", Defunct = "defunct");

#[cfg(test)]
mod tests {
    use super::*;

    fn child(number: usize) -> ProcessStatus {
        let (state, since) = (ProcessState::Ready, Timestamp::UNIX_EPOCH);
        ProcessStatus {
            number,
            pid: None,
            state,
            since,
            slots: 1,
            jobs: 0,
            memory: None,
            gpus: Vec::new(),
            restarts: 0,
            last_end: None,
        }
    }

    #[test]
    fn merging_two_pools_keeps_all_processes_and_deaths() {
        let mut one = PoolStatus {
            slots: 2,
            free: 1,
            children: vec![child(0), child(1)],
            deaths: vec![(DeathCause::Exit, 1)],
            wanted: Some(2),
            ..PoolStatus::default()
        };
        let other = PoolStatus {
            slots: 1,
            free: 1,
            children: vec![child(0)],
            deaths: vec![(DeathCause::Signal, 4), (DeathCause::Exit, 2)],
            wanted: Some(1),
            ..PoolStatus::default()
        };
        one.merge(other);
        assert_eq!((one.slots, one.free, one.wanted), (3, 2, Some(3)));
        assert_eq!(
            one.children
                .iter()
                .map(|child| child.number)
                .collect::<Vec<_>>(),
            [0, 1, 2]
        );
        assert_eq!(one.deaths, [(DeathCause::Exit, 3), (DeathCause::Signal, 4)]);
    }
}
