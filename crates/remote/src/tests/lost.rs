//! Workers that are lost, and what becomes of their jobs.
//!
//! The clock is paused: `sleep` takes no time, and lets everything happen that is due by then.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_job_that_did_not_arrive_goes_to_the_next_worker() {
    local(async {
        let (remote, mut desk) = (remote(), Desk::default());
        let ran = desk.run(&remote, work("a", None));
        for lost in 0..5 {
            // The connection broke while the answer was written.
            drop(
                remote
                    .take_jobs(&worker(&format!("lost-{lost}")), 1, HOLD)
                    .await,
            );
        }
        assert_eq!(take_one(&remote, "w").await, "a");
        remote.apply_report(&worker("w"), &id("a"), done("1"));
        let ran = ran.await.unwrap();
        assert_eq!(
            ran.end,
            Some(Ok(Some("1".to_owned()))),
            "what no worker has seen is not counted"
        );
        assert_eq!(ran.notes.get("retries"), None);
        assert_eq!(remote.retry_count(), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_take_that_is_given_up_swallows_nothing() {
    local(async {
        let (remote, mut desk) = (remote(), Desk::default());
        for _ in 0..20 {
            let asked = remote.clone();
            let asking = tokio::task::spawn_local(async move {
                asked.take_jobs(&worker("gone"), 4, HOLD).await.len()
            });
            tokio::task::yield_now().await;
            asking.abort();
        }
        let _ran = desk.run(&remote, work("a", None));
        let asking = tokio::task::spawn_local({
            let asked = remote.clone();
            async move { asked.take_jobs(&worker("gone"), 4, HOLD).await.len() }
        });
        tokio::task::yield_now().await;
        asking.abort();
        assert_eq!(take_one(&remote, "w").await, "a");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_breaks_off_and_stays_away_loses_its_jobs() {
    local(async {
        let (remote, mut desk) = (remote(), Desk::default());
        let ran = desk.run(&remote, work("a", None));
        assert_eq!(take_one(&remote, "dies").await, "a");
        remote.ping(&worker("dies"), Some(&["a"]));
        assert!(
            tokio::time::timeout(
                Duration::from_secs(1),
                remote.jobs_to_stop(&worker("dies"), STOPS)
            )
            .await
            .is_err()
        );
        // The heartbeat outlives the worker, and says what it always said.
        let pings = remote.clone();
        let pinging = tokio::task::spawn_local(async move {
            loop {
                pings.ping(&worker("dies"), Some(&["a"]));
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        assert_eq!(take_one(&remote, "w").await, "a");
        pinging.abort();
        remote.apply_report(&worker("w"), &id("a"), done("1"));
        let ran = ran.await.unwrap();
        assert_eq!(
            (ran.notes["worker"].clone(), ran.notes["retries"].clone()),
            (json!("w"), json!(1))
        );
        assert_eq!(remote.retry_count(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_comes_back_in_time_keeps_its_jobs() {
    local(async {
        let (remote, mut desk) = (remote(), Desk::default());
        let _ran = desk.run(&remote, work("a", None));
        assert_eq!(take_one(&remote, "w").await, "a");
        assert!(
            tokio::time::timeout(
                Duration::from_secs(1),
                remote.jobs_to_stop(&worker("w"), STOPS)
            )
            .await
            .is_err()
        );
        assert!(remote.jobs_to_stop(&worker("w"), STOPS).await.is_empty());
        assert!(
            remote.take_jobs(&worker("other"), 1, HOLD).await.is_empty(),
            "it works on"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_pings_stop_loses_its_jobs() {
    local(async {
        let (remote, mut desk) = (remote(), Desk::default());
        let _ran = desk.run(&remote, work("a", None));
        assert_eq!(take_one(&remote, "dies").await, "a");
        remote.ping(&worker("dies"), Some(&["a"]));
        assert!(
            remote.take_jobs(&worker("w"), 1, HOLD).await.is_empty(),
            "not before its time"
        );
        assert_eq!(take_one(&remote, "w").await, "a");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_never_pings_is_left_alone() {
    local(async {
        let (remote, mut desk) = (remote(), Desk::default());
        let _ran = desk.run(&remote, work("a", None));
        assert_eq!(take_one(&remote, "quiet").await, "a");
        assert!(
            remote
                .take_jobs(&worker("w"), 1, 10 * HOLD)
                .await
                .is_empty()
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_pings_do_not_name_any_more_goes_to_another_worker() {
    local(async {
        let (remote, mut desk) = (remote(), Desk::default());
        let _ran: Vec<_> = ["a", "b"]
            .map(|job| desk.run(&remote, work(job, None)))
            .into();
        let offers = remote.take_jobs(&worker("w"), 2, HOLD).await;
        offers.into_iter().for_each(JobOffer::confirm_delivered);
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(2)).await;
            remote.ping(&worker("w"), Some(&["b"]));
        }
        let offers = remote.take_jobs(&worker("x"), 2, HOLD).await;
        assert_eq!(names(&offers), ["a"], "the other is still named");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_says_that_it_has_nothing_did_not_get_its_job() {
    local(async {
        let (remote, mut desk) = (remote(), Desk::default());
        let _ran: Vec<_> = ["a", "b"]
            .map(|job| desk.run(&remote, work(job, None)))
            .into();
        assert_eq!(take_one(&remote, "w").await, "a");
        assert_eq!(take_one(&remote, "pings").await, "b");
        remote.report_idle(&worker("w"));
        assert!(
            remote.take_jobs(&worker("x"), 1, HOLD).await.is_empty(),
            "what it said may have been on its way"
        );
        remote.ping(&worker("pings"), Some(&["b"]));
        for name in ["w", "pings"] {
            remote.report_idle(&worker(name));
        }
        assert_eq!(
            names(&remote.take_jobs(&worker("x"), 2, HOLD).await),
            ["a"],
            "the other was named before"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_loses_every_worker_fails() {
    local(async {
        let (remote, mut desk) = (remote(), Desk::default());
        let ran = desk.run(&remote, work("a", None));
        for name in ["one", "two", "three"] {
            assert_eq!(take_one(&remote, name).await, "a");
            remote.ping(&worker(name), Some(&["a"]));
            tokio::time::sleep(Duration::from_secs(40)).await;
        }
        let error = ran.await.unwrap().end.unwrap().unwrap_err();
        assert!(error.contains("`three` was lost"), "{error}");
        assert_eq!(remote.retry_count(), 2);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_late_result_of_a_worker_that_was_given_up_counts() {
    local(async {
        let (remote, mut desk) = (remote(), Desk::default());
        let ran = desk.run(&remote, work("a", None));
        assert_eq!(take_one(&remote, "slow").await, "a");
        remote.ping(&worker("slow"), Some(&["a"]));
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert_eq!(
            remote.apply_report(&worker("slow"), &id("a"), done("1")),
            ReportOutcome::Applied
        );
        assert_eq!(ran.await.unwrap().end, Some(Ok(Some("1".to_owned()))));
        assert!(
            remote.take_jobs(&worker("w"), 1, HOLD).await.is_empty(),
            "nobody else needs to run it"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn parts_are_told_once_whoever_gives_them() {
    local(async {
        let (remote, mut desk) = (remote(), Desk::default());
        let ran = desk.run(&remote, work("a", None));
        assert_eq!(take_one(&remote, "dies").await, "a");
        remote.apply_report(&worker("dies"), &id("a"), part("1"));
        remote.apply_report(&worker("dies"), &id("a"), part("2"));
        remote.ping(&worker("dies"), Some(&["a"]));
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert_eq!(take_one(&remote, "w").await, "a");
        assert_eq!(
            remote.apply_report(&worker("dies"), &id("a"), part("9")),
            ReportOutcome::Ignored,
            "it has the job no more"
        );
        for json in ["1", "2", "3"] {
            remote.apply_report(&worker("w"), &id("a"), part(json));
        }
        remote.apply_report(&worker("w"), &id("a"), done("[]"));
        let ran = ran.await.unwrap();
        assert_eq!(ran.parts, ["1", "2", "3"]);
        assert_eq!(
            (ran.end, ran.notes["final_output"].clone()),
            (Some(Ok(None)), json!([]))
        );
    })
    .await;
}
