//! Who works on the jobs of a model: its processes, how they are, and how those before them ended.

use jiff::Timestamp;
use serde::Serialize;

use crate::label;

/// All who work on the jobs of one model, at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Crew {
    /// How many jobs can run at once now.
    pub slots: usize,
    /// How many of these slots are free.
    pub free: usize,
    /// The processes.
    pub children: Vec<Member>,
    /// How often a process died of each cause.
    pub deaths: Vec<(Cause, u64)>,
}

/// One process, and those that were in its place before.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Its number, from zero.
    pub number: usize,
    /// Its process; absent between two.
    pub pid: Option<u32>,
    /// How it is.
    pub state: MemberState,
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
pub enum MemberState {
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
pub enum Cause {
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

label!(Cause: Exit = "exit", Signal = "signal", OutOfMemory = "out_of_memory", Killed = "killed", Setup = "setup");
label!(MemberState: Starting = "starting", Ready = "ready", SetupFailed = "setup_failed", Defunct = "defunct");
