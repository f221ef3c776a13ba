//! How much room there is for files.

use std::path::Path;

/// Left alone, for what others write meanwhile.
pub(crate) const RESERVE: u64 = 16 * 1024 * 1024;

/// How many bytes can be written in the file system of `folder`. `None` when it does not say.
pub fn free_space(folder: &Path) -> Option<u64> {
    let about = rustix::fs::statvfs(folder).ok()?;
    about.f_bavail.checked_mul(about.f_frsize)
}
