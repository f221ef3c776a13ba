//! What a job may take and give at most.

use std::time::Duration;

use serde_json::json;
use tidegate_core::{Event, Metric, MetricMode, Outcome, Status};
use tidegate_service::Submission;

use crate::fake::{FakeModel, MAX_OUTPUT, desk, desk_with_timeout, submission, value};
use crate::new;

fn with_deadline(millis: u64) -> Submission {
    Submission {
        deadline: Some(Duration::from_millis(millis)),
        ..submission("{}")
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_takes_too_long_is_stopped_and_has_failed() {
    let model = FakeModel::without_streaming(1);
    let jobs = desk_with_timeout(model.clone());
    let ticket = new(jobs.submit(submission("{}")).await);
    let mut run = model.started().await;

    run.cancel_was_asked().await;
    run.send(Event::Ended(Outcome::Canceled));
    ticket.job().ended().await;

    let job = ticket.job().snapshot();
    assert_eq!(job.status, Status::Failed);
    assert!(
        job.error
            .is_some_and(|error| error.contains("--job-timeout"))
    );
    assert_eq!(model.free_slots(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_comes_after_the_limit_does_not_count() {
    let model = FakeModel::without_streaming(1);
    let jobs = desk_with_timeout(model.clone());
    let ticket = new(jobs.submit(submission("{}")).await);
    let mut run = model.started().await;

    run.cancel_was_asked().await;
    run.send(Event::Ended(Outcome::Succeeded {
        output: Some(value("1")),
    }));
    ticket.job().ended().await;

    assert_eq!(ticket.job().status(), Status::Failed);
    assert_eq!(ticket.job().snapshot().output, None);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_while_the_model_works_cancels() {
    let (model, jobs) = desk(1);
    let ticket = new(jobs.submit(with_deadline(30)).await);
    let mut run = model.started().await;

    run.cancel_was_asked().await;
    run.send(Event::Ended(Outcome::Canceled));
    ticket.job().ended().await;

    assert_eq!(ticket.job().status(), Status::Canceled);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_in_the_line_keeps_the_job_from_starting() {
    let (model, jobs) = desk(1);
    let _first = new(jobs.submit(submission("{}")).await);
    let run = model.started().await;
    let late = new(jobs.submit(with_deadline(30)).await);

    late.job().ended().await;

    assert_eq!(late.job().status(), Status::Aborted);
    run.send(Event::Ended(Outcome::Succeeded { output: None }));
    model.slots_free(1).await;
    assert_eq!(model.starts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_is_a_promise_whatever_the_code_makes_of_it() {
    for outcome in [
        Outcome::Succeeded {
            output: Some(value("1")),
        },
        Outcome::Failed { error: "no".into() },
        Outcome::Canceled,
    ] {
        let (model, jobs) = desk(1);
        let ticket = new(jobs.submit(submission("{}")).await);
        let mut run = model.started().await;
        assert!(jobs.cancel(ticket.job().account(), ticket.job().id()).await);
        run.cancel_was_asked().await;
        run.send(Event::Ended(outcome));
        ticket.job().ended().await;
        let job = ticket.job().snapshot();
        assert_eq!(
            (job.status, job.output, job.error),
            (Status::Canceled, None, None)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn output_without_end_fails_and_keeps_what_was_given() {
    let (model, jobs) = desk(1);
    let ticket = new(jobs.submit(submission("{}")).await);
    let mut run = model.started().await;
    let big: &'static str =
        Box::leak(format!("\"{}\"", "x".repeat(MAX_OUTPUT / 3)).into_boxed_str());
    for _ in 0..4 {
        run.send(Event::Output(value(big)));
    }

    run.cancel_was_asked().await;
    run.send(Event::Ended(Outcome::Canceled));
    ticket.job().ended().await;

    let job = ticket.job().snapshot();
    assert_eq!(job.status, Status::Failed);
    assert!(
        job.error
            .is_some_and(|error| error.contains("--max-output"))
    );
    assert!(job.output.is_some_and(|output| output.len() < MAX_OUTPUT));
}

#[tokio::test]
async fn notes_that_take_the_place_of_others_are_not_counted_but_new_ones_are() {
    let (model, jobs) = desk(1);
    let ticket = new(jobs.submit(submission("{}")).await);
    let run = model.started().await;

    let note = |name: &str, value: usize, mode| {
        Event::Metric(Metric {
            name: name.to_owned(),
            value: json!(value),
            mode,
        })
    };
    for step in 1..=20_000 {
        run.send(note("step", step, MetricMode::Replace));
    }
    run.send(note("last", 1, MetricMode::Replace));
    for step in 1..=20_000 {
        run.send(note("all", step, MetricMode::Append));
    }
    run.send(note("too many", 1, MetricMode::Replace));
    run.send(Event::Ended(Outcome::Succeeded { output: None }));
    ticket.job().ended().await;

    let metrics = ticket.job().snapshot().metrics;
    assert_eq!(
        (&metrics["step"], &metrics["last"]),
        (&json!(20_000), &json!(1))
    );
    assert_eq!(
        (
            metrics["all"].as_array().map(Vec::len),
            metrics.get("too many")
        ),
        (Some(9_998), None)
    );
}
