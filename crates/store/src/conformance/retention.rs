//! Retention: removing data and deleting jobs.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::record::{Completion, JobRecord};
use tidegate_core::store::{Inserted, Store};

use super::samples::*;

/// Input, output and logs are removed; the rest stays.
pub async fn data_of_old_jobs_is_removed(store: Arc<dyn Store>) {
    over(&*store, "a", 5).await;
    let before = get(&*store, "a").await;
    assert_eq!(store.remove_data(at(6), 10).await.unwrap(), 1);

    let mut spec = before.spec.clone();
    spec.input = Bytes::from_static(b"{}");
    let completion = before.completion.clone().map(|completion| Completion {
        output: None,
        logs: String::new(),
        ..completion
    });
    assert_eq!(
        get(&*store, "a").await,
        JobRecord {
            spec,
            completion,
            data_removed: true,
            ..before
        }
    );
    assert_eq!(
        store.remove_data(at(6), 10).await.unwrap(),
        0,
        "the data is removed once"
    );
}

/// The next call continues.
pub async fn removing_stops_at_the_limit(store: Arc<dyn Store>) {
    for n in 0..5 {
        over(&*store, &format!("{n}"), n).await;
    }
    let mut removed = Vec::new();
    for _ in 0..4 {
        removed.push(store.remove_data(at(100), 2).await.unwrap());
    }
    assert_eq!(removed, [2, 2, 1, 0]);
}

/// The bound itself is not before the bound.
pub async fn open_and_recent_jobs_keep_their_data(store: Arc<dyn Store>) {
    over(&*store, "young", 5).await;
    store.insert(spec("open")).await.unwrap();
    let before = (get(&*store, "young").await, get(&*store, "open").await);

    assert_eq!(store.remove_data(at(5), 10).await.unwrap(), 0);
    assert_eq!(store.forget(at(5), 10).await.unwrap(), 0);
    assert_eq!(
        (get(&*store, "young").await, get(&*store, "open").await),
        before
    );
}

/// With their data or without.
pub async fn old_jobs_are_deleted(store: Arc<dyn Store>) {
    over(&*store, "older", 1).await;
    store.remove_data(at(2), 10).await.unwrap();
    over(&*store, "old", 2).await;
    over(&*store, "young", 9).await;
    assert_eq!(store.forget(at(5), 10).await.unwrap(), 2);

    let page = store.list(query(10)).await.unwrap();
    assert_eq!(names(&page.items), ["young"]);
    assert_eq!(store.get(&ann(), &id("old")).await.unwrap(), None);
}

/// The next call continues.
pub async fn deleting_stops_at_the_limit(store: Arc<dyn Store>) {
    for n in 0..5 {
        over(&*store, &format!("{n}"), n).await;
    }
    let mut forgotten = Vec::new();
    for _ in 0..4 {
        forgotten.push(store.forget(at(100), 2).await.unwrap());
    }
    assert_eq!(forgotten, [2, 2, 1, 0]);
}

/// The new job has nothing of the old one.
pub async fn the_id_of_a_deleted_job_is_free(store: Arc<dyn Store>) {
    over(&*store, "a", 1).await;
    store.forget(at(2), 10).await.unwrap();

    assert_eq!(store.insert(full_spec("a")).await.unwrap(), Inserted::New);
    assert_eq!(get(&*store, "a").await, queued(full_spec("a")));
}
