//! Prepared statements: they are used on a connection that keeps them, and poolers of connections do no harm.

use std::time::Duration;

use tidegate_core::Status;
use tidegate_core::lease::Nonce;
use tidegate_core::leases::{AcquireRequest, AcquireResult, Holder, JobRef, Leases};
use tidegate_core::store::{FinishOutcome, Inserted, JobRecords, Store};
use tidegate_store::conformance::postgres_server::{SharedPostgres, TestDatabase};
use tidegate_store::conformance::samples::{ann, finish_leased, id, spec};
use tidegate_store::{DatabaseUse, PostgresOptions, PostgresStore};

use crate::transaction_pooler::{PoolerMode, TransactionPooler};

/// More than a process runs before it prepares statements, however slow the machine is.
const MANY: usize = 100_000;

async fn open(mode: PoolerMode) -> (TestDatabase, TransactionPooler, PostgresStore) {
    let database = SharedPostgres::start().database();
    let pooler = TransactionPooler::start(&database, mode);
    let options = PostgresOptions {
        database_use: DatabaseUse::Shared,
        ..PostgresOptions::default()
    };
    let store = PostgresStore::open(&pooler.url(), &options).await;
    (database, pooler, store.expect("an empty store"))
}

/// Inserts a job, leases it and ends it.
async fn run_job(store: &PostgresStore, number: usize) {
    let name = format!("job{number}");
    let inserted = store.insert(spec(&name)).await.unwrap();
    assert!(matches!(inserted, Inserted::New), "{inserted:?}");
    let request = AcquireRequest {
        job: JobRef {
            account: ann(),
            id: id(&name),
        },
        holder: Holder {
            name: "director".to_owned(),
            boot: 1,
        },
        nonce: Nonce(number as u128 + 1),
        lasts: Duration::from_secs(600),
        max_attempts: 1,
    };
    let AcquireResult::Granted(lease) = store.acquire(request).await.unwrap() else {
        panic!("the lease of {name} was refused");
    };
    assert_eq!(lease.record.spec.id, id(&name));
    let ended = store.finish(finish_leased(&name, lease.fence, 1)).await;
    assert_eq!(ended.unwrap(), FinishOutcome::Committed);
}

/// Runs jobs until statements with names were run; returns the number of jobs.
async fn run_until_named(pooler: &TransactionPooler, store: &PostgresStore) -> usize {
    for number in 0..MANY {
        run_job(store, number).await;
        if pooler.named_runs() > 0 {
            return number + 1;
        }
    }
    panic!("no statement was prepared");
}

/// All jobs have ended as they should.
async fn check(store: &PostgresStore, database: &TestDatabase, jobs: usize) {
    for number in 0..jobs {
        let name = id(&format!("job{number}"));
        let record = store.get(&ann(), &name).await.unwrap().unwrap();
        assert_eq!((record.status, record.attempt), (Status::Succeeded, 1));
    }
    let rows = database.sql("SELECT count(*) FROM tidegate.ends");
    assert_eq!(rows.trim(), jobs.to_string());
}

async fn runs_jobs_without_names(mode: PoolerMode) {
    let (database, pooler, store) = open(mode).await;
    let first = run_until_named(&pooler, &store).await;
    let named = pooler.named_runs();
    // Many more than are needed to prepare a statement.
    let last = first + 5 * first.max(200);
    for number in first..last {
        run_job(&store, number).await;
    }
    assert!(
        pooler.named_runs() <= named + 3,
        "statements with names are run once at most"
    );
    check(&store, &database, last).await;
}

#[tokio::test]
async fn a_pooler_that_changes_the_session_does_no_harm() {
    runs_jobs_without_names(PoolerMode {
        sessions: 3,
        discards: false,
    })
    .await;
}

#[tokio::test]
async fn a_pooler_that_discards_prepared_statements_does_no_harm() {
    runs_jobs_without_names(PoolerMode {
        sessions: 1,
        discards: true,
    })
    .await;
}

#[tokio::test]
async fn statements_that_are_run_often_are_prepared() {
    let (database, pooler, store) = open(PoolerMode {
        sessions: 1,
        discards: false,
    })
    .await;
    let jobs = run_until_named(&pooler, &store).await;
    let named = pooler.named_runs();
    for number in jobs..jobs + 10 {
        run_job(&store, number).await;
    }
    assert!(pooler.named_runs() > named);
    check(&store, &database, jobs + 10).await;
}
