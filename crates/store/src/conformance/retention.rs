//! What is removed when its time is over.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::record::{Completion, JobRecord};
use tidegate_core::store::{Inserted, Store};

use super::samples::*;

/// Input, output and logs go; what happened stays.
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
        "once is enough"
    );
}

/// The rest comes with the next call.
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

/// The moment itself is not before it.
pub async fn what_is_open_or_young_keeps_its_data(store: Arc<dyn Store>) {
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
pub async fn old_jobs_are_forgotten(store: Arc<dyn Store>) {
    over(&*store, "older", 1).await;
    store.remove_data(at(2), 10).await.unwrap();
    over(&*store, "old", 2).await;
    over(&*store, "young", 9).await;
    assert_eq!(store.forget(at(5), 10).await.unwrap(), 2);

    let page = store.list(query(10)).await.unwrap();
    assert_eq!(names(&page.items), ["young"]);
    assert_eq!(store.get(&ann(), &id("old")).await.unwrap(), None);
}

/// The rest comes with the next call.
pub async fn forgetting_stops_at_the_limit(store: Arc<dyn Store>) {
    for n in 0..5 {
        over(&*store, &format!("{n}"), n).await;
    }
    let mut forgotten = Vec::new();
    for _ in 0..4 {
        forgotten.push(store.forget(at(100), 2).await.unwrap());
    }
    assert_eq!(forgotten, [2, 2, 1, 0]);
}

/// Nothing of the job that had it before shows.
pub async fn a_forgotten_id_is_free(store: Arc<dyn Store>) {
    over(&*store, "a", 1).await;
    store.forget(at(2), 10).await.unwrap();

    assert_eq!(store.insert(full_spec("a")).await.unwrap(), Inserted::New);
    assert_eq!(get(&*store, "a").await, queued(full_spec("a")));
}
