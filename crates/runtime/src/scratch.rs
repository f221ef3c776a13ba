//! The server's private folder for sockets and files of jobs: readable by nobody else, gone with it.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A private folder that is removed with its last handle.
#[derive(Debug, Clone)]
pub struct Scratch {
    root: Arc<tempfile::TempDir>,
    next: Arc<AtomicU64>,
}

impl Scratch {
    /// Makes the folder, for its owner only, in the system's place for temporary files.
    pub fn new() -> io::Result<Self> {
        let root = tempfile::Builder::new().prefix("tidegate-").permissions(Permissions::from_mode(0o700)).tempdir()?;
        Ok(Self { root: Arc::new(root), next: Arc::new(AtomicU64::new(0)) })
    }

    /// A name inside it that nobody has had before. Nothing is made on disk: most jobs need no folder.
    pub fn fresh(&self) -> PathBuf {
        self.root.path().join(self.next.fetch_add(1, Ordering::Relaxed).to_string())
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        self.root.path()
    }
}
