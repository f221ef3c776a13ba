//! Opens the store, with the errors that can occur.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use tidegate_core::clock;
use tidegate_core::store::StoreMetrics;

use super::checkpoint::Checkpointer;
use super::data_dir::{self, LockedDataDir};
use super::error::is_full;
use super::lease_markers::{LeaseMarker, LeaseMarkers};
use super::reader_pool::ReaderPool;
use super::writer::Writer;
use super::{SqliteStore, leases, outbox, schema};

/// How long to wait for another program that has locked the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The log is truncated to this size when it restarts.
const MAX_LOG_BYTES: i64 = 16 << 20;
/// Enough for all prepared statements of this crate.
const STATEMENTS: usize = 64;

/// Options of the store. The defaults are right for a server.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// The number of reader threads, besides the one for leases.
    pub readers: usize,
    /// The maximum size of the database in bytes; unlimited by default.
    pub max_size: Option<u64>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            readers: 2,
            max_size: None,
        }
    }
}

/// Why the store could not be opened. The contents of the folder are unchanged.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    /// The folder cannot be created or written to.
    #[error("cannot write in the data folder `{}`; use a folder that this user can write to", folder.display())]
    Folder {
        /// The data folder.
        folder: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Another server uses the folder.
    #[error(
        "the data folder `{}` is in use by another server ({owner}, by its own process id if it runs in a container); stop it or use another folder",
        folder.display()
    )]
    InUse {
        /// The data folder.
        folder: PathBuf,
        /// The process that uses it, if known.
        owner: String,
        /// Whether this process shuts down, so that the folder will soon be free.
        is_stopping: bool,
    },
    /// The data is in a PostgreSQL database now.
    #[error(
        "the data folder `{}` was migrated to {target}; use `--postgres` with this database, or another folder",
        folder.display()
    )]
    Migrated {
        /// The data folder.
        folder: PathBuf,
        /// The database, without its password.
        target: String,
    },
    /// A part of the data is in a PostgreSQL database.
    #[error(
        "the migration of the data folder `{}` to {target} was interrupted; run `tidegate migrate` again to finish it",
        folder.display()
    )]
    HalfMigrated {
        /// The data folder.
        folder: PathBuf,
        /// The database, without its password.
        target: String,
    },
    /// There is nothing to migrate.
    #[error("there is no data of tidegate in `{}`; give the --data-dir of the server", folder.display())]
    Missing {
        /// The folder.
        folder: PathBuf,
    },
    /// A newer version of tidegate wrote the database.
    #[error(
        "the database `{}` has the layout {found}, this tidegate knows up to {known}; use the newer tidegate that wrote it, or another folder",
        file.display()
    )]
    Newer {
        /// The database file.
        file: PathBuf,
        /// The version of its layout.
        found: u32,
        /// The latest layout that this program knows.
        known: u32,
    },
    /// The file is not a database of tidegate.
    #[error("`{}` is not a database of tidegate; move it away or use another folder", file.display())]
    Foreign {
        /// The database file.
        file: PathBuf,
    },
    /// A migration failed.
    #[error("cannot migrate the database `{}` from layout {from} to {}; it is unchanged", file.display(), from + 1)]
    Migration {
        /// The database file.
        file: PathBuf,
        /// The layout before the migration.
        from: u32,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// The disk is full.
    #[error("no space left for the database `{}`; free space on its disk", file.display())]
    Full {
        /// The database file.
        file: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// SQLite cannot open the file.
    #[error("cannot open the database `{}`", file.display())]
    Database {
        /// The database file.
        file: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread for the store; the process limit may be reached")]
    Thread(#[source] io::Error),
}

impl StoreOpenError {
    pub(super) fn sql(file: &Path, source: rusqlite::Error) -> Self {
        let file = file.to_owned();
        match source.sqlite_error_code() {
            _ if is_full(&source) => Self::Full { file, source },
            Some(ErrorCode::NotADatabase) => Self::Foreign { file },
            _ => Self::Database { file, source },
        }
    }
}

impl SqliteStore {
    /// Opens the store in this folder; creates both if necessary.
    pub fn open(folder: impl AsRef<Path>, options: &SqliteOptions) -> Result<Self, StoreOpenError> {
        let folder = LockedDataDir::lock(folder.as_ref())?;
        folder.check_not_migrated()?;
        Self::open_locked(folder, options)
    }

    /// Tells other processes that the store in this folder, which this process has opened, will be closed
    /// soon: they wait for it.
    pub fn announce_stop(folder: &Path) -> io::Result<()> {
        data_dir::announce_stop(folder)
    }

    /// Opens the store in a folder that has one, also if it was migrated.
    pub(crate) fn open_for_migration(folder: &Path) -> Result<Self, StoreOpenError> {
        if !LockedDataDir::has_database(folder) {
            return Err(StoreOpenError::Missing {
                folder: folder.to_owned(),
            });
        }
        Self::open_locked(LockedDataDir::lock(folder)?, &SqliteOptions::default())
    }

    fn open_locked(folder: LockedDataDir, options: &SqliteOptions) -> Result<Self, StoreOpenError> {
        let file = folder.database()?;
        let sql = |source| StoreOpenError::sql(&file, source);
        let io = |source| folder.error(source);

        let mut conn = open_read_write(&file).map_err(sql)?;
        schema::migrate(&mut conn, &file)?;
        let markers = folder.lease_markers()?;
        let opened_at = clock::now();
        let marked = LeaseMarkers::read(&markers).map_err(io)?;
        commit_markers(&mut conn, &marked, opened_at).map_err(sql)?;
        let markers = LeaseMarkers::new(markers).map_err(io)?;
        limit(&conn, options.max_size).map_err(sql)?;
        if let Err(error) = outbox::release_all(&conn) {
            tracing::warn!(%error, "failed to end the claims of the previous process, they end by themselves");
        }
        let log_pages = count_log_pages(&mut conn).map_err(sql)?;
        let checkpointer = Checkpointer::start(open_read_write(&file).map_err(sql)?)
            .map_err(StoreOpenError::Thread)?;
        let connections = (0..options.readers.max(1))
            .map(|_| open_read_only(&file))
            .collect::<Result<_, _>>()
            .map_err(sql)?;
        let lease_connection = open_read_only(&file).map_err(sql)?;

        // From here on only starting a thread can fail, and each thread ends when its handle is
        // dropped.
        let meter = Arc::new(StoreMetrics::default());
        let writer = Writer::start(conn, log_pages, checkpointer, folder, Arc::clone(&meter))
            .map_err(StoreOpenError::Thread)?;
        let readers = ReaderPool::start(connections).map_err(StoreOpenError::Thread)?;
        let lease_reader =
            ReaderPool::start(vec![lease_connection]).map_err(StoreOpenError::Thread)?;
        Ok(Self {
            readers,
            lease_reader,
            writer,
            markers: Arc::new(markers),
            opened_at,
            meter,
        })
    }
}

/// Stores the leases that the previous process granted and did not commit.
fn commit_markers(
    conn: &mut Connection,
    markers: &[(i64, LeaseMarker)],
    opened_at: Timestamp,
) -> Result<(), rusqlite::Error> {
    let transaction = conn.transaction()?;
    for (number, marker) in markers {
        leases::store(&transaction, *number, *marker, opened_at)?;
    }
    transaction.commit()
}

fn open_read_write(file: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = connect(file, flags)?;
    // Off, because the checkpointer does it: a commit must not pay for the commits before it.
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    conn.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    conn.pragma_update_and_check(None, "journal_size_limit", MAX_LOG_BYTES, |_| Ok(()))?;
    // A commit is synced before it is acknowledged: it survives a power failure.
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "foreign_keys", true)?;
    Ok(conn)
}

fn open_read_only(file: &Path) -> rusqlite::Result<Connection> {
    connect(
        file,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
}

fn connect(file: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let conn = Connection::open_with_flags(file, flags)?;
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    // Otherwise SQLite prepares a statement again for each value that might let it use a partial index.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(conn)
}

fn limit(conn: &Connection, max_size: Option<u64>) -> rusqlite::Result<()> {
    let Some(bytes) = max_size else { return Ok(()) };
    let page: u32 = conn.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let pages = i64::try_from(bytes / u64::from(page)).unwrap_or(i64::MAX);
    conn.pragma_update_and_check(None, "max_page_count", pages.max(1), |_| Ok(()))
}

/// Counts the pages in the log after every commit.
fn count_log_pages(conn: &mut Connection) -> rusqlite::Result<Arc<AtomicUsize>> {
    let pages = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&pages);
    conn.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, n| {
        seen.store(usize::try_from(n).unwrap_or(0), Ordering::Relaxed);
        Ok(())
    }))?;
    Ok(pages)
}
