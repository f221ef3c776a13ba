//! The server's private folder for sockets and files of jobs: readable by nobody else, gone with it.
//!
//! When the children run as another user, that user can pass through the folder and owns the files of
//! its jobs, but cannot write in the folder itself: what the server makes there is never something that
//! a model has put in its way.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

use crate::launch::RunAs;
use crate::remains;

/// A private folder that is removed with its last handle.
#[derive(Debug, Clone)]
pub struct Scratch {
    root: Arc<TempDir>,
    next: Arc<AtomicU64>,
    owner: Option<Owner>,
    /// Says that the folder is in use.
    _lock: Arc<File>,
}

/// How the folder's name begins.
const PREFIX: &str = "tidegate-";

#[derive(Debug, Clone, Copy)]
struct Owner {
    uid: u32,
    gid: u32,
}

impl Scratch {
    /// Makes the folder in the system's place for temporary files, for the server only or for children
    /// that run as another user.
    pub fn new(run_as: Option<&RunAs>) -> io::Result<Self> {
        let mode = if run_as.is_some() { 0o711 } else { 0o700 };
        let root = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(Permissions::from_mode(mode))
            .tempdir()?;
        let owner = run_as.map(|user| Owner {
            uid: user.uid,
            gid: user.gid,
        });
        let lock = remains::lock(root.path())?;
        // Beside the start, which waits for nobody else's files.
        std::thread::spawn(|| remains::sweep(&std::env::temp_dir(), PREFIX));
        Ok(Self {
            root: Arc::new(root),
            next: Arc::new(AtomicU64::new(0)),
            owner,
            _lock: Arc::new(lock),
        })
    }

    /// A name inside it that nobody has had before. Nothing is made on disk: most jobs need no folder.
    pub fn unique_path(&self) -> PathBuf {
        self.root.path().join(self.number().to_string())
    }

    /// A folder inside it for what a model needs while it is loaded; it goes when this is dropped.
    pub fn create_workdir(&self) -> io::Result<TempDir> {
        tempfile::Builder::new()
            .prefix("model-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(self.root.path())
    }

    /// Lets the children have such a folder with what is in it, if they are not the same user.
    pub fn chown_workdir(&self, folder: &TempDir) -> io::Result<()> {
        self.give_folder(folder.path())
    }

    /// A number that nobody has had before.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets the children have a file that the server has made, if they are not the same user.
    pub(crate) fn give(&self, path: &Path) -> io::Result<()> {
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

    /// Lets the children have the folder of a job with what is in it, and makes it if need be: they
    /// cannot do it themselves. Nothing of a model has been in it yet.
    pub(crate) fn give_folder(&self, folder: &Path) -> io::Result<()> {
        if self.owner.is_none() {
            return Ok(());
        }
        match std::fs::DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        self.give_tree(folder)
    }

    /// From the leaves up: the folder stays the server's until all in it is done.
    fn give_tree(&self, path: &Path) -> io::Result<()> {
        if path.symlink_metadata()?.is_dir() {
            for entry in path.read_dir()? {
                self.give_tree(&entry?.path())?;
            }
        }
        self.give(path)
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        self.root.path()
    }
}
