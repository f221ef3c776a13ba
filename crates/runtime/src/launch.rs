//! What a runtime is told before it starts, and whom it tells how that goes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_core::LogSource;
use tidegate_ipc::control::{ModelMode, ResourceLimits};

/// A model and how to run it.
#[derive(Debug, Clone)]
pub struct LaunchConfig {
    /// The interpreter.
    pub python: PathBuf,
    /// Folders in front of the interpreter's own, for a checkout whose package is not installed.
    pub python_path: Vec<PathBuf>,
    /// The model's folder.
    pub model_dir: PathBuf,
    /// `file.py:Name`.
    pub predictor_ref: String,
    /// The same for training.
    pub train_ref: Option<String>,
    /// Which function answers predictions.
    pub mode: ModelMode,
    /// Jobs at once in one child; without it the model decides.
    pub slots: Option<u32>,
    /// How many slots a child gets whose code changes its mind about how many jobs it wants at once; without it,
    /// it is asked once.
    pub max_slots: Option<u32>,
    /// How many children.
    pub children: usize,
    /// How many callers may wait for a slot.
    pub queue_limit: usize,
    /// How long a setup may take.
    pub setup_timeout: Option<Duration>,
    /// How long a canceled job may go on before its child is killed.
    pub cancel_grace: Duration,
    /// Whether a child that died is replaced.
    pub respawn: Respawn,
    /// Set in the children's environment.
    pub env: Vec<(OsString, OsString)>,
    /// Taken out of the children's environment: what is the server's own secret.
    pub hidden_env: Vec<OsString>,
    /// Whom the children run as, if not as the server itself.
    pub run_as: Option<RunAs>,
    /// What the system lets each process of a child have.
    pub limits: ResourceLimits,
}

/// Another user for the children. Only root can give its processes away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunAs {
    /// The user's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
    /// The user's home, for `HOME`.
    pub home: Option<PathBuf>,
}

/// Whether a child that died is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Respawn {
    /// With growing pauses. When it has died `give_up_after` times in a row without having worked, the
    /// model is defunct; it is still tried, now and then.
    Backoff {
        /// Deaths in a row that are one too many.
        give_up_after: u32,
    },
    /// Never: the model is defunct from then on.
    Never,
}

/// How a child gets on; for the terminal.
#[derive(Debug, Clone, Copy)]
pub enum Phase<'a> {
    /// The process runs and loads the model.
    Loading {
        /// The child's process.
        pid: u32,
    },
    /// Setup printed something.
    Log {
        /// Where.
        source: LogSource,
        /// What.
        text: &'a str,
    },
    /// Setup is over.
    Ready {
        /// How long it took.
        after: Duration,
        /// Jobs at once.
        slots: usize,
    },
    /// Setup did not succeed.
    Failed {
        /// Why, with the traceback if there is one.
        reason: &'a str,
    },
    /// The child died and will be replaced after a pause.
    Died {
        /// How.
        reason: &'a str,
        /// The pause.
        pause: Duration,
    },
    /// The child died too often, or may not be replaced.
    Defunct {
        /// How.
        reason: &'a str,
    },
}

/// Who wants to know how the children get on. `worker` counts from zero.
pub trait Observer: Send + Sync {
    /// Told in order for each worker.
    fn phase(&self, worker: usize, phase: Phase<'_>);
}

/// Nobody wants to know.
impl Observer for () {
    fn phase(&self, _worker: usize, _phase: Phase<'_>) {}
}
