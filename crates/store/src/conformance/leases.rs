//! Leases, ends by a lease, and cancel requests.

use std::sync::Arc;

use tidegate_core::Status;
use tidegate_core::lease::{Fence, LeaseDurability, LeaseRequest, LeaseResult, Nonce};
use tidegate_core::record::JobRecord;
use tidegate_core::store::{CancelRequestResult, FinishOutcome, Inserted, JobFinish, Store};

use super::samples::*;

const DURABILITIES: [LeaseDurability; 2] = [LeaseDurability::Process, LeaseDurability::Machine];

/// Every lease has a new attempt and a new start.
pub async fn leases_count_the_attempts(store: Arc<dyn Store>) {
    for (name, durability) in ["a", "b"].into_iter().zip(DURABILITIES) {
        store.insert(spec(name)).await.unwrap();
        for attempt in 1..=3 {
            let request = LeaseRequest {
                durability,
                ..lease(name, attempt - 1, u128::from(attempt))
            };
            let began_at = request.began_at;
            assert_eq!(leased(&*store, request).await.attempt, attempt);

            let stored = get(&*store, name).await;
            assert_eq!(
                (stored.status, stored.attempt, stored.started_at),
                (Status::Processing, attempt, Some(began_at))
            );
        }
    }
}

/// A lost answer costs nothing: the same nonce gets the same lease, whatever the durability.
pub async fn a_repeated_request_gets_the_same_lease(store: Arc<dyn Store>) {
    store.insert(spec("a")).await.unwrap();
    let mut fences = Vec::new();
    for durability in [DURABILITIES[0], DURABILITIES[1], DURABILITIES[0]] {
        let request = LeaseRequest {
            durability,
            ..lease("a", 0, 7)
        };
        fences.push(leased(&*store, request).await);
    }
    let first = Fence {
        attempt: 1,
        nonce: Nonce(7),
    };
    assert_eq!(fences, [first; 3]);
    assert_eq!(get(&*store, "a").await.attempt, 1);
}

/// While an attempt is not known to be over, the job cannot be leased again.
pub async fn a_leased_job_is_not_leased_again(store: Arc<dyn Store>) {
    store.insert(spec("a")).await.unwrap();
    for attempt in 1..=2 {
        leased(&*store, lease("a", attempt - 1, u128::from(attempt))).await;
        for durability in DURABILITIES {
            let request = LeaseRequest {
                durability,
                ..lease("a", attempt - 1, 99)
            };
            assert_eq!(
                store.lease(request).await.unwrap(),
                LeaseResult::HeldByAnother
            );
        }
    }
}

/// Only open jobs can be leased.
pub async fn ended_canceled_and_unknown_jobs_are_not_leased(store: Arc<dyn Store>) {
    over(&*store, "ended", 1).await;
    store.insert(spec("canceled")).await.unwrap();
    store.request_cancel(&ann(), &id("canceled")).await.unwrap();
    let before = (get(&*store, "ended").await, get(&*store, "canceled").await);
    for durability in DURABILITIES {
        for (name, expected) in [
            ("ended", LeaseResult::Ended),
            ("canceled", LeaseResult::CancelRequested),
            ("unknown", LeaseResult::Unknown),
        ] {
            let request = LeaseRequest {
                durability,
                ..lease(name, 0, 1)
            };
            assert_eq!(store.lease(request).await.unwrap(), expected, "{name}");
        }
    }
    let after = (get(&*store, "ended").await, get(&*store, "canceled").await);
    assert_eq!(before, after);
}

/// A job can be inserted with its first lease.
pub async fn a_job_is_inserted_with_its_lease(store: Arc<dyn Store>) {
    let request = lease("a", 0, 7);
    let inserted = store
        .insert_leased(full_spec("a"), request.clone())
        .await
        .unwrap();
    assert_eq!(inserted, Inserted::New);
    let expected = JobRecord {
        status: Status::Processing,
        attempt: 1,
        started_at: Some(request.began_at),
        ..queued(full_spec("a"))
    };
    assert_eq!(get(&*store, "a").await, expected);
    assert_eq!(leased(&*store, request).await.attempt, 1);
    let known = store
        .insert_leased(spec("a"), lease("a", 0, 8))
        .await
        .unwrap();
    assert_eq!(known, Inserted::Known(Box::new(expected)));
}

/// Also a lease that is not committed yet.
pub async fn a_lease_ends_its_job_once(store: Arc<dyn Store>) {
    for (name, durability) in ["a", "b"].into_iter().zip(DURABILITIES) {
        store.insert(spec(name)).await.unwrap();
        let request = LeaseRequest {
            durability,
            ..lease(name, 0, 1)
        };
        let fence = leased(&*store, request).await;
        let end = JobFinish {
            message: Some(message(name, name, 0)),
            ..finish_leased(name, fence, 2)
        };
        assert_eq!(
            store.finish(end.clone()).await.unwrap(),
            FinishOutcome::Committed
        );
        let before = get(&*store, name).await;
        assert_eq!((before.attempt, before.started_at), (1, end.began_at));
        // The answer to the first call was lost.
        assert_eq!(
            store.finish(end).await.unwrap(),
            FinishOutcome::AlreadyCommitted
        );
        let other = Fence {
            nonce: Nonce(9),
            ..fence
        };
        assert_eq!(
            store.finish(finish_leased(name, other, 3)).await.unwrap(),
            FinishOutcome::ByAnother
        );
        assert_eq!(get(&*store, name).await, before);
    }
}

/// Only the last lease can end the job.
pub async fn an_old_lease_cannot_end_the_job(store: Arc<dyn Store>) {
    for (name, durability) in ["a", "b"].into_iter().zip(DURABILITIES) {
        store.insert(spec(name)).await.unwrap();
        let first = leased(&*store, lease(name, 0, 1)).await;
        let second = LeaseRequest {
            durability,
            ..lease(name, 1, 2)
        };
        let second = leased(&*store, second).await;
        let old = [
            finish_leased(name, first, 3),
            finish(name, 0, 3),
            finish_leased(
                name,
                Fence {
                    nonce: Nonce(9),
                    ..first
                },
                3,
            ),
        ];
        if durability == LeaseDurability::Machine {
            for old in old {
                assert_eq!(store.finish(old).await.unwrap(), FinishOutcome::ByAnother);
            }
        }
        assert!(ends(&*store, finish_leased(name, second, 4)).await);
        assert_eq!(get(&*store, name).await.attempt, 2);
    }
}

/// The requester gave up before it knew whether its lease was granted, and the model did not start.
pub async fn an_unanswered_request_for_a_lease_can_be_ended(store: Arc<dyn Store>) {
    for (name, durability) in ["a", "b"].into_iter().zip(DURABILITIES) {
        store.insert(spec(name)).await.unwrap();
        leased(&*store, lease(name, 0, 1)).await;
        let unanswered = LeaseRequest {
            durability,
            ..lease(name, 1, 2)
        };
        let end = JobFinish {
            fence: Fence {
                attempt: unanswered.after_attempt,
                nonce: unanswered.nonce,
            },
            status: Status::Canceled,
            ..finish(name, 1, 3)
        };
        leased(&*store, unanswered).await;
        assert!(ends(&*store, end.clone()).await, "{durability:?}");
        assert_eq!(get(&*store, name).await.status, Status::Canceled);
        assert_eq!(
            store.finish(end).await.unwrap(),
            FinishOutcome::AlreadyCommitted
        );
    }
}

/// A job whose last attempt was lost is ended without a lease.
pub async fn a_lost_attempt_is_ended_without_a_lease(store: Arc<dyn Store>) {
    for (name, durability) in ["a", "b"].into_iter().zip(DURABILITIES) {
        store.insert(spec(name)).await.unwrap();
        let request = LeaseRequest {
            durability,
            ..lease(name, 0, 1)
        };
        let began_at = request.began_at;
        leased(&*store, request).await;
        assert!(ends(&*store, finish(name, 1, 5)).await);
        let stored = get(&*store, name).await;
        assert_eq!((stored.status, stored.attempt), (Status::Succeeded, 1));
        if durability == LeaseDurability::Machine {
            assert_eq!(stored.started_at, Some(began_at));
        }
    }
}

/// A cancel request is durable. Afterwards the job can only end as canceled.
pub async fn a_job_with_a_cancel_request_ends_as_canceled(store: Arc<dyn Store>) {
    store.insert(spec("a")).await.unwrap();
    let fence = leased(&*store, lease("a", 0, 1)).await;
    let before = get(&*store, "a").await;
    for _ in 0..2 {
        assert_eq!(
            store.request_cancel(&ann(), &id("a")).await.unwrap(),
            CancelRequestResult::Recorded
        );
    }
    let requested = JobRecord {
        cancel_requested: true,
        ..before
    };
    for status in [Status::Succeeded, Status::Failed, Status::Aborted] {
        let end = JobFinish {
            status,
            message: Some(message("m", "a", 0)),
            ..finish_leased("a", fence, 2)
        };
        assert_eq!(
            store.finish(end).await.unwrap(),
            FinishOutcome::CancelRequested
        );
        assert_eq!(get(&*store, "a").await, requested);
    }
    let end = JobFinish {
        status: Status::Canceled,
        message: Some(message("m", "a", 0)),
        ..finish_leased("a", fence, 2)
    };
    assert!(ends(&*store, end).await);
    assert_eq!(get(&*store, "a").await.status, Status::Canceled);
}

/// A cancel request has no effect on ended and unknown jobs.
pub async fn an_ended_job_takes_no_cancel_request(store: Arc<dyn Store>) {
    over(&*store, "a", 1).await;
    let before = get(&*store, "a").await;
    assert_eq!(
        store.request_cancel(&ann(), &id("a")).await.unwrap(),
        CancelRequestResult::Ended
    );
    assert_eq!(
        store.request_cancel(&ann(), &id("unknown")).await.unwrap(),
        CancelRequestResult::Unknown
    );
    assert_eq!(get(&*store, "a").await, before);
}
