//! Workers that have jobs from a server before this one.
//!
//! The clock is paused: `sleep` takes no time, and lets everything happen that is due by then.

use tidegate_core::port::Running;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_result_from_before_a_restart_is_kept_for_its_job() {
    local(async {
        let (remote, mut desk) = (remote(), Desk::default());
        assert_eq!(
            remote.apply_report(&worker("w"), &id("a"), done("1")),
            ReportOutcome::Buffered
        );
        let (first, second) = (
            desk.run(&remote, work("a", None)),
            desk.run(&remote, work("b", None)),
        );
        assert_eq!(
            take_one(&remote, "w").await,
            "b",
            "nobody runs what is done"
        );
        assert_eq!(first.await.unwrap().end, Some(Ok(Some("1".to_owned()))));
        remote.apply_report(&worker("w"), &id("b"), done("2"));
        assert!(second.await.unwrap().end.unwrap().is_ok());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_keeps_the_job_that_it_has_from_before_a_restart() {
    local(async {
        let (remote, mut desk) = (remote(), Desk::default());
        remote.ping(&worker("old"), Some(&["a"]));
        let (first, _second) = (
            desk.run(&remote, work("a", None)),
            desk.run(&remote, work("b", None)),
        );
        assert_eq!(take_one(&remote, "idle").await, "b", "the other is at work");
        remote.apply_report(&worker("old"), &id("a"), done("1"));
        let ran = first.await.unwrap();
        assert_eq!(
            (ran.end, ran.notes["worker"].clone()),
            (Some(Ok(Some("1".to_owned()))), json!("old"))
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_told_to_stop_a_job_from_before_a_restart_that_nobody_has_begun_here() {
    local(async {
        let remote = remote();
        remote.ping(&worker("old"), Some(&["a"]));
        assert_eq!(remote.worker_counts().running, 1);
        remote.stop_unstarted(&id("a"));
        assert_eq!(remote.jobs_to_stop(&worker("old"), STOPS).await, [id("a")]);
        assert_eq!(
            remote.apply_report(&worker("old"), &id("a"), done("1")),
            ReportOutcome::Ignored,
            "nobody will ask for it"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn workers_get_time_to_say_what_they_have_before_jobs_are_given_out() {
    local(async {
        let (remote, mut desk) = (remote(), Desk::default());
        remote.pause_handout(Duration::from_secs(3));
        let _ran: Vec<_> = ["a", "b"]
            .map(|job| desk.run(&remote, work(job, None)))
            .into();
        let asked = remote.clone();
        let asking = tokio::task::spawn_local(async move { take_one(&asked, "idle").await });
        tokio::time::sleep(Duration::from_secs(2)).await;
        remote.ping(&worker("old"), Some(&["a"]));
        assert_eq!(asking.await.unwrap(), "b", "the first one is in good hands");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_from_before_a_restart_begins_again() {
    local(async {
        let (remote, mut desk) = (remote(), Desk::default());
        remote.ping(&worker("old"), Some(&["a"]));
        let (ran, _other) = (
            desk.run(&remote, work("a", None)),
            desk.run(&remote, work("b", None)),
        );
        assert_eq!(take_one(&remote, "idle").await, "b");
        assert_eq!(
            remote.apply_report(&worker("old"), &id("a"), part("2")),
            ReportOutcome::Ignored,
            "the first part is lost"
        );
        assert_eq!(take_one(&remote, "new").await, "a");
        let end = || {
            JobReport::StreamDone(WorkerResult {
                output: Some(Bytes::from_static(b"[]")),
                error: None,
            })
        };
        assert_eq!(
            remote.apply_report(&worker("old"), &id("a"), end()),
            ReportOutcome::Ignored,
            "it has the job no more"
        );
        for json in ["1", "2"] {
            remote.apply_report(&worker("new"), &id("a"), part(json));
        }
        assert_eq!(
            remote.apply_report(&worker("new"), &id("a"), end()),
            ReportOutcome::Applied
        );
        assert_eq!(ran.await.unwrap().parts, ["1", "2"]);
        assert_eq!(
            remote.apply_report(&worker("old"), &id("unknown"), end()),
            ReportOutcome::Ignored,
            "an end without its parts is kept for nobody"
        );
    })
    .await;
}

/// A job that the worker `old` has had for so long before.
async fn kept(remote: &RemoteExecutor, job: Work, before: Duration) -> Box<dyn Running> {
    remote.adoption(&worker("old"), before).start(job).await
}

async fn end(mut running: Box<dyn Running>) -> Outcome {
    loop {
        if let Event::Ended(outcome) = running.next().await {
            return outcome;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_that_a_worker_had_a_job_before_a_restart_counts() {
    let (remote, second) = (remote(), Duration::from_secs(1));
    assert_eq!(
        remote.ping(&worker("old"), Some(&["a"])),
        [id("a")],
        "nobody has begun it here"
    );
    let (job, began) = (
        kept(&remote, work("a", Some(10_000)), 8 * second).await,
        tokio::time::Instant::now(),
    );
    assert!(remote.ping(&worker("old"), Some(&["a"])).is_empty());
    assert!(matches!(end(job).await, Outcome::Failed { .. }));
    let took = began.elapsed();
    assert!(took >= 2 * second && took < 4 * second, "{took:?}");
    assert_eq!(remote.jobs_to_stop(&worker("old"), STOPS).await, [id("a")]);
}

#[tokio::test(start_paused = true)]
async fn a_job_from_before_a_restart_whose_result_is_here_is_over_at_once() {
    let remote = remote();
    assert_eq!(
        remote.apply_report(&worker("old"), &id("a"), done("1")),
        ReportOutcome::Buffered
    );
    let job = kept(&remote, work("a", None), Duration::ZERO).await;
    assert!(
        matches!(end(job).await, Outcome::Succeeded { output: Some(output) } if output.json.as_ref() == b"1")
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_from_before_a_restart_whose_worker_is_lost_goes_to_the_next() {
    local(async {
        let remote = remote();
        remote.ping(&worker("old"), Some(&["a"]));
        let mut job = kept(&remote, work("a", None), Duration::ZERO).await;
        let ran = tokio::task::spawn_local(async move {
            while !matches!(job.next().await, Event::Ended(_)) {}
        });
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert_eq!(take_one(&remote, "new").await, "a");
        remote.apply_report(&worker("new"), &id("a"), done("1"));
        ran.await.unwrap();
    })
    .await;
}
