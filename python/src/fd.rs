//! The few system calls that `std` does not offer, each behind a safe function.
//!
//! This is the only file of the crate that calls `libc` on descriptors and processes. It knows nothing
//! about frames, jobs or Python.
#![expect(unsafe_code, reason = "system calls without a safe wrapper in std")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Our descriptors live above this number, out of the way of user code that counts from three.
const HIGH: RawFd = 200;

/// Whether a call may put the thread to sleep.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Sleep until something happens. Only without the GIL.
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

/// Reads what a socket has.
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

/// Writes as much as a socket takes.
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

/// Takes the control channel off descriptors 0 and 1, and gives those to the user's code: an empty
/// stdin, and the server's stderr.
pub(crate) fn take_over_stdio() -> io::Result<(OwnedFd, OwnedFd)> {
    let (input, output) = (duplicate_high(0)?, duplicate_high(1)?);
    let null = std::fs::File::open("/dev/null")?;
    replace(null.as_raw_fd(), 0)?;
    replace(2, 1)?;
    Ok((input, output))
}

/// From now on no program that this process starts has more rights than it: no `sudo`, no setuid.
pub(crate) fn gain_no_privileges() -> io::Result<()> {
    // SAFETY: this `prctl` takes numbers only.
    match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Bounds the memory that this process and those it starts may have for themselves, each.
pub(crate) fn limit_memory(bytes: Option<u64>) -> io::Result<()> {
    bytes.map_or(Ok(()), |bytes| limit(libc::RLIMIT_DATA, bytes))
}

/// Bounds how many processes and threads this process's user may have.
pub(crate) fn limit_processes(number: Option<u64>) -> io::Result<()> {
    number.map_or(Ok(()), |number| limit(libc::RLIMIT_NPROC, number))
}

fn limit(kind: libc::__rlimit_resource_t, most: u64) -> io::Result<()> {
    let both = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    // SAFETY: the pointer is to a whole `rlimit` that outlives the call.
    match unsafe { libc::setrlimit(kind, &raw const both) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn duplicate_high(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_DUPFD_CLOEXEC touches no memory; a bad descriptor is an error.
    let mut copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, HIGH) };
    if copy < 0 {
        // The limit on open files may be lower than `HIGH`.
        // SAFETY: as above.
        copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    }
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

fn replace(from: RawFd, to: RawFd) -> io::Result<()> {
    // SAFETY: dup2 touches no memory.
    if unsafe { libc::dup2(from, to) } < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Writes to the server's stderr without any of our machinery; what does not fit is lost.
pub(crate) fn write_stderr(bytes: &[u8]) {
    // SAFETY: the pointer and the length describe `bytes`.
    unsafe { libc::write(2, bytes.as_ptr().cast(), bytes.len()) };
}

/// Ends the process now: no destructors, no `atexit`.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: never returns and runs no handlers.
    unsafe { libc::_exit(code) }
}

/// Ends the process and, if it leads a process group, everything that the user's code started in it.
pub(crate) fn exit_with_group() -> ! {
    // SAFETY: these calls touch no memory; the signal reaches ourselves too, which is what we want.
    unsafe {
        if libc::getpgrp() == libc::getpid() {
            libc::kill(0, libc::SIGKILL);
        }
    }
    exit_now(1)
}

/// The calling thread, under the name that Python uses for it.
pub(crate) fn this_thread() -> u64 {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as u64 }
}

/// Interrupts a system call that `thread` sleeps in. The thread must be alive.
pub(crate) fn wake(thread: u64) {
    // SAFETY: callers pass the main thread only, which lives as long as the process.
    unsafe { libc::pthread_kill(thread as libc::pthread_t, libc::SIGURG) };
}

/// Closes a descriptor in a forked copy of this process, where nobody uses its owner any more.
pub(crate) fn close_in_fork(fd: RawFd) {
    // SAFETY: the forked copy never touches the owner again (see `control::FORKED`).
    unsafe { libc::close(fd) };
}
