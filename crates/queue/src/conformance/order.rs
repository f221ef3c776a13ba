//! Who is before whom.

use std::sync::Arc;

use tidegate_core::queue::{Priority, Queue, QueueEntry, QueueName};

use super::{consumer, drained, entry, line, next};

/// One account's jobs are handed out in the order in which they came.
pub async fn one_account_is_first_come_first_served(queue: Arc<dyn Queue>) {
    for n in 0..20 {
        queue
            .push(&line(), entry("ann", &format!("{n:02}")))
            .await
            .unwrap();
    }
    let ids = drained(&*queue).await;
    assert!(ids.len() == 20 && ids.is_sorted(), "{ids:?}");
}

/// Two hundred jobs of one account, then four of each of three others: most of the others are served in the first half.
pub async fn a_large_batch_does_not_delay_others(queue: Arc<dyn Queue>) {
    for n in 0..200 {
        queue
            .push(&line(), entry("large", &format!("large-{n:03}")))
            .await
            .unwrap();
    }
    for n in 0..4 {
        for account in ["bob", "cid", "dan"] {
            queue
                .push(&line(), entry(account, &format!("{account}-{n}")))
                .await
                .unwrap();
        }
    }
    let ids = drained(&*queue).await;
    assert_eq!(ids.len(), 212);
    let mut places: Vec<usize> = (0..ids.len())
        .filter(|place| !ids[*place].starts_with("large"))
        .collect();
    places.sort_unstable();
    assert!(places[places.len() / 2] < 106, "{places:?}");
    for account in ["large", "bob", "cid", "dan"] {
        assert!(
            ids.iter().filter(|id| id.starts_with(account)).is_sorted(),
            "{ids:?}"
        );
    }
}

/// A job of low rank waits for all others of its account, also those that come later, and not for those of others.
pub async fn low_ranks_go_after_all_others_of_their_account(queue: Arc<dyn Queue>) {
    queue
        .push(
            &line(),
            QueueEntry {
                priority: Priority::Low,
                ..entry("ann", "low-1")
            },
        )
        .await
        .unwrap();
    queue
        .push(
            &line(),
            QueueEntry {
                priority: Priority::Low,
                ..entry("ann", "low-2")
            },
        )
        .await
        .unwrap();
    queue.push(&line(), entry("ann", "usual-1")).await.unwrap();
    queue.push(&line(), entry("ann", "usual-2")).await.unwrap();
    assert_eq!(
        drained(&*queue).await,
        ["usual-1", "usual-2", "low-1", "low-2"]
    );
}

/// What waits in one line is not handed out in another.
pub async fn lines_are_apart(queue: Arc<dyn Queue>) {
    let other = QueueName::new("ann/other:1");
    queue.push(&line(), entry("ann", "a")).await.unwrap();
    queue.push(&other, entry("ann", "a")).await.unwrap();
    queue.push(&other, entry("ann", "b")).await.unwrap();
    assert_eq!(drained(&*queue).await, ["a"]);
    let first = queue
        .take(&other, &consumer(), std::time::Duration::ZERO)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((first.line, first.entry.id.as_str()), (other, "a"));
}

/// Whoever stands in a line keeps the place, however often it is said.
pub async fn a_job_is_in_a_line_once(queue: Arc<dyn Queue>) {
    for id in ["a", "b", "a"] {
        queue.push(&line(), entry("ann", id)).await.unwrap();
    }
    let taken = next(&*queue).await.unwrap();
    queue.push(&line(), entry("ann", "a")).await.unwrap();
    assert_eq!(taken.entry.id.as_str(), "a");
    assert_eq!(drained(&*queue).await, ["b"]);
    // Another account's job with the same id is another job.
    queue.push(&line(), entry("bob", "a")).await.unwrap();
    assert_eq!(drained(&*queue).await, ["a"]);
}

/// A job that comes while one with its id is in hand is not lost when that is done.
pub async fn a_job_that_comes_while_it_is_in_hand_waits_again(queue: Arc<dyn Queue>) {
    queue.push(&line(), entry("ann", "a")).await.unwrap();
    let claim = next(&*queue).await.unwrap();
    queue.push(&line(), entry("ann", "a")).await.unwrap();
    assert_eq!(next(&*queue).await, None, "it is in hand");
    assert!(queue.ack(&claim).await.unwrap());
    assert_eq!(drained(&*queue).await, ["a"]);
}

/// A job that is done may be wanted again under its id.
pub async fn a_job_may_come_again_when_it_is_done(queue: Arc<dyn Queue>) {
    for _ in 0..3 {
        queue.push(&line(), entry("ann", "a")).await.unwrap();
        assert_eq!(drained(&*queue).await, ["a"]);
    }
}
