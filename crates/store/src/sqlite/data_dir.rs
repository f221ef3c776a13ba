//! The folder of the data: made, kept to ourselves, and locked against a second server.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::open::StoreOpenError;

/// The file of the database.
const DATABASE: &str = "tidegate.db";
/// The file whose lock says that somebody has the folder; in it is who.
const LOCK: &str = "tidegate.lock";

/// A folder that is ours as long as this lives. The system gives the lock back when we die, however we die.
#[derive(Debug)]
pub(super) struct LockedDataDir {
    path: PathBuf,
    _lock: File,
}

impl LockedDataDir {
    /// Makes the folder if there is none, and takes it.
    pub(super) fn lock(path: &Path) -> Result<Self, StoreOpenError> {
        let cannot = |source| StoreOpenError::Folder {
            folder: path.to_owned(),
            source,
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(cannot)?;
        let mut lock = private(&path.join(LOCK)).map_err(cannot)?;
        match lock.try_lock() {
            Ok(()) => sign(&mut lock).map_err(cannot)?,
            Err(TryLockError::WouldBlock) => {
                return Err(StoreOpenError::InUse {
                    folder: path.to_owned(),
                    owner: owner(lock),
                });
            }
            Err(TryLockError::Error(source)) => return Err(cannot(source)),
        }
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// The file of the database, there and closed to others. Its companions get the same permissions.
    pub(super) fn database(&self) -> Result<PathBuf, StoreOpenError> {
        let file = self.path.join(DATABASE);
        match private(&file) {
            Ok(_) => Ok(file),
            Err(source) => Err(StoreOpenError::Folder {
                folder: self.path.clone(),
                source,
            }),
        }
    }
}

/// Opens a file that only its owner can read, also when it was made with other permissions before: inputs,
/// tokens in headers of webhooks and secrets are in there.
fn private(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

fn sign(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.write_all(std::process::id().to_string().as_bytes())
}

/// Who has the lock, as they wrote it down. They may be just about to: then nobody knows.
fn owner(lock: File) -> String {
    let mut text = String::new();
    let read = lock.take(20).read_to_string(&mut text);
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(pid)) => format!("process {pid}"),
        _ => "a process that has just started".to_owned(),
    }
}
