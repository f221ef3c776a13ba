//! A report is applied when clients see it, and a result when the end of the job is committed.
//!
//! The clock is paused: a timeout takes no time.

use futures_util::FutureExt;
use tidegate_core::port::Running;

use super::*;
use crate::ReportRejection;
use crate::event_queue::MAX_UNPUBLISHED;

/// A job that the worker `w` has, with its events not read yet.
async fn started(executor: &RemoteExecutor) -> Box<dyn Running> {
    let Ok(Admitted::Queued(admission)) =
        executor.admit(&Account::ANONYMOUS, WaitPolicy::Unbounded)
    else {
        panic!("a line is always there")
    };
    let start = async { admission.await.ok().unwrap().start(work("a", None)).await };
    let (mut running, job) = tokio::join!(start, take_one(executor, "w"));
    assert_eq!(job, "a");
    assert!(matches!(running.next().await, Event::Remote(_)));
    running
}

async fn ended(running: &mut Box<dyn Running>) {
    while !matches!(running.next().await, Event::Ended(_)) {}
}

#[tokio::test(start_paused = true)]
async fn a_part_is_applied_when_the_next_event_is_asked_for() {
    let executor = executor();
    let mut running = started(&executor).await;
    let mut reporting = std::pin::pin!(report(&executor, "w", "a", part("1")));
    assert!(reporting.as_mut().now_or_never().is_none());
    while !matches!(running.next().await, Event::Output(_)) {}
    assert!(
        reporting.as_mut().now_or_never().is_none(),
        "the tracker has not published it yet"
    );
    assert!(running.next().now_or_never().is_none());
    assert_eq!(reporting.await, ReportOutcome::Applied);
}

#[tokio::test(start_paused = true)]
async fn a_result_is_applied_when_the_end_is_committed_and_so_is_its_repetition() {
    let executor = executor();
    let mut running = started(&executor).await;
    let (w, a) = (worker("w"), id("a"));
    assert_eq!(
        executor.apply_report(&w, &a, done("1")).await,
        Err(ReportRejection::NotCommitted)
    );
    ended(&mut running).await;
    let on_committed = running.on_committed().unwrap();
    drop(running);
    assert_eq!(
        executor.apply_report(&w, &a, done("1")).await,
        Err(ReportRejection::NotCommitted),
        "the worker sends it again"
    );
    let mut again = std::pin::pin!(executor.apply_report(&w, &a, done("1")));
    assert!(again.as_mut().now_or_never().is_none());
    on_committed();
    assert_eq!(again.await, Ok(ReportOutcome::Ignored));
    assert_eq!(
        report(&executor, "w", "a", done("1")).await,
        ReportOutcome::Ignored
    );
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_stream_is_committed_before_its_repetition_is_answered() {
    let executor = executor();
    let mut running = started(&executor).await;
    let end = || JobReport::StreamDone(WorkerResult::default());
    let (w, a) = (worker("w"), id("a"));
    for _ in 0..2 {
        assert_eq!(
            executor.apply_report(&w, &a, end()).await,
            Err(ReportRejection::NotCommitted)
        );
    }
    ended(&mut running).await;
    running.on_committed().unwrap()();
    assert_eq!(
        report(&executor, "w", "a", end()).await,
        ReportOutcome::Ignored
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_left_without_a_committed_end_rejects_its_result() {
    let executor = executor();
    let mut running = started(&executor).await;
    let (w, a) = (worker("w"), id("a"));
    let mut reporting = std::pin::pin!(executor.apply_report(&w, &a, done("1")));
    assert!(reporting.as_mut().now_or_never().is_none());
    ended(&mut running).await;
    drop(running);
    assert_eq!(
        reporting.now_or_never(),
        Some(Err(ReportRejection::NotCommitted)),
        "without waiting for the timeout"
    );
}

#[tokio::test(start_paused = true)]
async fn a_result_from_before_a_restart_is_applied_when_its_job_is_committed() {
    let executor = executor();
    for _ in 0..2 {
        assert_eq!(
            report(&executor, "old", "a", done("1")).await,
            ReportOutcome::Buffered,
            "the worker may send it again"
        );
    }
    let a = id("a");
    let mut committed = std::pin::pin!(executor.buffered_result_committed(&a));
    assert!(committed.as_mut().now_or_never().is_none());
    let mut running = executor
        .adoption(&worker("old"), Duration::ZERO)
        .start(work("a", None))
        .await;
    assert!(committed.as_mut().now_or_never().is_none());
    ended(&mut running).await;
    running.on_committed().unwrap()();
    assert_eq!(committed.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn unpublished_reports_are_bounded() {
    let executor = executor();
    let mut running = started(&executor).await;
    let mut reports: Vec<_> = (0..MAX_UNPUBLISHED)
        .map(|n| Box::pin(report(&executor, "w", "a", JobReport::Progress(json!(n)))))
        .collect();
    for reporting in &mut reports {
        assert!(reporting.as_mut().now_or_never().is_none());
    }
    assert_eq!(
        executor
            .apply_report(&worker("w"), &id("a"), JobReport::Progress(json!("more")))
            .await,
        Err(ReportRejection::TooManyReports)
    );
    // A worker that disconnects leaves its reports, which still use their places.
    drop(reports);
    let (w, a) = (worker("w"), id("a"));
    let mut more = std::pin::pin!(executor.apply_report(&w, &a, JobReport::Progress(json!(1))));
    assert!(more.as_mut().now_or_never().is_none());
    for _ in 0..=MAX_UNPUBLISHED {
        running.next().await;
        assert!(more.as_mut().now_or_never().is_none());
    }
    assert!(running.next().now_or_never().is_none());
    assert_eq!(more.await, Ok(ReportOutcome::Applied));
}

#[tokio::test(start_paused = true)]
async fn a_report_that_waits_for_a_place_ends_with_the_job() {
    let executor = executor();
    let running = started(&executor).await;
    let mut reports: Vec<_> = (0..=MAX_UNPUBLISHED)
        .map(|n| Box::pin(report(&executor, "w", "a", JobReport::Progress(json!(n)))))
        .collect();
    for reporting in &mut reports {
        assert!(reporting.as_mut().now_or_never().is_none());
    }
    drop(running);
    for reporting in reports {
        assert!(reporting.now_or_never().is_some());
    }
}
