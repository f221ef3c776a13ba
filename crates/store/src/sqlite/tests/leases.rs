//! Leases that are not in the database yet.

use std::sync::mpsc;
use std::time::Duration;

use tidegate_core::lease::{LeaseDurability, LeaseRequest, Nonce};
use tidegate_core::store::Store;

use super::super::lease_markers::{LeaseMarker, LeaseMarkers, MarkerReservation};
use super::{fresh, fresh_with};
use crate::conformance::samples::*;
use crate::sqlite::SqliteOptions;

#[test]
fn a_marker_is_removed_with_its_own_nonce_only() {
    let markers = LeaseMarkers::new(tempfile::tempfile().unwrap()).unwrap();
    markers.reserve(&lease("a", 0, 1));
    assert!(matches!(
        markers.reserve(&lease("a", 1, 2)),
        MarkerReservation::New(Some(_))
    ));
    // The request of the first attempt ends after the second one has begun.
    markers.remove(&ann(), &id("a"), Nonce(1));
    let nonce = |marker: Option<_>| marker.map(|marker: LeaseMarker| marker.fence.nonce);
    assert_eq!(nonce(markers.get(&ann(), &id("a"))), Some(Nonce(2)));
    markers.remove(&ann(), &id("a"), Nonce(2));
    assert_eq!(nonce(markers.get(&ann(), &id("a"))), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_was_ended_without_its_lease_leaves_no_marker() {
    let (_folder, store) = fresh();
    store.insert(spec("a")).await.unwrap();
    let request = LeaseRequest {
        durability: LeaseDurability::Process,
        ..lease("a", 0, 1)
    };
    leased(&store, request).await;
    assert!(ends(&store, finish("a", 1, 5)).await);
    assert_eq!(store.markers.get(&ann(), &id("a")), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_leased_while_all_readers_are_busy() {
    let (_folder, store) = fresh_with(&SqliteOptions {
        readers: 1,
        ..SqliteOptions::default()
    });
    store.insert(spec("a")).await.unwrap();
    let (release, released) = mpsc::channel::<()>();
    let scan = store.readers.read(move |_| {
        // The sender is dropped at the end of the test.
        released.recv().ok();
        Ok(())
    });
    let request = LeaseRequest {
        durability: LeaseDurability::Process,
        ..lease("a", 0, 1)
    };
    let lease = async {
        let lease = leased(&store, request);
        let fence = tokio::time::timeout(Duration::from_secs(30), lease).await;
        drop(release);
        fence
    };
    let (scan, fence) = tokio::join!(scan, lease);
    scan.unwrap();
    assert_eq!(fence.expect("the lease does not wait").attempt, 1);
}
