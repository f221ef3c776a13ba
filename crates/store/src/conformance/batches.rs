//! Changes that are made at the same time, which a store may make with one statement: each has its own result.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::Status;
use tidegate_core::lease::{Fence, Nonce};
use tidegate_core::leases::{AcquireRequest, AcquireResult};
use tidegate_core::record::{Completion, JobSpec};
use tidegate_core::store::{CancelRequestResult, FinishOutcome, Inserted, JobFinish, Store};
use tokio::task::JoinSet;

use super::cluster_leases::{LeasingStore, granted, holder, request};
use super::samples::*;

/// How many changes are made at the same time.
const COUNT: usize = 24;

fn name(number: usize) -> String {
    format!("job{number:02}")
}

/// A fence that no lease has.
fn other_fence() -> Fence {
    Fence {
        attempt: 1,
        nonce: Nonce(u128::MAX),
    }
}

/// Runs all calls at the same time; returns their results in order.
async fn together<T: Send + 'static>(
    calls: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let mut tasks = JoinSet::new();
    for (number, call) in calls.into_iter().enumerate() {
        tasks.spawn(async move { (number, call.await) });
    }
    let mut results = tasks.join_all().await;
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Every third job has all fields, with texts that need care, and every fourth id is known.
pub async fn jobs_that_are_inserted_together_are_stored_as_they_are(store: Arc<dyn Store>) {
    for number in (0..COUNT).step_by(4) {
        store.insert(spec(&name(number))).await.unwrap();
    }
    let specs: Vec<JobSpec> = (0..COUNT)
        .map(|number| {
            let base = match number % 3 {
                0 => full_spec(&name(number)),
                _ => spec(&name(number)),
            };
            JobSpec {
                input: Bytes::from(format!(r#"{{"text":"{{}},\"{number}\""}}"#)),
                destination: number
                    .is_multiple_of(2)
                    .then(|| "a,\"b\"{}\u{0}\u{1}NULL".to_owned()),
                created_at: at(1000 + i64::try_from(number).unwrap()),
                ..base
            }
        })
        .collect();
    let inserts = specs.iter().cloned().map(|spec| {
        let store = Arc::clone(&store);
        async move { store.insert(spec).await.unwrap() }
    });
    let results = together(inserts).await;
    for (number, (result, wanted)) in results.into_iter().zip(specs).enumerate() {
        let stored = get(&*store, &name(number)).await;
        if number.is_multiple_of(4) {
            let known = queued(spec(&name(number)));
            assert_eq!(stored, known);
            assert_eq!(result, Inserted::Known(Box::new(known)));
        } else {
            assert_eq!((result, stored), (Inserted::New, queued(wanted)));
        }
    }
}

/// Some are refused: the job is canceled, held, ended or unknown.
pub async fn leases_that_are_requested_together_are_decided_one_by_one(
    store: Arc<dyn LeasingStore>,
) {
    for number in 0..COUNT {
        if number % 8 != 4 {
            store
                .insert(full_spec_without_deadline(number))
                .await
                .unwrap();
        }
    }
    for number in 0..COUNT {
        let name = name(number);
        match number % 8 {
            1 => {
                let canceled = store.request_cancel(&ann(), &id(&name)).await.unwrap();
                assert_eq!(canceled, CancelRequestResult::Recorded);
            }
            2 => drop(granted(&*store, request(&name, "three", 99)).await),
            3 => assert!(ends(&*store, finish(&name, 0, 1)).await),
            _ => {}
        }
    }
    // Both directors are alive already, as they are when a cluster runs.
    for director in ["one", "two"] {
        store.insert(spec(director)).await.unwrap();
        granted(&*store, request(director, director, 1)).await;
    }
    let director = |number: usize| {
        if number.is_multiple_of(2) {
            "one"
        } else {
            "two"
        }
    };
    let requests = (0..COUNT).map(|number| AcquireRequest {
        max_attempts: if number % 8 == 5 { 0 } else { 10 },
        ..request(&name(number), director(number), number as u128)
    });
    let calls = requests.map(|request| {
        let store = Arc::clone(&store);
        async move { store.acquire(request).await.unwrap() }
    });
    for (number, result) in together(calls).await.into_iter().enumerate() {
        match (number % 8, result) {
            (1, AcquireResult::CancelRequested(_))
            | (2, AcquireResult::HeldByAnother)
            | (3, AcquireResult::Ended)
            | (4, AcquireResult::Unknown)
            | (5, AcquireResult::Exhausted(_)) => {}
            (0 | 6 | 7, AcquireResult::Granted(lease)) => {
                let fence = Fence {
                    attempt: 1,
                    nonce: Nonce(number as u128),
                };
                assert_eq!(lease.fence, fence);
                assert_eq!(lease.record, get(&*store, &name(number)).await);
                assert_eq!(lease.record.status, Status::Processing);
                let job = super::cluster_leases::job(&name(number));
                let held_by = store.holder_of(&job).await.unwrap();
                assert_eq!(held_by, Some(holder(director(number))));
            }
            (_, other) => panic!("job {number}: {other:?}"),
        }
    }
}

fn full_spec_without_deadline(number: usize) -> JobSpec {
    JobSpec {
        deadline: None,
        ..full_spec(&name(number))
    }
}

/// Some do not count: the lease is another one, the job has ended, or a cancel was requested.
pub async fn jobs_that_end_together_each_have_their_end(store: Arc<dyn Store>) {
    let mut ends_of_jobs = Vec::new();
    for number in 0..COUNT {
        let name = name(number);
        store.insert(spec(&name)).await.unwrap();
        let fence = leased(&*store, lease(&name, 0, number as u128)).await;
        let end = own_end(number, fence);
        match number % 6 {
            1 => {
                store.request_cancel(&ann(), &id(&name)).await.unwrap();
            }
            2 => assert!(ends(&*store, end.clone()).await),
            _ => {}
        }
        ends_of_jobs.push(JobFinish {
            fence: if number % 6 == 3 {
                other_fence()
            } else {
                fence
            },
            ..end
        });
    }
    let calls = ends_of_jobs.iter().cloned().map(|end| {
        let store = Arc::clone(&store);
        async move { store.finish(end).await.unwrap() }
    });
    for (number, outcome) in together(calls).await.into_iter().enumerate() {
        let stored = get(&*store, &name(number)).await;
        let end = &ends_of_jobs[number];
        let wanted = match number % 6 {
            1 => FinishOutcome::CancelRequested,
            2 => FinishOutcome::AlreadyCommitted,
            3 => FinishOutcome::ByAnother,
            _ => FinishOutcome::Committed,
        };
        assert_eq!(outcome, wanted, "job {number}");
        let has_ended = matches!(number % 6, 0 | 2 | 4 | 5);
        assert_eq!(stored.completion, has_ended.then(|| end.completion.clone()));
        let status = if has_ended {
            end.status
        } else {
            Status::Processing
        };
        assert_eq!(stored.status, status);
    }
}

/// An end with fields that differ from those of the others.
fn own_end(number: usize, fence: Fence) -> JobFinish {
    let completed_at = i64::try_from(number).unwrap();
    let base = finish_leased(&name(number), fence, completed_at);
    let full = base.completion.clone();
    JobFinish {
        status: match number % 3 {
            0 => Status::Succeeded,
            1 => Status::Failed,
            _ => Status::Canceled,
        },
        completion: Completion {
            output: number
                .is_multiple_of(2)
                .then(|| Bytes::from(format!(r#"["{{}}",{number}]"#))),
            logs: format!("\u{0}{{{number}}}\n"),
            error: (number % 3 == 1).then(|| format!("NULL,\"{number}\"")),
            remote: full.remote.clone().filter(|_| number.is_multiple_of(4)),
            ..full
        },
        ..base
    }
}

/// Ends, leases and inserts of different jobs, and two changes of one job, at the same time.
pub async fn changes_of_all_kinds_are_made_together(store: Arc<dyn LeasingStore>) {
    store.insert(spec("alive")).await.unwrap();
    granted(&*store, request("alive", "one", 1)).await;
    for round in 0..10_usize {
        let job = |number: usize| name(round * 10 + number);
        let fence = |number: usize| Fence {
            attempt: 1,
            nonce: Nonce(number as u128),
        };
        for number in 0..6 {
            store.insert(spec(&job(number))).await.unwrap();
        }
        for number in 0..3 {
            granted(&*store, request(&job(number), "one", number as u128)).await;
        }
        let mut tasks = JoinSet::new();
        for number in 0..3 {
            let (store, end) = (
                Arc::clone(&store),
                own_end(round * 10 + number, fence(number)),
            );
            tasks
                .spawn(async move { store.finish(end).await.unwrap() == FinishOutcome::Committed });
        }
        for number in 3..6 {
            let request = request(&job(number), "one", number as u128);
            let store = Arc::clone(&store);
            tasks.spawn(async move {
                matches!(
                    store.acquire(request).await.unwrap(),
                    AcquireResult::Granted(_)
                )
            });
        }
        for number in 6..10 {
            let (store, spec) = (Arc::clone(&store), spec(&job(number)));
            tasks.spawn(async move { store.insert(spec).await.unwrap() == Inserted::New });
        }
        let (canceler, canceled) = (Arc::clone(&store), id(&job(5)));
        tasks.spawn(async move {
            let result = canceler.request_cancel(&ann(), &canceled).await.unwrap();
            result == CancelRequestResult::Recorded
        });
        let done = tasks.join_all().await;
        // The cancel may come before the lease of its job, which is refused then.
        let refused = done.iter().filter(|is_done| !**is_done).count();
        assert!(refused <= 1, "round {round}: {done:?}");
        assert!(get(&*store, &job(5)).await.cancel_requested);
    }
}
