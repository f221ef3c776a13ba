//! Work that takes the processor for long, kept away from the tasks that must answer at once.

/// What takes about a millisecond or more of parsing or encoding.
const HEAVY: usize = 1024 * 1024;

/// Runs `work` on `bytes` bytes; if they are many, the other tasks of this thread move to another.
pub(crate) fn run_blocking_if_large<R>(bytes: usize, work: impl FnOnce() -> R) -> R {
    if bytes > HEAVY {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}
