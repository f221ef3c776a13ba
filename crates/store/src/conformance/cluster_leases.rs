//! Leases of a cluster: directors hold leases as long as they live.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::lease::{Fence, Nonce};
use tidegate_core::leases::{
    AcquireRequest, AcquireResult, ClusterCounts, GrantedLease, HeartbeatResult, HeldLease, Holder,
    JobProgress, JobRef, LeaseHeartbeat, Leases,
};
use tidegate_core::record::JobSpec;
use tidegate_core::store::{FinishOutcome, Store};
use tidegate_core::{Account, Status};
use tokio::task::JoinSet;

use super::interim_messages::taken;
use super::samples::*;

/// Longer than any test.
pub(super) const LONG: Duration = Duration::from_secs(60 * 60);
/// A holder with this life is dead at once.
pub(super) const NO_TIME: Duration = Duration::ZERO;

/// A store with leases.
pub trait LeasingStore: Store + Leases + 'static {}
impl<S: Store + Leases + 'static> LeasingStore for S {}

pub(super) fn holder(name: &str) -> Holder {
    Holder {
        name: name.to_owned(),
        boot: 1,
    }
}

pub(super) fn job(name: &str) -> JobRef {
    JobRef {
        account: ann(),
        id: id(name),
    }
}

pub(super) fn request(name: &str, director: &str, nonce: u128) -> AcquireRequest {
    AcquireRequest {
        job: job(name),
        holder: holder(director),
        nonce: Nonce(nonce),
        lasts: LONG,
        max_attempts: 10,
    }
}

/// A request of a director that is dead right after it.
fn dying(name: &str, director: &str, nonce: u128) -> AcquireRequest {
    AcquireRequest {
        lasts: NO_TIME,
        ..request(name, director, nonce)
    }
}

pub(super) async fn granted(store: &dyn LeasingStore, request: AcquireRequest) -> GrantedLease {
    match store.acquire(request).await.unwrap() {
        AcquireResult::Granted(lease) => *lease,
        other => panic!("the lease was refused: {other:?}"),
    }
}

pub(super) fn held(name: &str, fence: Fence) -> HeldLease {
    HeldLease {
        job: job(name),
        fence,
    }
}

async fn beat(store: &dyn LeasingStore, director: &str, leases: Vec<HeldLease>) -> HeartbeatResult {
    let beat = LeaseHeartbeat {
        holder: holder(director),
        lasts: LONG,
        leases,
    };
    store.heartbeat(beat).await.unwrap()
}

/// The names of the jobs whose leases have expired since the last call.
async fn expired(store: &dyn LeasingStore) -> Vec<String> {
    let records = store.expired(LONG, 100).await.unwrap();
    records.iter().map(|job| job.spec.id.to_string()).collect()
}

/// The names of the jobs that are not in the queue.
pub(super) async fn unqueued(store: &dyn LeasingStore) -> Vec<String> {
    let records = store.claim_unqueued(NO_TIME, 100).await.unwrap();
    records.iter().map(|job| job.spec.id.to_string()).collect()
}

/// The director gets the record of the job, with the number of the attempt.
pub async fn a_lease_is_granted_with_the_record(store: Arc<dyn LeasingStore>) {
    let spec = JobSpec {
        deadline: Some(Timestamp::now() + LONG),
        ..full_spec("a")
    };
    store.insert(spec).await.unwrap();
    let lease = granted(&*store, request("a", "one", 7)).await;
    let fence = Fence {
        attempt: 1,
        nonce: Nonce(7),
    };
    assert_eq!((lease.fence, lease.remaining.is_some()), (fence, true));
    assert_eq!(lease.record, get(&*store, "a").await);
    assert_eq!(
        (lease.record.status, lease.record.attempt),
        (Status::Processing, 1)
    );
    assert!(lease.record.started_at.is_some());
}

/// The record has the input, however large it is.
pub async fn a_lease_is_granted_with_a_large_input(store: Arc<dyn LeasingStore>) {
    for (name, bytes) in [("small", 10_000), ("large", 1_000_000)] {
        let spec = JobSpec {
            input: format!(r#"{{"text":"{}"}}"#, "x".repeat(bytes)).into(),
            ..spec(name)
        };
        store.insert(spec.clone()).await.unwrap();
        let lease = granted(&*store, request(name, "one", 7)).await;
        assert_eq!(lease.record.spec.input, spec.input);
        assert_eq!(lease.record, get(&*store, name).await);
    }
}

/// A lost answer costs nothing.
pub async fn the_same_nonce_gets_the_same_lease(store: Arc<dyn LeasingStore>) {
    store.insert(spec("a")).await.unwrap();
    let first = granted(&*store, request("a", "one", 7)).await;
    let again = AcquireRequest {
        max_attempts: 1,
        ..request("a", "one", 7)
    };
    assert_eq!(granted(&*store, again).await, first);
    assert_eq!(get(&*store, "a").await.attempt, 1);
}

/// The director that runs a job is known until the job ends or is given back.
pub async fn the_holder_of_a_lease_is_known(store: Arc<dyn LeasingStore>) {
    store.insert(spec("a")).await.unwrap();
    let holder_of = async |name| store.holder_of(&job(name)).await.unwrap();
    assert_eq!(holder_of("a").await, None);
    assert_eq!(holder_of("unknown").await, None);
    let lease = granted(&*store, request("a", "one", 1)).await;
    assert_eq!(holder_of("a").await, Some(holder("one")));
    store.release(&held("a", lease.fence)).await.unwrap();
    assert_eq!(holder_of("a").await, None);
    let lease = granted(&*store, request("a", "two", 2)).await;
    assert!(ends(&*store, finish_leased("a", lease.fence, 5)).await);
    assert_eq!(holder_of("a").await, None);
}

/// Also to the same director with another nonce.
pub async fn a_live_lease_refuses_others(store: Arc<dyn LeasingStore>) {
    store.insert(spec("a")).await.unwrap();
    granted(&*store, request("a", "one", 1)).await;
    store.request_cancel(&ann(), &id("a")).await.unwrap();
    for director in ["one", "two"] {
        let refused = store.acquire(request("a", director, 2)).await.unwrap();
        assert_eq!(refused, AcquireResult::HeldByAnother);
    }
}

/// The end of the lost lease is refused.
pub async fn an_expired_lease_is_granted_to_another(store: Arc<dyn LeasingStore>) {
    expired(&*store).await;
    store.insert(spec("a")).await.unwrap();
    let old = granted(&*store, dying("a", "one", 1)).await;
    assert_eq!(expired(&*store).await, ["a"]);
    let new = granted(&*store, request("a", "two", 2)).await;
    assert_eq!(new.fence.attempt, 2);
    let late = store
        .finish(finish_leased("a", old.fence, 5))
        .await
        .unwrap();
    assert_eq!(late, FinishOutcome::ByAnother);
    assert!(ends(&*store, finish_leased("a", new.fence, 6)).await);
}

/// Time alone loses no lease.
pub async fn a_late_end_of_the_last_holder_counts(store: Arc<dyn LeasingStore>) {
    expired(&*store).await;
    store.insert(spec("a")).await.unwrap();
    let lease = granted(&*store, dying("a", "one", 1)).await;
    assert_eq!(expired(&*store).await, ["a"]);
    let lost = beat(&*store, "one", vec![held("a", lease.fence)])
        .await
        .lost;
    assert!(lost.is_empty(), "no other director has leased it");
    let end = finish_leased("a", lease.fence, 5);
    assert!(ends(&*store, end.clone()).await);
    assert_eq!(
        store.finish(end).await.unwrap(),
        FinishOutcome::AlreadyCommitted
    );
}

/// Each lease expires once, and its job is then not known to be in the queue.
pub async fn an_expired_lease_is_returned_once(store: Arc<dyn LeasingStore>) {
    expired(&*store).await;
    for name in ["a", "b", "c"] {
        store.insert(spec(name)).await.unwrap();
    }
    store
        .mark_queued(&[job("a"), job("b"), job("c")], "first")
        .await
        .unwrap();
    granted(&*store, dying("a", "one", 1)).await;
    let ended = granted(&*store, dying("b", "one", 2)).await;
    granted(&*store, request("c", "two", 3)).await;
    assert!(ends(&*store, finish_leased("b", ended.fence, 5)).await);
    assert_eq!(expired(&*store).await, ["a"]);
    assert!(expired(&*store).await.is_empty());
    assert_eq!(unqueued(&*store).await, ["a"]);
}

/// A process that starts again supersedes the previous one with its name, whose leases are lost.
pub async fn a_later_boot_supersedes_the_earlier(store: Arc<dyn LeasingStore>) {
    store.insert(spec("a")).await.unwrap();
    store.insert(spec("b")).await.unwrap();
    granted(&*store, request("a", "one", 1)).await;
    let later = Holder {
        boot: 2,
        ..holder("one")
    };
    let by_later = |name, nonce| AcquireRequest {
        holder: later.clone(),
        ..request(name, "one", nonce)
    };
    granted(&*store, by_later("b", 2)).await;
    assert_eq!(granted(&*store, by_later("a", 3)).await.fence.attempt, 2);
    let refused = store.acquire(request("a", "one", 4)).await.unwrap();
    assert_eq!(refused, AcquireResult::Superseded);
    assert!(beat(&*store, "one", Vec::new()).await.is_superseded);
    store.retire(&holder("one")).await.unwrap();
    assert_eq!(
        store.acquire(request("b", "two", 5)).await.unwrap(),
        AcquireResult::HeldByAnother,
        "an earlier process does not retire a later one"
    );
}

/// A job with a cancel request, and an ended or unknown one, is not leased.
pub async fn canceled_ended_and_unknown_jobs_have_no_lease(store: Arc<dyn LeasingStore>) {
    over(&*store, "ended", 1).await;
    store.insert(spec("canceled")).await.unwrap();
    store.request_cancel(&ann(), &id("canceled")).await.unwrap();
    let acquire = async |name| store.acquire(request(name, "one", 1)).await.unwrap();
    assert_eq!(acquire("ended").await, AcquireResult::Ended);
    assert_eq!(acquire("unknown").await, AcquireResult::Unknown);
    let record = Box::new(get(&*store, "canceled").await);
    assert_eq!(
        acquire("canceled").await,
        AcquireResult::CancelRequested(record)
    );
}

/// The clock of the store decides.
pub async fn an_overdue_job_has_no_lease(store: Arc<dyn LeasingStore>) {
    let with_deadline = |name, deadline| JobSpec {
        deadline,
        ..spec(name)
    };
    store
        .insert(with_deadline("late", Some(at(0))))
        .await
        .unwrap();
    let soon = Timestamp::now() + LONG;
    store
        .insert(with_deadline("soon", Some(soon)))
        .await
        .unwrap();
    store.insert(with_deadline("never", None)).await.unwrap();
    let late = store.acquire(request("late", "one", 1)).await.unwrap();
    assert!(
        matches!(&late, AcquireResult::Overdue(record) if record.attempt == 0),
        "{late:?}"
    );
    let remaining = granted(&*store, request("soon", "one", 1)).await.remaining;
    assert!(
        remaining.is_some_and(|left| left <= LONG && left > LONG / 2),
        "{remaining:?}"
    );
    let never = granted(&*store, request("never", "one", 1)).await;
    assert_eq!(never.remaining, None);
}

/// A job that killed its directors is not started again.
pub async fn a_job_is_started_a_limited_number_of_times(store: Arc<dyn LeasingStore>) {
    expired(&*store).await;
    store.insert(spec("a")).await.unwrap();
    let limited = |nonce| AcquireRequest {
        max_attempts: 2,
        ..dying("a", "one", nonce)
    };
    for nonce in 1..=2 {
        granted(&*store, limited(nonce)).await;
        assert_eq!(expired(&*store).await, ["a"]);
    }
    let refused = store.acquire(limited(3)).await.unwrap();
    assert!(
        matches!(&refused, AcquireResult::Exhausted(record) if record.attempt == 2),
        "{refused:?}"
    );
}

/// A lease that was given back is no attempt, and cannot end the job.
pub async fn a_released_lease_does_not_count(store: Arc<dyn LeasingStore>) {
    store.insert(spec("a")).await.unwrap();
    let limited = |nonce| AcquireRequest {
        max_attempts: 1,
        ..request("a", "one", nonce)
    };
    for nonce in 1..=3 {
        let lease = granted(&*store, limited(nonce)).await;
        let lease = held("a", lease.fence);
        assert!(store.release(&lease).await.unwrap());
        assert!(!store.release(&lease).await.unwrap(), "it is given back");
        assert_eq!(get(&*store, "a").await.status, Status::Queued);
        let late = store
            .finish(finish_leased("a", lease.fence, 5))
            .await
            .unwrap();
        assert_eq!(late, FinishOutcome::ByAnother);
    }
    let last = granted(&*store, limited(4)).await;
    let record = get(&*store, "a").await;
    assert_eq!((record.attempt, record.released, record.runs()), (4, 3, 1));
    let refused = store.acquire(limited(5)).await.unwrap();
    assert_eq!(refused, AcquireResult::HeldByAnother);
    assert!(ends(&*store, finish_leased("a", last.fence, 6)).await);
    assert!(!store.release(&held("a", last.fence)).await.unwrap());
}

/// One call reads the progress of many jobs.
pub async fn the_progress_of_jobs_is_known(store: Arc<dyn LeasingStore>) {
    for name in ["waits", "runs", "over"] {
        store.insert(spec(name)).await.unwrap();
    }
    let lease = granted(&*store, request("over", "one", 1)).await;
    assert!(ends(&*store, finish_leased("over", lease.fence, 5)).await);
    granted(&*store, request("runs", "one", 2)).await;
    assert_eq!(store.progress(&[]).await.unwrap(), []);
    let asked = ["over", "runs", "unknown", "waits"].map(job);
    let mut found = store.progress(&asked).await.unwrap();
    found.sort_by(|a, b| a.job.cmp(&b.job));
    let mut expected = Vec::new();
    for name in ["over", "runs", "waits"] {
        let record = get(&*store, name).await;
        expected.push(JobProgress {
            job: job(name),
            status: record.status,
            attempt: record.attempt,
            started_at: record.started_at,
        });
    }
    assert_eq!(found, expected);
    let statuses = found.iter().map(|found| (found.status, found.attempt));
    assert!(statuses.eq([
        (Status::Succeeded, 1),
        (Status::Processing, 1),
        (Status::Queued, 0)
    ]));
}

/// Without heartbeats a director dies, with them it lives.
pub async fn heartbeats_keep_leases(store: Arc<dyn LeasingStore>) {
    expired(&*store).await;
    store.insert(spec("a")).await.unwrap();
    let lease = granted(&*store, dying("a", "one", 1)).await;
    let result = beat(&*store, "one", vec![held("a", lease.fence)]).await;
    assert_eq!(result, HeartbeatResult::default());
    assert!(expired(&*store).await.is_empty());
    let refused = store.acquire(request("a", "two", 2)).await.unwrap();
    assert_eq!(refused, AcquireResult::HeldByAnother);
}

/// The reply names the jobs to cancel, and the leases that are lost.
pub async fn a_heartbeat_reports_cancels_and_lost_leases(store: Arc<dyn LeasingStore>) {
    let other = Account::parse("bob").unwrap();
    for name in ["keep", "cancel", "ended", "released"] {
        store.insert(spec(name)).await.unwrap();
    }
    let mut leases = Vec::new();
    for name in ["keep", "cancel", "ended", "released"] {
        leases.push(held(
            name,
            granted(&*store, request(name, "one", 1)).await.fence,
        ));
    }
    store.request_cancel(&ann(), &id("cancel")).await.unwrap();
    assert!(ends(&*store, finish("ended", 1, 5)).await);
    assert!(store.release(&leases[3]).await.unwrap());
    granted(&*store, request("released", "two", 2)).await;
    let mut foreign = leases[0].clone();
    foreign.job.account = other;
    leases.push(foreign.clone());
    let result = beat(&*store, "one", leases).await;
    assert!(!result.is_superseded);
    assert_eq!(result.cancel, [job("cancel")]);
    assert_eq!(result.lost, [job("ended"), job("released"), foreign.job]);
}

/// A request that arrives late may grant a lease that its director does not know.
pub async fn a_heartbeat_reports_leases_that_it_does_not_list(store: Arc<dyn LeasingStore>) {
    for name in ["known", "late", "released", "ended", "other"] {
        store.insert(spec(name)).await.unwrap();
    }
    let known = granted(&*store, request("known", "one", 1)).await.fence;
    let late = granted(&*store, request("late", "one", 2)).await.fence;
    let released = granted(&*store, request("released", "one", 3)).await.fence;
    assert!(store.release(&held("released", released)).await.unwrap());
    let ended = granted(&*store, request("ended", "one", 4)).await.fence;
    assert!(ends(&*store, finish_leased("ended", ended, 5)).await);
    granted(&*store, request("other", "two", 5)).await;

    let result = beat(&*store, "one", vec![held("known", known)]).await;
    assert_eq!(result.unlisted, [held("late", late)]);
    let result = beat(
        &*store,
        "one",
        vec![held("known", known), held("late", late)],
    )
    .await;
    assert_eq!(result, HeartbeatResult::default());
    // The same request again, after its lease was given back: its nonce does not tell them apart.
    assert!(store.release(&held("late", late)).await.unwrap());
    let again = granted(&*store, request("late", "one", 2)).await.fence;
    let result = beat(&*store, "one", vec![held("known", known)]).await;
    assert_eq!(result.unlisted, [held("late", again)]);
    assert!(store.release(&result.unlisted[0]).await.unwrap());
    assert_eq!(get(&*store, "late").await.runs(), 0);
}

/// The leases of a director that has stopped in order are free at once.
pub async fn a_retired_director_has_no_leases(store: Arc<dyn LeasingStore>) {
    expired(&*store).await;
    store.insert(spec("a")).await.unwrap();
    granted(&*store, request("a", "one", 1)).await;
    store.retire(&holder("one")).await.unwrap();
    assert_eq!(
        granted(&*store, request("a", "two", 2)).await.fence.attempt,
        2
    );
}

/// The counts have live leases, living directors, and the message that is due the longest.
pub async fn leases_directors_and_due_messages_are_counted(store: Arc<dyn LeasingStore>) {
    assert_eq!(store.counts().await.unwrap(), ClusterCounts::default());
    for name in ["a", "b", "waits"] {
        store.insert(spec(name)).await.unwrap();
    }
    let first = held("a", granted(&*store, request("a", "one", 1)).await.fence);
    granted(&*store, request("b", "two", 2)).await;
    let counts = store.counts().await.unwrap();
    assert_eq!((counts.leases, counts.directors), (2, 2));
    assert_eq!(counts.oldest_due_message, None);

    let interim = message("interim", "a", 1);
    assert!(store.put_interim(&first, interim).await.unwrap());
    let counts = store.counts().await.unwrap();
    assert!(counts.oldest_due_message.is_some(), "it is due");
    assert_eq!(taken(&*store).await, ["interim"]);
    let counts = store.counts().await.unwrap();
    assert_eq!(counts.oldest_due_message, None, "it is being sent");

    assert!(store.release(&first).await.unwrap());
    store.retire(&holder("two")).await.unwrap();
    assert_eq!(store.expired(LONG, 10).await.unwrap().len(), 1);
    let counts = store.counts().await.unwrap();
    assert_eq!((counts.leases, counts.directors), (0, 1));
}

/// Of many directors, one gets the lease of each job.
pub async fn one_of_many_directors_gets_the_lease(store: Arc<dyn LeasingStore>) {
    const JOBS: usize = 20;
    for n in 0..JOBS {
        store.insert(spec(&format!("{n}"))).await.unwrap();
    }
    let mut directors = JoinSet::new();
    for director in 0..8 {
        let store = Arc::clone(&store);
        directors.spawn(async move {
            let mut own = Vec::new();
            for n in 0..JOBS {
                let name = format!("{n}");
                let request = request(&name, &format!("{director}"), director);
                match store.acquire(request).await.unwrap() {
                    AcquireResult::Granted(lease) => own.push((name, lease.fence)),
                    AcquireResult::HeldByAnother => {}
                    other => panic!("{other:?}"),
                }
            }
            own
        });
    }
    let mut leases = directors.join_all().await.concat();
    leases.sort_by_key(|(name, _)| name.parse::<usize>().unwrap());
    assert_eq!(leases.len(), JOBS, "{leases:?}");
    for (name, fence) in leases {
        assert_eq!(fence.attempt, 1);
        assert!(ends(&*store, finish_leased(&name, fence, 5)).await);
    }
}

/// A lease is granted, or the job is canceled, and never both without the director learning it.
pub async fn a_cancel_races_with_a_lease(store: Arc<dyn LeasingStore>) {
    for n in 0..30 {
        let name = format!("{n}");
        store.insert(spec(&name)).await.unwrap();
        let (one, two) = (Arc::clone(&store), Arc::clone(&store));
        let wanted = request(&name, "one", 1);
        let job_id = id(&name);
        let mut callers = JoinSet::new();
        callers.spawn(async move { Some(one.acquire(wanted).await.unwrap()) });
        callers.spawn(async move {
            two.request_cancel(&ann(), &job_id).await.unwrap();
            None
        });
        let lease = callers.join_all().await.into_iter().flatten().next();
        match lease.unwrap() {
            AcquireResult::Granted(lease) => {
                let leases = vec![held(&name, lease.fence)];
                assert_eq!(beat(&*store, "one", leases).await.cancel, [job(&name)]);
                let end = store
                    .finish(finish_leased(&name, lease.fence, 5))
                    .await
                    .unwrap();
                assert_eq!(end, FinishOutcome::CancelRequested);
            }
            AcquireResult::CancelRequested(record) => assert_eq!(record.attempt, 0),
            other => panic!("{other:?}"),
        }
    }
}
