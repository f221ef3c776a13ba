//! The server's private folder for sockets and files of jobs; it is removed with the server.
//!
//! When the children run as another user, that user can pass through the folder and owns the files
//! of its jobs, but cannot write in the folder itself: a path that the server creates there is never
//! one that a model has prepared.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

use crate::launch_config::RunAs;
use crate::stale_scratch;

/// A private folder. It is removed when its last handle is dropped.
#[derive(Debug, Clone)]
pub struct Scratch {
    root: Arc<TempDir>,
    next: Arc<AtomicU64>,
    owner: Option<ChildUser>,
    /// The home folder of the children's user, if that user has none of its own.
    home: Option<PathBuf>,
    /// Marks the folder as in use.
    _lock: Arc<File>,
}

/// The prefix of the folder's name.
const PREFIX: &str = "tidegate-";

/// The name of the folder for the files that libraries keep for a user without a home.
const HOME: &str = "home";

/// The user of the children, if it is not the user of the server.
#[derive(Debug, Clone, Copy)]
struct ChildUser {
    uid: u32,
    gid: u32,
}

impl Scratch {
    /// Creates the folder in the system's temporary directory. With `run_as`, the user of the
    /// children may pass through it.
    pub fn new(run_as: Option<&RunAs>) -> io::Result<Self> {
        let mode = if run_as.is_some() { 0o711 } else { 0o700 };
        let root = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(Permissions::from_mode(mode))
            .tempdir()?;
        let owner = run_as.map(|user| ChildUser {
            uid: user.uid,
            gid: user.gid,
        });
        let lock = stale_scratch::lock(root.path())?;
        // In a thread of its own, so that the start does not wait for the removal of old files.
        std::thread::spawn(|| stale_scratch::sweep(&std::env::temp_dir(), PREFIX));
        let mut scratch = Self {
            root: Arc::new(root),
            next: Arc::new(AtomicU64::new(0)),
            owner,
            home: None,
            _lock: Arc::new(lock),
        };
        let has_home = |user: &RunAs| user.home.as_deref().is_some_and(Path::is_dir);
        if run_as.is_some_and(|user| !has_home(user)) {
            let home = scratch.path().join(HOME);
            scratch.chown_job_dir(&home)?;
            scratch.home = Some(home);
        }
        Ok(scratch)
    }

    /// A path in the folder that was never used before. Nothing is created: most jobs need no
    /// folder.
    pub fn unique_path(&self) -> PathBuf {
        self.root.path().join(self.next_number().to_string())
    }

    /// Creates a folder for files that a model needs while it is loaded. It is removed when the
    /// returned value is dropped.
    pub fn create_workdir(&self) -> io::Result<TempDir> {
        tempfile::Builder::new()
            .prefix("model-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(self.root.path())
    }

    /// Makes the children's user the owner of such a folder and its content, if it is another user.
    pub fn chown_workdir(&self, folder: &TempDir) -> io::Result<()> {
        self.chown_job_dir(folder.path())
    }

    /// A number that was never returned before.
    pub(crate) fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes the children's user the owner of a file, if it is another user.
    pub(crate) fn chown(&self, path: &Path) -> io::Result<()> {
        let Some(owner) = self.owner else {
            return Ok(());
        };
        let (uid, gid) = (
            rustix::fs::Uid::from_raw(owner.uid),
            rustix::fs::Gid::from_raw(owner.gid),
        );
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(rustix::fs::CWD, path, Some(uid), Some(gid), flags)?;
        Ok(())
    }

    /// Makes the children's user the owner of a job's folder and its content, if it is another user.
    /// Creates the folder if necessary: that user cannot do it. No model has written to it yet.
    pub(crate) fn chown_job_dir(&self, folder: &Path) -> io::Result<()> {
        if self.owner.is_none() {
            return Ok(());
        }
        match std::fs::DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        self.chown_tree(folder)
    }

    /// Children first: the folder belongs to the server until all entries in it are done.
    fn chown_tree(&self, path: &Path) -> io::Result<()> {
        if path.symlink_metadata()?.is_dir() {
            for entry in path.read_dir()? {
                self.chown_tree(&entry?.path())?;
            }
        }
        self.chown(path)
    }

    /// The home folder of the children's user, if that user has none of its own. All children share it:
    /// what one of them downloads is in the caches for the next.
    pub(crate) fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        self.root.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_a_home_gets_one_that_its_processes_share() {
        let user = |home: Option<&Path>| RunAs {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            home: home.map(Path::to_owned),
        };
        let own = tempfile::tempdir().unwrap();
        assert!(Scratch::new(None).unwrap().home().is_none());
        let with_home = Scratch::new(Some(&user(Some(own.path())))).unwrap();
        assert!(with_home.home().is_none());
        for missing in [None, Some(Path::new("/nonexistent"))] {
            let scratch = Scratch::new(Some(&user(missing))).unwrap();
            std::fs::write(scratch.home().unwrap().join("weights"), "x").unwrap();
            assert!(scratch.clone().home().unwrap().join("weights").exists());
        }
    }
}
