//! The control channel: messages about the child as a whole, on its stdin and stdout.
//!
//! The child moves both file descriptors before any user code runs, so that `print`, `os.write(1, …)`
//! and C libraries cannot write to the channel.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::slot::WireLogSource;

/// The number of a slot, from zero in the order in which the child connects them.
pub type SlotId = u32;

/// A message from the server to the child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlRequest {
    /// Load the model, run its setup, connect the slots.
    Init(ChildInit),
    /// Run the setup of a model that is imported; see [`ChildInit::waits_for_setup`].
    SetUp {
        /// Environment variables that the child sets before: the GPUs that it gets.
        env: BTreeMap<String, String>,
    },
    /// Cancel a job of this slot. Ignored when the job has ended.
    Cancel {
        /// The slot.
        slot: SlotId,
        /// The number of the job on its slot, from one in the order of sending: a late cancel never
        /// affects a later job, and one that overtakes its job is applied when the job arrives.
        nth: u64,
    },
    /// Run the model's health check.
    Healthcheck {
        /// Repeated in the reply.
        id: u64,
    },
    /// Finish the running jobs and exit.
    Shutdown,
}

/// What a child needs in order to load a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildInit {
    /// The model's folder. The child starts in another folder, so that a `json.py` in the model's folder
    /// cannot break the child's own imports, and changes to it before it loads the model.
    pub model_dir: String,
    /// `file.py:Name`, relative to the model's folder.
    pub predictor_ref: String,
    /// The same for training, when the model has it.
    pub train_ref: Option<String>,
    /// `predict`, or `train` to answer predictions with the training function.
    pub mode: ModelMode,
    /// The number of slots; without it the model's own `@concurrent` decides.
    pub num_slots: Option<u32>,
    /// The number of slots of a model that changes its desired concurrency at run time. Without it, the
    /// child reads the desired concurrency once.
    #[serde(default, rename = "room")]
    pub max_slots: Option<u32>,
    /// The socket of the server; the child connects once per slot before it sends `Ready`.
    pub socket: String,
    /// The packages that the model needs, as in pip: `numpy==1.26.4`. The child compares them with the
    /// installed ones when an import fails.
    #[serde(default)]
    pub requirements: Vec<String>,
    /// Limits that the child applies to itself before it loads the model.
    #[serde(default)]
    pub limits: ResourceLimits,
    /// The operator's settings for batches.
    #[serde(default)]
    pub batch: BatchSettings,
    /// Whether the child only imports the model's modules, sends `Imported` and waits for `SetUp`.
    #[serde(default)]
    pub waits_for_setup: bool,
}

/// Settings of batches that take precedence over those in the model's code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchSettings {
    /// The maximum number of items in one call of the model.
    pub max_size: Option<u32>,
    /// How long an item may wait for others, in microseconds.
    pub max_wait_micros: Option<u64>,
}

/// Resource limits of each process of a child.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Private memory, in bytes; above it, Python raises `MemoryError`.
    pub memory: Option<u64>,
    /// The number of processes and threads of the child's user.
    pub processes: Option<u64>,
    /// The largest output file, in bytes; larger files are not copied.
    #[serde(default)]
    pub output_file: Option<u64>,
}

/// The function of the model that handles predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelMode {
    /// `run` or `predict`.
    Predict,
    /// `train`.
    Train,
}

/// A message from the child to the server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlResponse {
    /// The schema, read from the model's code before the model is loaded.
    #[serde(rename = "described")]
    Schema {
        /// The model's OpenAPI document, as in `Ready`.
        schema: Box<RawValue>,
    },
    /// The model's modules are imported, and the child waits for `SetUp`.
    Imported {
        /// Whether the imports have initialised CUDA, which occupies GPU memory.
        uses_gpu: bool,
        /// Whether the imports have opened the GPU driver, which reads `CUDA_VISIBLE_DEVICES` only once.
        has_driver: bool,
    },
    /// Setup succeeded and every slot is connected.
    Ready(Ready),
    /// A line that was printed outside of a job: during setup, or by a thread of no running job.
    Log {
        /// The stream.
        source: WireLogSource,
        /// The text with its line break, if it had one.
        data: String,
    },
    /// A log message of the child itself, not of user code.
    #[serde(rename = "worker_log")]
    ChildLog {
        /// The module of the child.
        target: String,
        /// `error`, `warn`, `info` or `debug`.
        level: String,
        /// The text.
        message: String,
    },
    /// The slot waits for a job. Sent once per slot after `Ready`; later the last message of a job
    /// implies it.
    Idle {
        /// The slot.
        slot: SlotId,
    },
    /// User code on this slot has received a cancellation.
    Cancelled {
        /// The slot.
        slot: SlotId,
    },
    /// The slot itself failed, not a job on it.
    Failed {
        /// The slot.
        slot: SlotId,
        /// The error.
        error: String,
    },
    /// The number of jobs that the model wants to run at a time from now on.
    #[serde(rename = "wants")]
    DesiredConcurrency {
        /// The number of jobs.
        slots: u32,
    },
    /// The child can no longer use its GPU and must be replaced. Sent between two jobs; during a job,
    /// the slot's message of the same name is sent.
    Broken {
        /// The error of the GPU.
        reason: String,
    },
    /// What the allocator of the child's GPU library has reserved on the GPU where it has reserved the
    /// most. Sent after `Ready`, and after jobs if it has changed, at most once a second.
    GpuMemory {
        /// Now, in bytes.
        reserved: u64,
        /// At most, since the start or since the last job that ran out of memory, in bytes.
        peak: u64,
    },
    /// The child cannot continue and is about to exit.
    Fatal(Fatal),
    /// The child dropped lines because they were printed faster than the server read them.
    DroppedLogs {
        /// The number of lines.
        count: u64,
        /// The time in which they were dropped.
        interval_millis: u64,
    },
    /// The reply to `Healthcheck`.
    HealthcheckResult {
        /// The id of the request.
        id: u64,
        /// The result.
        status: HealthcheckStatus,
        /// The reason, if unhealthy.
        error: Option<String>,
    },
    /// The child has received `Shutdown`.
    ShuttingDown,
}

/// The model is loaded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ready {
    /// The slots, in the order in which they were connected.
    pub slots: Vec<SlotId>,
    /// The model's OpenAPI document.
    pub schema: Box<RawValue>,
    /// Whether the model's function is a coroutine or an async generator.
    pub is_async: bool,
    /// Whether `healthcheck` is defined.
    pub has_healthcheck: bool,
    /// The interpreter's version, for the health report.
    pub python: String,
    /// The version of the `cog` package in use, if it is installed.
    pub sdk: Option<String>,
    /// How the child wants its batches; absent for a model that does not batch.
    #[serde(default)]
    pub batch: Option<BatchLimits>,
}

/// How the server forms batches for a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchLimits {
    /// The maximum number of items in one call of the model.
    pub max_size: u32,
    /// The maximum number of items in one message. More than `max_size` if the child sorts them into
    /// several calls.
    pub max_message: u32,
    /// How long an item may wait for others, in microseconds.
    pub max_wait_micros: u64,
}

/// Why a child cannot continue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fatal {
    /// What the child was doing.
    pub stage: FatalStage,
    /// The reason, in one sentence.
    pub reason: String,
    /// The traceback of user code, if there is one.
    pub traceback: Option<String>,
}

/// What a child was doing when it failed.
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

/// The result of the model's health check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthcheckStatus {
    /// Healthy, or no health check is defined.
    Healthy,
    /// Returned `False`, raised, or took too long.
    Unhealthy,
}
