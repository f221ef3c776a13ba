//! Jobs whose worker is lost.
//!
//! The clock is paused: `sleep` takes no time and runs everything that is due by then.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_undelivered_job_goes_to_the_next_worker() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        let log = service.run(&executor, work("a", None));
        for lost in 0..5 {
            // The connection broke while the response was written.
            drop(
                executor
                    .take_jobs(&worker(&format!("lost-{lost}")), 1, HOLD)
                    .await,
            );
        }
        assert_eq!(take_one(&executor, "w").await, "a");
        report(&executor, "w", "a", done("1")).await;
        let log = log.await.unwrap();
        assert_eq!(
            log.end,
            Some(Ok(Some("1".to_owned()))),
            "deliveries that no worker saw do not count"
        );
        assert_eq!(log.facts.retries, None);
        assert_eq!(executor.retry_count(), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_take_request_loses_no_job() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        for _ in 0..20 {
            let handle = executor.clone();
            let request = tokio::task::spawn_local(async move {
                handle.take_jobs(&worker("gone"), 4, HOLD).await.len()
            });
            tokio::task::yield_now().await;
            request.abort();
        }
        let _log = service.run(&executor, work("a", None));
        let request = tokio::task::spawn_local({
            let handle = executor.clone();
            async move { handle.take_jobs(&worker("gone"), 4, HOLD).await.len() }
        });
        tokio::task::yield_now().await;
        request.abort();
        assert_eq!(take_one(&executor, "w").await, "a");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_disconnects_and_does_not_reconnect_loses_its_jobs() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        let log = service.run(&executor, work("a", None));
        assert_eq!(take_one(&executor, "dies").await, "a");
        executor.ping(&worker("dies"), Some(&["a"]));
        assert!(
            tokio::time::timeout(
                Duration::from_secs(1),
                executor.jobs_to_stop(&worker("dies"), STOPS)
            )
            .await
            .is_err()
        );
        // The heartbeat process outlives the worker and keeps naming the job.
        let pings = executor.clone();
        let pinging = tokio::task::spawn_local(async move {
            loop {
                pings.ping(&worker("dies"), Some(&["a"]));
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        assert_eq!(take_one(&executor, "w").await, "a");
        pinging.abort();
        report(&executor, "w", "a", done("1")).await;
        let log = log.await.unwrap();
        assert_eq!(
            (log.facts.worker.as_deref(), log.facts.retries),
            (Some("w"), Some(1))
        );
        let [lost] = &log.facts.lost[..] else {
            panic!("one attempt was lost: {:?}", log.facts.lost)
        };
        assert_eq!(
            (lost.number, lost.runner.as_deref(), lost.end),
            (1, Some("dies"), Some(AttemptEnd::Lost))
        );
        assert!(lost.started_at < lost.ended_at && lost.ended_at <= log.facts.retried_at);
        assert_eq!(executor.retry_count(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_reconnects_in_time_keeps_its_jobs() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        let _log = service.run(&executor, work("a", None));
        assert_eq!(take_one(&executor, "w").await, "a");
        assert!(
            tokio::time::timeout(
                Duration::from_secs(1),
                executor.jobs_to_stop(&worker("w"), STOPS)
            )
            .await
            .is_err()
        );
        assert!(executor.jobs_to_stop(&worker("w"), STOPS).await.is_empty());
        assert!(
            executor
                .take_jobs(&worker("other"), 1, HOLD)
                .await
                .is_empty(),
            "the first worker still runs it"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_pings_stop_loses_its_jobs() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        let _log = service.run(&executor, work("a", None));
        assert_eq!(take_one(&executor, "dies").await, "a");
        executor.ping(&worker("dies"), Some(&["a"]));
        assert!(
            executor.take_jobs(&worker("w"), 1, HOLD).await.is_empty(),
            "not before the ping timeout"
        );
        assert_eq!(take_one(&executor, "w").await, "a");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_never_pings_loses_its_job_after_the_ping_timeout() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        let _log = service.run(&executor, work("a", None));
        assert_eq!(take_one(&executor, "quiet").await, "a");
        assert!(
            executor.take_jobs(&worker("w"), 1, HOLD).await.is_empty(),
            "not before the ping timeout"
        );
        assert_eq!(take_one(&executor, "w").await, "a");
        assert_eq!(executor.retry_count(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_never_pings_keeps_a_job_that_it_reports_about() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        let log = service.run(&executor, work("a", None));
        assert_eq!(take_one(&executor, "quiet").await, "a");
        for json in ["1", "2", "3", "4"] {
            assert!(executor.take_jobs(&worker("w"), 1, HOLD).await.is_empty());
            report(&executor, "quiet", "a", part(json)).await;
        }
        report(&executor, "quiet", "a", done("[]")).await;
        assert_eq!(log.await.unwrap().facts.retries, None);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_never_pings_keeps_its_job_while_it_listens_for_stops() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        let _log = service.run(&executor, work("a", None));
        assert_eq!(take_one(&executor, "quiet").await, "a");
        let handle = executor.clone();
        let listening = tokio::task::spawn_local(async move {
            loop {
                handle.jobs_to_stop(&worker("quiet"), STOPS).await;
            }
        });
        assert!(
            executor
                .take_jobs(&worker("w"), 1, 10 * HOLD)
                .await
                .is_empty()
        );
        listening.abort();
        assert_eq!(take_one(&executor, "w").await, "a");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_pings_no_longer_name_goes_to_another_worker() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        let _log: Vec<_> = ["a", "b"]
            .map(|job| service.run(&executor, work(job, None)))
            .into();
        let offers = executor.take_jobs(&worker("w"), 2, HOLD).await;
        offers.into_iter().for_each(JobOffer::confirm_delivered);
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(2)).await;
            executor.ping(&worker("w"), Some(&["b"]));
        }
        let offers = executor.take_jobs(&worker("x"), 2, HOLD).await;
        assert_eq!(names(&offers), ["a"], "the other job is still named");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_reports_no_job_loses_the_job_it_never_named() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        let _log: Vec<_> = ["a", "b"]
            .map(|job| service.run(&executor, work(job, None)))
            .into();
        assert_eq!(take_one(&executor, "w").await, "a");
        assert_eq!(take_one(&executor, "pings").await, "b");
        executor.report_idle(&worker("w"));
        assert!(
            executor.take_jobs(&worker("x"), 1, HOLD).await.is_empty(),
            "the request may have been sent before the job was delivered"
        );
        executor.ping(&worker("pings"), Some(&["b"]));
        for name in ["w", "pings"] {
            executor.report_idle(&worker(name));
        }
        assert_eq!(
            names(&executor.take_jobs(&worker("x"), 2, HOLD).await),
            ["a"],
            "a ping named the other job"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_loses_every_worker_fails() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        let log = service.run(&executor, work("a", None));
        for name in ["one", "two", "three"] {
            assert_eq!(take_one(&executor, name).await, "a");
            executor.ping(&worker(name), Some(&["a"]));
            tokio::time::sleep(Duration::from_secs(40)).await;
        }
        let error = log.await.unwrap().end.unwrap().unwrap_err();
        assert!(error.contains("`three` was lost"), "{error}");
        assert_eq!(executor.retry_count(), 2);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_late_result_of_a_lost_worker_counts() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        let log = service.run(&executor, work("a", None));
        assert_eq!(take_one(&executor, "slow").await, "a");
        executor.ping(&worker("slow"), Some(&["a"]));
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert_eq!(
            report(&executor, "slow", "a", done("1")).await,
            ReportOutcome::Applied
        );
        assert_eq!(log.await.unwrap().end, Some(Ok(Some("1".to_owned()))));
        assert!(
            executor.take_jobs(&worker("w"), 1, HOLD).await.is_empty(),
            "the job has ended"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn stream_parts_are_emitted_once_across_workers() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        let log = service.run(&executor, work("a", None));
        assert_eq!(take_one(&executor, "dies").await, "a");
        report(&executor, "dies", "a", part("1")).await;
        report(&executor, "dies", "a", part("2")).await;
        executor.ping(&worker("dies"), Some(&["a"]));
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert_eq!(take_one(&executor, "w").await, "a");
        assert_eq!(
            report(&executor, "dies", "a", part("9")).await,
            ReportOutcome::Ignored,
            "the worker no longer has the job"
        );
        for json in ["1", "2", "3"] {
            report(&executor, "w", "a", part(json)).await;
        }
        report(&executor, "w", "a", done("[]")).await;
        let log = log.await.unwrap();
        assert_eq!(log.parts, ["1", "2", "3"]);
        assert_eq!(
            (log.end, log.facts.final_output),
            (Some(Ok(None)), Some(json!([])))
        );
    })
    .await;
}
