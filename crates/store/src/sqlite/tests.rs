//! What SQLite's store promises beyond the suite of all backends.

mod opening;
mod room;
mod statements;
mod writing;

use tempfile::TempDir;

use super::{Options, Sqlite};

fn fresh() -> (TempDir, Sqlite) {
    fresh_with(&Options::default())
}

fn fresh_with(options: &Options) -> (TempDir, Sqlite) {
    let folder = TempDir::new().unwrap();
    let store = Sqlite::open(folder.path(), options).unwrap();
    (folder, store)
}
