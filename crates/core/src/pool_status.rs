//! Who works on the jobs of a model: its processes, how they are, and how those before them ended.

use jiff::Timestamp;
use serde::Serialize;

use crate::label;

/// All who work on the jobs of one model, at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoolStatus {
    /// How many jobs can run at once now.
    pub slots: usize,
    /// How many of these slots are free.
    pub free: usize,
    /// The processes.
    pub children: Vec<ProcessStatus>,
    /// How often a process died of each cause.
    pub deaths: Vec<(DeathCause, u64)>,
}

impl PoolStatus {
    /// Both together, as if they were one. The processes of the other are numbered after ours.
    pub fn merge(&mut self, other: Self) {
        self.slots += other.slots;
        self.free += other.free;
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
    }
}

/// One process, and those that were in its place before.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessStatus {
    /// Its number, from zero.
    pub number: usize,
    /// Its process; absent between two.
    pub pid: Option<u32>,
    /// How it is.
    pub state: ProcessState,
    /// Since when.
    pub since: Timestamp,
    /// How many jobs it can work on at once.
    pub slots: usize,
    /// How many it has in hand.
    pub jobs: usize,
    /// What it holds in memory, in bytes, if the system tells.
    pub memory: Option<u64>,
    /// How often another one took its place.
    pub restarts: u64,
    /// How the one before it ended.
    pub last_end: Option<String>,
}

/// How a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessState {
    /// It loads the model, or is about to be started.
    Starting,
    /// It takes jobs.
    Ready,
    /// The model could not be loaded.
    SetupFailed,
    /// It died too often, or may not be replaced.
    Defunct,
}

/// Of what a process died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeathCause {
    /// It ended by itself.
    Exit,
    /// A signal of somebody else.
    Signal,
    /// The system needed its memory.
    OutOfMemory,
    /// We killed it: a canceled job did not stop, or it could not be talked to any more.
    Killed,
    /// It did not get to the end of its setup.
    Setup,
}

label!(DeathCause: Exit = "exit", Signal = "signal", OutOfMemory = "out_of_memory", Killed = "killed", Setup = "setup");
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
            restarts: 0,
            last_end: None,
        }
    }

    #[test]
    fn two_crews_together_lose_nobody() {
        let mut one = PoolStatus {
            slots: 2,
            free: 1,
            children: vec![child(0), child(1)],
            deaths: vec![(DeathCause::Exit, 1)],
        };
        let other = PoolStatus {
            slots: 1,
            free: 1,
            children: vec![child(0)],
            deaths: vec![(DeathCause::Signal, 4), (DeathCause::Exit, 2)],
        };
        one.merge(other);
        assert_eq!((one.slots, one.free), (3, 2));
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
