//! Removes scratch folders of servers that were killed and could not clean up.
//!
//! A server holds a lock in its folder while it lives; the system releases the lock with the
//! process. A folder whose lock is free belongs to no living server.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const LOCK: &str = ".lock";

/// Marks `folder` as in use until the returned file is closed.
pub(crate) fn lock(folder: &Path) -> io::Result<File> {
    let file = File::create(folder.join(LOCK))?;
    // The folder is new, so no other process holds the lock. On a file system without locks, stale
    // folders are not removed.
    file.try_lock().ok();
    Ok(file)
}

/// Removes the folders in `parent` whose name begins with `prefix`, that belong to our user and that
/// no living server uses.
pub(crate) fn sweep(parent: &Path, prefix: &str) {
    let our_uid = rustix::process::geteuid().as_raw();
    for entry in parent.read_dir().into_iter().flatten().flatten() {
        let has_prefix = entry.file_name().to_string_lossy().starts_with(prefix);
        // `DirEntry::metadata` does not follow links.
        let is_ours = || {
            entry
                .metadata()
                .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == our_uid)
        };
        if has_prefix && is_ours() && is_stale(&entry.path()) {
            tracing::info!(folder = %entry.path().display(), "removing scratch folder of a killed server");
            // Another server that starts now may have removed it already.
            std::fs::remove_dir_all(entry.path()).ok();
        }
    }
}

/// A folder without a lock file belongs to a server that is just starting.
fn is_stale(folder: &Path) -> bool {
    File::open(folder.join(LOCK)).is_ok_and(|file| file.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_without_a_living_server_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = parent.path().join(name);
            std::fs::create_dir(&path).unwrap();
            path
        };
        let (dead, alive, starting, other) = (
            folder("t-dead"),
            folder("t-alive"),
            folder("t-starting"),
            folder("x-dead"),
        );
        drop(lock(&dead).unwrap());
        drop(lock(&other).unwrap());
        let held = lock(&alive).unwrap();

        sweep(parent.path(), "t-");

        assert_eq!(
            [&dead, &alive, &starting, &other].map(|path| path.exists()),
            [false, true, true, true]
        );
        drop(held);
    }
}
