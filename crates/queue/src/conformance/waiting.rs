//! Waiting for an entry.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::queue::{Queue, QueueDepth, QueueName, TakeOptions};

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

/// The statistics show each queue with the age of its oldest waiting entry, and the dead letters.
pub async fn statistics_show_all_queues(queue: Arc<dyn Queue>) {
    assert_eq!(queue.statistics().await.unwrap().queues, []);
    for id in ["a", "b", "c"] {
        queue.push(&queue_name(), entry("ann", id)).await.unwrap();
    }
    let other = QueueName::new("ann/other:1");
    queue.push(&other, entry("ann", "d")).await.unwrap();
    let dead = take_next(&*queue).await.unwrap();
    queue.bury(&dead, "for a reason").await.unwrap();
    let first = take_next(&*queue).await.unwrap();
    queue.push(&other, entry("ann", "e")).await.unwrap();
    let taken = TakeOptions::within(Duration::ZERO);
    queue.take(&other, taken).await.unwrap().unwrap();
    queue.take(&other, taken).await.unwrap().unwrap();

    let statistics = queue.statistics().await.unwrap();
    let usage = |name: &QueueName| {
        let mut found = statistics.queues.iter();
        found.find(|usage| usage.name == *name).unwrap().clone()
    };
    assert_eq!((statistics.queues.len(), statistics.dead_letters), (2, 1));
    let one = usage(&queue_name());
    assert_eq!((one.depth.waiting, one.depth.claimed), (1, 1));
    assert!(one.oldest_wait.is_some(), "one waits");
    let both = usage(&other);
    assert_eq!((both.depth.waiting, both.depth.claimed), (0, 2));
    assert_eq!(both.oldest_wait, None, "all are taken");

    let age = one.oldest_wait.unwrap();
    tokio::time::sleep(Duration::from_millis(30)).await;
    queue.put_back(&first).await.unwrap();
    let later = queue.statistics().await.unwrap();
    let one = later.queues.iter().find(|usage| usage.name == queue_name());
    let waited = one.and_then(|usage| usage.oldest_wait).unwrap();
    assert!(
        waited >= age + Duration::from_millis(20),
        "{age:?} {waited:?}"
    );
}
