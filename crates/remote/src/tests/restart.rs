//! Workers that have jobs from the previous server process.
//!
//! The clock is paused: `sleep` takes no time and runs everything that is due by then.

use tidegate_core::port::Running;
use tokio::time::Instant;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_result_from_before_a_restart_is_kept_for_its_job() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        assert_eq!(
            report(&executor, "w", "a", done("1")).await,
            ReportOutcome::Buffered
        );
        let (first, second) = (
            service.run(&executor, work("a", None)),
            service.run(&executor, work("b", None)),
        );
        assert_eq!(
            take_one(&executor, "w").await,
            "b",
            "the first job has already ended"
        );
        assert_eq!(first.await.unwrap().end, Some(Ok(Some("1".to_owned()))));
        report(&executor, "w", "b", done("2")).await;
        assert!(second.await.unwrap().end.unwrap().is_ok());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_keeps_the_job_that_it_has_from_before_a_restart() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        executor.ping(&worker("old"), Some(&["a"]));
        let (first, _second) = (
            service.run(&executor, work("a", None)),
            service.run(&executor, work("b", None)),
        );
        assert_eq!(
            take_one(&executor, "idle").await,
            "b",
            "another worker runs the first job"
        );
        report(&executor, "old", "a", done("1")).await;
        let log = first.await.unwrap();
        assert_eq!(
            (log.end, log.facts.worker.as_deref()),
            (Some(Ok(Some("1".to_owned()))), Some("old"))
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_canceled_job_from_before_a_restart_is_stopped_on_its_worker() {
    local(async {
        let executor = executor();
        executor.ping(&worker("old"), Some(&["a"]));
        assert_eq!(executor.worker_counts().running, 1);
        executor.stop_unstarted(&id("a"));
        assert_eq!(
            executor.jobs_to_stop(&worker("old"), STOPS).await,
            [id("a")]
        );
        assert_eq!(
            report(&executor, "old", "a", done("1")).await,
            ReportOutcome::Ignored,
            "the job was canceled"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn workers_can_name_their_jobs_before_the_handout_resumes() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        executor.resume_handout(Duration::from_secs(3));
        let _log: Vec<_> = ["a", "b"]
            .map(|job| service.run(&executor, work(job, None)))
            .into();
        let handle = executor.clone();
        let request = tokio::task::spawn_local(async move { take_one(&handle, "idle").await });
        tokio::time::sleep(Duration::from_secs(2)).await;
        executor.ping(&worker("old"), Some(&["a"]));
        assert_eq!(
            request.await.unwrap(),
            "b",
            "a worker already has the first job"
        );
    })
    .await;
}

/// While the jobs of the previous server process are loaded, and a few seconds longer.
#[tokio::test(start_paused = true)]
async fn no_job_is_handed_out_during_a_pause() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        executor.pause_handout();
        let _log = service.run(&executor, work("a", None));
        let handle = executor.clone();
        let request = tokio::task::spawn_local(async move { take_one(&handle, "idle").await });
        tokio::time::sleep(Duration::from_secs(10)).await;
        let resumed_at = Instant::now();
        executor.resume_handout(Duration::from_secs(4));
        assert_eq!(request.await.unwrap(), "a");
        assert_eq!(resumed_at.elapsed().as_secs(), 4);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_from_before_a_restart_starts_again() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        executor.ping(&worker("old"), Some(&["a"]));
        let (log, _other) = (
            service.run(&executor, work("a", None)),
            service.run(&executor, work("b", None)),
        );
        assert_eq!(take_one(&executor, "idle").await, "b");
        assert_eq!(
            report(&executor, "old", "a", part("2")).await,
            ReportOutcome::Ignored,
            "the first part is lost"
        );
        assert_eq!(take_one(&executor, "new").await, "a");
        let end = || {
            JobReport::StreamDone(WorkerResult {
                output: Some(Bytes::from_static(b"[]")),
                error: None,
            })
        };
        assert_eq!(
            report(&executor, "old", "a", end()).await,
            ReportOutcome::Ignored,
            "the worker no longer has the job"
        );
        for json in ["1", "2"] {
            report(&executor, "new", "a", part(json)).await;
        }
        assert_eq!(
            report(&executor, "new", "a", end()).await,
            ReportOutcome::Applied
        );
        assert_eq!(log.await.unwrap().parts, ["1", "2"]);
        assert_eq!(
            report(&executor, "old", "unknown", end()).await,
            ReportOutcome::Ignored,
            "a stream end without its parts is not kept"
        );
    })
    .await;
}

/// Starts a job that the worker `old` has had for the time `before`.
async fn adopted(executor: &RemoteExecutor, job: Work, before: Duration) -> Box<dyn Running> {
    executor.adoption(&worker("old"), before).start(job).await
}

async fn end(mut running: Box<dyn Running>) -> Outcome {
    loop {
        if let Event::Ended(outcome) = running.next().await {
            return outcome;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn time_before_a_restart_counts_towards_the_execution_timeout() {
    let (executor, second) = (executor(), Duration::from_secs(1));
    assert_eq!(
        executor.ping(&worker("old"), Some(&["a"])),
        [id("a")],
        "the job was not started here"
    );
    let (job, began) = (
        adopted(&executor, work("a", Some(10_000)), 8 * second).await,
        tokio::time::Instant::now(),
    );
    assert!(executor.ping(&worker("old"), Some(&["a"])).is_empty());
    assert!(matches!(end(job).await, Outcome::Failed { .. }));
    let took = began.elapsed();
    assert!(took >= 2 * second && took < 4 * second, "{took:?}");
    assert_eq!(
        executor.jobs_to_stop(&worker("old"), STOPS).await,
        [id("a")]
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_result_arrived_early_ends_at_once() {
    let executor = executor();
    assert_eq!(
        report(&executor, "old", "a", done("1")).await,
        ReportOutcome::Buffered
    );
    let job = adopted(&executor, work("a", None), Duration::ZERO).await;
    assert!(
        matches!(end(job).await, Outcome::Succeeded { output: Some(output) } if output.json.as_ref() == b"1")
    );
}

#[tokio::test(start_paused = true)]
async fn an_adopted_job_whose_worker_is_lost_goes_to_another() {
    local(async {
        let executor = executor();
        executor.ping(&worker("old"), Some(&["a"]));
        let mut job = adopted(&executor, work("a", None), Duration::ZERO).await;
        let log = tokio::task::spawn_local(async move {
            while !matches!(job.next().await, Event::Ended(_)) {}
            job.on_committed().unwrap()();
        });
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert_eq!(take_one(&executor, "new").await, "a");
        report(&executor, "new", "a", done("1")).await;
        log.await.unwrap();
    })
    .await;
}
