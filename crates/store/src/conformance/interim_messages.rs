//! Interim webhook messages of jobs that directors run.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::lease::Fence;
use tidegate_core::outbox::{MessageState, SendOutcome, Settlement};
use tidegate_core::store::JobFinish;

use super::cluster_leases::{LeasingStore, granted, held, request};
use super::samples::*;

/// The ids of the messages that are taken now.
pub(super) async fn taken(store: &dyn LeasingStore) -> Vec<String> {
    let taken = store.take_messages(all_due("sender")).await.unwrap();
    ids(&taken).into_iter().map(str::to_owned).collect()
}

async fn delivered(store: &dyn LeasingStore, message: &str) {
    let settled = SendOutcome::Settled(Settlement {
        at: at(9),
        given_up: None,
    });
    store
        .record_attempt(message, "sender", settled)
        .await
        .unwrap();
}

fn final_end(name: &str, fence: Fence) -> JobFinish {
    JobFinish {
        message: Some(message("final", name, 5)),
        ..finish_leased(name, fence, 5)
    }
}

/// A newer message replaces one that was not sent yet; the end replaces it too.
pub async fn an_interim_message_is_replaced(store: Arc<dyn LeasingStore>) {
    store.insert(spec("a")).await.unwrap();
    let lease = held("a", granted(&*store, request("a", "one", 1)).await.fence);
    for n in 1..=2 {
        let interim = message(&format!("interim {n}"), "a", n);
        assert!(store.put_interim(&lease, interim).await.unwrap());
    }
    assert_eq!(taken(&*store).await, ["interim 2"]);
    delivered(&*store, "interim 2").await;
    assert!(
        store
            .put_interim(&lease, message("interim 3", "a", 3))
            .await
            .unwrap()
    );
    assert!(ends(&*store, final_end("a", lease.fence)).await);
    assert_eq!(taken(&*store).await, ["final"]);
    assert!(
        !store
            .put_interim(&lease, message("interim 4", "a", 4))
            .await
            .unwrap(),
        "the job has ended"
    );
    let filter = tidegate_core::outbox::MessageFilter {
        limit: 10,
        ..Default::default()
    };
    let listed = store.messages(filter).await.unwrap();
    assert!(
        matches!(&listed[..], [only] if only.id == "final" && only.state == MessageState::Claimed),
        "{listed:?}"
    );
}

/// When the claim of an interim message ends, because its sender is gone, a later message is sent instead.
pub async fn an_interim_message_of_a_lost_sender_is_dropped(store: Arc<dyn LeasingStore>) {
    store.insert(spec("a")).await.unwrap();
    let lease = held("a", granted(&*store, request("a", "one", 1)).await.fence);
    let interim = message("interim", "a", 1);
    assert!(store.put_interim(&lease, interim).await.unwrap());
    let mut lost = all_due("lost");
    lost.claim.lasts = Duration::from_millis(200);
    assert_eq!(ids(&store.take_messages(lost).await.unwrap()), ["interim"]);
    assert!(ends(&*store, final_end("a", lease.fence)).await);
    let first = loop {
        let taken = taken(&*store).await;
        if !taken.is_empty() {
            break taken;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(first, ["final"]);
}

/// While one message about a job is sent, the next one waits.
pub async fn no_interim_message_is_sent_after_the_final_one(store: Arc<dyn LeasingStore>) {
    store.insert(spec("a")).await.unwrap();
    let lease = held("a", granted(&*store, request("a", "one", 1)).await.fence);
    let put = |message| store.put_interim(&lease, message);
    assert!(put(message("interim 1", "a", 1)).await.unwrap());
    assert_eq!(taken(&*store).await, ["interim 1"]);
    assert!(put(message("interim 2", "a", 2)).await.unwrap());
    assert!(taken(&*store).await.is_empty(), "the first is being sent");
    assert!(ends(&*store, final_end("a", lease.fence)).await);
    assert!(taken(&*store).await.is_empty(), "the first is being sent");

    let retry = SendOutcome::Retry(Duration::ZERO);
    store
        .record_attempt("interim 1", "sender", retry)
        .await
        .unwrap();
    assert_eq!(taken(&*store).await, ["final"]);
}

/// Of a lease that was lost, nothing is stored.
pub async fn an_outdated_lease_stores_no_message(store: Arc<dyn LeasingStore>) {
    store.insert(spec("a")).await.unwrap();
    let lease = held("a", granted(&*store, request("a", "one", 1)).await.fence);
    store.release(&lease).await.unwrap();
    granted(&*store, request("a", "two", 2)).await;
    let interim = message("interim", "a", 1);
    assert!(!store.put_interim(&lease, interim).await.unwrap());
    assert!(taken(&*store).await.is_empty());
}
