//! A restart with many open jobs: requests are served while the jobs are loaded in the background.

use std::sync::Arc;

use futures_util::future::join_all;
use jiff::Timestamp;
use tidegate_core::port::{Admitted, Executor, WaitPolicy};
use tidegate_core::record::{Api, JobSpec};
use tidegate_core::store::{Inserted, JobQuery, Store};
use tidegate_core::{Account, Event, JobId, JobKind, Outcome, Refusal, Status};
use tidegate_service::{JobService, OnDuplicateId, Submission, Submitted};

use crate::expect_new;
use crate::fake_model::{
    FakeModel, Run, ServiceOptions, resume, service_with, submission, value, yield_to_all_tasks,
};
use crate::faulty_store::FaultyStore;

/// More jobs than are loaded before the server accepts requests.
const JOBS: usize = 1_700;
/// The number of jobs that are loaded before that, in two batches.
const FIRST: usize = 1_000;

/// How many jobs are inserted at once.
const BATCH: usize = 30;

fn id(number: usize) -> JobId {
    JobId::parse(&format!("job-{number}")).expect("a valid id")
}

fn input(number: usize) -> String {
    format!(r#"{{"n":{number}}}"#)
}

fn job(number: usize) -> Submission {
    Submission {
        id: Some(id(number)),
        api: Api::Replicate,
        policies: Api::Replicate.policies(),
        on_duplicate: OnDuplicateId::Answer,
        input: input(number).into(),
        ..submission("{}")
    }
}

fn service(store: &Arc<FaultyStore>) -> (FakeModel, JobService) {
    service_with_attempts(store, Some(3))
}

fn service_with_attempts(
    store: &Arc<FaultyStore>,
    attempts: Option<u32>,
) -> (FakeModel, JobService) {
    let model = FakeModel::without_streaming(1);
    let options = ServiceOptions {
        store: Some(Arc::<FaultyStore>::clone(store)),
        attempts,
        ..ServiceOptions::default()
    };
    (model.clone(), service_with(model, options))
}

/// A store with open jobs of a previous server process.
async fn store_with_jobs() -> Arc<FaultyStore> {
    let store = FaultyStore::new();
    let (_, jobs) = service(&store);
    let spec = |number| JobSpec {
        id: id(number),
        account: Account::ANONYMOUS,
        kind: JobKind::Prediction,
        target: jobs.target().clone(),
        input: input(number).into(),
        files: Vec::new(),
        secrets: Vec::new(),
        context: Default::default(),
        destination: None,
        hook: None,
        api: Api::Replicate,
        policies: Api::Replicate.policies(),
        deadline: None,
        created_at: Timestamp::now(),
    };
    // A few at a time, which are committed together, in this order.
    for first in (0..JOBS).step_by(BATCH) {
        let numbers = first..JOBS.min(first + BATCH);
        for inserted in join_all(numbers.map(|number| store.insert(spec(number)))).await {
            assert!(matches!(inserted, Ok(Inserted::New)));
        }
    }
    store
}

/// A service that has loaded the first jobs, and whose store does not return the others yet.
async fn partly_loaded() -> (Arc<FaultyStore>, FakeModel, JobService) {
    partly_loaded_with_attempts(Some(3)).await
}

async fn partly_loaded_with_attempts(
    attempts: Option<u32>,
) -> (Arc<FaultyStore>, FakeModel, JobService) {
    let store = store_with_jobs().await;
    store.allow_reads_of_open_jobs(2);
    let (model, jobs) = service_with_attempts(&store, attempts);
    let resumed = resume(&jobs).await;
    assert_eq!((resumed.queued, resumed.is_loading), (FIRST, true));
    (store, model, jobs)
}

async fn status_shown(jobs: &JobService, number: usize) -> (Status, bytes::Bytes) {
    let job = jobs.get(&Account::ANONYMOUS, &id(number)).await;
    let job = job.expect("the store answers").expect("the job exists");
    let job = job.snapshot();
    (job.status, job.input)
}

/// A job that waits at the model, as the jobs of Cog's API do.
fn cog_job(number: usize) -> Submission {
    Submission {
        api: Api::Cog,
        policies: Api::Cog.policies(),
        ..job(number)
    }
}

/// Lets the model run the jobs before this one, and returns its run.
async fn run_until(model: &FakeModel, id: &JobId) -> Run {
    loop {
        let run = model.started().await;
        if run.work.id == *id {
            return run;
        }
        run.send(succeeded());
    }
}

fn succeeded() -> Event {
    Event::Ended(Outcome::Succeeded {
        output: Some(value("1")),
    })
}

/// Lets the model run all jobs, and returns their ids in the order in which they started.
async fn run_all(model: &FakeModel, count: usize) -> Vec<JobId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let run = model.started().await;
        ids.push(run.work.id.clone());
        run.send(succeeded());
    }
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_not_loaded_yet_is_found_listed_and_canceled() {
    let (store, model, jobs) = partly_loaded().await;
    let waiting = (Status::Queued, input(1_500).into());
    assert_eq!(status_shown(&jobs, 1_500).await, waiting);
    let query = JobQuery {
        account: Account::ANONYMOUS,
        kind: JobKind::Prediction,
        created_after: None,
        created_before: None,
        from: None,
        limit: 10,
    };
    let listed = jobs.list(query).await.expect("a list").items;
    let newest: Vec<JobId> = listed.iter().map(|job| job.id().clone()).collect();
    assert_eq!(newest, (JOBS - 10..JOBS).rev().map(id).collect::<Vec<_>>());
    assert!(listed.iter().all(|job| job.status() == Status::Queued));
    let canceled = jobs.get(&Account::ANONYMOUS, &id(1_501)).await.unwrap();
    let canceled = canceled.expect("the job exists");
    assert!(jobs.cancel(&Account::ANONYMOUS, &id(1_501)).await.unwrap());
    canceled.ended().await;
    assert_eq!(canceled.status(), Status::Canceled);
    assert_eq!(store.record(&id(1_501)).await.status, Status::Canceled);
    assert!(!jobs.cancel(&Account::ANONYMOUS, &id(1_501)).await.unwrap());
    store.allow_reads_of_open_jobs(100);
    let expected: Vec<JobId> = (0..JOBS).filter(|n| *n != 1_501).map(id).collect();
    assert_eq!(run_all(&model, JOBS - 1).await, expected);
    jobs.loaded().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_are_accepted_during_the_loading_wait_behind_the_older_ones() {
    let (store, model, jobs) = partly_loaded().await;
    for number in [JOBS, JOBS + 1] {
        let ticket = expect_new(jobs.submit(job(number)).await);
        assert_eq!(ticket.job().status(), Status::Queued);
    }
    let again = jobs.submit(job(1_600)).await;
    assert!(matches!(again, Ok(Submitted::Running(job)) if *job.id() == id(1_600)));
    let other = Submission {
        on_duplicate: OnDuplicateId::Refuse,
        ..job(1_601)
    };
    let refused = jobs.submit(other).await.err();
    assert_eq!(refused, Some(Refusal::IdInUse(id(1_601))));
    store.allow_reads_of_open_jobs(100);
    jobs.loaded().await;
    let started = run_all(&model, JOBS + 2).await;
    assert_eq!(started, (0..JOBS + 2).map(id).collect::<Vec<_>>());
    yield_to_all_tasks().await;
    assert_eq!(model.starts(), JOBS + 2, "no job runs twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_jobs_are_counted_once_they_are_loaded() {
    let (store, model, jobs) = partly_loaded().await;
    let _run = model.started().await;
    assert!(jobs.queue().total.waiting < FIRST);
    store.allow_reads_of_open_jobs(100);
    jobs.loaded().await;
    let queue = jobs.queue().total;
    assert_eq!((queue.waiting, queue.running), (JOBS - 1, 1));
    let oldest = store.record(&id(1)).await.spec.created_at;
    assert_eq!(queue.oldest_waiting_since, Some(oldest));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_during_the_loading_loses_no_job() {
    let (store, model, _jobs) = partly_loaded().await;
    // As after a kill: this service does nothing any more.
    let _run = model.started().await;
    store.allow_reads_of_open_jobs(100);
    let (model, jobs) = service(&store);
    resume(&jobs).await;
    let started = run_all(&model, JOBS).await;
    assert_eq!(started, (0..JOBS).map(id).collect::<Vec<_>>());
}

/// With `--on-lost fail`, and with a number of attempts that the running one uses up.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_runs_during_the_loading_is_not_taken_for_a_lost_one() {
    for attempts in [None, Some(1)] {
        let (store, model, jobs) = partly_loaded_with_attempts(attempts).await;
        let accepted = Arc::clone(expect_new(jobs.submit(cog_job(JOBS)).await).job());
        let run = run_until(&model, &id(JOBS)).await;
        store.allow_reads_of_open_jobs(100);
        jobs.loaded().await;
        assert_eq!(store.record(&id(JOBS)).await.status, Status::Processing);
        run.send(succeeded());
        accepted.ended().await;
        assert_eq!(accepted.status(), Status::Succeeded, "{attempts:?}");
        assert_eq!(store.record(&id(JOBS)).await.status, Status::Succeeded);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_with_a_cancel_request_ends_when_the_model_has_stopped() {
    let (store, model, jobs) = partly_loaded().await;
    let accepted = Arc::clone(expect_new(jobs.submit(cog_job(JOBS)).await).job());
    let mut run = run_until(&model, &id(JOBS)).await;
    assert_eq!(jobs.cancel(accepted.account(), &id(JOBS)).await, Ok(true));
    run.cancel_requested().await;
    store.allow_reads_of_open_jobs(100);
    jobs.loaded().await;
    assert_eq!(store.record(&id(JOBS)).await.status, Status::Processing);
    run.send(Event::Ended(Outcome::Canceled));
    accepted.ended().await;
    assert_eq!(store.record(&id(JOBS)).await.status, Status::Canceled);
}

/// A remote worker sends the result of a job that it got from the previous server process.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_loaded_by_its_id_before_its_turn() {
    let (store, _model, jobs) = partly_loaded().await;
    let worker = FakeModel::without_streaming(1);
    let admission = |_| match worker.admit(&Account::ANONYMOUS, WaitPolicy::NoWait) {
        Ok(Admitted::Now(admission)) => admission,
        _ => panic!("the slot is free"),
    };
    assert!(!jobs.hand_over(&id(1_500), admission));
    jobs.load_by_id(&id(1_500)).await;
    assert!(jobs.hand_over(&id(1_500), admission));
    let run = worker.started().await;
    store.allow_reads_of_open_jobs(100);
    jobs.loaded().await;
    let job = jobs.get(&Account::ANONYMOUS, &run.work.id).await.unwrap();
    let job = job.expect("the job runs");
    run.send(succeeded());
    job.ended().await;
    assert_eq!(store.record(&id(1_500)).await.status, Status::Succeeded);
}
