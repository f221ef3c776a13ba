//! The limits of a job: timeout, deadline, output and metrics.

use std::time::Duration;

use serde_json::json;
use tidegate_core::{Event, Metric, MetricMode, Outcome, Status};
use tidegate_service::Submission;

use crate::expect_new;
use crate::fake_model::{
    FakeModel, MAX_OUTPUT, service_with_timeout, streaming_service, submission, value,
};

fn with_deadline(millis: u64) -> Submission {
    Submission {
        deadline: Some(Duration::from_millis(millis)),
        ..submission("{}")
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_exceeds_the_timeout_is_stopped_and_fails() {
    let model = FakeModel::without_streaming(1);
    let jobs = service_with_timeout(model.clone());
    let ticket = expect_new(jobs.submit(submission("{}")).await);
    let mut run = model.started().await;

    run.cancel_requested().await;
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
async fn an_output_after_the_timeout_is_ignored() {
    let model = FakeModel::without_streaming(1);
    let jobs = service_with_timeout(model.clone());
    let ticket = expect_new(jobs.submit(submission("{}")).await);
    let mut run = model.started().await;

    run.cancel_requested().await;
    run.send(Event::Ended(Outcome::Succeeded {
        output: Some(value("1")),
    }));
    ticket.job().ended().await;

    assert_eq!(ticket.job().status(), Status::Failed);
    assert_eq!(ticket.job().snapshot().output, None);
}

#[tokio::test(start_paused = true)]
async fn a_running_job_is_canceled_at_its_deadline() {
    let (model, jobs) = streaming_service(1);
    let ticket = expect_new(jobs.submit(with_deadline(30)).await);
    let mut run = model.started().await;

    run.cancel_requested().await;
    run.send(Event::Ended(Outcome::Canceled));
    ticket.job().ended().await;

    assert_eq!(ticket.job().status(), Status::Canceled);
}

#[tokio::test(start_paused = true)]
async fn a_queued_job_does_not_start_after_its_deadline() {
    let (model, jobs) = streaming_service(1);
    let _first = expect_new(jobs.submit(submission("{}")).await);
    let run = model.started().await;
    let late = expect_new(jobs.submit(with_deadline(30)).await);

    late.job().ended().await;

    assert_eq!(late.job().status(), Status::Aborted);
    run.send(Event::Ended(Outcome::Succeeded { output: None }));
    model.wait_for_free_slots(1).await;
    assert_eq!(model.starts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_canceled_job_is_canceled_whatever_the_model_returns() {
    for outcome in [
        Outcome::Succeeded {
            output: Some(value("1")),
        },
        Outcome::Failed { error: "no".into() },
        Outcome::Canceled,
    ] {
        let (model, jobs) = streaming_service(1);
        let ticket = expect_new(jobs.submit(submission("{}")).await);
        let mut run = model.started().await;
        assert!(
            jobs.cancel(ticket.job().account(), ticket.job().id())
                .await
                .unwrap()
        );
        run.cancel_requested().await;
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
async fn endless_output_fails_the_job_and_keeps_the_output_so_far() {
    let (model, jobs) = streaming_service(1);
    let ticket = expect_new(jobs.submit(submission("{}")).await);
    let mut run = model.started().await;
    let big: &'static str =
        Box::leak(format!("\"{}\"", "x".repeat(MAX_OUTPUT / 3)).into_boxed_str());
    for _ in 0..4 {
        run.send(Event::Output(value(big)));
    }

    run.cancel_requested().await;
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
async fn replaced_metrics_do_not_count_toward_the_limit() {
    let (model, jobs) = streaming_service(1);
    let ticket = expect_new(jobs.submit(submission("{}")).await);
    let run = model.started().await;

    let metric = |name: &str, value: usize, mode| {
        Event::Metric(Metric {
            name: name.to_owned(),
            value: json!(value),
            mode,
        })
    };
    for step in 1..=20_000 {
        run.send(metric("step", step, MetricMode::Replace));
    }
    run.send(metric("last", 1, MetricMode::Replace));
    for step in 1..=20_000 {
        run.send(metric("all", step, MetricMode::Append));
    }
    run.send(metric("too many", 1, MetricMode::Replace));
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
