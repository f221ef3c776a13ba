//! System calls that `std` does not offer, each behind a safe function.
//!
//! Knows nothing about frames, jobs or Python. `stdio` has those for the standard descriptors.
#![expect(unsafe_code, reason = "system calls without a safe wrapper in std")]

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};

/// Whether a call may block the thread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Block until the call can proceed. Only without the GIL.
    Block,
    /// Fail with `WouldBlock` instead.
    Never,
}

impl Wait {
    fn flags(self) -> i32 {
        match self {
            Wait::Block => 0,
            Wait::Never => libc::MSG_DONTWAIT,
        }
    }
}

/// Reads available bytes from a socket.
pub(crate) fn recv(socket: &impl AsRawFd, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
    // SAFETY: the pointer and the length describe `buffer`, which we may write.
    let n = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            wait.flags(),
        )
    };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Writes as many bytes as a socket accepts.
pub(crate) fn send(socket: &impl AsRawFd, bytes: &[u8], wait: Wait) -> io::Result<usize> {
    let flags = wait.flags() | libc::MSG_NOSIGNAL;
    // SAFETY: the pointer and the length describe `bytes`.
    let n = unsafe {
        libc::send(
            socket.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            flags,
        )
    };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Writes as many bytes of several parts as a socket accepts, in their order. Waits until it accepts some.
pub(crate) fn send_parts(socket: &impl AsRawFd, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    // SAFETY: a header of zeros is valid; it says that there is nothing to send.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    // An `IoSlice` has the layout of an `iovec`, and `sendmsg` only reads from it.
    message.msg_iov = parts.as_ptr().cast_mut().cast();
    message.msg_iovlen = parts.len() as _;
    // SAFETY: the header describes `parts`, which live until the call returns.
    let n = unsafe { libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Prevents this process and its children from gaining privileges: no `sudo`, no setuid.
pub(crate) fn set_no_new_privileges() -> io::Result<()> {
    // SAFETY: this `prctl` takes numbers only.
    match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes the kernel send SIGCONT to this process when the server dies: a stopped process would not notice
/// it and stay. For any other process the signal has no effect.
pub(crate) fn continue_when_parent_dies() -> io::Result<()> {
    // SAFETY: this `prctl` takes numbers only.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGCONT) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Kills a process, if it exists and may be killed.
pub(crate) fn kill(pid: i32) {
    // SAFETY: `kill` touches no memory.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Sets the soft limit on file locks, which this process and its children inherit. The hard limit stays.
pub(crate) fn limit_file_locks(number: u64) -> io::Result<()> {
    let mut limits = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both pointers are to a whole `rlimit` that outlives the calls.
    let done = unsafe {
        libc::getrlimit(libc::RLIMIT_LOCKS, &raw mut limits) == 0 && {
            limits.rlim_cur = number;
            libc::setrlimit(libc::RLIMIT_LOCKS, &raw const limits) == 0
        }
    };
    if done {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Limits the private memory of this process, and of each process that it starts.
pub(crate) fn limit_memory(bytes: Option<u64>) -> io::Result<()> {
    bytes.map_or(Ok(()), |bytes| limit(libc::RLIMIT_DATA, bytes))
}

/// Limits the number of processes and threads of this process's user.
pub(crate) fn limit_processes(number: Option<u64>) -> io::Result<()> {
    number.map_or(Ok(()), |number| limit(libc::RLIMIT_NPROC, number))
}

fn limit(kind: libc::__rlimit_resource_t, maximum: u64) -> io::Result<()> {
    let limits = libc::rlimit {
        rlim_cur: maximum,
        rlim_max: maximum,
    };
    // SAFETY: the pointer is to a whole `rlimit` that outlives the call.
    match unsafe { libc::setrlimit(kind, &raw const limits) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends the process immediately: no destructors, no `atexit`.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: never returns and runs no handlers.
    unsafe { libc::_exit(code) }
}

/// Ends the process and, if it leads a process group, everything that user code started in it.
pub(crate) fn exit_process_group() -> ! {
    // SAFETY: these calls touch no memory; the signal also reaches this process, as intended.
    unsafe {
        if libc::getpgrp() == libc::getpid() {
            libc::kill(0, libc::SIGKILL);
        }
    }
    exit_now(1)
}

/// The id of the calling thread, as in Python's `threading.get_ident`.
pub(crate) fn current_thread() -> u64 {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as u64 }
}

/// Interrupts the system call that `thread` is in. The thread must be alive.
pub(crate) fn interrupt_thread(thread: u64) {
    // SAFETY: callers pass the main thread only, which lives as long as the process.
    unsafe { libc::pthread_kill(thread as libc::pthread_t, libc::SIGURG) };
}

/// Closes a descriptor in a forked copy of this process, where its owner is no longer used.
pub(crate) fn close_in_fork(fd: RawFd) {
    // SAFETY: the forked copy never touches the owner again (see `control::IS_FORK`).
    unsafe { libc::close(fd) };
}
