//! Deadlines of entries.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::queue::{Queue, QueueEntry};

use super::{drained, entry, line, next};

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

/// A deadline that has come is told to one who asks, and whoever waits is not handed out any more.
pub async fn a_deadline_is_told_once(queue: Arc<dyn Queue>) {
    let now = in_seconds(0);
    queue
        .push(&line(), due("soon", now + Duration::from_millis(10)))
        .await
        .unwrap();
    queue
        .push(&line(), due("later", now + Duration::from_secs(60)))
        .await
        .unwrap();
    queue.push(&line(), entry("ann", "never")).await.unwrap();
    assert_eq!(ids(&queue.overdue(now).await.unwrap()), [""; 0]);
    let at = now + Duration::from_secs(1);
    assert_eq!(ids(&queue.overdue(at).await.unwrap()), ["soon"]);
    assert_eq!(ids(&queue.overdue(at).await.unwrap()), [""; 0]);
    assert_eq!(drained(&*queue).await, ["later", "never"]);
}

/// The deadline of a job that somebody works on comes as well; it stays in their hands.
pub async fn what_is_taken_is_told_too(queue: Arc<dyn Queue>) {
    queue.push(&line(), due("a", in_seconds(1))).await.unwrap();
    let claim = next(&*queue).await.unwrap();
    assert_eq!(ids(&queue.overdue(in_seconds(2)).await.unwrap()), ["a"]);
    assert!(queue.ack(&claim).await.unwrap());
}

/// What is over has nothing to come.
pub async fn what_is_done_has_no_deadline(queue: Arc<dyn Queue>) {
    for id in ["done", "struck"] {
        queue.push(&line(), due(id, in_seconds(1))).await.unwrap();
    }
    let claim = next(&*queue).await.unwrap();
    queue.ack(&claim).await.unwrap();
    queue
        .remove(&line(), &claim.entry.account, &entry("ann", "struck").id)
        .await
        .unwrap();
    assert_eq!(ids(&queue.overdue(in_seconds(2)).await.unwrap()), [""; 0]);
    assert_eq!(queue.next_deadline().await.unwrap(), None);
}

/// Whoever looks after deadlines can sleep until the next one.
pub async fn the_next_deadline_is_known(queue: Arc<dyn Queue>) {
    let (early, late) = (in_seconds(10), in_seconds(20));
    queue.push(&line(), due("late", late)).await.unwrap();
    queue.push(&line(), due("early", early)).await.unwrap();
    let next = queue.next_deadline().await.unwrap();
    // A backend may not know, or not to the nanosecond.
    assert!(
        next.is_none_or(|next| next.duration_since(early).unsigned_abs() < Duration::from_secs(1)),
        "{next:?}"
    );
}
