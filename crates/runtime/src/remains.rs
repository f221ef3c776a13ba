//! Folders of servers that were killed and could not clean up after themselves.
//!
//! A server holds a lock in its folder for as long as it lives; the system lets go of it with the
//! process. A folder whose lock is free belongs to nobody any more.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const LOCK: &str = ".lock";

/// Marks `folder` as in use until the file is closed.
pub(crate) fn lock(folder: &Path) -> io::Result<File> {
    let file = File::create(folder.join(LOCK))?;
    // Nobody else knows the folder yet; a file system without locks only means that remains stay.
    file.try_lock().ok();
    Ok(file)
}

/// Removes the folders in `place` that begin with `prefix`, are ours, and have no living server.
pub(crate) fn sweep(place: &Path, prefix: &str) {
    let us = rustix::process::geteuid().as_raw();
    for entry in place.read_dir().into_iter().flatten().flatten() {
        let is_named = entry.file_name().to_string_lossy().starts_with(prefix);
        // Without following links, and never somebody else's.
        let is_ours = || {
            entry
                .metadata()
                .is_ok_and(|kind| kind.is_dir() && kind.uid() == us)
        };
        if is_named && is_ours() && is_abandoned(&entry.path()) {
            tracing::info!(folder = %entry.path().display(), "removing what a killed server has left");
            // Another server that starts now may be faster.
            std::fs::remove_dir_all(entry.path()).ok();
        }
    }
}

/// A folder without a lock is one whose server has just begun.
fn is_abandoned(folder: &Path) -> bool {
    File::open(folder.join(LOCK)).is_ok_and(|file| file.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_holds_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = place.path().join(name);
            std::fs::create_dir(&path).unwrap();
            path
        };
        let (dead, alive, young, other) = (
            folder("t-dead"),
            folder("t-alive"),
            folder("t-young"),
            folder("x-dead"),
        );
        drop(lock(&dead).unwrap());
        drop(lock(&other).unwrap());
        let held = lock(&alive).unwrap();

        sweep(place.path(), "t-");

        assert_eq!(
            [&dead, &alive, &young, &other].map(|path| path.exists()),
            [false, true, true, true]
        );
        drop(held);
    }
}
