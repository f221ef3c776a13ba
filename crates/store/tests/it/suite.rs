//! The conformance suite on SQLite.

use std::sync::Arc;

use tempfile::TempDir;
use tidegate_store::{SqliteOptions, SqliteStore};

async fn open() -> (TempDir, Arc<SqliteStore>) {
    let folder = TempDir::new().expect("a folder for the test");
    let store = SqliteStore::open(folder.path().join("data"), &SqliteOptions::default())
        .expect("an empty store");
    (folder, Arc::new(store))
}

tidegate_store::conformance!(open);
