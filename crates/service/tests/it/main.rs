//! Tests of the job service with a fake model that the test controls. Most use tokio's paused
//! clock: it advances when all tasks wait, and not when the machine is busy.

mod disk_space;
mod durable_jobs;
mod fake_model;
mod faulty_store;
mod job_insertion;
mod job_limits;
mod leased_runs;
mod leases;
mod loading;
mod outbox;
mod queueing;
mod stream_readers;
mod waiting_memory;
mod webhook_retries;

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Account, Event, JobId, LogSource, Outcome, Refusal, Status};
use tidegate_service::{
    OnDuplicateId, ResponseMode, StreamBatch, StreamEvent, Submission, Submitted,
};

use fake_model::{FakeModel, streaming_service, submission, value};

/// The ticket of a job that was accepted as a new one.
fn expect_new(submitted: Result<Submitted, Refusal>) -> tidegate_service::Ticket {
    match submitted {
        Ok(Submitted::New(ticket)) => ticket,
        Ok(Submitted::Running(_) | Submitted::Ended(_)) => panic!("a job with this id exists"),
        Err(refusal) => panic!("refused: {refusal}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_slot_is_free_before_the_end_is_visible() {
    let (model, jobs) = streaming_service(1);
    let ticket = expect_new(jobs.submit(submission("{}")).await);
    let run = model.started().await;

    run.send(Event::Ended(Outcome::Succeeded {
        output: Some(value("1")),
    }));
    ticket.job().ended().await;

    assert_eq!(model.free_slots(), 1);
    assert_eq!(ticket.job().snapshot().output.as_deref(), Some(&b"1"[..]));
}

#[tokio::test(start_paused = true)]
async fn a_failed_job_keeps_its_logs_and_output() {
    let (model, jobs) = streaming_service(1);
    let ticket = expect_new(jobs.submit(submission("{}")).await);
    let run = model.started().await;

    run.send(Event::Log {
        source: LogSource::Stdout,
        text: "one\n".into(),
    });
    run.send(Event::Output(value("\"a\"")));
    run.send(Event::Ended(Outcome::Failed { error: "no".into() }));
    ticket.job().ended().await;

    let job = ticket.job().snapshot();
    assert_eq!(
        (job.status, job.logs.as_str(), job.error.as_deref()),
        (Status::Failed, "one\n", Some("no"))
    );
    assert_eq!(job.output.as_deref(), Some(&b"[\"a\"]"[..]));
    assert!(job.times.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_job_without_output_values_returns_an_empty_list() {
    let (model, jobs) = streaming_service(1);
    let ticket = expect_new(jobs.submit(submission("{}")).await);
    model
        .started()
        .await
        .send(Event::Ended(Outcome::Succeeded { output: None }));
    ticket.job().ended().await;
    assert_eq!(ticket.job().snapshot().output.as_deref(), Some(&b"[]"[..]));
}

#[tokio::test(start_paused = true)]
async fn a_job_is_canceled_when_its_waiting_caller_disconnects() {
    let (model, jobs) = streaming_service(1);
    let mut ticket = expect_new(
        jobs.submit(Submission {
            response_mode: ResponseMode::Wait,
            ..submission("{}")
        })
        .await,
    );
    let job = Arc::clone(ticket.job());
    let mut run = tokio::select! {
        run = model.started() => run,
        () = ticket.ended() => panic!("the job has not ended"),
    };

    drop(ticket);

    run.cancel_requested().await;
    run.send(Event::Ended(Outcome::Canceled));
    job.ended().await;
    assert_eq!(job.status(), Status::Canceled);
    assert_eq!(model.free_slots(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_caller_gets_the_result() {
    let (model, jobs) = streaming_service(1);
    let mut ticket = expect_new(
        jobs.submit(Submission {
            response_mode: ResponseMode::Wait,
            ..submission("{}")
        })
        .await,
    );
    let model_runs = async {
        model.started().await.send(Event::Ended(Outcome::Succeeded {
            output: Some(value("7")),
        }))
    };
    tokio::join!(ticket.ended(), model_runs);
    assert_eq!(ticket.job().snapshot().output.as_deref(), Some(&b"7"[..]));
    assert_eq!(model.free_slots(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_async_job_continues_without_its_caller() {
    let (model, jobs) = streaming_service(1);
    let ticket = expect_new(
        jobs.submit(Submission {
            response_mode: ResponseMode::Async,
            ..submission("{}")
        })
        .await,
    );
    let run = model.started().await;
    let job = Arc::clone(ticket.job());

    drop(ticket);
    run.send(Event::Ended(Outcome::Succeeded {
        output: Some(value("2")),
    }));

    job.ended().await;
    assert_eq!(job.status(), Status::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_job_canceled_in_the_queue_never_starts() {
    let (model, jobs) = streaming_service(1);
    let _first = expect_new(jobs.submit(submission("{}")).await);
    let run = model.started().await;
    let waiting = expect_new(jobs.submit(submission("{}")).await);
    assert_eq!(waiting.job().status(), Status::Queued);

    assert!(
        jobs.cancel(&Account::ANONYMOUS, waiting.job().id())
            .await
            .unwrap()
    );
    waiting.job().ended().await;

    assert_eq!(waiting.job().status(), Status::Canceled);
    run.send(Event::Ended(Outcome::Succeeded { output: None }));
    model.wait_for_free_slots(1).await;
    assert_eq!(model.starts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_put_returns_the_same_job() {
    let (model, jobs) = streaming_service(1);
    let put = |input: &'static str| Submission {
        id: Some(JobId::parse("x").unwrap()),
        on_duplicate: OnDuplicateId::Answer,
        ..submission(input)
    };
    let ticket = expect_new(jobs.submit(put(r#"{"n":1}"#)).await);
    let run = model.started().await;
    assert!(
        matches!(
            jobs.submit(put(r#"{"n":2}"#)).await,
            Ok(Submitted::Running(_))
        ),
        "the input is not compared while the job runs"
    );

    run.send(Event::Ended(Outcome::Succeeded {
        output: Some(value("1")),
    }));
    ticket.job().ended().await;

    assert!(
        matches!(
            jobs.submit(put(r#"{ "n": 1 }"#)).await,
            Ok(Submitted::Ended(_))
        ),
        "white space does not matter"
    );
    assert!(matches!(
        jobs.submit(put(r#"{"n":2}"#)).await,
        Err(Refusal::InputDiffers(_))
    ));
    assert_eq!(model.starts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_job_cannot_use_the_id_of_a_running_job() {
    let (model, jobs) = streaming_service(2);
    let post = || Submission {
        id: Some(JobId::parse("x").unwrap()),
        ..submission("{}")
    };
    let ticket = expect_new(jobs.submit(post()).await);
    let run = model.started().await;
    assert!(matches!(
        jobs.submit(post()).await,
        Err(Refusal::IdInUse(_))
    ));
    assert_eq!(model.free_slots(), 1, "the refused job released its slot");

    run.send(Event::Ended(Outcome::Succeeded { output: None }));
    ticket.job().ended().await;
    expect_new(jobs.submit(post()).await);
}

#[tokio::test(start_paused = true)]
async fn two_accounts_can_use_the_same_id_and_see_only_their_own_job() {
    let (model, jobs) = streaming_service(2);
    let (a, b) = (Account::parse("a").unwrap(), Account::parse("b").unwrap());
    let id = JobId::parse("x").unwrap();
    let put = |account: &Account, input: &'static str| Submission {
        account: account.clone(),
        id: Some(id.clone()),
        on_duplicate: OnDuplicateId::Answer,
        ..submission(input)
    };
    let first = expect_new(jobs.submit(put(&a, r#"{"n":1}"#)).await);
    let first_run = model.started().await;
    let second = expect_new(jobs.submit(put(&b, r#"{"n":2}"#)).await);
    let mut second_run = model.started().await;

    assert!(jobs.get(&Account::ANONYMOUS, &id).await.unwrap().is_none());
    assert!(jobs.cancel(&b, &id).await.unwrap());
    second_run.cancel_requested().await;
    assert!(
        !first_run.is_cancel_requested(),
        "the job of the other account continues"
    );
    second_run.send(Event::Ended(Outcome::Canceled));
    first_run.send(Event::Ended(Outcome::Succeeded {
        output: Some(value("1")),
    }));
    first.job().ended().await;
    second.job().ended().await;

    assert_eq!(
        jobs.get(&a, &id).await.unwrap().map(|job| job.status()),
        Some(Status::Succeeded)
    );
    assert_eq!(
        jobs.get(&b, &id).await.unwrap().map(|job| job.status()),
        Some(Status::Canceled)
    );
    assert!(matches!(
        jobs.submit(put(&a, r#"{"n":1}"#)).await,
        Ok(Submitted::Ended(_))
    ));
    assert!(matches!(
        jobs.submit(put(&a, r#"{"n":2}"#)).await,
        Err(Refusal::InputDiffers(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn an_account_cannot_cancel_the_job_of_another_account() {
    let (model, jobs) = streaming_service(1);
    let ticket = expect_new(
        jobs.submit(Submission {
            account: Account::parse("a").unwrap(),
            ..submission("{}")
        })
        .await,
    );
    let run = model.started().await;
    for other in [Account::parse("b").unwrap(), Account::ANONYMOUS] {
        assert!(!jobs.cancel(&other, ticket.job().id()).await.unwrap());
    }
    fake_model::yield_to_all_tasks().await;
    assert!(!run.is_cancel_requested());
}

#[tokio::test(start_paused = true)]
async fn an_ended_job_is_forgotten_after_the_retention_time() {
    let (model, jobs) = streaming_service(1);
    let ticket = expect_new(jobs.submit(submission("{}")).await);
    model
        .started()
        .await
        .send(Event::Ended(Outcome::Succeeded { output: None }));
    ticket.job().ended().await;
    let id = ticket.job().id().clone();
    assert!(jobs.get(&Account::ANONYMOUS, &id).await.unwrap().is_some());

    while jobs.get(&Account::ANONYMOUS, &id).await.unwrap().is_some() {
        tokio::time::sleep(fake_model::KEEP_FOR / 10).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_job_is_canceled_when_its_last_reader_disconnects() {
    let (model, jobs) = streaming_service(1);
    let stream = expect_new(
        jobs.submit(Submission {
            response_mode: ResponseMode::Stream,
            ..submission("{}")
        })
        .await,
    );
    let job = Arc::clone(stream.job());
    let first = stream
        .into_reader()
        .expect("the job was submitted as a stream");
    let second = job.follow().unwrap();
    let mut run = model.started().await;

    drop(first);
    run.send(Event::Output(value("1")));
    fake_model::yield_to_all_tasks().await;
    assert!(!run.is_cancel_requested(), "one reader is left");

    drop(second);
    run.cancel_requested().await;
}

#[tokio::test(start_paused = true)]
async fn a_late_reader_gets_all_events_from_the_start() {
    let (model, jobs) = streaming_service(1);
    let stream = expect_new(
        jobs.submit(Submission {
            response_mode: ResponseMode::Stream,
            ..submission("{}")
        })
        .await,
    );
    let job = Arc::clone(stream.job());
    let _first = stream.into_reader();
    let run = model.started().await;
    run.send(Event::Output(value("1")));
    run.send(Event::Log {
        source: LogSource::Stderr,
        text: "x\n".into(),
    });
    run.send(Event::Ended(Outcome::Succeeded { output: None }));
    job.ended().await;

    let mut late = job.follow().unwrap();
    let Some(StreamBatch::Events(events)) = late.next().await else {
        panic!("the reader lagged")
    };

    assert!(matches!(
        events[..],
        [
            StreamEvent::Start,
            StreamEvent::Output { index: 0, .. },
            StreamEvent::Log { .. },
            StreamEvent::Completed
        ]
    ));
    assert!(late.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_a_model_without_streaming_is_refused() {
    let jobs = fake_model::service_for(FakeModel::without_streaming(1));
    assert_eq!(
        jobs.submit(Submission {
            response_mode: ResponseMode::Stream,
            ..submission("{}")
        })
        .await
        .err(),
        Some(Refusal::NotStreaming)
    );
}

#[tokio::test(start_paused = true)]
async fn close_waits_for_running_jobs_and_cancels_them_at_the_deadline() {
    let (model, jobs) = streaming_service(2);
    let quick = expect_new(
        jobs.submit(Submission {
            response_mode: ResponseMode::Async,
            ..submission("{}")
        })
        .await,
    );
    let quick_run = model.started().await;
    let slow = expect_new(
        jobs.submit(Submission {
            response_mode: ResponseMode::Async,
            ..submission("{}")
        })
        .await,
    );
    let mut slow_run = model.started().await;

    let other_requests = async {
        fake_model::yield_to_all_tasks().await;
        assert_eq!(
            jobs.submit(submission("{}")).await.err(),
            Some(Refusal::Closing)
        );
        quick_run.send(Event::Ended(Outcome::Succeeded { output: None }));
        quick.job().ended().await;
        assert!(!slow_run.is_cancel_requested());
        slow_run.cancel_requested().await;
        slow_run.send(Event::Ended(Outcome::Canceled));
    };
    let (ended_without_cancel, ()) =
        tokio::join!(jobs.close(Duration::from_millis(300)), other_requests);

    assert!(!ended_without_cancel);
    assert_eq!(
        (quick.job().status(), slow.job().status()),
        (Status::Succeeded, Status::Canceled)
    );
}

#[tokio::test(start_paused = true)]
async fn a_reader_of_an_ended_job_without_history_gets_what_is_recorded() {
    let model = FakeModel::without_streaming(1);
    let jobs = fake_model::service_for(model.clone());
    let ticket = expect_new(jobs.submit(submission("{}")).await);
    model
        .started()
        .await
        .send(Event::Ended(Outcome::Succeeded { output: None }));
    ticket.job().ended().await;

    let mut late = ticket.job().follow().unwrap();

    assert!(
        matches!(late.next().await, Some(StreamBatch::Events(events)) if matches!(events[..], [StreamEvent::Start, StreamEvent::Completed]))
    );
}
