//! The attempts of a job that directors run.

use std::sync::Arc;

use tidegate_core::job_attempt::AttemptEnd;
use tidegate_core::leases::AcquireRequest;

use super::attempts::{attempts, read};
use super::cluster_leases::{LONG, LeasingStore, NO_TIME, granted, held, request};
use super::samples::*;

/// The attempts of a cluster name their directors.
pub async fn attempts_name_their_directors(store: Arc<dyn LeasingStore>) {
    store.expired(LONG, 10).await.unwrap();
    store.insert(spec("a")).await.unwrap();
    let given_back = granted(&*store, request("a", "one", 1)).await;
    assert!(store.release(&held("a", given_back.fence)).await.unwrap());
    let released = Some(AttemptEnd::Released);
    assert_eq!(attempts(&*store, "a").await, [(1, released)]);
    let dying = AcquireRequest {
        lasts: NO_TIME,
        ..request("a", "two", 2)
    };
    granted(&*store, dying).await;
    assert_eq!(attempts(&*store, "a").await, [(1, released), (2, None)]);
    store.expired(LONG, 10).await.unwrap();
    let lost = Some(AttemptEnd::Lost);
    assert_eq!(attempts(&*store, "a").await, [(1, released), (2, lost)]);
    let noticed = read(&*store, "a").await[1].ended_at;
    let last = granted(&*store, request("a", "three", 3)).await;
    assert!(ends(&*store, finish_leased("a", last.fence, 5)).await);
    let ended = read(&*store, "a").await;
    let shown: Vec<_> = ended
        .iter()
        .map(|attempt| (attempt.runner.as_deref(), attempt.end))
        .collect();
    let expected = [
        (Some("one"), released),
        (Some("two"), lost),
        (Some("three"), Some(AttemptEnd::Succeeded)),
    ];
    assert_eq!(shown, expected);
    assert_eq!(ended[1].ended_at, noticed, "not when it was leased again");
}
