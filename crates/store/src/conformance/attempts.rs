//! The attempts of a job.

use std::sync::Arc;

use tidegate_core::job_attempt::{AttemptEnd, JobAttempt, MAX_EARLIER_ATTEMPTS};
use tidegate_core::lease::{LeaseDurability, LeaseRequest};
use tidegate_core::store::Store;

use super::samples::*;

/// The attempts of a job of Ann: numbers and ends. Their times are checked.
pub(super) async fn attempts(store: &dyn Store, name: &str) -> Vec<(u32, Option<AttemptEnd>)> {
    let attempts = read(store, name).await;
    attempts
        .iter()
        .map(|attempt| (attempt.number, attempt.end))
        .collect()
}

pub(super) async fn read(store: &dyn Store, name: &str) -> Vec<JobAttempt> {
    let attempts = store.attempts(&ann(), &id(name)).await.unwrap();
    for attempt in &attempts {
        assert!(attempt.started_at.is_some(), "{attempt:?}");
        assert_eq!(attempt.ended_at.is_some(), attempt.end.is_some());
        if attempt.end == Some(AttemptEnd::Lost) {
            assert!(attempt.ended_at >= attempt.started_at, "{attempt:?}");
        }
    }
    for pair in attempts.windows(2) {
        assert!(pair[0].number < pair[1].number, "{attempts:?}");
    }
    attempts
}

/// The only attempt of a job is described by its record.
pub async fn a_job_that_runs_once_has_one_attempt(store: Arc<dyn Store>) {
    let durabilities = [LeaseDurability::Process, LeaseDurability::Machine];
    for (name, durability) in ["a", "b"].into_iter().zip(durabilities) {
        assert_eq!(attempts(&*store, name).await, [], "it is unknown");
        store.insert(spec(name)).await.unwrap();
        assert_eq!(attempts(&*store, name).await, [], "it waits");
        let request = LeaseRequest {
            durability,
            ..lease(name, 0, 1)
        };
        let began_at = request.began_at;
        let fence = leased(&*store, request).await;
        let [running] = &read(&*store, name).await[..] else {
            panic!("one attempt")
        };
        let begun = (running.number, running.started_at, running.end);
        assert_eq!(begun, (1, Some(began_at), None));
        assert!(ends(&*store, finish_leased(name, fence, 5)).await);
        let [ended] = &read(&*store, name).await[..] else {
            panic!("one attempt")
        };
        let end = (ended.ended_at, ended.end);
        assert_eq!(end, (Some(at(5)), Some(AttemptEnd::Succeeded)));
    }
}

/// An attempt stays on record when the job is leased again, also if its lease was not committed.
pub async fn lost_attempts_are_on_record(store: Arc<dyn Store>) {
    use LeaseDurability::{Machine, Process};
    let lost = Some(AttemptEnd::Lost);
    let cases = [
        [Process; 3],
        [Machine; 3],
        [Process, Machine, Process],
        [Machine, Process, Machine],
    ];
    for (name, durabilities) in ["a", "b", "c", "d"].into_iter().zip(cases) {
        store.insert(spec(name)).await.unwrap();
        let mut last = None;
        for (number, durability) in (1..).zip(durabilities) {
            let request = LeaseRequest {
                durability,
                ..lease(name, number - 1, u128::from(number))
            };
            last = Some(leased(&*store, request.clone()).await);
            // A lost answer adds no attempt.
            leased(&*store, request).await;
        }
        let running = [(1, lost), (2, lost), (3, None)];
        assert_eq!(attempts(&*store, name).await, running, "{durabilities:?}");
        assert!(ends(&*store, finish_leased(name, last.unwrap(), 9)).await);
        let ended = [(1, lost), (2, lost), (3, Some(AttemptEnd::Succeeded))];
        assert_eq!(attempts(&*store, name).await, ended, "{durabilities:?}");
        let started: Vec<_> = read(&*store, name)
            .await
            .iter()
            .map(|attempt| attempt.started_at)
            .collect();
        assert_eq!(started, [1, 2, 3].map(|at_| Some(at(at_))));
    }
}

/// A job can be started any number of times; the row of it stays small.
pub async fn the_oldest_attempts_are_forgotten(store: Arc<dyn Store>) {
    store.insert(spec("a")).await.unwrap();
    let count = u32::try_from(MAX_EARLIER_ATTEMPTS).unwrap() + 3;
    for after in 0..count {
        leased(&*store, lease("a", after, u128::from(after) + 1)).await;
    }
    let attempts = attempts(&*store, "a").await;
    let (first, last) = (attempts[0], *attempts.last().unwrap());
    assert_eq!(attempts.len(), MAX_EARLIER_ATTEMPTS + 1);
    assert_eq!((first, last), ((3, Some(AttemptEnd::Lost)), (count, None)));
}
