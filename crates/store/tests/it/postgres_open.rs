//! Opening a PostgreSQL database: each mistake has its own error.

use tidegate_core::store::{Documents, Store, StoreError};
use tidegate_store::conformance::postgres_server::{SharedPostgres, TestDatabase};
use tidegate_store::conformance::samples::*;
use tidegate_store::{DatabaseUse, PostgresOpenError, PostgresOptions, PostgresStore};

fn database() -> TestDatabase {
    SharedPostgres::start().database()
}

async fn try_open(address: &str) -> Result<PostgresStore, PostgresOpenError> {
    PostgresStore::open(
        &address.parse().expect("a URL"),
        &PostgresOptions::default(),
    )
    .await
}

async fn error_of(address: &str) -> PostgresOpenError {
    try_open(address).await.expect_err("it must not open")
}

#[tokio::test]
async fn an_unknown_database_and_role_are_named() {
    let database = database();
    let address = database.address();
    let unknown = address.replace("/test_", "/no_");
    let error = error_of(&unknown).await;
    assert!(
        matches!(&error, PostgresOpenError::UnknownDatabase { database } if database.starts_with("no_")),
        "{error:?}"
    );
    let error = error_of(&address.replace("postgres@", "nobody_knows@")).await;
    assert!(
        matches!(&error, PostgresOpenError::NotAllowed { user, .. } if user == "nobody_knows"),
        "{error:?}"
    );
    assert!(!error.is_temporary());
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_temporary() {
    let error = error_of("postgresql://ann@/jobs?host=/nowhere").await;
    assert!(error.is_temporary(), "{error:?}");
    let error = error_of("postgresql://ann@127.0.0.1:1/jobs").await;
    assert!(error.is_temporary(), "{error:?}");
}

#[tokio::test]
async fn a_role_without_privileges_is_refused_until_it_owns_the_schema() {
    let database = database();
    let role = format!("role_{}", std::process::id());
    database.sql(&format!("CREATE ROLE {role} LOGIN"));
    let address = database.address().replace("postgres@", &format!("{role}@"));
    let error = error_of(&address).await;
    assert!(
        matches!(error, PostgresOpenError::Privilege { .. }),
        "{error:?}"
    );
    database.sql(&format!("CREATE SCHEMA tidegate AUTHORIZATION {role}"));
    try_open(&address).await.expect("an empty schema is enough");
    database.sql(&format!("DROP OWNED BY {role}"));
    database.sql(&format!("DROP ROLE {role}"));
}

#[tokio::test]
async fn another_encoding_is_refused() {
    let database = database();
    let name = format!("ascii_{}", std::process::id());
    database.sql(&format!(
        "CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0"
    ));
    let error = error_of(&with_database(&database, &name)).await;
    database.sql(&format!("DROP DATABASE {name} WITH (FORCE)"));
    assert!(
        matches!(&error, PostgresOpenError::Encoding { found } if found == "SQL_ASCII"),
        "{error:?}"
    );
}

fn with_database(database: &TestDatabase, name: &str) -> String {
    let address = database.address();
    let (start, rest) = address.split_once("/test_").expect("a test database");
    let (_, query) = rest.split_once('?').expect("a socket");
    format!("{start}/{name}?{query}")
}

#[tokio::test]
async fn tables_of_another_program_are_left_alone() {
    let database = database();
    database.sql("CREATE SCHEMA tidegate; CREATE TABLE tidegate.jobs (a integer)");
    let error = error_of(&database.address()).await;
    assert!(matches!(error, PostgresOpenError::Foreign), "{error:?}");
}

/// Processes of two versions run side by side during an upgrade.
#[tokio::test]
async fn a_later_layout_is_used_if_it_can_be() {
    let database = database();
    drop(try_open(&database.address()).await.unwrap());
    database.sql("UPDATE tidegate.layout SET version = 99");
    drop(try_open(&database.address()).await.expect("it only adds"));
    database.sql("UPDATE tidegate.layout SET usable_from = 99");
    let error = error_of(&database.address()).await;
    assert!(
        matches!(error, PostgresOpenError::Newer { found: 99, .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_second_server_is_refused_and_a_cluster_is_not() {
    let database = database();
    let first = try_open(&database.address()).await.unwrap();
    let error = error_of(&database.address()).await;
    assert!(
        matches!(&error, PostgresOpenError::InUse { owner } if owner.contains("tidegate")),
        "{error:?}"
    );
    drop(first);
    let shared = PostgresOptions {
        database_use: DatabaseUse::Shared,
        ..PostgresOptions::default()
    };
    let url = database.url();
    let (one, two) = tokio::join!(
        PostgresStore::open(&url, &shared),
        PostgresStore::open(&url, &shared),
    );
    one.unwrap().insert(spec("a")).await.unwrap();
    assert_eq!(get(&two.unwrap(), "a").await, queued(spec("a")));
}

#[tokio::test]
async fn many_processes_create_the_tables_at_once() {
    let database = database();
    let shared = PostgresOptions {
        database_use: DatabaseUse::Shared,
        connections: 1,
        ..PostgresOptions::default()
    };
    let url = database.url();
    let stores = futures_util::future::join_all(
        (0..8).map(|_| async { PostgresStore::open(&url, &shared).await }),
    );
    for store in stores.await {
        store.unwrap();
    }
}

/// The server takes the lock again after a connection loss; another server may have been faster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_lock_was_taken_learns_it() {
    const LOCKS: &str = "FROM pg_locks l JOIN pg_database d ON d.oid = l.database
         WHERE l.locktype = 'advisory' AND d.datname = current_database()";
    const KEY: i64 = 7595715428164239363;
    let database = database();
    let store = try_open(&database.address()).await.unwrap();
    let (other, connection) = tokio_postgres::connect(&database.address(), tokio_postgres::NoTls)
        .await
        .unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(connection);
    let waits = other.execute("SELECT pg_advisory_lock($1)", &[&KEY]);
    let ends = async {
        while database
            .sql(&format!("SELECT 1 {LOCKS} AND NOT l.granted"))
            .is_empty()
        {
            tokio::task::yield_now().await;
        }
        database.sql(&format!(
            "SELECT pg_terminate_backend(l.pid) {LOCKS} AND l.granted"
        ));
    };
    let (locked, ()) = tokio::join!(waits, ends);
    locked.unwrap();
    let limit = std::time::Duration::from_secs(60);
    tokio::time::timeout(limit, store.until_replaced())
        .await
        .expect("the first server learns it");
}

/// One change that PostgreSQL refuses does not fail the changes beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_change_fails_alone() {
    let database = database();
    let store = try_open(&database.address()).await.unwrap();
    database.sql("ALTER TABLE tidegate.jobs ADD CONSTRAINT refused CHECK (id NOT LIKE 'bad%')");
    let inserts = (0..200).map(|n| {
        let name = if n % 50 == 7 { "bad" } else { "good" };
        store.insert(spec(&format!("{name}-{n}")))
    });
    let results = futures_util::future::join_all(inserts).await;
    for (n, result) in results.iter().enumerate() {
        match result {
            Ok(_) => assert_ne!(n % 50, 7),
            Err(StoreError::Invalid(text)) => assert!(n % 50 == 7 && text.contains("refused")),
            Err(other) => panic!("{other}"),
        }
    }
    let commits = store.meter().commit_changes.read().count;
    assert!(commits < 150, "{commits} commits");
}

/// Documents and texts with U+0000 are found again.
#[tokio::test]
async fn texts_with_nul_are_stored() {
    let database = database();
    let store = try_open(&database.address()).await.unwrap();
    for name in ["a\0", "a\u{1}", "a", "a\0b", "b"] {
        let json = bytes::Bytes::from_static(b"\"\\u0000\"");
        store.put("n\0", name, json).await.unwrap();
    }
    let found = store.all("n\0", "a\0").await.unwrap();
    let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a\0", "a\0b"]);
    assert!(
        store
            .reopen_message("a\0", None, std::time::Duration::ZERO)
            .await
            .is_ok()
    );
}

/// Time in which the cluster did not run does not count.
#[tokio::test]
async fn leases_survive_an_outage() {
    use tidegate_core::lease::Nonce;
    use tidegate_core::leases::{AcquireRequest, AcquireResult, Holder, JobRef, Leases};
    const LASTS: std::time::Duration = std::time::Duration::from_secs(30);
    let database = database();
    let store = try_open(&database.address()).await.unwrap();
    store.insert(spec("a")).await.unwrap();
    let request = |director: &str| AcquireRequest {
        job: JobRef {
            account: ann(),
            id: id("a"),
        },
        holder: Holder {
            name: director.to_owned(),
            boot: 1,
        },
        nonce: Nonce(director.len() as u128),
        lasts: LASTS,
        max_attempts: 3,
    };
    let granted = store.acquire(request("one")).await.unwrap();
    assert!(matches!(granted, AcquireResult::Granted(_)), "{granted:?}");
    assert!(store.expired(LASTS, 10).await.unwrap().is_empty());
    // As if an hour had passed in which neither heartbeats nor this call were possible.
    database.sql(
        "UPDATE tidegate.pulse SET at = at - 3600000000;
         UPDATE tidegate.holders SET alive_until = alive_until - 3600000000",
    );
    let held = AcquireResult::HeldByAnother;
    assert_eq!(store.acquire(request("director two")).await.unwrap(), held);
    assert!(store.expired(LASTS, 10).await.unwrap().is_empty());
    assert_eq!(store.acquire(request("director two")).await.unwrap(), held);
    // A holder that died before the outage stays dead.
    database.sql("UPDATE tidegate.holders SET alive_until = 1 WHERE name = 'one'");
    assert_eq!(store.expired(LASTS, 10).await.unwrap().len(), 1);
}

/// A queued job costs three commits: insert, lease, end.
#[tokio::test]
async fn a_job_of_a_cluster_costs_three_commits() {
    use tidegate_core::lease::Nonce;
    use tidegate_core::leases::{
        AcquireRequest, AcquireResult, Holder, JobRef, LeaseHeartbeat, Leases,
    };
    let database = database();
    let store = try_open(&database.address()).await.unwrap();
    let (lasts, holder) = (
        std::time::Duration::from_secs(30),
        Holder {
            name: "one".to_owned(),
            boot: 1,
        },
    );
    let beat = LeaseHeartbeat {
        holder: holder.clone(),
        lasts,
        leases: Vec::new(),
    };
    store.heartbeat(beat).await.unwrap();
    store.insert(spec("a")).await.unwrap();
    let request = AcquireRequest {
        job: JobRef {
            account: ann(),
            id: id("a"),
        },
        holder,
        nonce: Nonce(1),
        lasts,
        max_attempts: 3,
    };
    let AcquireResult::Granted(lease) = store.acquire(request).await.unwrap() else {
        panic!("the lease was refused");
    };
    let mut end = finish_leased("a", lease.fence, 5);
    end.message = Some(message("m", "a", 5));
    assert!(ends(&store, end).await);
    assert_eq!(store.meter().commit_changes.read().count, 3);
}
