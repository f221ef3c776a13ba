//! What those who wait take of the memory: beyond it they wait in the store, and nobody can tell the difference.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::policy::UpdatePolicy;
use tidegate_core::record::Api;
use tidegate_core::store::{JobQuery, Store};
use tidegate_core::{Account, Event, JobId, JobKind, Outcome, Refusal, Status};
use tidegate_net::header::HeaderMap;
use tidegate_net::{AllowedNetworks, Url};
use tidegate_service::{
    EventFilter, Job, JobService, OnDuplicateId, Resumed, Submission, Webhook, WebhookEvent,
    WebhookRenderer,
};

use crate::fake::{FakeModel, Run, Wishes, desk_with, submission, value};
use crate::gate::Gate;
use crate::new;

/// Room for two of the inputs below, and not for three.
const MEMORY: usize = 10_000;
const COUNT: usize = 6;

fn id(number: usize) -> JobId {
    JobId::parse(&format!("job-{number}")).expect("an id")
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

fn desk(store: Option<Arc<dyn Store>>) -> (FakeModel, JobService) {
    let model = FakeModel::without_streaming(1);
    (
        model.clone(),
        desk_with(
            model,
            Wishes {
                store,
                waiting_memory: Some(MEMORY),
                ..Wishes::default()
            },
        ),
    )
}

/// A desk whose only slot is taken by job 0, and which others wait for.
async fn with_a_line(gate: &Arc<Gate>) -> (FakeModel, JobService, Run, Vec<Arc<Job>>) {
    let (model, jobs) = desk(Some(Arc::<Gate>::clone(gate)));
    new(jobs.submit(job(0)).await);
    let run = model.started().await;
    let mut waiting = Vec::new();
    for number in 1..COUNT {
        waiting.push(Arc::clone(new(jobs.submit(job(number)).await).job()));
    }
    (model, jobs, run, waiting)
}

fn succeed(run: &Run) {
    run.send(Event::Ended(Outcome::Succeeded {
        output: Some(value("1")),
    }));
}

/// The jobs whose inputs are not in memory.
fn away(jobs: &JobService) -> Vec<usize> {
    let is_away = |number: &usize| {
        jobs.get_in_memory(&Account::ANONYMOUS, &id(*number))
            .is_some_and(|job| job.snapshot().input == "{}")
    };
    (0..COUNT).filter(is_away).collect()
}

async fn shown(jobs: &JobService, number: usize) -> String {
    let job = jobs
        .get(&Account::ANONYMOUS, &id(number))
        .await
        .expect("it is known")
        .snapshot();
    String::from_utf8(job.input.to_vec()).expect("it is text")
}

/// Lets the model work off the line, and compares what it gets.
async fn work_off(model: &FakeModel, jobs: &JobService, numbers: impl Iterator<Item = usize>) {
    for number in numbers {
        let run = model.started().await;
        assert_eq!(
            (run.work.id.clone(), &run.work.input),
            (id(number), &input(number).into())
        );
        assert_eq!(shown(jobs, number).await, input(number));
        succeed(&run);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_do_not_fit_wait_in_the_store_and_are_served_in_order() {
    let (model, jobs, run, waiting) = with_a_line(&Gate::new()).await;
    assert_eq!(away(&jobs), [3, 4, 5]);
    for (number, job) in (1..COUNT).zip(&waiting) {
        assert_eq!(
            job.snapshot().input,
            input(number),
            "who made it can see it"
        );
        assert_eq!(shown(&jobs, number).await, input(number));
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
    work_off(&model, &jobs, 1..COUNT).await;
    for job in &waiting {
        job.ended().await;
    }
    assert_eq!(model.starts(), COUNT);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_back_is_given_again() {
    let (model, jobs, run, _) = with_a_line(&Gate::new()).await;
    succeed(&run);
    let run = model.started().await;
    new(jobs
        .submit(Submission {
            id: Some(id(100)),
            ..job(9)
        })
        .await);
    assert_eq!(away(&jobs), [3, 4, 5]);
    assert_ne!(
        jobs.get_in_memory(&Account::ANONYMOUS, &id(100))
            .expect("it waits")
            .snapshot()
            .input,
        "{}",
        "the first has left"
    );
    succeed(&run);
    work_off(&model, &jobs, 2..COUNT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_in_the_store_can_be_canceled_and_asked_for_again() {
    let (model, jobs, run, waiting) = with_a_line(&Gate::new()).await;
    let same = match jobs.submit(job(4)).await {
        Ok(tidegate_service::Submitted::Running(job)) => job.snapshot().input,
        Ok(_) | Err(_) => panic!("it waits"),
    };
    assert_eq!(same, input(4));
    assert!(jobs.cancel(&Account::ANONYMOUS, &id(4)).await);
    waiting[3].ended().await;
    assert_eq!(
        (waiting[3].status(), shown(&jobs, 4).await),
        (Status::Canceled, input(4))
    );
    succeed(&run);
    work_off(&model, &jobs, [1, 2, 3, 5].into_iter()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_no_more_is_in_memory_than_before() {
    let gate = Gate::new();
    // As after a kill: this desk is never heard of again.
    let _before = with_a_line(&gate).await;
    let (model, jobs) = desk(Some(gate));
    let resumed = jobs
        .resume(&|_| Some(jobs.clone()))
        .await
        .expect("the store is fine");
    assert_eq!(
        resumed,
        Resumed {
            queued: COUNT - 1,
            failed: 1,
            messages: 0
        }
    );
    // The first may have its turn already.
    assert!(
        matches!(away(&jobs)[..], [4, 5] | [3, 4, 5]),
        "{:?}",
        away(&jobs)
    );
    work_off(&model, &jobs, 1..COUNT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_read_for_a_moment_only_delays() {
    let gate = Gate::new();
    let (model, jobs, run, waiting) = with_a_line(&gate).await;
    for number in 1..4 {
        assert!(jobs.cancel(&Account::ANONYMOUS, &id(number)).await);
        waiting[number - 1].ended().await;
    }
    gate.break_reading(2);
    succeed(&run);
    work_off(&model, &jobs, 4..COUNT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_any_more_has_failed() {
    let gate = Gate::new();
    let (model, jobs, run, waiting) = with_a_line(&gate).await;
    gate.spoil();
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
    assert!(
        jobs.close(Duration::from_secs(30)).await,
        "no place is lost"
    );
    assert_eq!(model.free_slots(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_job_whose_end_is_rejected_is_left_to_the_next_server() {
    let gate = Gate::new();
    let (model, jobs, run, waiting) = with_a_line(&gate).await;
    let evicted = &waiting[2];
    gate.reject_end(id(3));
    gate.spoil();
    succeed(&run);
    for _ in 0..2 {
        succeed(&model.started().await);
    }
    gate.end_rejected().await;
    assert!(jobs.close(Duration::from_secs(30)).await, "no slot is lost");
    assert!(!evicted.status().is_terminal(), "{:?}", evicted.status());
    assert_eq!(gate.record(&id(3)).await.status, Status::Queued);
    assert!(jobs.get_in_memory(&Account::ANONYMOUS, &id(3)).is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_job_that_another_server_has_ended_shows_that_end() {
    let gate = Gate::new();
    let (model, jobs, run, waiting) = with_a_line(&gate).await;
    gate.cancel_elsewhere(&id(3)).await;
    gate.spoil();
    succeed(&run);
    for _ in 0..2 {
        succeed(&model.started().await);
    }
    waiting[2].ended().await;
    gate.restore();
    let found = jobs
        .get(&Account::ANONYMOUS, &id(3))
        .await
        .expect("it is recorded");
    assert_eq!(found.status(), Status::Canceled);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_store_no_more_are_taken_than_fit() {
    let (model, jobs) = desk(None);
    new(jobs.submit(job(0)).await);
    let run = model.started().await;
    for number in [1, 2] {
        new(jobs.submit(job(number)).await);
    }
    assert_eq!(jobs.submit(job(3)).await.err(), Some(Refusal::AtCapacity));
    new(jobs
        .submit(Submission {
            input: "{}".into(),
            ..job(4)
        })
        .await);
    succeed(&run);
    let run = model.started().await;
    new(jobs.submit(job(5)).await);
    succeed(&run);
    for number in [2, 4, 5] {
        let run = model.started().await;
        assert_eq!(run.work.id, id(number));
        succeed(&run);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_is_to_be_told_is_told_after_a_restart_however_much_it_is() {
    let gate = Gate::new();
    // Nobody is there, and that is tried again for a day.
    let open = || tidegate_net::Config {
        networks: AllowedNetworks::parse("127.0.0.1").expect("an address"),
        ..Default::default()
    };
    let desk = || {
        let model = FakeModel::without_streaming(1);
        (
            model.clone(),
            desk_with(
                model,
                Wishes {
                    store: Some(Arc::<Gate>::clone(&gate)),
                    net: open(),
                    ..Wishes::default()
                },
            ),
        )
    };
    let (model, jobs) = desk();
    // More than the store gives in one answer.
    let webhook = Arc::new(Webhook {
        url: Url::parse("http://127.0.0.1:1/nobody").expect("it is a URL"),
        filter: EventFilter::only([WebhookEvent::Completed]),
        headers: HeaderMap::new(),
        updates: UpdatePolicy::EveryValue,
        origin: None,
        streams: false,
        streams_files: false,
        renderer: WebhookRenderer::new(|_| vec![b'x'; 9 << 20].into()),
    });
    for number in 0..3 {
        let ticket = new(jobs
            .submit(Submission {
                webhook: Some(Arc::clone(&webhook)),
                ..job(number)
            })
            .await);
        succeed(&model.started().await);
        ticket.job().ended().await;
    }
    let (_, jobs) = desk();
    let resumed = jobs
        .resume(&|_| Some(jobs.clone()))
        .await
        .expect("the store is fine");
    assert_eq!(
        resumed,
        Resumed {
            queued: 0,
            failed: 0,
            messages: 3
        }
    );
}
