//! What every backend of the queue promises, as tests. One suite; a bug found in one backend becomes a case here.
//!
//! A backend writes `tidegate_queue::conformance!(open);` in its tests, where `open` is an async function that gives
//! an empty queue and something that cleans up behind it when dropped.
#![expect(clippy::unwrap_used, reason = "these are tests")]

pub mod deadlines;
pub mod hands;
pub mod order;
pub mod upkeep;
pub mod waiting;

use std::time::Duration;

use tidegate_core::queue::{Claim, Consumer, Priority, Queue, QueueEntry, QueueName};
use tidegate_core::{Account, JobId};

/// The line of most cases.
fn line() -> QueueName {
    QueueName::new("ann/model:1")
}

/// Whoever takes.
fn consumer() -> Consumer {
    Consumer::new("one")
}

/// A job of somebody.
fn entry(account: &str, id: &str) -> QueueEntry {
    QueueEntry {
        account: Account::parse(account).unwrap(),
        id: JobId::parse(id).unwrap(),
        priority: Priority::Normal,
        deadline: None,
    }
}

/// The next of the line, if somebody waits.
async fn next(queue: &dyn Queue) -> Option<Claim> {
    queue
        .take(&line(), &consumer(), Duration::ZERO)
        .await
        .unwrap()
}

/// All who wait, in their order, each done at once.
async fn drained(queue: &dyn Queue) -> Vec<String> {
    let mut ids = Vec::new();
    while let Some(claim) = next(queue).await {
        ids.push(claim.entry.id.to_string());
        assert!(queue.ack(&claim).await.unwrap());
    }
    ids
}

/// Makes a test of every case of the suite. `$open` is `async fn() -> (Guard, Arc<Backend>)`.
#[macro_export]
macro_rules! conformance {
    ($open:ident) => {
        $crate::conformance!(@cases $open, order:
            one_account_is_first_come_first_served,
            a_large_batch_does_not_delay_others,
            low_ranks_go_after_all_others_of_their_account,
            lines_are_apart,
            a_job_is_in_a_line_once,
            a_job_may_come_again_when_it_is_done,
            a_job_that_comes_while_it_is_in_hand_waits_again,
        );
        $crate::conformance!(@cases $open, hands:
            what_is_taken_is_nobody_elses,
            many_takers_get_each_job_once,
            what_is_put_back_stands_where_it_stood,
            what_is_renewed_is_not_lost,
            what_is_not_renewed_goes_to_another,
            no_more_are_taken_over_than_wanted,
        );
        $crate::conformance!(@cases $open, waiting:
            a_taker_waits_for_the_next,
            a_taker_leaves_when_its_patience_ends,
            who_asks_is_told_when_somebody_comes,
            the_depth_is_counted,
        );
        $crate::conformance!(@cases $open, deadlines:
            a_deadline_is_told_once,
            what_is_taken_is_told_too,
            what_is_done_has_no_deadline,
            the_next_deadline_is_known,
        );
        $crate::conformance!(@cases $open, upkeep:
            what_was_struck_is_not_handed_out,
            what_was_struck_takes_no_turn,
            what_was_struck_is_collected,
            what_is_in_hand_is_not_struck,
            old_entries_are_found,
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
