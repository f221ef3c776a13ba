//! The order of the entries.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::queue::{Queue, QueueName, TakeOptions};

use super::{drain, entry, queue_name, take_next};

/// The jobs of one account are taken in the order in which they were pushed.
pub async fn one_account_is_first_come_first_served(queue: Arc<dyn Queue>) {
    for n in 0..20 {
        queue
            .push(&queue_name(), entry("ann", &format!("{n:02}")))
            .await
            .unwrap();
    }
    let ids = drain(&*queue).await;
    assert!(ids.len() == 20 && ids.is_sorted(), "{ids:?}");
}

/// Two hundred jobs of one account, then four of each of three others: most of the others are taken in
/// the first half.
pub async fn a_large_batch_does_not_delay_others(queue: Arc<dyn Queue>) {
    for n in 0..200 {
        queue
            .push(&queue_name(), entry("large", &format!("large-{n:03}")))
            .await
            .unwrap();
    }
    for n in 0..4 {
        for account in ["bob", "cid", "dan"] {
            queue
                .push(&queue_name(), entry(account, &format!("{account}-{n}")))
                .await
                .unwrap();
        }
    }
    let ids = drain(&*queue).await;
    assert_eq!(ids.len(), 212);
    let mut positions: Vec<usize> = (0..ids.len())
        .filter(|position| !ids[*position].starts_with("large"))
        .collect();
    positions.sort_unstable();
    assert!(positions[positions.len() / 2] < 106, "{positions:?}");
    for account in ["large", "bob", "cid", "dan"] {
        assert!(
            ids.iter().filter(|id| id.starts_with(account)).is_sorted(),
            "{ids:?}"
        );
    }
}

/// An entry of one queue is not taken from another.
pub async fn queues_are_independent(queue: Arc<dyn Queue>) {
    let other = QueueName::new("ann/other:1");
    queue.push(&queue_name(), entry("ann", "a")).await.unwrap();
    queue.push(&other, entry("ann", "a")).await.unwrap();
    queue.push(&other, entry("ann", "b")).await.unwrap();
    assert_eq!(drain(&*queue).await, ["a"]);
    let first = queue
        .take(&other, TakeOptions::within(Duration::ZERO))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((first.queue, first.entry.id.as_str()), (other, "a"));
}

/// A job that waits keeps its position when it is pushed again.
pub async fn a_job_is_in_a_queue_once(queue: Arc<dyn Queue>) {
    for id in ["a", "b", "a"] {
        queue.push(&queue_name(), entry("ann", id)).await.unwrap();
    }
    let taken = take_next(&*queue).await.unwrap();
    queue.push(&queue_name(), entry("ann", "a")).await.unwrap();
    assert_eq!(taken.entry.id.as_str(), "a");
    assert_eq!(drain(&*queue).await, ["b"]);
    // Another account's job with the same id is another job.
    queue.push(&queue_name(), entry("bob", "a")).await.unwrap();
    assert_eq!(drain(&*queue).await, ["a"]);
}

/// A job that is pushed while it is taken waits again after the ack.
pub async fn a_job_pushed_while_it_is_taken_waits_again(queue: Arc<dyn Queue>) {
    queue.push(&queue_name(), entry("ann", "a")).await.unwrap();
    let claim = take_next(&*queue).await.unwrap();
    queue.push(&queue_name(), entry("ann", "a")).await.unwrap();
    assert_eq!(take_next(&*queue).await, None, "it is taken");
    assert!(queue.ack(&claim).await.unwrap());
    assert_eq!(drain(&*queue).await, ["a"]);
}

/// A job can be pushed again under its id after it was acked.
pub async fn a_job_may_be_pushed_again_after_ack(queue: Arc<dyn Queue>) {
    for _ in 0..3 {
        queue.push(&queue_name(), entry("ann", "a")).await.unwrap();
        assert_eq!(drain(&*queue).await, ["a"]);
    }
}

/// Every queue that has entries is listed.
pub async fn queues_are_listed(queue: Arc<dyn Queue>) {
    let other = QueueName::new("ann/other:1");
    for name in [&queue_name(), &other] {
        queue.push(name, entry("ann", "a")).await.unwrap();
    }
    let mut names = queue.queues().await.unwrap();
    names.sort();
    assert_eq!(names, [queue_name(), other]);
}
