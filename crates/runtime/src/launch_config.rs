//! The configuration of a model's child processes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::gpu::GpuAssigner;
use tidegate_core::pool_status::SpareKind;
use tidegate_ipc::control::{BatchSettings, ModelMode, ResourceLimits};

/// A model and how to run it.
#[derive(Debug, Clone)]
pub struct LaunchConfig {
    /// The Python interpreter.
    pub python: PathBuf,
    /// Folders at the front of the import path, for a checkout whose package is not installed.
    pub python_path: Vec<PathBuf>,
    /// The packages that the model needs, for the message when an import fails.
    pub requirements: Vec<String>,
    /// The folder of the model.
    pub model_dir: PathBuf,
    /// The predictor, as `file.py:Name`.
    pub predictor_ref: String,
    /// The training function, as `file.py:name`.
    pub train_ref: Option<String>,
    /// The function that handles predictions.
    pub mode: ModelMode,
    /// The number of jobs that one child runs at a time. `None`: the model decides.
    pub slots: Option<u32>,
    /// The number of slots of a child whose code changes its desired concurrency at run time.
    /// `None`: the child reads the desired concurrency once.
    pub max_slots: Option<u32>,
    /// The number of child processes; with `autoscaling`, the smallest number.
    pub children: usize,
    /// How the number of child processes follows the load. `None`: it does not change.
    pub autoscaling: Option<Autoscaling>,
    /// The process that waits to replace a child, if there is one.
    pub spare: Option<SpareKind>,
    /// How many callers of one account may wait for a slot.
    pub queue_limit: usize,
    /// The longest time that a setup may take.
    pub setup_timeout: Option<Duration>,
    /// How long a canceled job may continue before its child is killed.
    pub cancel_grace: Duration,
    /// Whether a child that died is replaced.
    pub respawn: Respawn,
    /// Variables that are added to the environment of the children.
    pub env: Vec<(OsString, OsString)>,
    /// Variables that are removed from the environment of the children: the server's secrets.
    pub hidden_env: Vec<OsString>,
    /// Gives GPUs to the children. `None`: they see the GPUs that the server sees.
    pub gpus: Option<Arc<dyn GpuAssigner>>,
    /// The user that the children run as. `None`: the user of the server.
    pub run_as: Option<RunAs>,
    /// Resource limits of each process of a child.
    pub limits: ResourceLimits,
    /// Settings of batches that take precedence over those in the model's code.
    pub batch: BatchSettings,
}

/// How the number of child processes follows the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Autoscaling {
    /// The largest number of children.
    pub max: usize,
    /// A child is added when callers have had to wait for this time without a break.
    pub up_after: Duration,
    /// A child is removed when one child fewer would have been enough for this time.
    pub down_after: Duration,
}

/// Another user for the children. Only root can start processes as another user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunAs {
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
    /// The home directory of the user, for `HOME`.
    pub home: Option<PathBuf>,
}

/// Whether a child that died is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Respawn {
    /// With growing pauses. After `give_up_after` deaths in a row without a job, the model is
    /// defunct; the supervisor still starts a child from time to time.
    Backoff {
        /// The number of deaths in a row that makes the model defunct.
        give_up_after: u32,
    },
    /// Never: the model is defunct after the first death.
    Never,
}
