//! Removed entries and old entries.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::queue::{FoundEntry, Queue};

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
    let age = Duration::from_secs(60);
    assert_eq!(queue.old(age, 10).await.unwrap(), []);
    assert_eq!(old_ids(&*queue, 2).await, ["taken", "waits"]);
}

/// Old entries are removed, waiting and taken; claims on them are invalid.
pub async fn old_entries_are_removed(queue: Arc<dyn Queue>) {
    for n in 0..120 {
        let job = entry("ann", &format!("{n:03}"));
        queue.push(&queue_name(), job).await.unwrap();
    }
    let claim = take_next(&*queue).await.unwrap();
    let mut old = found_old(&*queue, 120).await;
    let kept = old.pop().unwrap();
    assert_eq!(queue.remove_old(&old).await.unwrap(), 119);
    assert!(!queue.ack(&claim).await.unwrap());
    assert_eq!(drain(&*queue).await, [kept.entry.id.as_str()]);
}

/// The first `count` entries, once they are old.
async fn found_old(queue: &dyn Queue, count: usize) -> Vec<FoundEntry> {
    loop {
        // Entries are old as soon as a millisecond has passed.
        let old = queue.old(Duration::from_millis(1), count).await.unwrap();
        if old.len() == count {
            return old;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn old_ids(queue: &dyn Queue, count: usize) -> Vec<String> {
    let old = found_old(queue, count).await;
    old.iter().map(|found| found.entry.id.to_string()).collect()
}
