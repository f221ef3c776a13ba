//! The desk's promises, against a model that the test plays itself. The clock is the test's as well, where nothing but
//! the desk takes time: it goes on when everybody waits, and not when the machine is busy.

mod bounds;
mod fake;
mod gate;
mod kept;
mod line;
mod memory;
mod space;
mod webhooks;
mod writing;

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Account, Event, JobId, LogSource, Outcome, Refusal, Status};
use tidegate_service::{
    OnDuplicateId, ResponseMode, StreamBatch, StreamEvent, Submission, Submitted,
};

use fake::{FakeModel, desk, submission, value};

fn new(submitted: Result<Submitted, Refusal>) -> tidegate_service::Ticket {
    match submitted {
        Ok(Submitted::New(ticket)) => ticket,
        Ok(Submitted::Running(_) | Submitted::Ended(_)) => panic!("the job was known already"),
        Err(refusal) => panic!("refused: {refusal}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_slot_is_free_before_the_end_can_be_seen() {
    let (model, jobs) = desk(1);
    let ticket = new(jobs.submit(submission("{}")).await);
    let run = model.started().await;

    run.send(Event::Ended(Outcome::Succeeded {
        output: Some(value("1")),
    }));
    ticket.job().ended().await;

    assert_eq!(model.free_slots(), 1);
    assert_eq!(ticket.job().snapshot().output.as_deref(), Some(&b"1"[..]));
}

#[tokio::test(start_paused = true)]
async fn a_failed_job_keeps_its_logs_and_what_it_gave() {
    let (model, jobs) = desk(1);
    let ticket = new(jobs.submit(submission("{}")).await);
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
    assert!(job.predict_time.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_nothing_is_an_empty_list() {
    let (model, jobs) = desk(1);
    let ticket = new(jobs.submit(submission("{}")).await);
    model
        .started()
        .await
        .send(Event::Ended(Outcome::Succeeded { output: None }));
    ticket.job().ended().await;
    assert_eq!(ticket.job().snapshot().output.as_deref(), Some(&b"[]"[..]));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_takes_its_job_along() {
    let (model, jobs) = desk(1);
    let mut ticket = new(jobs
        .submit(Submission {
            response_mode: ResponseMode::Wait,
            ..submission("{}")
        })
        .await);
    let job = Arc::clone(ticket.job());
    let mut run = tokio::select! {
        run = model.started() => run,
        () = ticket.ended() => panic!("nobody has ended it"),
    };

    drop(ticket);

    run.cancel_was_asked().await;
    run.send(Event::Ended(Outcome::Canceled));
    job.ended().await;
    assert_eq!(job.status(), Status::Canceled);
    assert_eq!(model.free_slots(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_gets_the_answer() {
    let (model, jobs) = desk(1);
    let mut ticket = new(jobs
        .submit(Submission {
            response_mode: ResponseMode::Wait,
            ..submission("{}")
        })
        .await);
    let play = async {
        model.started().await.send(Event::Ended(Outcome::Succeeded {
            output: Some(value("7")),
        }))
    };
    tokio::join!(ticket.ended(), play);
    assert_eq!(ticket.job().snapshot().output.as_deref(), Some(&b"7"[..]));
    assert_eq!(model.free_slots(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_for_later_goes_on_without_its_caller() {
    let (model, jobs) = desk(1);
    let ticket = new(jobs
        .submit(Submission {
            response_mode: ResponseMode::Async,
            ..submission("{}")
        })
        .await);
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
async fn a_job_canceled_in_the_line_never_starts() {
    let (model, jobs) = desk(1);
    let _first = new(jobs.submit(submission("{}")).await);
    let run = model.started().await;
    let waiting = new(jobs.submit(submission("{}")).await);
    assert_eq!(waiting.job().status(), Status::Queued);

    assert!(jobs.cancel(&Account::ANONYMOUS, waiting.job().id()).await);
    waiting.job().ended().await;

    assert_eq!(waiting.job().status(), Status::Canceled);
    run.send(Event::Ended(Outcome::Succeeded { output: None }));
    model.slots_free(1).await;
    assert_eq!(model.starts(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_same_put_again_shows_the_same_job() {
    let (model, jobs) = desk(1);
    let put = |input: &'static str| Submission {
        id: Some(JobId::parse("x").unwrap()),
        on_duplicate: OnDuplicateId::Answer,
        ..submission(input)
    };
    let ticket = new(jobs.submit(put(r#"{"n":1}"#)).await);
    let run = model.started().await;
    assert!(
        matches!(
            jobs.submit(put(r#"{"n":2}"#)).await,
            Ok(Submitted::Running(_))
        ),
        "while it runs the input is not looked at"
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
        "white space makes no other input"
    );
    assert!(matches!(
        jobs.submit(put(r#"{"n":2}"#)).await,
        Err(Refusal::InputDiffers(_))
    ));
    assert_eq!(model.starts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_job_may_not_take_the_id_of_a_running_one() {
    let (model, jobs) = desk(2);
    let post = || Submission {
        id: Some(JobId::parse("x").unwrap()),
        ..submission("{}")
    };
    let ticket = new(jobs.submit(post()).await);
    let run = model.started().await;
    assert!(matches!(
        jobs.submit(post()).await,
        Err(Refusal::IdInUse(_))
    ));
    assert_eq!(
        model.free_slots(),
        1,
        "the refused one has given its slot back"
    );

    run.send(Event::Ended(Outcome::Succeeded { output: None }));
    ticket.job().ended().await;
    new(jobs.submit(post()).await);
}

#[tokio::test(start_paused = true)]
async fn two_accounts_may_use_the_same_id_and_see_only_their_own() {
    let (model, jobs) = desk(2);
    let (a, b) = (Account::parse("a").unwrap(), Account::parse("b").unwrap());
    let id = JobId::parse("x").unwrap();
    let put = |account: &Account, input: &'static str| Submission {
        account: account.clone(),
        id: Some(id.clone()),
        on_duplicate: OnDuplicateId::Answer,
        ..submission(input)
    };
    let first = new(jobs.submit(put(&a, r#"{"n":1}"#)).await);
    let first_run = model.started().await;
    let second = new(jobs.submit(put(&b, r#"{"n":2}"#)).await);
    let mut second_run = model.started().await;

    assert!(jobs.get(&Account::ANONYMOUS, &id).await.is_none());
    assert!(jobs.cancel(&b, &id).await);
    second_run.cancel_was_asked().await;
    assert!(
        !first_run.is_cancel_asked(),
        "the other account's job goes on"
    );
    second_run.send(Event::Ended(Outcome::Canceled));
    first_run.send(Event::Ended(Outcome::Succeeded {
        output: Some(value("1")),
    }));
    first.job().ended().await;
    second.job().ended().await;

    assert_eq!(
        jobs.get(&a, &id).await.map(|job| job.status()),
        Some(Status::Succeeded)
    );
    assert_eq!(
        jobs.get(&b, &id).await.map(|job| job.status()),
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
async fn a_job_may_not_be_canceled_by_another_account() {
    let (model, jobs) = desk(1);
    let ticket = new(jobs
        .submit(Submission {
            account: Account::parse("a").unwrap(),
            ..submission("{}")
        })
        .await);
    let run = model.started().await;
    for other in [Account::parse("b").unwrap(), Account::ANONYMOUS] {
        assert!(!jobs.cancel(&other, ticket.job().id()).await);
    }
    fake::settled().await;
    assert!(!run.is_cancel_asked());
}

#[tokio::test(start_paused = true)]
async fn what_is_over_is_forgotten_after_a_while() {
    let (model, jobs) = desk(1);
    let ticket = new(jobs.submit(submission("{}")).await);
    model
        .started()
        .await
        .send(Event::Ended(Outcome::Succeeded { output: None }));
    ticket.job().ended().await;
    let id = ticket.job().id().clone();
    assert!(jobs.get(&Account::ANONYMOUS, &id).await.is_some());

    while jobs.get(&Account::ANONYMOUS, &id).await.is_some() {
        tokio::time::sleep(fake::KEEP_FOR / 10).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_canceled_with_its_last_reader() {
    let (model, jobs) = desk(1);
    let stream = new(jobs
        .submit(Submission {
            response_mode: ResponseMode::Stream,
            ..submission("{}")
        })
        .await);
    let job = Arc::clone(stream.job());
    let first = stream.into_reader().expect("it was asked for");
    let second = job.follow().unwrap();
    let mut run = model.started().await;

    drop(first);
    run.send(Event::Output(value("1")));
    fake::settled().await;
    assert!(!run.is_cancel_asked(), "one still reads");

    drop(second);
    run.cancel_was_asked().await;
}

#[tokio::test(start_paused = true)]
async fn a_late_reader_sees_everything_from_the_start() {
    let (model, jobs) = desk(1);
    let stream = new(jobs
        .submit(Submission {
            response_mode: ResponseMode::Stream,
            ..submission("{}")
        })
        .await);
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
        panic!("it lagged")
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
async fn a_model_that_does_not_stream_refuses_one() {
    let jobs = fake::service_of(FakeModel::without_streaming(1));
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
async fn closing_waits_for_what_runs_and_cancels_what_takes_too_long() {
    let (model, jobs) = desk(2);
    let quick = new(jobs
        .submit(Submission {
            response_mode: ResponseMode::Async,
            ..submission("{}")
        })
        .await);
    let quick_run = model.started().await;
    let slow = new(jobs
        .submit(Submission {
            response_mode: ResponseMode::Async,
            ..submission("{}")
        })
        .await);
    let mut slow_run = model.started().await;

    let meanwhile = async {
        fake::settled().await;
        assert_eq!(
            jobs.submit(submission("{}")).await.err(),
            Some(Refusal::Closing)
        );
        quick_run.send(Event::Ended(Outcome::Succeeded { output: None }));
        quick.job().ended().await;
        assert!(!slow_run.is_cancel_asked());
        slow_run.cancel_was_asked().await;
        slow_run.send(Event::Ended(Outcome::Canceled));
    };
    let (all_by_themselves, ()) = tokio::join!(jobs.close(Duration::from_millis(300)), meanwhile);

    assert!(!all_by_themselves);
    assert_eq!(
        (quick.job().status(), slow.job().status()),
        (Status::Succeeded, Status::Canceled)
    );
}

#[tokio::test(start_paused = true)]
async fn who_follows_a_job_that_is_over_is_told_so() {
    let model = FakeModel::without_streaming(1);
    let jobs = fake::service_of(model.clone());
    let ticket = new(jobs.submit(submission("{}")).await);
    model
        .started()
        .await
        .send(Event::Ended(Outcome::Succeeded { output: None }));
    ticket.job().ended().await;

    let mut late = ticket.job().follow().unwrap();

    assert!(
        matches!(late.next().await, Some(StreamBatch::Events(events)) if matches!(events[..], [StreamEvent::Completed]))
    );
}
