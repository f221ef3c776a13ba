//! Deadlines of entries.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::queue::{FoundEntry, Queue, QueueEntry};

use super::{drain, entry, queue_name, take_next};

/// How far in the future the deadlines are that pass during a test.
const SOON: Duration = Duration::from_millis(20);

fn due(id: &str, at: Timestamp) -> QueueEntry {
    QueueEntry {
        deadline: Some(at),
        ..entry("ann", id)
    }
}

fn in_seconds(seconds: u64) -> Timestamp {
    Timestamp::now() + Duration::from_secs(seconds)
}

fn ids(overdue: &[FoundEntry]) -> Vec<&str> {
    overdue
        .iter()
        .map(|found| found.entry.id.as_str())
        .collect()
}

/// Waits until an entry is overdue.
async fn next_overdue(queue: &dyn Queue) -> Vec<FoundEntry> {
    loop {
        let overdue = queue.overdue(10).await.unwrap();
        if !overdue.is_empty() {
            return overdue;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// An entry whose deadline has passed is returned until it is settled, and cannot be taken after that.
pub async fn an_overdue_entry_is_returned_until_it_is_settled(queue: Arc<dyn Queue>) {
    for job in [
        due("soon", Timestamp::now() + SOON),
        due("later", in_seconds(3600)),
        entry("ann", "never"),
    ] {
        queue.push(&queue_name(), job).await.unwrap();
    }
    let overdue = next_overdue(&*queue).await;
    assert_eq!(ids(&overdue), ["soon"]);
    assert_eq!(queue.overdue(10).await.unwrap(), overdue, "not settled yet");
    queue.settle(&overdue[0]).await.unwrap();
    queue.settle(&overdue[0]).await.unwrap();
    assert_eq!(queue.overdue(10).await.unwrap(), []);
    assert_eq!(drain(&*queue).await, ["later", "never"]);
}

/// A taken entry whose deadline has passed is returned too; its claim stays valid.
pub async fn an_overdue_taken_entry_is_returned_too(queue: Arc<dyn Queue>) {
    let job = due("a", Timestamp::now() + SOON);
    queue.push(&queue_name(), job).await.unwrap();
    let claim = take_next(&*queue).await.unwrap();
    let overdue = next_overdue(&*queue).await;
    assert_eq!(ids(&overdue), ["a"]);
    queue.settle(&overdue[0]).await.unwrap();
    queue.collect().await.unwrap();
    assert!(queue.ack(&claim).await.unwrap());
}

/// An acked or removed entry is never overdue.
pub async fn a_completed_entry_has_no_deadline(queue: Arc<dyn Queue>) {
    for id in ["done", "removed"] {
        let job = due(id, Timestamp::now() + SOON);
        queue.push(&queue_name(), job).await.unwrap();
    }
    let claim = take_next(&*queue).await.unwrap();
    queue.ack(&claim).await.unwrap();
    let removed = entry("ann", "removed");
    queue
        .remove(&queue_name(), &removed.account, &removed.id)
        .await
        .unwrap();
    let last = due("last", Timestamp::now() + SOON);
    queue.push(&queue_name(), last).await.unwrap();
    let overdue = next_overdue(&*queue).await;
    assert_eq!(ids(&overdue), ["last"]);
    queue.settle(&overdue[0]).await.unwrap();
    assert_eq!(queue.next_deadline().await.unwrap(), None);
}

/// The loop that enforces deadlines can sleep until the next one.
pub async fn next_deadline_is_the_earliest(queue: Arc<dyn Queue>) {
    let (early, late) = (in_seconds(10), in_seconds(20));
    queue.push(&queue_name(), due("late", late)).await.unwrap();
    queue
        .push(&queue_name(), due("early", early))
        .await
        .unwrap();
    let next = queue.next_deadline().await.unwrap();
    // A backend may not know the time, or not to the nanosecond.
    assert!(
        next.is_none_or(|next| next.duration_since(early).unsigned_abs() < Duration::from_secs(1)),
        "{next:?}"
    );
}
