//! What only the queue in memory promises: exact turns of the accounts, and priorities.

use std::sync::Arc;

use tidegate_core::queue::{Priority, Queue, QueueEntry};

use super::{drain, entry, queue_name};

/// A low-priority job waits for all others of its account, also those that are pushed later, and not for
/// those of other accounts.
pub async fn low_priority_comes_after_all_others_of_its_account(queue: Arc<dyn Queue>) {
    queue
        .push(
            &queue_name(),
            QueueEntry {
                priority: Priority::Low,
                ..entry("ann", "low-1")
            },
        )
        .await
        .unwrap();
    queue
        .push(
            &queue_name(),
            QueueEntry {
                priority: Priority::Low,
                ..entry("ann", "low-2")
            },
        )
        .await
        .unwrap();
    queue
        .push(&queue_name(), entry("ann", "normal-1"))
        .await
        .unwrap();
    queue
        .push(&queue_name(), entry("ann", "normal-2"))
        .await
        .unwrap();
    assert_eq!(
        drain(&*queue).await,
        ["normal-1", "normal-2", "low-1", "low-2"]
    );
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

/// The accounts with waiting entries are served in turn.
pub async fn accounts_take_turns(queue: Arc<dyn Queue>) {
    for (account, count) in [("large", 20), ("small", 4)] {
        for n in 0..count {
            let job = entry(account, &format!("{account}-{n:02}"));
            queue.push(&queue_name(), job).await.unwrap();
        }
    }
    let ids = drain(&*queue).await;
    let first: Vec<&str> = ids[..8].iter().map(|id| &id[..5]).collect();
    assert_eq!(first, ["large", "small"].repeat(4));
}
