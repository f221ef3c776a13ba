//! Waiting for an entry.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::queue::{Queue, QueueDepth, TakeOptions};

use super::{entry, queue_name, take_next};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(30);

/// `take` on an empty queue returns the first entry that is pushed.
pub async fn take_waits_for_the_next_entry(queue: Arc<dyn Queue>) {
    let waiting = {
        let queue = Arc::clone(&queue);
        async move {
            queue
                .take(&queue_name(), TakeOptions::within(LONG))
                .await
                .unwrap()
        }
    };
    let pushes = async {
        tokio::task::yield_now().await;
        queue.push(&queue_name(), entry("ann", "a")).await.unwrap();
    };
    let (claim, ()) = tokio::join!(waiting, pushes);
    assert_eq!(claim.unwrap().entry.id.as_str(), "a");
}

/// `take` on an empty queue returns at its timeout.
pub async fn take_returns_at_its_timeout(queue: Arc<dyn Queue>) {
    assert_eq!(
        queue
            .take(
                &queue_name(),
                TakeOptions::within(Duration::from_millis(50))
            )
            .await
            .unwrap(),
        None
    );
    // The call that timed out must not consume the next entry.
    queue.push(&queue_name(), entry("ann", "a")).await.unwrap();
    assert!(take_next(&*queue).await.is_some());
}

/// `wait_for_more_than` returns as soon as more entries wait than it was given.
pub async fn wait_for_more_than_returns_when_an_entry_is_pushed(queue: Arc<dyn Queue>) {
    let waits = async {
        tokio::time::timeout(LONG, queue.wait_for_more_than(&queue_name(), 0))
            .await
            .unwrap()
            .unwrap()
    };
    let pushes = async {
        tokio::task::yield_now().await;
        queue.push(&queue_name(), entry("ann", "a")).await.unwrap();
    };
    let (count, ()) = tokio::join!(waits, pushes);
    assert_eq!(count, 1);
    queue.push(&queue_name(), entry("bob", "b")).await.unwrap();
    assert_eq!(queue.wait_for_more_than(&queue_name(), 1).await.unwrap(), 2);
    let third = tokio::time::timeout(
        Duration::from_millis(50),
        queue.wait_for_more_than(&queue_name(), 2),
    )
    .await;
    assert!(third.is_err(), "there are no more than two");
    take_next(&*queue).await.unwrap();
    take_next(&*queue).await.unwrap();
    let waits_again = tokio::time::timeout(
        Duration::from_millis(50),
        queue.wait_for_more_than(&queue_name(), 0),
    )
    .await;
    assert!(waits_again.is_err(), "no entry waits any more");
}

/// The depth counts waiting and taken entries, not removed ones.
pub async fn depth_counts_waiting_and_taken_entries(queue: Arc<dyn Queue>) {
    for id in ["a", "b", "c", "d"] {
        queue.push(&queue_name(), entry("ann", id)).await.unwrap();
    }
    let claim = take_next(&*queue).await.unwrap();
    take_next(&*queue).await.unwrap();
    assert_eq!(
        queue.depth(&queue_name()).await.unwrap(),
        QueueDepth {
            waiting: 2,
            claimed: 2
        }
    );
    queue.ack(&claim).await.unwrap();
    queue
        .remove(&queue_name(), &claim.entry.account, &entry("ann", "d").id)
        .await
        .unwrap();
    assert_eq!(
        queue.depth(&queue_name()).await.unwrap(),
        QueueDepth {
            waiting: 1,
            claimed: 1
        }
    );
}
