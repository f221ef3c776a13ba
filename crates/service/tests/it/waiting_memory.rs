//! The memory limit on the inputs of waiting jobs: above it inputs are evicted to the store, which
//! clients do not notice.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::policy::UpdatePolicy;
use tidegate_core::record::Api;
use tidegate_core::refusal::WaitingLimit;
use tidegate_core::store::{JobFilter, JobQuery, Store};
use tidegate_core::{Account, Event, JobId, JobKind, Outcome, Refusal, Status};
use tidegate_net::header::HeaderMap;
use tidegate_net::{AllowedNetworks, Url};
use tidegate_service::{
    EventFilter, Job, JobService, OnDuplicateId, Resumed, Submission, Webhook, WebhookEvent,
    WebhookRenderer,
};

use crate::expect_new;
use crate::fake_model::{FakeModel, Run, ServiceOptions, resume, service_with, submission, value};
use crate::faulty_store::FaultyStore;

/// Enough for two of the inputs below, and not for three.
const MEMORY: usize = 10_000;
const COUNT: usize = 6;

fn id(number: usize) -> JobId {
    JobId::parse(&format!("job-{number}")).expect("a valid id")
}

fn input(number: usize) -> String {
    format!(r#"{{"x":"{}"}}"#, number.to_string().repeat(4_000))
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

fn service(store: Option<Arc<dyn Store>>) -> (FakeModel, JobService) {
    let model = FakeModel::without_streaming(1);
    (
        model.clone(),
        service_with(
            model,
            ServiceOptions {
                store,
                waiting_memory: Some(MEMORY),
                ..ServiceOptions::default()
            },
        ),
    )
}

/// A job service whose only slot runs job 0; the other jobs wait.
async fn service_with_queue(
    store: &Arc<FaultyStore>,
) -> (FakeModel, JobService, Run, Vec<Arc<Job>>) {
    let (model, jobs) = service(Some(Arc::<FaultyStore>::clone(store)));
    expect_new(jobs.submit(job(0)).await);
    let run = model.started().await;
    let mut waiting = Vec::new();
    for number in 1..COUNT {
        waiting.push(Arc::clone(expect_new(jobs.submit(job(number)).await).job()));
    }
    (model, jobs, run, waiting)
}

fn succeed(run: &Run) {
    run.send(Event::Ended(Outcome::Succeeded {
        output: Some(value("1")),
    }));
}

/// The waiting jobs whose inputs are not in memory.
fn evicted_inputs(jobs: &JobService) -> Vec<usize> {
    let is_evicted = |number: &usize| {
        let job = jobs.get_in_memory(&Account::ANONYMOUS, &id(*number));
        jobs.is_waiting(&Account::ANONYMOUS, &id(*number))
            && job.is_none_or(|job| job.snapshot().input == "{}")
    };
    (0..COUNT).filter(is_evicted).collect()
}

async fn input_shown(jobs: &JobService, number: usize) -> String {
    let job = jobs
        .get(&Account::ANONYMOUS, &id(number))
        .await
        .expect("the store answers")
        .expect("the job exists")
        .snapshot();
    String::from_utf8(job.input.to_vec()).expect("the input is UTF-8")
}

/// Lets the model run the queued jobs, and compares their inputs.
async fn run_queue(model: &FakeModel, jobs: &JobService, numbers: impl Iterator<Item = usize>) {
    for number in numbers {
        let run = model.started().await;
        assert_eq!(
            (run.work.id.clone(), &run.work.input),
            (id(number), &input(number).into())
        );
        assert_eq!(input_shown(jobs, number).await, input(number));
        succeed(&run);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_exceed_the_memory_wait_in_the_store_and_run_in_order() {
    let (model, jobs, run, waiting) = service_with_queue(&FaultyStore::new()).await;
    assert_eq!(evicted_inputs(&jobs), [3, 4, 5]);
    for (number, job) in (1..COUNT).zip(&waiting) {
        assert_eq!(
            job.snapshot().input,
            input(number),
            "the handle of the submitter has the input"
        );
        assert_eq!(input_shown(&jobs, number).await, input(number));
    }
    let query = JobQuery {
        account: Account::ANONYMOUS,
        kind: JobKind::Prediction,
        created_after: None,
        created_before: None,
        from: None,
        limit: 100,
    };
    let listed = jobs.list(query).await.expect("a list").items;
    assert!(
        listed
            .iter()
            .rev()
            .map(|job| job.snapshot().input)
            .eq((0..COUNT).map(input))
    );
    succeed(&run);
    run_queue(&model, &jobs, 1..COUNT).await;
    for job in &waiting {
        job.ended().await;
    }
    assert_eq!(model.starts(), COUNT);
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_of_a_started_job_is_used_for_the_next_one() {
    let (model, jobs, run, _) = service_with_queue(&FaultyStore::new()).await;
    succeed(&run);
    let run = model.started().await;
    expect_new(
        jobs.submit(Submission {
            id: Some(id(100)),
            ..job(9)
        })
        .await,
    );
    assert_eq!(evicted_inputs(&jobs), [3, 4, 5]);
    assert_ne!(
        jobs.get_in_memory(&Account::ANONYMOUS, &id(100))
            .expect("the job waits")
            .snapshot()
            .input,
        "{}",
        "the first job has started and released its memory"
    );
    succeed(&run);
    run_queue(&model, &jobs, 2..COUNT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_an_evicted_input_can_be_canceled_and_read() {
    let (model, jobs, run, waiting) = service_with_queue(&FaultyStore::new()).await;
    let same = match jobs.submit(job(4)).await {
        Ok(tidegate_service::Submitted::Running(job)) => job.snapshot().input,
        Ok(_) | Err(_) => panic!("the job waits"),
    };
    assert_eq!(same, input(4));
    assert!(jobs.cancel(&Account::ANONYMOUS, &id(4)).await.unwrap());
    waiting[3].ended().await;
    assert_eq!(
        (waiting[3].status(), input_shown(&jobs, 4).await),
        (Status::Canceled, input(4))
    );
    succeed(&run);
    run_queue(&model, &jobs, [1, 2, 3, 5].into_iter()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_jobs_wait_in_the_store() {
    let store = FaultyStore::new();
    // As after a kill: this service does nothing any more.
    let _before = service_with_queue(&store).await;
    let (model, jobs) = service(Some(store));
    let resumed = resume(&jobs).await;
    assert_eq!(
        resumed,
        Resumed {
            queued: COUNT - 1,
            failed: 1,
            messages: 0,
            is_loading: false,
        }
    );
    // The first job may have started already.
    assert!(
        matches!(evicted_inputs(&jobs)[..], [2, 3, 4, 5] | [1, 2, 3, 4, 5]),
        "{:?}",
        evicted_inputs(&jobs)
    );
    run_queue(&model, &jobs, 1..COUNT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_temporary_read_failure_of_the_store_only_delays_jobs() {
    let store = FaultyStore::new();
    let (model, jobs, run, waiting) = service_with_queue(&store).await;
    for number in 1..4 {
        assert!(jobs.cancel(&Account::ANONYMOUS, &id(number)).await.unwrap());
        waiting[number - 1].ended().await;
    }
    store.fail_reads(2);
    succeed(&run);
    run_queue(&model, &jobs, 4..COUNT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_input_cannot_be_read_fails() {
    let store = FaultyStore::new();
    let (model, jobs, run, waiting) = service_with_queue(&store).await;
    store.corrupt_reads();
    succeed(&run);
    for _ in 0..2 {
        succeed(&model.started().await);
    }
    for job in &waiting[2..] {
        job.ended().await;
        assert_eq!(job.status(), Status::Failed);
        assert!(
            job.snapshot()
                .error
                .is_some_and(|error| error.contains("failed to read the input of the job"))
        );
    }
    assert!(jobs.close(Duration::from_secs(30)).await, "no slot is lost");
    assert_eq!(model.free_slots(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_job_whose_end_is_rejected_is_left_to_the_next_server() {
    let store = FaultyStore::new();
    let (model, jobs, run, waiting) = service_with_queue(&store).await;
    let evicted = &waiting[2];
    store.reject_end(id(3));
    store.corrupt_reads();
    succeed(&run);
    for _ in 0..2 {
        succeed(&model.started().await);
    }
    store.end_rejected().await;
    assert!(jobs.close(Duration::from_secs(30)).await, "no slot is lost");
    assert!(!evicted.status().is_terminal(), "{:?}", evicted.status());
    assert_eq!(store.record(&id(3)).await.status, Status::Queued);
    assert!(jobs.get_in_memory(&Account::ANONYMOUS, &id(3)).is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_job_that_another_server_ended_shows_that_end() {
    let store = FaultyStore::new();
    let (model, jobs, run, waiting) = service_with_queue(&store).await;
    store.cancel_elsewhere(&id(3)).await;
    store.corrupt_reads();
    succeed(&run);
    for _ in 0..2 {
        succeed(&model.started().await);
    }
    waiting[2].ended().await;
    store.restore_reads();
    let found = jobs
        .get(&Account::ANONYMOUS, &id(3))
        .await
        .unwrap()
        .expect("the job is recorded");
    assert_eq!(found.status(), Status::Canceled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_jobs_in_memory_contains_those_with_the_prefix() {
    let store = FaultyStore::new();
    let (_model, jobs, _run, waiting) = service_with_queue(&store).await;
    drop(waiting);
    assert!(evicted_inputs(&jobs).contains(&5));
    let listed = |prefix: &str| {
        let filter = JobFilter {
            id_prefix: Some(prefix.to_owned()),
            ..JobFilter::default()
        };
        let found = jobs.list_in_memory(&filter);
        found.into_iter().map(|job| job.id).collect::<Vec<_>>()
    };
    assert_eq!(listed("job-5"), [id(5)]);
    assert_eq!(listed("job-").len(), COUNT);
    assert_eq!(listed("other-"), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selection_of_jobs_in_memory_has_those_with_the_lowest_positions() {
    let store = FaultyStore::new();
    let (_model, jobs, _run, waiting) = service_with_queue(&store).await;
    drop(waiting);
    assert!(evicted_inputs(&jobs).contains(&5));
    let position = |name: &JobId| (*name != id(1)).then(|| name.to_string());
    let every = jobs.list_in_memory(&JobFilter::default());
    let mut expected: Vec<String> = every.iter().filter_map(|job| position(&job.id)).collect();
    expected.sort();
    expected.truncate(3);
    let found = jobs.select_in_memory(3, |job| position(job.id));
    let mut found: Vec<String> = found.iter().map(|job| job.id.to_string()).collect();
    found.sort();
    assert_eq!(found[..3], expected);
    assert!(!found.contains(&id(1).to_string()), "it has no position");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_store_jobs_that_exceed_the_memory_are_refused() {
    let (model, jobs) = service(None);
    expect_new(jobs.submit(job(0)).await);
    let run = model.started().await;
    for number in [1, 2] {
        expect_new(jobs.submit(job(number)).await);
    }
    assert_eq!(
        jobs.submit(job(3)).await.err(),
        Some(Refusal::QueueFull(WaitingLimit::Memory))
    );
    expect_new(
        jobs.submit(Submission {
            input: "{}".into(),
            ..job(4)
        })
        .await,
    );
    succeed(&run);
    let run = model.started().await;
    expect_new(jobs.submit(job(5)).await);
    succeed(&run);
    for number in [2, 4, 5] {
        let run = model.started().await;
        assert_eq!(run.work.id, id(number));
        succeed(&run);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_pending_webhooks_are_resumed_after_a_restart() {
    let store = FaultyStore::new();
    // No receiver listens there, so the webhooks are retried for a day.
    let open = || tidegate_net::Config {
        networks: AllowedNetworks::parse("127.0.0.1").expect("a valid address"),
        ..Default::default()
    };
    let service = || {
        let model = FakeModel::without_streaming(1);
        (
            model.clone(),
            service_with(
                model,
                ServiceOptions {
                    store: Some(Arc::<FaultyStore>::clone(&store)),
                    net: open(),
                    ..ServiceOptions::default()
                },
            ),
        )
    };
    let (model, jobs) = service();
    // The bodies together are larger than one page of the store.
    let webhook = Arc::new(Webhook {
        url: Url::parse("http://127.0.0.1:1/hook").expect("a valid URL"),
        filter: EventFilter::only([WebhookEvent::Completed]),
        headers: HeaderMap::new(),
        updates: UpdatePolicy::EveryValue,
        origin: None,
        streams: false,
        streams_files: false,
        renderer: WebhookRenderer::new(|_| vec![b'x'; 9 << 20].into()),
    });
    for number in 0..3 {
        let ticket = expect_new(
            jobs.submit(Submission {
                webhook: Some(Arc::clone(&webhook)),
                ..job(number)
            })
            .await,
        );
        succeed(&model.started().await);
        ticket.job().ended().await;
    }
    let (_, jobs) = service();
    let resumed = resume(&jobs).await;
    assert_eq!(
        resumed,
        Resumed {
            queued: 0,
            failed: 0,
            messages: 3,
            is_loading: false,
        }
    );
}
