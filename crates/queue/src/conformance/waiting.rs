//! Waiting for somebody to come.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::queue::{Queue, QueueDepth};

use super::{consumer, entry, line, next};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(30);

/// Whoever takes from an empty line gets the first who comes.
pub async fn a_taker_waits_for_the_next(queue: Arc<dyn Queue>) {
    let waiting = {
        let queue = Arc::clone(&queue);
        async move { queue.take(&line(), &consumer(), LONG).await.unwrap() }
    };
    let pushes = async {
        tokio::task::yield_now().await;
        queue.push(&line(), entry("ann", "a")).await.unwrap();
    };
    let (claim, ()) = tokio::join!(waiting, pushes);
    assert_eq!(claim.unwrap().entry.id.as_str(), "a");
}

/// An empty line keeps nobody longer than they want.
pub async fn a_taker_leaves_when_its_patience_ends(queue: Arc<dyn Queue>) {
    assert_eq!(
        queue
            .take(&line(), &consumer(), Duration::from_millis(50))
            .await
            .unwrap(),
        None
    );
    // Whoever left does not swallow the next.
    queue.push(&line(), entry("ann", "a")).await.unwrap();
    assert!(next(&*queue).await.is_some());
}

/// Whoever asks is told as soon as somebody stands in the line.
pub async fn who_asks_is_told_when_somebody_comes(queue: Arc<dyn Queue>) {
    let asks = async {
        tokio::time::timeout(LONG, queue.waits(&line(), 0))
            .await
            .unwrap()
            .unwrap()
    };
    let pushes = async {
        tokio::task::yield_now().await;
        queue.push(&line(), entry("ann", "a")).await.unwrap();
    };
    let (count, ()) = tokio::join!(asks, pushes);
    assert_eq!(count, 1);
    queue.push(&line(), entry("bob", "b")).await.unwrap();
    assert_eq!(queue.waits(&line(), 1).await.unwrap(), 2);
    let third = tokio::time::timeout(Duration::from_millis(50), queue.waits(&line(), 2)).await;
    assert!(third.is_err(), "there are no more than two");
    next(&*queue).await.unwrap();
    next(&*queue).await.unwrap();
    let asks_again = tokio::time::timeout(Duration::from_millis(50), queue.waits(&line(), 0)).await;
    assert!(asks_again.is_err(), "nobody waits any more");
}

/// Who waits and who is in hand is counted, struck ones not.
pub async fn the_depth_is_counted(queue: Arc<dyn Queue>) {
    for id in ["a", "b", "c", "d"] {
        queue.push(&line(), entry("ann", id)).await.unwrap();
    }
    let claim = next(&*queue).await.unwrap();
    next(&*queue).await.unwrap();
    assert_eq!(
        queue.depth(&line()).await.unwrap(),
        QueueDepth {
            waiting: 2,
            taken: 2
        }
    );
    queue.ack(&claim).await.unwrap();
    queue
        .remove(&line(), &claim.entry.account, &entry("ann", "d").id)
        .await
        .unwrap();
    assert_eq!(
        queue.depth(&line()).await.unwrap(),
        QueueDepth {
            waiting: 1,
            taken: 1
        }
    );
}
