//! The owners of endpoints in PostgreSQL: one at a time, and none commits after it was replaced.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::Account;
use tidegate_core::record::Target;
use tidegate_core::store::{Documents, Inserted, Store, StoreError};
use tidegate_store::conformance::postgres_server::{SharedPostgres, TestDatabase};
use tidegate_store::conformance::samples::spec;
use tidegate_store::{DatabaseUse, EndpointOwner, OwnerClaim, PostgresOptions, PostgresStore};

const LONG: Duration = Duration::from_secs(600);

async fn open() -> (TestDatabase, Arc<PostgresStore>) {
    let database = SharedPostgres::start().database();
    let options = PostgresOptions {
        database_use: DatabaseUse::Shared,
        ..PostgresOptions::default()
    };
    let store = PostgresStore::open(&database.url(), &options).await;
    (database, Arc::new(store.expect("an empty store")))
}

fn claim(holder: &str, lasts: Duration) -> OwnerClaim {
    OwnerClaim {
        holder: holder.to_owned(),
        url: format!("http://{holder}:5000"),
        lasts,
    }
}

/// Claims the endpoint `echo`.
async fn claim_echo(store: &PostgresStore, holder: &str, lasts: Duration) -> EndpointOwner {
    let owners = store
        .claim_endpoints(&["echo".to_owned()], &claim(holder, lasts))
        .await;
    owners.expect("it is claimed").remove(0)
}

fn owner(owner: &EndpointOwner) -> (&str, u64) {
    (&owner.holder, owner.term)
}

#[tokio::test]
async fn an_endpoint_has_one_owner_until_the_claim_expires() {
    let (_database, store) = open().await;
    let first = claim_echo(&store, "a", LONG).await;
    assert_eq!(owner(&first), ("a", 1));
    assert_eq!(first.url, "http://a:5000");
    assert!(first.remaining > LONG / 2);
    assert_eq!(owner(&claim_echo(&store, "b", LONG).await), ("a", 1));
    // A claim that has expired is renewed as long as no other process has taken over.
    assert_eq!(
        owner(&claim_echo(&store, "a", Duration::ZERO).await),
        ("a", 1)
    );
    assert_eq!(
        owner(&claim_echo(&store, "a", Duration::ZERO).await),
        ("a", 1)
    );
    assert_eq!(owner(&claim_echo(&store, "b", LONG).await), ("b", 2));
    assert_eq!(owner(&claim_echo(&store, "a", LONG).await), ("b", 2));
    let known = store
        .endpoint_owners(&["echo".to_owned(), "no".to_owned()])
        .await;
    let known: Vec<_> = known.unwrap();
    assert_eq!(known.iter().map(owner).collect::<Vec<_>>(), [("b", 2)]);
}

#[tokio::test]
async fn a_released_endpoint_is_taken_over_at_once() {
    let (_database, store) = open().await;
    claim_echo(&store, "a", LONG).await;
    store.release_endpoint("echo", 7).await.unwrap();
    assert_eq!(
        owner(&claim_echo(&store, "b", LONG).await),
        ("a", 1),
        "another term"
    );
    store.release_endpoint("echo", 1).await.unwrap();
    assert_eq!(owner(&claim_echo(&store, "b", LONG).await), ("b", 2));
}

#[tokio::test]
async fn of_many_processes_one_takes_over() {
    let (_database, store) = open().await;
    claim_echo(&store, "dead", Duration::ZERO).await;
    let names: Vec<String> = (0..8).map(|n| format!("p{n}")).collect();
    let claims = names.iter().map(|name| claim_echo(&store, name, LONG));
    let owners = futures_util::future::join_all(claims).await;
    let last = claim_echo(&store, "late", LONG).await;
    assert_eq!(last.term, 2);
    assert!(names.contains(&last.holder));
    for seen in &owners {
        assert!(
            owner(seen) == owner(&last) || owner(seen) == ("dead", 1),
            "{seen:?}"
        );
    }
}

#[tokio::test]
async fn a_process_that_was_replaced_commits_nothing() {
    let (_database, store) = open().await;
    let target = Target::of_endpoint("echo");
    let job = |id: &str| tidegate_core::record::JobSpec {
        target: target.clone(),
        ..spec(id)
    };
    let first = store.owned_endpoint(
        "echo",
        &target.model,
        claim_echo(&store, "a", Duration::ZERO).await.term,
    );
    assert_eq!(first.insert(job("before")).await.unwrap(), Inserted::New);
    first
        .put("space", "name", Bytes::from_static(b"{}"))
        .await
        .unwrap();
    let second = store.owned_endpoint(
        "echo",
        &target.model,
        claim_echo(&store, "b", LONG).await.term,
    );

    let refused = first.insert(job("after")).await;
    assert!(
        matches!(&refused, Err(StoreError::Unavailable(why)) if why.contains("`echo`")),
        "{refused:?}"
    );
    let account = Account::clone(&job("before").account);
    let id = job("before").id;
    assert!(first.request_cancel(&account, &id).await.is_err());
    assert!(
        first
            .put("space", "name", Bytes::from_static(b"[]"))
            .await
            .is_err()
    );
    assert!(first.remove("space", "name").await.is_err());
    first.until_over().await;

    assert_eq!(
        store.fetch("space", "name").await.unwrap().as_deref(),
        Some(&b"{}"[..])
    );
    assert_eq!(store.get(&account, &job("after").id).await.unwrap(), None);
    assert!(
        !store
            .get(&account, &id)
            .await
            .unwrap()
            .unwrap()
            .cancel_requested
    );
    second.insert(job("after")).await.unwrap();
}

#[tokio::test]
async fn the_owner_sees_the_open_jobs_of_its_endpoint_alone() {
    let (_database, store) = open().await;
    let target = Target::of_endpoint("echo");
    let term = claim_echo(&store, "a", LONG).await.term;
    let owned = store.owned_endpoint("echo", &target.model, term);
    store.insert(spec("of-a-model")).await.unwrap();
    let job = tidegate_core::record::JobSpec {
        target,
        ..spec("of-the-endpoint")
    };
    owned.insert(job).await.unwrap();
    let open = owned.open(0, 10).await.unwrap();
    let ids: Vec<&str> = open.iter().map(|job| job.record.spec.id.as_str()).collect();
    assert_eq!(ids, ["of-the-endpoint"]);
}
