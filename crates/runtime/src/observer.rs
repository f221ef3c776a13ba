//! Reports the progress of the child processes, for the terminal and the log.

use std::time::Duration;

use tidegate_core::LogSource;

/// A step in the life of a child process.
#[derive(Debug, Clone, Copy)]
pub enum Phase<'a> {
    /// The process runs and loads the model.
    Loading {
        /// The process id of the child.
        pid: u32,
    },
    /// The setup printed a line.
    Log {
        /// The stream that the line was printed to.
        source: LogSource,
        /// The text.
        text: &'a str,
    },
    /// The setup succeeded.
    Ready {
        /// How long the start took.
        after: Duration,
        /// The number of jobs that the child runs at a time.
        slots: usize,
    },
    /// The setup failed.
    Failed {
        /// The reason, with the traceback if there is one.
        reason: &'a str,
    },
    /// The child died and will be replaced after a pause.
    Died {
        /// How the child died.
        reason: &'a str,
        /// The pause before the replacement starts.
        pause: Duration,
    },
    /// The child died too often, or the configuration forbids a replacement.
    Defunct {
        /// How the child died.
        reason: &'a str,
    },
}

/// A change of the pool that does not affect the jobs of the model.
#[derive(Debug, Clone, Copy)]
pub enum PoolEvent<'a> {
    /// An additional child could not be set up.
    ScaleUpFailed {
        /// The number of the child.
        child: usize,
        /// The reason, with the traceback if there is one.
        reason: &'a str,
    },
    /// The spare can take the place of a child.
    SpareReady {
        /// How long the start took.
        after: Duration,
    },
    /// The spare could not be started, or has died.
    SpareFailed {
        /// The reason, with the traceback if there is one.
        reason: &'a str,
        /// The pause before the next attempt.
        pause: Duration,
    },
}

/// Receives the phases of the child processes. `child` is the child's number, from zero.
pub trait Observer: Send + Sync {
    /// Called in order for each child.
    fn phase(&self, child: usize, phase: Phase<'_>);

    /// Called for changes of the pool.
    fn pool_event(&self, event: PoolEvent<'_>) {
        tracing::debug!(?event, "pool changed");
    }
}

/// Ignores all phases.
impl Observer for () {
    fn phase(&self, _child: usize, _phase: Phase<'_>) {}
}
