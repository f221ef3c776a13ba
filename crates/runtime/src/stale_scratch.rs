//! Removes scratch folders of servers that were killed and could not clean up.
//!
//! A server holds a lock in its folder while it lives; the system releases the lock with the
//! process. A folder whose lock is free belongs to no living server.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const LOCK: &str = ".lock";
/// The name of the lock before it is taken.
const NEW_LOCK: &str = ".lock.new";

/// Marks `folder` as in use until the returned file is closed.
pub(crate) fn lock(folder: &Path) -> io::Result<File> {
    // The file gets its name when it is locked: a server that starts at the same time must not find it
    // unlocked. On a file system without locks, stale folders are not removed.
    let unnamed = folder.join(NEW_LOCK);
    let file = File::create(&unnamed)?;
    file.try_lock().ok();
    std::fs::rename(unnamed, folder.join(LOCK))?;
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
    use std::sync::atomic::{AtomicBool, Ordering};

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

    #[test]
    fn a_folder_is_never_removed_while_its_server_starts() {
        let parent = tempfile::tempdir().unwrap();
        let (sweeping, ended) = (parent.path().to_owned(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    sweep(&sweeping, "t-");
                }
            });
            let locked: Vec<_> = (0..1000)
                .map(|number| {
                    let folder = parent.path().join(format!("t-{number}"));
                    std::fs::create_dir(&folder).unwrap();
                    lock(&folder).map(|held| (held, folder))
                })
                .collect();
            ended.store(true, Ordering::Relaxed);
            for result in locked {
                let (_held, folder) = result.expect("the folder exists while it is locked");
                assert!(folder.join(LOCK).exists());
            }
        });
    }
}
