//! Opening the store, and all that may be in the way.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};
use tidegate_core::store::StoreMeter;

use super::checkpoint::Checkpointer;
use super::data_dir::LockedDataDir;
use super::error::is_full;
use super::reader_pool::ReaderPool;
use super::writer::Writer;
use super::{SqliteStore, schema};

/// How long we wait for another program that looks at the database, before we say that it is in the way.
const PATIENCE: Duration = Duration::from_secs(5);
/// The log is cut back to this length when it begins again.
const LOG_BYTES: i64 = 16 << 20;
/// Enough for every statement that we have.
const STATEMENTS: usize = 64;

/// How the store is opened. The defaults are right for a server.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// How many reads go on at once.
    pub readers: usize,
    /// How large the database may grow in bytes; as large as the disk allows without it.
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

/// Why the store could not be opened. What is in the folder is as it was.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    /// The folder cannot be made, or nothing can be written there.
    #[error("cannot write in the data folder `{}`; give one that this user may write to", folder.display())]
    Folder {
        /// Which.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another server has it.
    #[error(
        "the data folder `{}` is in use by another server ({owner}, by its own count if it runs in a container); stop that one or give another folder",
        folder.display()
    )]
    InUse {
        /// Which.
        folder: PathBuf,
        /// Who has it, as far as is known.
        owner: String,
    },
    /// A later tidegate wrote it.
    #[error(
        "the database `{}` has the layout {found}, this tidegate knows up to {known}; use the newer tidegate that wrote it, or another folder",
        file.display()
    )]
    Newer {
        /// Which.
        file: PathBuf,
        /// Its layout.
        found: u32,
        /// The last layout that is known here.
        known: u32,
    },
    /// It is something else.
    #[error("`{}` is not a database of tidegate; move it away or give another folder", file.display())]
    Foreign {
        /// Which.
        file: PathBuf,
    },
    /// The layout could not be brought up to date.
    #[error("cannot bring the database `{}` from layout {from} to {}; it was left as it is", file.display(), from + 1)]
    Migration {
        /// Which.
        file: PathBuf,
        /// The layout that it has.
        from: u32,
        /// What went wrong.
        source: rusqlite::Error,
    },
    /// There is no room for it.
    #[error("no room left for the database `{}`; make room on its disk", file.display())]
    Full {
        /// Which.
        file: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// SQLite cannot use the file.
    #[error("cannot open the database `{}`", file.display())]
    Database {
        /// Which.
        file: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread for the store; is the limit of processes reached?")]
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
    /// Opens the store in this folder; makes both if they are not there yet.
    pub fn open(folder: impl AsRef<Path>, options: &SqliteOptions) -> Result<Self, StoreOpenError> {
        let folder = LockedDataDir::lock(folder.as_ref())?;
        let file = folder.database()?;
        let sql = |source| StoreOpenError::sql(&file, source);

        let mut conn = writing(&file).map_err(sql)?;
        schema::migrate(&mut conn, &file)?;
        limit(&conn, options.max_size).map_err(sql)?;
        let log_pages = count_log(&mut conn).map_err(sql)?;
        let checkpointer =
            Checkpointer::start(writing(&file).map_err(sql)?).map_err(StoreOpenError::Thread)?;
        let connections = (0..options.readers.max(1))
            .map(|_| reading(&file))
            .collect::<Result<_, _>>()
            .map_err(sql)?;

        // From here on nothing but the start of a thread can fail, and each ends when its handle is dropped.
        let meter = Arc::new(StoreMeter::default());
        let writer = Writer::start(conn, log_pages, checkpointer, folder, Arc::clone(&meter))
            .map_err(StoreOpenError::Thread)?;
        let readers = ReaderPool::start(connections).map_err(StoreOpenError::Thread)?;
        Ok(Self {
            readers,
            writer,
            meter,
        })
    }
}

fn writing(file: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = prepared(file, flags)?;
    // Off, because the checkpointer does it: a commit must not be the one that pays for those before it.
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    conn.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    conn.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))?;
    // A commit is synced to the disk before it is answered: it survives a loss of power.
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "foreign_keys", true)?;
    Ok(conn)
}

fn reading(file: &Path) -> rusqlite::Result<Connection> {
    prepared(
        file,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
}

fn prepared(file: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let conn = Connection::open_with_flags(file, flags)?;
    conn.busy_timeout(PATIENCE)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(conn)
}

fn limit(conn: &Connection, max_size: Option<u64>) -> rusqlite::Result<()> {
    let Some(bytes) = max_size else { return Ok(()) };
    let page: u32 = conn.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let pages = i64::try_from(bytes / u64::from(page)).unwrap_or(i64::MAX);
    conn.pragma_update_and_check(None, "max_page_count", pages.max(1), |_| Ok(()))
}

/// Has SQLite tell after every commit how many pages wait in the log.
fn count_log(conn: &mut Connection) -> rusqlite::Result<Arc<AtomicUsize>> {
    let pages = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&pages);
    conn.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, n| {
        seen.store(usize::try_from(n).unwrap_or(0), Ordering::Relaxed);
        Ok(())
    }))?;
    Ok(pages)
}
