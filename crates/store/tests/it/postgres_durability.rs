//! Nothing that PostgreSQL acknowledged is lost: neither when the client is killed, nor when the server is
//! stopped in the middle.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::store::{JobRecords, Store};
use tidegate_store::conformance::durability;
use tidegate_store::conformance::postgres_server::{OwnPostgres, SharedPostgres};
use tidegate_store::conformance::samples::*;
use tidegate_store::{PostgresOptions, PostgresStore, PostgresUrl};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Set for the child process only: the URL of its store, and the number of the run.
const URL: &str = "STORE_TEST_URL";
const RUN: &str = "STORE_TEST_RUN";
const ROUNDS: usize = 5;

async fn open(url: &PostgresUrl) -> PostgresStore {
    PostgresStore::open(url, &PostgresOptions::default())
        .await
        .expect("the store")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_changes_survive_a_kill_of_the_client() {
    let database = SharedPostgres::start().database();
    let mut acknowledged = Vec::new();
    for run in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args([
            "--exact",
            "postgres_durability::child_of_the_kill_test",
            "--nocapture",
        ]);
        child.env(URL, database.address()).env(RUN, run.to_string());
        acknowledged.extend(durability::kill_in_the_middle(child));

        let store = open(&database.url()).await;
        durability::check(&store, &acknowledged).await;
        let mut after = 0;
        while let Some(job) = store.open(after, 100).await.unwrap().pop() {
            after = job.number;
        }
    }
}

/// Does nothing unless the test above started it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_of_the_kill_test() {
    let (Ok(url), Ok(run)) = (std::env::var(URL), std::env::var(RUN)) else {
        return;
    };
    let store = open(&url.parse().unwrap()).await;
    durability::write_until_killed(Arc::new(store), &run).await;
}

/// The server restarts while many callers write: their calls succeed, and their changes are there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_changes_survive_a_crash_of_the_server() {
    let server = OwnPostgres::start();
    let store = Arc::new(open(&server.url()).await);
    let (tx, mut acknowledged) = mpsc::unbounded_channel();
    let mut callers = JoinSet::new();
    for caller in 0..8 {
        let (store, tx) = (Arc::clone(&store), tx.clone());
        callers.spawn(async move {
            for n in 0..40 {
                let name = format!("{caller}-{n}");
                store.insert(spec(&name)).await.unwrap();
                tx.send(("insert".to_owned(), name.clone())).unwrap();
                let mut end = finish(&name, 0, 1);
                end.message = Some(message(&name, &name, 0));
                store.finish(end).await.unwrap();
                tx.send(("finish".to_owned(), name)).unwrap();
            }
        });
    }
    drop(tx);
    let mut all = Vec::new();
    for _ in 0..3 {
        for _ in 0..60 {
            all.push(acknowledged.recv().await.unwrap());
        }
        let server = &server;
        tokio::task::block_in_place(|| server.restart_immediately());
    }
    while let Some(one) = acknowledged.recv().await {
        all.push(one);
    }
    callers.join_all().await;
    assert_eq!(all.len(), 8 * 40 * 2);
    durability::check(&*store, &all).await;
}

/// A server that does not come back makes the store unavailable; calls return, and work again later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_reported_and_ends() {
    let server = OwnPostgres::start();
    let options = PostgresOptions {
        call_timeout: Duration::from_secs(1),
        ..PostgresOptions::default()
    };
    let store = PostgresStore::open(&server.url(), &options).await.unwrap();
    store.insert(spec("a")).await.unwrap();
    tokio::task::block_in_place(|| server.stop());
    let failed = tokio::time::timeout(Duration::from_secs(60), store.insert(spec("b"))).await;
    let failed = failed.expect("a call returns").unwrap_err().to_string();
    assert!(failed.contains("unavailable"), "{failed}");
    tokio::task::block_in_place(|| server.start_again());
    store.insert(spec("c")).await.unwrap();
    assert_eq!(get(&store, "a").await, queued(spec("a")));
}
