//! Protects the control channel from user code: moves it off descriptors 0 and 1.
//!
//! After [`take_over_stdio`], `os.write(1, …)` and C libraries write to the server's stderr and read
//! an empty stdin. `print` goes through `std_streams`.
#![expect(unsafe_code, reason = "system calls without a safe wrapper in std")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Our descriptors are above this number, away from user code that expects low numbers.
const HIGH: RawFd = 200;

/// Moves the control channel from descriptors 0 and 1 to high ones. User code gets an empty stdin and
/// the server's stderr as stdout.
pub(crate) fn take_over_stdio() -> io::Result<(OwnedFd, OwnedFd)> {
    let (input, output) = (duplicate_high(0)?, duplicate_high(1)?);
    let null = std::fs::File::open("/dev/null")?;
    replace(null.as_raw_fd(), 0)?;
    replace(2, 1)?;
    Ok((input, output))
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
    // SAFETY: the kernel has just created this descriptor for us.
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

/// Writes directly to the server's stderr; bytes that the system does not accept are lost.
pub(crate) fn write_stderr(bytes: &[u8]) {
    // SAFETY: the pointer and the length describe `bytes`.
    unsafe { libc::write(2, bytes.as_ptr().cast(), bytes.len()) };
}
