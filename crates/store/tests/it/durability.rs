//! A server that is killed loses nothing that it acknowledged.

use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;
use tidegate_store::conformance::durability;
use tidegate_store::{SqliteOptions, SqliteStore};

/// Set for the child process only: the folder of its store, and the number of the run.
const FOLDER: &str = "STORE_TEST_FOLDER";
const RUN: &str = "STORE_TEST_RUN";
const ROUNDS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_changes_survive_a_kill() {
    let folder = TempDir::new().unwrap();
    let mut acknowledged = Vec::new();
    for run in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args([
            "--exact",
            "durability::child_of_the_kill_test",
            "--nocapture",
        ]);
        child.env(FOLDER, folder.path()).env(RUN, run.to_string());
        acknowledged.extend(durability::kill_in_the_middle(child));

        let store = SqliteStore::open(folder.path(), &SqliteOptions::default()).unwrap();
        durability::check(&store, &acknowledged).await;
    }
}

/// Does nothing unless the test above started it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_of_the_kill_test() {
    let (Ok(folder), Ok(run)) = (std::env::var(FOLDER), std::env::var(RUN)) else {
        return;
    };
    let store = SqliteStore::open(folder, &SqliteOptions::default()).unwrap();
    durability::write_until_killed(Arc::new(store), &run).await;
}
