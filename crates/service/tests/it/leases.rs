//! Leases: a job starts only with one, and calls of the store whose result is unknown.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tidegate_core::queue::Queue;
use tidegate_core::record::Api;
use tidegate_core::{Account, Event, JobId, Outcome, Refusal, Status};
use tidegate_queue::MemoryQueue;
use tidegate_service::{JobService, OnDuplicateId, ResponseMode, Submission};

use crate::expect_new;
use crate::fake_model::{FakeModel, ServiceOptions, service_with, submission, value};
use crate::faulty_store::FaultyStore;

fn service(store: &Arc<FaultyStore>, attempts: Option<u32>) -> (FakeModel, JobService) {
    let model = FakeModel::without_streaming(1);
    let jobs = service_with(
        model.clone(),
        ServiceOptions {
            store: Some(Arc::clone(store) as _),
            attempts,
            ..ServiceOptions::default()
        },
    );
    (model, jobs)
}

fn id(text: &str) -> JobId {
    JobId::parse(text).expect("a valid id")
}

fn named(name: &str) -> Submission {
    Submission {
        id: Some(id(name)),
        response_mode: ResponseMode::Async,
        on_duplicate: OnDuplicateId::Answer,
        api: Api::Replicate,
        policies: Api::Replicate.policies(),
        ..submission("{}")
    }
}

fn succeeded() -> Event {
    Event::Ended(Outcome::Succeeded {
        output: Some(value("7")),
    })
}

/// With both settings of `--on-lost`.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_was_committed_and_reported_as_failed_counts() {
    for attempts in [None, Some(3)] {
        let store = FaultyStore::new();
        let (model, jobs) = service(&store, attempts);
        let job = Arc::clone(expect_new(jobs.submit(named("a")).await).job());
        let run = model.started().await;
        store.lose_end_answers(1);
        run.send(succeeded());
        job.ended().await;
        assert_eq!(job.status(), Status::Succeeded);
        assert_eq!(store.record(&id("a")).await.status, Status::Succeeded);
        let finished: u64 = jobs
            .metrics()
            .finished_jobs()
            .map(|(.., count)| count)
            .sum();
        assert_eq!(finished, 1, "{attempts:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_was_granted_and_reported_as_failed_starts_the_job_once() {
    for attempts in [None, Some(3)] {
        let store = FaultyStore::new();
        let (model, jobs) = service(&store, attempts);
        store.lose_lease_answers(1);
        let job = Arc::clone(expect_new(jobs.submit(named("a")).await).job());
        model.started().await.send(succeeded());
        job.ended().await;
        let record = store.record(&id("a")).await;
        assert_eq!((record.status, record.attempt), (Status::Succeeded, 1));
        assert_eq!((model.starts(), job.status()), (1, Status::Succeeded));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_starts_only_when_its_start_is_recorded() {
    for attempts in [None, Some(3)] {
        let store = FaultyStore::new();
        let (model, jobs) = service(&store, attempts);
        store.fail_leases();
        let job = Arc::clone(expect_new(jobs.submit(named("a")).await).job());
        let canceled = Arc::clone(expect_new(jobs.submit(named("b")).await).job());
        store.lease_failed().await;
        assert!(
            jobs.cancel(&Account::ANONYMOUS, &id("b")).await.unwrap(),
            "the store takes cancel requests"
        );
        canceled.ended().await;
        assert_eq!(
            (model.starts(), store.record(&id("a")).await.attempt),
            (0, 0)
        );
        store.restore_leases();
        let run = model.started().await;
        assert_eq!(store.record(&id("a")).await.attempt, 1);
        run.send(succeeded());
        job.ended().await;
        assert_eq!((model.starts(), job.status()), (1, Status::Succeeded));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_ended_elsewhere_does_not_start() {
    let store = FaultyStore::new();
    let (model, jobs) = service(&store, Some(3));
    let first = Arc::clone(expect_new(jobs.submit(named("first")).await).job());
    let run = model.started().await;
    let waits = Arc::clone(expect_new(jobs.submit(named("waits")).await).job());
    store.cancel_elsewhere(&id("waits")).await;
    run.send(succeeded());
    first.ended().await;
    waits.ended().await;
    assert_eq!((model.starts(), waits.status()), (1, Status::Canceled));
    let shown = jobs
        .get(&Account::ANONYMOUS, &id("waits"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(shown.status(), Status::Canceled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_cannot_be_recorded_is_refused_and_the_job_goes_on() {
    let store = FaultyStore::new();
    let (model, jobs) = service(&store, Some(3));
    let job = Arc::clone(expect_new(jobs.submit(named("a")).await).job());
    let run = model.started().await;
    store.fail_cancels(1);
    assert_eq!(
        jobs.cancel(&Account::ANONYMOUS, &id("a")).await,
        Err(Refusal::StoreUnavailable)
    );
    assert!(!run.is_cancel_requested());
    run.send(succeeded());
    job.ended().await;
    assert_eq!(job.status(), Status::Succeeded);
    assert!(!store.record(&id("a")).await.cancel_requested);
    assert_eq!(
        jobs.cancel(&Account::ANONYMOUS, &id("a")).await,
        Ok(false),
        "the job has ended"
    );
}

/// The cancel was acknowledged before the end was committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_is_committed_before_the_end_decides_it() {
    let store = FaultyStore::new();
    let (model, jobs) = service(&store, Some(3));
    let job = Arc::clone(expect_new(jobs.submit(named("a")).await).job());
    let run = model.started().await;
    store.hold_ends();
    run.send(succeeded());
    store.end_started().await;
    assert_eq!(jobs.cancel(&Account::ANONYMOUS, &id("a")).await, Ok(true));
    store.release_ends();
    job.ended().await;
    assert_eq!(job.status(), Status::Canceled);
    assert_eq!(store.record(&id("a")).await.status, Status::Canceled);
}

/// A job whose start was not committed when its process was killed counts as started.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_counts_as_started_before_the_model_starts() {
    let store = FaultyStore::new();
    let (model, jobs) = service(&store, Some(3));
    let busy = expect_new(jobs.submit(named("busy")).await);
    let run = model.started().await;
    expect_new(jobs.submit(named("a")).await);
    run.send(succeeded());
    busy.job().ended().await;
    let _run = model.started().await;
    let crashed = store.copy_after_a_crash();
    let record = crashed.record(&id("a")).await;
    assert_eq!((record.attempt, record.status), (1, Status::Processing));
}

/// The store has granted the lease, and the job ends before its tracker knows.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_stopped_while_it_is_leased_ends_in_the_store() {
    for attempts in [None, Some(3)] {
        let store = FaultyStore::new();
        let (model, jobs) = service(&store, attempts);
        store.hold_lease_results();
        let waiting = Submission {
            response_mode: ResponseMode::Wait,
            ..named("a")
        };
        let mut ticket = expect_new(jobs.submit(waiting).await);
        let job = Arc::clone(ticket.job());
        tokio::select! {
            () = ticket.ended() => panic!("the lease is held"),
            () = store.lease_result_held() => {}
        }
        // The client disconnects.
        drop(ticket);
        job.ended().await;
        assert_eq!((model.starts(), job.status()), (0, Status::Canceled));
        let record = store.record(&id("a")).await;
        assert_eq!(record.status, Status::Canceled, "{attempts:?}");
    }
}

/// Otherwise the next process would take it for a job that the model has begun.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_leased_during_the_shutdown_runs() {
    let store = FaultyStore::new();
    let (model, jobs) = service(&store, None);
    store.hold_lease_results();
    let job = Arc::clone(expect_new(jobs.submit(named("a")).await).job());
    store.lease_result_held().await;
    let mut closing = Box::pin(jobs.close(Duration::from_secs(60)));
    assert!((&mut closing).now_or_never().is_none(), "a job is open");
    store.release_lease_results();
    let run = tokio::select! {
        run = model.started() => run,
        _ = &mut closing => panic!("the job was left to the next process"),
    };
    run.send(succeeded());
    assert!(closing.await);
    assert_eq!(job.status(), Status::Succeeded);
    assert_eq!(store.record(&id("a")).await.status, Status::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_lease_fails_is_left_to_the_next_process() {
    let store = FaultyStore::new();
    let (model, jobs) = service(&store, None);
    store.fail_leases();
    expect_new(jobs.submit(named("a")).await);
    store.lease_failed().await;
    assert!(jobs.close(Duration::from_secs(60)).await);
    let record = store.record(&id("a")).await;
    assert_eq!((record.attempt, record.status), (0, Status::Queued));
    assert_eq!(model.starts(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_cannot_be_read_is_not_an_unknown_job() {
    let store = FaultyStore::new();
    let options = || ServiceOptions {
        store: Some(Arc::clone(&store) as _),
        ..ServiceOptions::default()
    };
    let model = FakeModel::without_streaming(1);
    let jobs = service_with(model.clone(), options());
    let ticket = expect_new(jobs.submit(named("a")).await);
    model.started().await.send(succeeded());
    ticket.job().ended().await;
    // Another server, which has the job in the store only.
    let jobs = service_with(FakeModel::without_streaming(1), options());
    let account = Account::ANONYMOUS;
    store.fail_reads(3);
    let unavailable = Some(Refusal::StoreUnavailable);
    assert_eq!(jobs.get(&account, &id("a")).await.err(), unavailable);
    assert_eq!(jobs.find(&account, &id("a")).await.err(), unavailable);
    assert_eq!(jobs.cancel(&account, &id("a")).await.err(), unavailable);
    let job = jobs.get(&account, &id("a")).await.unwrap();
    assert_eq!(job.map(|job| job.status()), Some(Status::Succeeded));
    assert!(jobs.get(&account, &id("b")).await.unwrap().is_none());
}

/// Upkeep reads the record later, and then decides about the entry.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_recorded_end_cannot_be_read_stays_in_the_queue() {
    let (store, queue) = (FaultyStore::new(), Arc::<MemoryQueue>::default());
    let model = FakeModel::without_streaming(1);
    let jobs = service_with(
        model.clone(),
        ServiceOptions {
            store: Some(Arc::clone(&store) as _),
            queue: Some(Arc::clone(&queue)),
            attempts: Some(3),
            ..ServiceOptions::default()
        },
    );
    expect_new(jobs.submit(named("first")).await);
    let run = model.started().await;
    let waits = Arc::clone(expect_new(jobs.submit(named("waits")).await).job());
    store.cancel_elsewhere(&id("waits")).await;
    store.fail_reads(1);
    run.send(succeeded());
    waits.ended().await;
    let name = queue.queues().await.expect("the queue works").remove(0);
    let depth = queue.depth(&name).await.expect("the queue works");
    assert_eq!((depth.waiting, depth.claimed), (0, 1));
}
