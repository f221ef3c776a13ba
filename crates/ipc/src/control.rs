//! The control channel: the child as a whole, on its stdin and stdout.
//!
//! The child moves both descriptors away before any user code runs, so that `print`, `os.write(1, …)`
//! and C libraries cannot reach them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::slot::WireLogSource;

/// Which slot of a child; counted from zero in the order in which the child connects them.
pub type SlotId = u32;

/// Parent to child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlRequest {
    /// Load the model, run its setup, connect the slots.
    Init(ChildInit),
    /// Stop the job that runs on this slot. Ignored when it has ended.
    Cancel {
        /// The slot whose job is to stop.
        slot: SlotId,
        /// Which job of the slot is meant, counted from one in the order in which they were sent: a late
        /// cancel never hits a successor, and one that overtakes its job waits for it.
        nth: u64,
    },
    /// Run the user's health check.
    Healthcheck {
        /// Comes back in the answer.
        id: u64,
    },
    /// Finish what runs and exit.
    Shutdown,
}

/// What a child needs to know before it can load a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildInit {
    /// The model's folder. The child starts elsewhere, so that a `json.py` in it cannot break the child's
    /// own imports, and moves there before it loads the model.
    pub model_dir: String,
    /// `file.py:Name`, relative to the model's folder.
    pub predictor_ref: String,
    /// The same for training, when the model has it.
    pub train_ref: Option<String>,
    /// `predict`, or `train` to answer predictions with the training function.
    pub mode: ModelMode,
    /// How many jobs at once; without it the model's own `@concurrent` decides.
    pub num_slots: Option<u32>,
    /// How many slots code gets that changes its mind about how many jobs it wants at once. Without it, it is
    /// asked once.
    #[serde(default, rename = "room")]
    pub max_slots: Option<u32>,
    /// The parent listens here; the child connects once per slot before it reports `Ready`.
    pub socket: String,
    /// What the child must bound itself to before it loads anything.
    #[serde(default)]
    pub limits: ResourceLimits,
}

/// What the system lets each process of a child have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Memory of its own, in bytes: `MemoryError` above it.
    pub memory: Option<u64>,
    /// Processes and threads of its user.
    pub processes: Option<u64>,
    /// The largest output file, in bytes: larger ones are not even copied.
    #[serde(default)]
    pub output_file: Option<u64>,
}

/// Which of the model's functions answers predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelMode {
    /// `run` or `predict`.
    Predict,
    /// `train`.
    Train,
}

/// Child to parent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlResponse {
    /// The model's code has been read; it is loaded next.
    #[serde(rename = "described")]
    Schema {
        /// The model's OpenAPI document, the same that `Ready` has.
        schema: Box<RawValue>,
    },
    /// Setup is over and every slot is connected.
    Ready(Ready),
    /// A line printed outside of any job: during setup, or by a thread that belongs to no running job.
    Log {
        /// Where it was printed.
        source: WireLogSource,
        /// The text with its line break, if it had one.
        data: String,
    },
    /// The child's own remarks, not the user's.
    #[serde(rename = "worker_log")]
    ChildLog {
        /// Which part of the child speaks.
        target: String,
        /// `error`, `warn`, `info` or `debug`.
        level: String,
        /// What it says.
        message: String,
    },
    /// The slot waits for a job. Sent once per slot after `Ready`; later the last message of a job says it.
    Idle {
        /// The slot.
        slot: SlotId,
    },
    /// A cancel has reached the user's code on this slot.
    Cancelled {
        /// The slot.
        slot: SlotId,
    },
    /// The slot itself is broken, not a job on it.
    Failed {
        /// The slot.
        slot: SlotId,
        /// What broke.
        error: String,
    },
    /// How many jobs at once the model's code wants from now on.
    #[serde(rename = "wants")]
    DesiredConcurrency {
        /// As many.
        slots: u32,
    },
    /// The child cannot go on and is about to exit.
    Fatal(Fatal),
    /// Lines were thrown away because they came faster than the parent took them.
    DroppedLogs {
        /// How many.
        count: u64,
        /// In how much time.
        interval_millis: u64,
    },
    /// The answer to `Healthcheck`.
    HealthcheckResult {
        /// From the request.
        id: u64,
        /// Whether the model says it is well.
        status: HealthcheckStatus,
        /// Why not.
        error: Option<String>,
    },
    /// The child has understood `Shutdown`.
    ShuttingDown,
}

/// The model is loaded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ready {
    /// The slots, in the order in which they were connected.
    pub slots: Vec<SlotId>,
    /// The model's OpenAPI document.
    pub schema: Box<RawValue>,
    /// Whether the model's function is a coroutine or an asynchronous generator.
    pub is_async: bool,
    /// Whether `healthcheck` is defined.
    pub has_healthcheck: bool,
    /// The interpreter's version, for the health report.
    pub python: String,
    /// The version of the `cog` package in use, if it is installed.
    pub sdk: Option<String>,
}

/// Why a child gave up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fatal {
    /// What the child was doing.
    pub stage: FatalStage,
    /// One sentence.
    pub reason: String,
    /// The user's traceback, when there is one.
    pub traceback: Option<String>,
}

/// What a child was doing when it gave up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FatalStage {
    /// Reading the model's signature.
    Schema,
    /// Importing the model.
    Load,
    /// Running the user's `setup`.
    Setup,
    /// Serving jobs.
    Run,
}

/// What a user's health check said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthcheckStatus {
    /// Well, or no health check is defined.
    Healthy,
    /// Returned `False`, raised, or took too long.
    Unhealthy,
}
