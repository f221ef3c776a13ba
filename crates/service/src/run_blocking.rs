//! Runs CPU-bound work without blocking the other tasks of the thread.

/// Parsing or encoding this many bytes takes about a millisecond.
const LARGE: usize = 1024 * 1024;

/// Runs `work`, which processes `bytes` bytes. If it is large, the runtime moves the other tasks of
/// this thread to another one.
pub(crate) fn run_blocking_if_large<R>(bytes: usize, work: impl FnOnce() -> R) -> R {
    if bytes > LARGE {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}
