//! The suite of every backend.

use std::sync::Arc;

use tempfile::TempDir;
use tidegate_store::{Options, Sqlite};

async fn open() -> (TempDir, Arc<Sqlite>) {
    let folder = TempDir::new().expect("a folder for the test");
    let store =
        Sqlite::open(folder.path().join("data"), &Options::default()).expect("an empty store");
    (folder, Arc::new(store))
}

tidegate_store::conformance!(open);
