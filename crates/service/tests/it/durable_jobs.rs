//! Stored jobs survive a restart: one job service after the other uses the same real store.

use std::sync::Arc;

use tidegate_core::port::{Admitted, Executor, WaitPolicy};
use tidegate_core::record::Api;
use tidegate_core::store::Store;
use tidegate_core::{Account, Event, JobId, Outcome, Refusal, Status};
use tidegate_service::{OnDuplicateId, ResponseMode, Resumed, Submission, Submitted};
use tidegate_store::{SqliteOptions, SqliteStore};

use crate::expect_new;
use crate::fake_model::{FakeModel, ServiceOptions, resume, service_with, submission, value};

struct TestStore {
    _folder: tempfile::TempDir,
    store: Arc<dyn Store>,
}

fn test_store() -> TestStore {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store =
        Arc::new(SqliteStore::open(folder.path(), &SqliteOptions::default()).expect("a new store"));
    TestStore {
        _folder: folder,
        store,
    }
}

impl TestStore {
    fn service(&self, slots: usize) -> (FakeModel, tidegate_service::JobService) {
        let model = FakeModel::without_streaming(slots);
        (
            model.clone(),
            service_with(
                model,
                ServiceOptions {
                    store: Some(Arc::clone(&self.store)),
                    ..ServiceOptions::default()
                },
            ),
        )
    }
}

fn named(name: &str, input: &'static str) -> Submission {
    Submission {
        id: Some(id(name)),
        response_mode: ResponseMode::Async,
        on_duplicate: OnDuplicateId::Answer,
        ..submission(input)
    }
}

fn id(text: &str) -> JobId {
    JobId::parse(text).expect("a valid id")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_job_is_found_after_a_restart() {
    let store = test_store();
    let (model, jobs) = store.service(1);
    let ticket = expect_new(jobs.submit(named("a", r#"{"x": 1}"#)).await);
    model.started().await.send(Event::Ended(Outcome::Succeeded {
        output: Some(value("7")),
    }));
    ticket.job().ended().await;
    let before = ticket.job().snapshot();

    let (model, jobs) = store.service(1);
    assert_eq!(resume(&jobs).await, Resumed::default());
    let after = jobs
        .get(&Account::ANONYMOUS, &id("a"))
        .await
        .unwrap()
        .unwrap()
        .snapshot();
    assert_eq!(
        (after.status, after.output, after.metrics),
        (before.status, before.output, before.metrics)
    );
    assert!(matches!(
        jobs.submit(named("a", r#"{"x":1}"#)).await,
        Ok(Submitted::Ended(_))
    ));
    assert_eq!(
        jobs.submit(named("a", r#"{"x": 2}"#)).await.err(),
        Some(Refusal::InputDiffers(id("a")))
    );
    assert_eq!(model.starts(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_jobs_run_in_order_after_a_restart() {
    let store = test_store();
    let (model, jobs) = store.service(1);
    let _running = expect_new(jobs.submit(named("first", "{}")).await);
    let _run = model.started().await;
    for name in ["a", "b", "c"] {
        expect_new(jobs.submit(named(name, "{}")).await);
    }

    // As after a kill: the first service does nothing any more.
    let (model, jobs) = store.service(1);
    let resumed = resume(&jobs).await;
    assert_eq!(
        resumed,
        Resumed {
            queued: 3,
            failed: 1,
            messages: 0,
            is_loading: false,
        }
    );
    let lost = jobs
        .get(&Account::ANONYMOUS, &id("first"))
        .await
        .unwrap()
        .unwrap()
        .snapshot();
    assert_eq!(lost.status, Status::Failed);
    assert!(lost.error.is_some_and(|error| error.contains("--on-lost")));
    for name in ["a", "b", "c"] {
        let run = model.started().await;
        let job = jobs
            .get(&Account::ANONYMOUS, &id(name))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(job.status(), Status::Processing, "{name}");
        run.send(Event::Ended(Outcome::Succeeded {
            output: Some(value("1")),
        }));
        job.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_a_worker_holds_from_before_a_restart_is_handed_over_once() {
    let store = test_store();
    // An API whose jobs wait in the queue of the job service.
    let named = |name: &str| Submission {
        api: Api::Runpod,
        policies: Api::Runpod.policies(),
        ..named(name, "{}")
    };
    let (model, jobs) = store.service(1);
    let _running = expect_new(jobs.submit(named("first")).await);
    model.started().await;
    for name in ["a", "b"] {
        expect_new(jobs.submit(named(name)).await);
    }

    let (_, jobs) = store.service(0);
    resume(&jobs).await;
    expect_new(jobs.submit(named("here")).await);
    let elsewhere = FakeModel::without_streaming(1);
    let Ok(Admitted::Now(admission)) = elsewhere.admit(&Account::ANONYMOUS, WaitPolicy::NoWait)
    else {
        panic!("a slot is free")
    };
    jobs.hand_over(&id("b"), |began_at| {
        assert_eq!(began_at, None, "the job had not begun");
        admission
    });
    let run = elsewhere.started().await;
    for other in ["b", "here", "unknown"] {
        jobs.hand_over(&id(other), |_| {
            panic!("`{other}` is not a waiting job of the previous run")
        });
    }
    run.send(Event::Ended(Outcome::Succeeded {
        output: Some(value("7")),
    }));
    let [a, b] = [
        jobs.get(&Account::ANONYMOUS, &id("a"))
            .await
            .unwrap()
            .unwrap(),
        jobs.get(&Account::ANONYMOUS, &id("b"))
            .await
            .unwrap()
            .unwrap(),
    ];
    b.ended().await;
    assert_eq!(
        (a.status(), b.status()),
        (Status::Queued, Status::Succeeded)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn close_leaves_waiting_jobs_to_the_next_server() {
    let store = test_store();
    let (model, jobs) = store.service(1);
    let running = expect_new(jobs.submit(named("first", "{}")).await);
    let run = model.started().await;
    expect_new(jobs.submit(named("waits", "{}")).await);

    let closing = jobs.close(std::time::Duration::from_secs(30));
    let model_ends = async { run.send(Event::Ended(Outcome::Succeeded { output: None })) };
    let (in_time, ()) = tokio::join!(closing, model_ends);
    assert!(in_time && running.job().status() == Status::Succeeded);

    let (model, jobs) = store.service(1);
    assert_eq!(
        resume(&jobs).await,
        Resumed {
            queued: 1,
            failed: 0,
            messages: 0,
            is_loading: false,
        }
    );
    model
        .started()
        .await
        .send(Event::Ended(Outcome::Succeeded { output: None }));
    while jobs
        .get(&Account::ANONYMOUS, &id("waits"))
        .await
        .unwrap()
        .is_none_or(|job| job.status() != Status::Succeeded)
    {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_request_can_reuse_the_id_of_an_ended_job() {
    let store = test_store();
    let (model, jobs) = store.service(1);
    let post = || Submission {
        on_duplicate: OnDuplicateId::Refuse,
        ..named("a", "{}")
    };
    for output in ["1", "2"] {
        let ticket = expect_new(jobs.submit(post()).await);
        assert_eq!(
            jobs.submit(post()).await.err(),
            Some(Refusal::IdInUse(id("a")))
        );
        model.started().await.send(Event::Ended(Outcome::Succeeded {
            output: Some(value(output)),
        }));
        ticket.job().ended().await;
    }
    let (_, jobs) = store.service(1);
    let stored = jobs
        .get(&Account::ANONYMOUS, &id("a"))
        .await
        .unwrap()
        .unwrap()
        .snapshot();
    assert_eq!(stored.output.as_deref(), Some(&b"2"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_a_waiting_caller_and_no_id_is_not_stored() {
    let store = test_store();
    let (model, jobs) = store.service(1);
    let mut ticket = expect_new(
        jobs.submit(Submission {
            response_mode: ResponseMode::Wait,
            ..submission("{}")
        })
        .await,
    );
    let model_runs = async {
        model
            .started()
            .await
            .send(Event::Ended(Outcome::Succeeded { output: None }))
    };
    tokio::join!(ticket.ended(), model_runs);
    assert_eq!(
        store
            .store
            .get(&Account::ANONYMOUS, ticket.job().id())
            .await
            .unwrap(),
        None
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn data_is_removed_before_the_job_is_removed() {
    let store = test_store();
    let model = FakeModel::without_streaming(1);
    let keep_data_for = Some(std::time::Duration::from_millis(1));
    let jobs = service_with(
        model.clone(),
        ServiceOptions {
            store: Some(Arc::clone(&store.store)),
            keep_data_for,
            ..ServiceOptions::default()
        },
    );
    resume(&jobs).await;
    expect_new(jobs.submit(named("a", r#"{"x": 1}"#)).await);
    model.started().await.send(Event::Ended(Outcome::Succeeded {
        output: Some(value("7")),
    }));
    let removed = loop {
        match jobs
            .get(&Account::ANONYMOUS, &id("a"))
            .await
            .unwrap()
            .map(|job| job.snapshot())
        {
            Some(job) if job.data_removed => break job,
            Some(_) | None => tokio::task::yield_now().await,
        }
    };
    assert_eq!(
        (removed.status, removed.output, removed.logs.as_str()),
        (Status::Succeeded, None, "")
    );
    assert_eq!(removed.input, "{}");
    assert!(
        matches!(
            jobs.submit(named("a", r#"{"x": 1}"#)).await,
            Ok(Submitted::Ended(_))
        ),
        "the input cannot be compared"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_cannot_be_stored_is_stopped_and_leaves_no_trace() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let options = SqliteOptions {
        max_size: Some(512 * 1024),
        ..SqliteOptions::default()
    };
    let store: Arc<dyn Store> =
        Arc::new(SqliteStore::open(folder.path(), &options).expect("a new store"));
    let model = FakeModel::without_streaming(8);
    let jobs = service_with(
        model.clone(),
        ServiceOptions {
            store: Some(store),
            attempts: Some(3),
            ..ServiceOptions::default()
        },
    );
    let large = |fill: &str| Submission {
        input: format!(r#"{{"x":"{}"}}"#, fill.repeat(400_000)).into(),
        ..submission("{}")
    };
    let ticket = expect_new(jobs.submit(large("a")).await);
    let run = model.started().await;
    assert_eq!(jobs.submit(large("b")).await.err(), Some(Refusal::NoSpace));
    let mut refused = model.started().await;
    refused.cancel_requested().await;
    refused.send(Event::Ended(Outcome::Canceled));
    assert_eq!(
        jobs.submit(large("c")).await.err(),
        Some(Refusal::NoSpace),
        "the model does not start this job"
    );
    run.send(Event::Ended(Outcome::Succeeded {
        output: Some(value("7")),
    }));
    ticket.job().ended().await;
    assert_eq!(
        (model.starts(), ticket.job().status()),
        (2, Status::Succeeded)
    );
    model.wait_for_free_slots(8).await;
    while jobs.queue() != tidegate_service::QueueStatus::default() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_waits_for_a_job_of_the_next_server_gets_a_response_at_once() {
    let store = test_store();
    let (model, jobs) = store.service(1);
    let queued = |name| Submission {
        api: Api::Replicate,
        policies: Api::Replicate.policies(),
        ..named(name, "{}")
    };
    let runs = expect_new(jobs.submit(queued("runs")).await);
    let run = model.started().await;
    let waits = Arc::clone(expect_new(jobs.submit(queued("waits")).await).job());
    let caller = async {
        jobs.ended_or_left(&waits).await;
        // Sent only now: a waiting caller returns at once, not when the last job ends.
        run.send(Event::Ended(Outcome::Succeeded { output: None }));
    };
    let (in_time, ()) = tokio::join!(jobs.close(std::time::Duration::from_secs(30)), caller);
    assert!(in_time);
    assert_eq!(
        (waits.status(), runs.job().status()),
        (Status::Queued, Status::Succeeded)
    );
}
