//! Entries that are over before their turn, and those that are old.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::queue::Queue;

use super::{drained, entry, line, next};

/// A job that is over before its turn is passed over; the others keep theirs.
pub async fn what_was_struck_is_not_handed_out(queue: Arc<dyn Queue>) {
    for id in ["a", "b", "c"] {
        queue.push(&line(), entry("ann", id)).await.unwrap();
    }
    let job = entry("ann", "b");
    queue.remove(&line(), &job.account, &job.id).await.unwrap();
    queue
        .remove(&line(), &job.account, &entry("ann", "unknown").id)
        .await
        .unwrap();
    assert_eq!(drained(&*queue).await, ["a", "c"]);
    queue.push(&line(), job).await.unwrap();
    assert_eq!(drained(&*queue).await, ["b"], "it may come again");
}

/// An account whose first jobs are over before their turn still has its turn.
pub async fn what_was_struck_takes_no_turn(queue: Arc<dyn Queue>) {
    for number in 0..4 {
        for account in ["ann", "bob"] {
            queue
                .push(&line(), entry(account, &format!("{account}-{number}")))
                .await
                .unwrap();
        }
    }
    for id in ["ann-0", "ann-1"] {
        let job = entry("ann", id);
        queue.remove(&line(), &job.account, &job.id).await.unwrap();
    }
    assert_eq!(
        drained(&*queue).await,
        ["ann-2", "bob-0", "ann-3", "bob-1", "bob-2", "bob-3"]
    );
}

/// What is left of struck entries is removed, and nothing else.
pub async fn what_was_struck_is_collected(queue: Arc<dyn Queue>) {
    for n in 0..120 {
        let job = entry("ann", &format!("{n:03}"));
        queue.push(&line(), job.clone()).await.unwrap();
        if n % 2 == 0 {
            queue.remove(&line(), &job.account, &job.id).await.unwrap();
        }
    }
    queue.collect().await.unwrap();
    assert_eq!(queue.collect().await.unwrap(), 0);
    let ids = drained(&*queue).await;
    assert!(
        ids.len() == 60 && ids.is_sorted() && ids[0] == "001",
        "{ids:?}"
    );
}

/// Whoever works on a job learns of its end elsewhere.
pub async fn what_is_in_hand_is_not_struck(queue: Arc<dyn Queue>) {
    queue.push(&line(), entry("ann", "a")).await.unwrap();
    let claim = next(&*queue).await.unwrap();
    queue
        .remove(&line(), &claim.entry.account, &claim.entry.id)
        .await
        .unwrap();
    assert!(queue.ack(&claim).await.unwrap());
}

/// Old entries are found, waiting and taken, oldest first; young ones are not.
pub async fn old_entries_are_found(queue: Arc<dyn Queue>) {
    for id in ["taken", "waits", "third"] {
        queue.push(&line(), entry("ann", id)).await.unwrap();
    }
    next(&*queue).await.unwrap();
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
            (line(), entry("ann", "taken")),
            (line(), entry("ann", "waits"))
        ]
    );
}
