//! The files of a configuration: `fleet.toml` and the secret files that it names.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::fleet::SecretSource;

/// Files and the state in which each was seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FileSet(BTreeMap<PathBuf, Option<FileState>>);

/// What differs when a file is written, or another one takes its name. Symbolic links are followed, so
/// that replacing a folder on the way to the file, as Kubernetes does with a ConfigMap, is a change.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileState {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileSet {
    pub(super) fn add(&mut self, path: &Path) {
        let state = FileState::of(path).ok();
        self.0.insert(path.to_owned(), state);
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// The same files as they are now.
    pub(super) fn look(&self) -> Self {
        let mut now = Self::default();
        for path in self.0.keys() {
            now.add(path);
        }
        now
    }
}

impl FileState {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = std::fs::metadata(path)?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// Reads the secrets of a configuration from files and environment variables.
#[derive(Debug, Default)]
pub struct SystemSecrets {
    files: RefCell<FileSet>,
}

impl SystemSecrets {
    /// The files that were read.
    pub(super) fn into_files(self) -> FileSet {
        self.files.into_inner()
    }
}

impl SecretSource for SystemSecrets {
    fn file(&self, path: &Path) -> io::Result<String> {
        self.files.borrow_mut().add(path);
        std::fs::read_to_string(path)
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}
