//! What is written down outlives the desk: here one desk after the other has the same real store.

use std::sync::Arc;

use tidegate_core::port::{Admitted, Executor, WaitPolicy};
use tidegate_core::record::Api;
use tidegate_core::store::Store;
use tidegate_core::{Account, Event, JobId, Outcome, Refusal, Status};
use tidegate_service::{OnDuplicateId, ResponseMode, Resumed, Submission, Submitted};
use tidegate_store::{SqliteOptions, SqliteStore};

use crate::fake::{FakeModel, Wishes, desk_with, submission, value};
use crate::new;

struct Place {
    _folder: tempfile::TempDir,
    store: Arc<dyn Store>,
}

fn place() -> Place {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store =
        Arc::new(SqliteStore::open(folder.path(), &SqliteOptions::default()).expect("a new store"));
    Place {
        _folder: folder,
        store,
    }
}

impl Place {
    fn desk(&self, slots: usize) -> (FakeModel, tidegate_service::JobService) {
        let model = FakeModel::without_streaming(slots);
        (
            model.clone(),
            desk_with(
                model,
                Wishes {
                    store: Some(Arc::clone(&self.store)),
                    ..Wishes::default()
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
    JobId::parse(text).expect("a good id")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_job_is_found_by_the_next_desk() {
    let place = place();
    let (model, jobs) = place.desk(1);
    let ticket = new(jobs.submit(named("a", r#"{"x": 1}"#)).await);
    model.started().await.send(Event::Ended(Outcome::Succeeded {
        output: Some(value("7")),
    }));
    ticket.job().ended().await;
    let before = ticket.job().snapshot();

    let (model, jobs) = place.desk(1);
    assert_eq!(
        jobs.resume(&|_| Some(jobs.clone())).await.unwrap(),
        Resumed::default()
    );
    let after = jobs
        .get(&Account::ANONYMOUS, &id("a"))
        .await
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
async fn a_job_that_had_not_begun_runs_after_a_restart_and_in_order() {
    let place = place();
    let (model, jobs) = place.desk(1);
    let _holds = new(jobs.submit(named("first", "{}")).await);
    let _run = model.started().await;
    for name in ["a", "b", "c"] {
        new(jobs.submit(named(name, "{}")).await);
    }

    // As after a kill: the first desk is never heard of again.
    let (model, jobs) = place.desk(1);
    let resumed = jobs.resume(&|_| Some(jobs.clone())).await.unwrap();
    assert_eq!(
        resumed,
        Resumed {
            queued: 3,
            failed: 1,
            messages: 0
        }
    );
    let lost = jobs
        .get(&Account::ANONYMOUS, &id("first"))
        .await
        .unwrap()
        .snapshot();
    assert_eq!(lost.status, Status::Failed);
    assert!(lost.error.is_some_and(|error| error.contains("--on-lost")));
    for name in ["a", "b", "c"] {
        let run = model.started().await;
        let job = jobs.get(&Account::ANONYMOUS, &id(name)).await.unwrap();
        assert_eq!(job.status(), Status::Processing, "{name}");
        run.send(Event::Ended(Outcome::Succeeded {
            output: Some(value("1")),
        }));
        job.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_somebody_has_from_before_a_restart_is_handed_over_once() {
    let place = place();
    // A face whose jobs wait in the line of the desk.
    let named = |name: &str| Submission {
        api: Api::Runpod,
        policies: Api::Runpod.policies(),
        ..named(name, "{}")
    };
    let (model, jobs) = place.desk(1);
    let _holds = new(jobs.submit(named("first")).await);
    model.started().await;
    for name in ["a", "b"] {
        new(jobs.submit(named(name)).await);
    }

    let (_, jobs) = place.desk(0);
    jobs.resume(&|_| Some(jobs.clone())).await.unwrap();
    new(jobs.submit(named("here")).await);
    let elsewhere = FakeModel::without_streaming(1);
    let Ok(Admitted::Now(seat)) = elsewhere.admit(&Account::ANONYMOUS, WaitPolicy::NoWait) else {
        panic!("it has a slot")
    };
    jobs.hand_over(&id("b"), |began_at| {
        assert_eq!(began_at, None, "nobody had begun it");
        seat
    });
    let run = elsewhere.started().await;
    for other in ["b", "here", "nobody"] {
        jobs.hand_over(&id(other), |_| {
            panic!("`{other}` does not wait, or is of this server")
        });
    }
    run.send(Event::Ended(Outcome::Succeeded {
        output: Some(value("7")),
    }));
    let [a, b] = [
        jobs.get(&Account::ANONYMOUS, &id("a")).await.unwrap(),
        jobs.get(&Account::ANONYMOUS, &id("b")).await.unwrap(),
    ];
    b.ended().await;
    assert_eq!(
        (a.status(), b.status()),
        (Status::Queued, Status::Succeeded)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_end_leaves_what_waits_to_the_next() {
    let place = place();
    let (model, jobs) = place.desk(1);
    let holds = new(jobs.submit(named("first", "{}")).await);
    let run = model.started().await;
    new(jobs.submit(named("waits", "{}")).await);

    let closing = jobs.close(std::time::Duration::from_secs(30));
    let ends = async { run.send(Event::Ended(Outcome::Succeeded { output: None })) };
    let (in_time, ()) = tokio::join!(closing, ends);
    assert!(in_time && holds.job().status() == Status::Succeeded);

    let (model, jobs) = place.desk(1);
    assert_eq!(
        jobs.resume(&|_| Some(jobs.clone())).await.unwrap(),
        Resumed {
            queued: 1,
            failed: 0,
            messages: 0
        }
    );
    model
        .started()
        .await
        .send(Event::Ended(Outcome::Succeeded { output: None }));
    while jobs
        .get(&Account::ANONYMOUS, &id("waits"))
        .await
        .is_none_or(|job| job.status() != Status::Succeeded)
    {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_request_takes_the_id_of_one_that_is_over() {
    let place = place();
    let (model, jobs) = place.desk(1);
    let post = || Submission {
        on_duplicate: OnDuplicateId::Refuse,
        ..named("a", "{}")
    };
    for output in ["1", "2"] {
        let ticket = new(jobs.submit(post()).await);
        assert_eq!(
            jobs.submit(post()).await.err(),
            Some(Refusal::IdInUse(id("a")))
        );
        model.started().await.send(Event::Ended(Outcome::Succeeded {
            output: Some(value(output)),
        }));
        ticket.job().ended().await;
    }
    let (_, jobs) = place.desk(1);
    let kept = jobs
        .get(&Account::ANONYMOUS, &id("a"))
        .await
        .unwrap()
        .snapshot();
    assert_eq!(kept.output.as_deref(), Some(&b"2"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_without_an_id_is_not_written_down() {
    let place = place();
    let (model, jobs) = place.desk(1);
    let mut ticket = new(jobs
        .submit(Submission {
            response_mode: ResponseMode::Wait,
            ..submission("{}")
        })
        .await);
    let play = async {
        model
            .started()
            .await
            .send(Event::Ended(Outcome::Succeeded { output: None }))
    };
    tokio::join!(ticket.ended(), play);
    assert_eq!(
        place
            .store
            .get(&Account::ANONYMOUS, ticket.job().id())
            .await
            .unwrap(),
        None
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn data_is_removed_before_the_job_is_forgotten() {
    let place = place();
    let model = FakeModel::without_streaming(1);
    let keep_data_for = Some(std::time::Duration::from_millis(1));
    let jobs = desk_with(
        model.clone(),
        Wishes {
            store: Some(Arc::clone(&place.store)),
            keep_data_for,
            ..Wishes::default()
        },
    );
    jobs.resume(&|_| Some(jobs.clone())).await.unwrap();
    new(jobs.submit(named("a", r#"{"x": 1}"#)).await);
    model.started().await.send(Event::Ended(Outcome::Succeeded {
        output: Some(value("7")),
    }));
    let removed = loop {
        match jobs
            .get(&Account::ANONYMOUS, &id("a"))
            .await
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
        "nothing to compare with"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_cannot_be_written_down_is_stopped_and_was_never_there() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let options = SqliteOptions {
        max_size: Some(512 * 1024),
        ..SqliteOptions::default()
    };
    let store: Arc<dyn Store> =
        Arc::new(SqliteStore::open(folder.path(), &options).expect("a new store"));
    let model = FakeModel::without_streaming(8);
    let jobs = desk_with(
        model.clone(),
        Wishes {
            store: Some(store),
            attempts: Some(3),
            ..Wishes::default()
        },
    );
    let large = |letter: &str| Submission {
        input: format!(r#"{{"x":"{}"}}"#, letter.repeat(400_000)).into(),
        ..submission("{}")
    };
    let ticket = new(jobs.submit(large("a")).await);
    let run = model.started().await;
    assert_eq!(jobs.submit(large("b")).await.err(), Some(Refusal::NoSpace));
    let mut refused = model.started().await;
    refused.cancel_was_asked().await;
    refused.send(Event::Ended(Outcome::Canceled));
    assert_eq!(
        jobs.submit(large("c")).await.err(),
        Some(Refusal::NoSpace),
        "the model does not begin with this one"
    );
    run.send(Event::Ended(Outcome::Succeeded {
        output: Some(value("7")),
    }));
    ticket.job().ended().await;
    assert_eq!(
        (model.starts(), ticket.job().status()),
        (2, Status::Succeeded)
    );
    model.slots_free(8).await;
    while jobs.queue() != tidegate_service::QueueStatus::default() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_a_job_that_is_left_to_the_next_server_is_not_kept() {
    let place = place();
    let (model, jobs) = place.desk(1);
    let queued = |name| Submission {
        api: Api::Replicate,
        policies: Api::Replicate.policies(),
        ..named(name, "{}")
    };
    let runs = new(jobs.submit(queued("runs")).await);
    let run = model.started().await;
    let waits = Arc::clone(new(jobs.submit(queued("waits")).await).job());
    let asks = async {
        jobs.ended_or_left(&waits).await;
        // Only now: who waits is told at once, and not when the last job is over.
        run.send(Event::Ended(Outcome::Succeeded { output: None }));
    };
    let (in_time, ()) = tokio::join!(jobs.close(std::time::Duration::from_secs(30)), asks);
    assert!(in_time);
    assert_eq!(
        (waits.status(), runs.job().status()),
        (Status::Queued, Status::Succeeded)
    );
}
