//! Removed entries and old entries.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::queue::Queue;

use super::{drain, entry, queue_name, take_next};

/// A removed entry is skipped; the others keep their order.
pub async fn a_removed_entry_is_not_taken(queue: Arc<dyn Queue>) {
    for id in ["a", "b", "c"] {
        queue.push(&queue_name(), entry("ann", id)).await.unwrap();
    }
    let job = entry("ann", "b");
    queue
        .remove(&queue_name(), &job.account, &job.id)
        .await
        .unwrap();
    queue
        .remove(&queue_name(), &job.account, &entry("ann", "unknown").id)
        .await
        .unwrap();
    assert_eq!(drain(&*queue).await, ["a", "c"]);
    queue.push(&queue_name(), job).await.unwrap();
    assert_eq!(drain(&*queue).await, ["b"], "it may be pushed again");
}

/// An account whose first entries were removed keeps its share of the turns.
pub async fn a_removed_entry_uses_no_turn(queue: Arc<dyn Queue>) {
    for number in 0..4 {
        for account in ["ann", "bob"] {
            queue
                .push(
                    &queue_name(),
                    entry(account, &format!("{account}-{number}")),
                )
                .await
                .unwrap();
        }
    }
    for id in ["ann-0", "ann-1"] {
        let job = entry("ann", id);
        queue
            .remove(&queue_name(), &job.account, &job.id)
            .await
            .unwrap();
    }
    assert_eq!(
        drain(&*queue).await,
        ["ann-2", "bob-0", "ann-3", "bob-1", "bob-2", "bob-3"]
    );
}

/// `collect` frees removed entries and nothing else.
pub async fn removed_entries_are_collected(queue: Arc<dyn Queue>) {
    for n in 0..120 {
        let job = entry("ann", &format!("{n:03}"));
        queue.push(&queue_name(), job.clone()).await.unwrap();
        if n % 2 == 0 {
            queue
                .remove(&queue_name(), &job.account, &job.id)
                .await
                .unwrap();
        }
    }
    queue.collect().await.unwrap();
    assert_eq!(queue.collect().await.unwrap(), 0);
    let ids = drain(&*queue).await;
    assert!(
        ids.len() == 60 && ids.is_sorted() && ids[0] == "001",
        "{ids:?}"
    );
}

/// `remove` does not invalidate a claim: the consumer learns of the job's end elsewhere.
pub async fn a_taken_entry_is_not_removed(queue: Arc<dyn Queue>) {
    queue.push(&queue_name(), entry("ann", "a")).await.unwrap();
    let claim = take_next(&*queue).await.unwrap();
    queue
        .remove(&queue_name(), &claim.entry.account, &claim.entry.id)
        .await
        .unwrap();
    assert!(queue.ack(&claim).await.unwrap());
}

/// Old entries are found, waiting and taken, oldest first; young ones are not.
pub async fn old_entries_are_found(queue: Arc<dyn Queue>) {
    for id in ["taken", "waits", "third"] {
        queue.push(&queue_name(), entry("ann", id)).await.unwrap();
    }
    take_next(&*queue).await.unwrap();
    assert_eq!(
        queue
            .old(Timestamp::now() - Duration::from_secs(60), 10)
            .await
            .unwrap(),
        []
    );
    let old = queue
        .old(Timestamp::now() + Duration::from_secs(60), 2)
        .await
        .unwrap();
    assert_eq!(
        old,
        [
            (queue_name(), entry("ann", "taken")),
            (queue_name(), entry("ann", "waits"))
        ]
    );
}
