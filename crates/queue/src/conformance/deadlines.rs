//! Deadlines of entries.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::queue::{Queue, QueueEntry};

use super::{drain, entry, queue_name, take_next};

fn due(id: &str, at: Timestamp) -> QueueEntry {
    QueueEntry {
        deadline: Some(at),
        ..entry("ann", id)
    }
}

fn in_seconds(seconds: u64) -> Timestamp {
    Timestamp::now() + Duration::from_secs(seconds)
}

fn ids(overdue: &[(tidegate_core::queue::QueueName, QueueEntry)]) -> Vec<&str> {
    overdue.iter().map(|(_, entry)| entry.id.as_str()).collect()
}

/// An entry whose deadline has passed is returned by one call of `overdue`, and cannot be taken any more.
pub async fn an_overdue_entry_is_returned_once(queue: Arc<dyn Queue>) {
    let now = in_seconds(0);
    queue
        .push(&queue_name(), due("soon", now + Duration::from_millis(10)))
        .await
        .unwrap();
    queue
        .push(&queue_name(), due("later", now + Duration::from_secs(60)))
        .await
        .unwrap();
    queue
        .push(&queue_name(), entry("ann", "never"))
        .await
        .unwrap();
    assert_eq!(ids(&queue.overdue(now).await.unwrap()), [""; 0]);
    let at = now + Duration::from_secs(1);
    assert_eq!(ids(&queue.overdue(at).await.unwrap()), ["soon"]);
    assert_eq!(ids(&queue.overdue(at).await.unwrap()), [""; 0]);
    assert_eq!(drain(&*queue).await, ["later", "never"]);
}

/// A taken entry whose deadline has passed is returned too; its claim stays valid.
pub async fn an_overdue_taken_entry_is_returned_too(queue: Arc<dyn Queue>) {
    queue
        .push(&queue_name(), due("a", in_seconds(1)))
        .await
        .unwrap();
    let claim = take_next(&*queue).await.unwrap();
    assert_eq!(ids(&queue.overdue(in_seconds(2)).await.unwrap()), ["a"]);
    assert!(queue.ack(&claim).await.unwrap());
}

/// An acked or removed entry is never overdue.
pub async fn a_completed_entry_has_no_deadline(queue: Arc<dyn Queue>) {
    for id in ["done", "removed"] {
        queue
            .push(&queue_name(), due(id, in_seconds(1)))
            .await
            .unwrap();
    }
    let claim = take_next(&*queue).await.unwrap();
    queue.ack(&claim).await.unwrap();
    queue
        .remove(
            &queue_name(),
            &claim.entry.account,
            &entry("ann", "removed").id,
        )
        .await
        .unwrap();
    assert_eq!(ids(&queue.overdue(in_seconds(2)).await.unwrap()), [""; 0]);
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
