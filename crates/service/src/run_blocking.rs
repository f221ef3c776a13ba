//! Runs CPU-bound work without blocking the other tasks of the thread.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Parsing or encoding this many bytes takes about a millisecond.
const LARGE: usize = 1024 * 1024;

/// Runs `work`, which processes `bytes` bytes. If it is large, the runtime moves the other tasks of
/// this thread to another one; a runtime of one thread has no other, so there they wait.
pub(crate) fn run_blocking_if_large<R>(bytes: usize, work: impl FnOnce() -> R) -> R {
    let has_other_threads = || {
        Handle::try_current()
            .is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread)
    };
    if bytes > LARGE && has_other_threads() {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test waits for its tasks")]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn large_work_runs_on_a_runtime_of_one_thread() {
        assert_eq!(run_blocking_if_large(LARGE + 1, || 1), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_run_during_large_work() {
        let (ready, other) = std::sync::mpsc::channel();
        let work = tokio::spawn(async move {
            tokio::spawn(async move { ready.send(()) });
            run_blocking_if_large(LARGE + 1, || other.recv())
        });
        assert_eq!(work.await.unwrap(), Ok(()));
    }
}
