//! Tests of the SQLite backend beyond the conformance suite.

mod leases;
mod open;
mod size_limits;
mod statements;
mod writer;

use tempfile::TempDir;

use super::{SqliteOptions, SqliteStore};

fn fresh() -> (TempDir, SqliteStore) {
    fresh_with(&SqliteOptions::default())
}

fn fresh_with(options: &SqliteOptions) -> (TempDir, SqliteStore) {
    let folder = TempDir::new().unwrap();
    let store = SqliteStore::open(folder.path(), options).unwrap();
    (folder, store)
}
