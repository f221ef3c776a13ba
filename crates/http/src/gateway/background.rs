//! Runs work of a request on the runtime of background tasks.
//!
//! A task runs on the runtime of the code that spawns it. A request is served on the event loop of its
//! connection, and what it starts for others, such as the loop that runs queued jobs, must not stay there.

use std::future::pending;

use tokio::runtime::Handle;
use tokio::task::JoinError;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// The runtime of background tasks.
#[derive(Clone)]
pub(super) struct Background {
    runtime: Handle,
    tasks: TaskTracker,
}

impl Background {
    /// Uses the runtime of the caller.
    pub(super) fn here(tasks: &TaskTracker) -> Self {
        Self {
            runtime: Handle::current(),
            tasks: tasks.clone(),
        }
    }

    /// Runs `work`, which ends early if the caller stops waiting.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let running = self.tasks.spawn_on(work, &self.runtime);
        result_of(AbortOnDropHandle::new(running).await).await
    }

    /// Runs `work` to its end, also if the caller stops waiting.
    pub(super) async fn run_to_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        result_of(self.tasks.spawn_on(work, &self.runtime).await).await
    }
}

async fn result_of<T>(ended: Result<T, JoinError>) -> T {
    match ended {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime has ended, and the program with it.
            Err(_) => pending().await,
        },
    }
}
