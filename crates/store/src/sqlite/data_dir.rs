//! The data folder: created with private permissions, and locked against a second server.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::open::StoreOpenError;
use crate::migration::MigrationMark;

/// The name of the database file.
const DATABASE: &str = "tidegate.db";
/// The name of the lock file, which contains the process id of its owner, and [`STOPPING`] while the owner
/// shuts down.
const LOCK: &str = "tidegate.lock";
/// The word after the process id of an owner that will soon release the lock.
const STOPPING: &str = "stopping";
/// The most bytes of a lock file.
const MAX_OWNER: u64 = 32;

/// The name of the file of leases that are not in the database yet.
const LEASE_MARKERS: &str = "tidegate.leases";

/// The name of the file that says that the folder was migrated, and where to.
const MIGRATED: &str = "tidegate.migrated";
/// The first word of this file while the migration is not finished.
const BEGUN: &str = "begun";

/// Records in the lock file of a folder that this process, which has locked it, shuts down. Other processes
/// then wait for the lock instead of giving up.
pub(crate) fn announce_stop(folder: &Path) -> io::Result<()> {
    let mut lock = OpenOptions::new()
        .read(true)
        .write(true)
        .open(folder.join(LOCK))?;
    let mut text = String::new();
    Read::by_ref(&mut lock)
        .take(MAX_OWNER)
        .read_to_string(&mut text)?;
    // After the id, where the file ends.
    match text.trim().parse() == Ok(std::process::id()) {
        true => write!(lock, " {STOPPING}"),
        false => Ok(()),
    }
}

/// Records that the data of the folder is in a database, or will be.
pub(crate) fn mark_migrated(folder: &Path, target: &str, mark: MigrationMark) -> io::Result<()> {
    let word = match mark {
        MigrationMark::Begun => BEGUN,
        MigrationMark::Finished => "finished",
    };
    // Replaced as a whole, so that a crash leaves one of the two.
    let new = folder.join(format!("{MIGRATED}.new"));
    let mut file = open_private(&new)?;
    file.set_len(0)?;
    writeln!(file, "{word} {target}")?;
    file.sync_all()?;
    std::fs::rename(&new, folder.join(MIGRATED))?;
    File::open(folder)?.sync_all()
}

/// A data folder that this process has locked. The system releases the lock when the process exits,
/// however it exits.
#[derive(Debug)]
pub(super) struct LockedDataDir {
    path: PathBuf,
    _lock: File,
}

impl LockedDataDir {
    /// Creates the folder if necessary, and locks it.
    pub(super) fn lock(path: &Path) -> Result<Self, StoreOpenError> {
        let folder_error = |source| StoreOpenError::Folder {
            folder: path.to_owned(),
            source,
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(folder_error)?;
        let mut lock = open_private(&path.join(LOCK)).map_err(folder_error)?;
        match lock.try_lock() {
            Ok(()) => write_owner(&mut lock).map_err(folder_error)?,
            Err(TryLockError::WouldBlock) => {
                let owner = Owner::read(lock);
                return Err(StoreOpenError::InUse {
                    folder: path.to_owned(),
                    is_stopping: owner.is_stopping,
                    owner: owner.name,
                });
            }
            Err(TryLockError::Error(source)) => return Err(folder_error(source)),
        }
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// Fails if the data of the folder was migrated: its open jobs must not run here again.
    pub(super) fn check_not_migrated(&self) -> Result<(), StoreOpenError> {
        let text = match std::fs::read_to_string(self.path.join(MIGRATED)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(self.error(error)),
        };
        let (word, target) = text.trim().split_once(' ').unwrap_or((BEGUN, "a database"));
        let (folder, target) = (self.path.clone(), target.to_owned());
        Err(if word == BEGUN {
            StoreOpenError::HalfMigrated { folder, target }
        } else {
            StoreOpenError::Migrated { folder, target }
        })
    }

    /// Whether the folder has a database.
    pub(super) fn has_database(path: &Path) -> bool {
        path.join(DATABASE).is_file()
    }

    /// The path of the database file, which exists and is private afterwards. SQLite gives its
    /// other files the same permissions.
    pub(super) fn database(&self) -> Result<PathBuf, StoreOpenError> {
        let file = self.path.join(DATABASE);
        open_private(&file).map_err(|source| self.error(source))?;
        Ok(file)
    }

    /// The file of leases that are not in the database yet.
    pub(super) fn lease_markers(&self) -> Result<File, StoreOpenError> {
        open_private(&self.path.join(LEASE_MARKERS)).map_err(|source| self.error(source))
    }

    /// The error for a file of the folder that cannot be used.
    pub(super) fn error(&self, source: io::Error) -> StoreOpenError {
        StoreOpenError::Folder {
            folder: self.path.clone(),
            source,
        }
    }
}

/// Opens a file with mode 0600, and changes the mode of an existing file: the database contains
/// inputs, headers of webhooks with tokens, and secrets.
fn open_private(path: &Path) -> io::Result<File> {
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

fn write_owner(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.write_all(std::process::id().to_string().as_bytes())
}

/// The process that holds the lock.
struct Owner {
    name: String,
    is_stopping: bool,
}

impl Owner {
    /// Reads the lock file. Its owner may not have written its id yet.
    fn read(lock: File) -> Self {
        let mut text = String::new();
        let read = lock.take(MAX_OWNER).read_to_string(&mut text);
        let (id, state) = text.split_once(' ').unwrap_or((&text, ""));
        let name = match (read, id.trim().parse::<u32>()) {
            (Ok(_), Ok(pid)) => format!("process {pid}"),
            _ => "a process that has just started".to_owned(),
        };
        Self {
            name,
            is_stopping: state == STOPPING,
        }
    }
}
