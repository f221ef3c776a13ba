//! The conformance suite: the guarantees of every queue backend, as tests. A bug found in one backend
//! becomes a case here. [`embedded`] has the cases that only the queue in memory passes: exact turns of
//! accounts, and priorities.
//!
//! A backend writes `tidegate_queue::conformance!(open);` in its tests, where `open` is an async function
//! that returns an empty queue and a guard that cleans up when it is dropped.
#![expect(clippy::unwrap_used, reason = "these are tests")]

pub mod claims;
pub mod dead_letters;
pub mod deadlines;
pub mod embedded;
pub mod order;
pub mod upkeep;
pub mod waiting;

use std::time::Duration;

use tidegate_core::queue::{Claim, Priority, Queue, QueueEntry, QueueName, TakeOptions};
use tidegate_core::{Account, JobId};

/// The queue of most cases.
fn queue_name() -> QueueName {
    QueueName::new("ann/model:1")
}

/// An entry for a job of `account`.
fn entry(account: &str, id: &str) -> QueueEntry {
    QueueEntry {
        account: Account::parse(account).unwrap(),
        id: JobId::parse(id).unwrap(),
        priority: Priority::Normal,
        deadline: None,
        details: None,
    }
}

/// Takes the next entry, if one waits.
async fn take_next(queue: &dyn Queue) -> Option<Claim> {
    queue
        .take(&queue_name(), TakeOptions::within(Duration::ZERO))
        .await
        .unwrap()
}

/// Takes and acks all waiting entries; returns their ids in order.
async fn drain(queue: &dyn Queue) -> Vec<String> {
    let mut ids = Vec::new();
    while let Some(claim) = take_next(queue).await {
        ids.push(claim.entry.id.to_string());
        assert!(queue.ack(&claim).await.unwrap());
    }
    ids
}

/// Creates a test for every case of the suite. `$open` is `async fn() -> (Guard, Arc<Backend>)`.
#[macro_export]
macro_rules! conformance {
    ($open:ident) => {
        $crate::conformance!(@cases $open, order:
            one_account_is_first_come_first_served,
            a_large_batch_does_not_delay_others,
            queues_are_independent,
            a_job_is_in_a_queue_once,
            a_job_may_be_pushed_again_after_ack,
            a_job_pushed_while_it_is_taken_waits_again,
            queues_are_listed,
        );
        $crate::conformance!(@cases $open, claims:
            a_taken_entry_has_one_consumer,
            concurrent_consumers_get_each_job_once,
            an_entry_put_back_keeps_its_position,
            deliveries_are_counted,
            a_renewed_claim_is_not_lost,
            an_expired_claim_is_transferred,
            at_most_limit_claims_are_transferred,
        );
        $crate::conformance!(@cases $open, waiting:
            take_waits_for_the_next_entry,
            take_returns_at_its_timeout,
            wait_for_more_than_returns_when_an_entry_is_pushed,
            depth_counts_waiting_and_taken_entries,
            statistics_show_all_queues,
        );
        $crate::conformance!(@cases $open, deadlines:
            an_overdue_entry_is_returned_until_it_is_settled,
            an_overdue_taken_entry_is_returned_too,
            a_completed_entry_has_no_deadline,
            next_deadline_is_the_earliest,
        );
        $crate::conformance!(@cases $open, upkeep:
            a_removed_entry_is_not_taken,
            removed_entries_are_collected,
            a_taken_entry_is_not_removed,
            old_entries_are_found,
            old_entries_are_removed,
        );
        $crate::conformance!(@cases $open, dead_letters:
            a_buried_entry_is_not_taken,
            a_dead_letter_is_replayed_once,
            a_dead_letter_is_dropped,
            dead_letters_are_listed_in_pages,
        );
    };
    (embedded $open:ident) => {
        $crate::conformance!($open);
        $crate::conformance!(@cases $open, embedded:
            low_priority_comes_after_all_others_of_its_account,
            a_removed_entry_uses_no_turn,
            accounts_take_turns,
        );
    };
    (@cases $open:ident, $part:ident: $($case:ident,)*) => {
        mod $part {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let (_guard, queue) = super::$open().await;
                    $crate::conformance::$part::$case(queue).await;
                }
            )*
        }
    };
}
