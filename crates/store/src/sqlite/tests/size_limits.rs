//! A full disk, the size of the log, and the size of results.

use bytes::Bytes;
use tidegate_core::Status;
use tidegate_core::record::JobSpec;
use tidegate_core::store::{Inserted, Store, StoreError};

use super::super::SqliteOptions;
use super::{fresh, fresh_with};
use crate::conformance::samples::*;

fn large(name: &str, bytes: usize) -> JobSpec {
    JobSpec {
        input: Bytes::from(vec![b'x'; bytes]),
        ..spec(name)
    }
}

#[tokio::test]
async fn a_full_store_reports_it_and_works_again_after_space_is_freed() {
    let (_folder, store) = fresh_with(&SqliteOptions {
        max_size: Some(4 << 20),
        ..SqliteOptions::default()
    });
    store.insert(spec("small")).await.unwrap();
    let mut stored = 0;
    let refused = loop {
        match store.insert(large(&format!("{stored}"), 1 << 20)).await {
            Ok(inserted) => assert_eq!(inserted, Inserted::New),
            Err(refused) => break refused,
        }
        stored += 1;
    };
    assert!(matches!(refused, StoreError::Full(_)), "{refused}");
    assert!(stored >= 2, "{stored} were stored");
    assert_eq!(
        store.get(&ann(), &id(&format!("{stored}"))).await.unwrap(),
        None,
        "a refused insert leaves nothing"
    );
    assert_eq!(get(&store, "small").await.status, Status::Queued);
    assert!(
        ends(&store, finish("small", 0, 1)).await,
        "small changes still fit"
    );

    assert!(ends(&store, finish("0", 0, 1)).await);
    assert_eq!(store.remove_data(at(2), 10).await.unwrap(), 2);
    assert_eq!(
        store.insert(large("again", 1 << 20)).await.unwrap(),
        Inserted::New
    );
}

#[tokio::test]
async fn a_large_change_on_a_full_disk_does_not_fail_small_ones_in_its_batch() {
    let (_folder, store) = fresh_with(&SqliteOptions {
        max_size: Some(2 << 20),
        ..SqliteOptions::default()
    });
    let (first, second, third) = tokio::join!(
        store.insert(spec("first")),
        store.insert(large("second", 8 << 20)),
        store.insert(spec("third"))
    );

    assert!(matches!(second, Err(StoreError::Full(_))), "{second:?}");
    assert_eq!(
        (first.unwrap(), third.unwrap()),
        (Inserted::New, Inserted::New)
    );
}

#[tokio::test]
async fn the_log_is_bounded() {
    let (folder, store) = fresh();
    let log = folder.path().join("tidegate.db-wal");
    let mut longest = 0;
    for n in 0..100 {
        store.insert(large(&format!("{n}"), 1 << 20)).await.unwrap();
        longest = longest.max(std::fs::metadata(&log).unwrap().len());
    }
    assert!(longest < 32 << 20, "the log had {longest} bytes");
}

#[tokio::test]
async fn a_result_is_bounded_in_bytes() {
    let (_folder, store) = fresh();
    for n in 0..6 {
        store.insert(large(&format!("{n}"), 8 << 20)).await.unwrap();
    }
    assert_eq!(store.list(query(100)).await.unwrap().items.len(), 2);
    // Inputs of open jobs are not read.
    assert_eq!(store.open(0, 100).await.unwrap().len(), 6);
}
