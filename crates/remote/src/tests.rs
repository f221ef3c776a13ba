//! Workers and jobs of a [`RemoteExecutor`], with a minimal job service.
//!
//! The clock is paused: `sleep` takes no time.

mod commits;
mod lost_workers;
mod restart;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tidegate_core::job_attempt::AttemptEnd;
use tidegate_core::port::{Admitted, Executor, WaitPolicy};
use tidegate_core::remote::RemoteFacts;
use tidegate_core::{Account, Event, JobId, JobKind, Outcome, Work};
use tokio::task::{JoinHandle, JoinSet};

use crate::{
    Config, EXECUTION_TIMEOUT, JobOffer, JobReport, LongPollTimes, RemoteExecutor, ReportOutcome,
    WorkerId, WorkerResult,
};

const HOLD: Duration = Duration::from_secs(20);
const STOPS: LongPollTimes = LongPollTimes {
    idle: Duration::from_secs(20),
    busy: Duration::from_secs(80),
};

fn worker(name: &str) -> WorkerId {
    WorkerId::parse(name).unwrap()
}

fn id(name: &str) -> JobId {
    JobId::parse(name).unwrap()
}

fn executor() -> RemoteExecutor {
    RemoteExecutor::new(Config::default())
}

fn work(name: &str, limit: Option<u64>) -> Work {
    let context = limit.map(|limit| (EXECUTION_TIMEOUT.to_owned(), limit.to_string()));
    Work {
        id: id(name),
        kind: JobKind::Prediction,
        input: Bytes::from_static(b"{}"),
        files: BTreeMap::new(),
        context: context.into_iter().collect(),
        scratch: "/nowhere".into(),
    }
}

/// The events and the end of a job.
#[derive(Debug, Default, PartialEq)]
struct JobLog {
    parts: Vec<String>,
    facts: RemoteFacts,
    end: Option<Result<Option<String>, String>>,
}

/// A minimal job service: runs each job to its end, in a task.
#[derive(Default)]
struct TestService(JoinSet<()>);

impl TestService {
    fn run(&mut self, executor: &RemoteExecutor, work: Work) -> JoinHandle<JobLog> {
        self.run_for(executor, work, Account::ANONYMOUS)
    }

    fn run_for(
        &mut self,
        executor: &RemoteExecutor,
        work: Work,
        account: Account,
    ) -> JoinHandle<JobLog> {
        let Ok(Admitted::Queued(admission)) = executor.admit(&account, WaitPolicy::Unbounded)
        else {
            panic!("a line is always there")
        };
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.0.spawn(async move {
            let mut running = admission.await.ok().unwrap().start(work).await;
            let mut log = JobLog::default();
            while log.end.is_none() {
                match running.next().await {
                    Event::Output(value) => log
                        .parts
                        .push(String::from_utf8(value.json.to_vec()).unwrap()),
                    Event::Remote(fact) => log.facts.apply(fact),
                    Event::Metric(_) | Event::Log { .. } => {}
                    Event::Ended(Outcome::Succeeded { output }) => {
                        log.end =
                            Some(Ok(output.map(|output| {
                                String::from_utf8(output.json.to_vec()).unwrap()
                            })));
                    }
                    Event::Ended(Outcome::Failed { error }) => log.end = Some(Err(error)),
                    Event::Ended(Outcome::Canceled) => log.end = Some(Err("canceled".to_owned())),
                }
            }
            if let Some(on_committed) = running.on_committed() {
                on_committed();
            }
            sender.send(log).ok();
        });
        // A handle of the same kind for all tests.
        tokio::task::spawn_local(async move { receiver.await.unwrap() })
    }
}

fn done(output: &'static str) -> JobReport {
    JobReport::Done(WorkerResult {
        output: Some(Bytes::from_static(output.as_bytes())),
        error: None,
    })
}

fn part(json: &'static str) -> JobReport {
    JobReport::Part(Bytes::from_static(json.as_bytes()))
}

fn names(offers: &[JobOffer]) -> Vec<&str> {
    offers
        .iter()
        .map(|offer| offer.work().id.as_str())
        .collect()
}

async fn take_one(executor: &RemoteExecutor, name: &str) -> String {
    let mut offers = executor.take_jobs(&worker(name), 1, HOLD).await;
    let offer = offers.pop().expect("a job waits");
    let id = offer.work().id.to_string();
    offer.confirm_delivered();
    id
}

/// Applies a report that is not rejected.
async fn report(
    executor: &RemoteExecutor,
    name: &str,
    job: &str,
    report: JobReport,
) -> ReportOutcome {
    executor
        .apply_report(&worker(name), &id(job), report)
        .await
        .unwrap()
}

async fn local<T>(test: impl Future<Output = T>) -> T {
    tokio::task::LocalSet::new().run_until(test).await
}

#[tokio::test(start_paused = true)]
async fn a_job_goes_to_a_worker_and_its_result_is_returned() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        let log = service.run(&executor, work("a", None));
        assert_eq!(take_one(&executor, "w").await, "a");
        assert_eq!(executor.worker_counts().running, 1);
        assert_eq!(
            report(&executor, "w", "a", JobReport::Progress(json!("half"))).await,
            ReportOutcome::Applied
        );
        assert_eq!(
            report(&executor, "w", "a", done("[1]")).await,
            ReportOutcome::Applied
        );
        assert_eq!(
            report(&executor, "w", "a", done("[2]")).await,
            ReportOutcome::Ignored,
            "the first result counts"
        );
        let log = log.await.unwrap();
        assert_eq!(log.end, Some(Ok(Some("[1]".to_owned()))));
        assert_eq!(log.facts.worker.as_deref(), Some("w"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_asks_first_waits_and_gets_the_job() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        let handle = executor.clone();
        let request = tokio::task::spawn_local(async move { take_one(&handle, "w").await });
        tokio::task::yield_now().await;
        assert_eq!(executor.worker_counts().idle, 1);
        let _log = service.run(&executor, work("a", None));
        assert_eq!(request.await.unwrap(), "a");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn long_polls_end_after_their_hold_time() {
    let executor = executor();
    assert!(executor.take_jobs(&worker("w"), 1, HOLD).await.is_empty());
    assert!(executor.jobs_to_stop(&worker("w"), STOPS).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_the_requested_size_and_accounts_alternate() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        let account = |name| Account::parse(name).unwrap();
        let _log: Vec<_> = [("a1", "ann"), ("a2", "ann"), ("a3", "ann"), ("b1", "bob")]
            .map(|(job, owner)| service.run_for(&executor, work(job, None), account(owner)))
            .into();
        assert_eq!(
            names(&executor.take_jobs(&worker("w"), 3, HOLD).await),
            ["a1", "b1", "a2"]
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_the_job_at_once_and_stops_it_on_its_worker() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        let log = service.run(&executor, work("a", None));
        assert_eq!(take_one(&executor, "w").await, "a");
        let handle = executor.clone();
        let request =
            tokio::task::spawn_local(async move { handle.jobs_to_stop(&worker("w"), STOPS).await });
        tokio::task::yield_now().await;
        executor.cancel(&id("a"));
        assert_eq!(request.await.unwrap(), [id("a")]);
        assert_eq!(log.await.unwrap().end, Some(Err("canceled".to_owned())));
        assert_eq!(
            report(&executor, "w", "a", done("1")).await,
            ReportOutcome::Ignored
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_exceeds_its_execution_timeout_fails() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        let log = service.run(&executor, work("a", Some(5000)));
        // AdmissionWaiter is not working.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(take_one(&executor, "w").await, "a");
        let log = log.await.unwrap();
        assert!(log.end.unwrap().unwrap_err().contains("5000 ms"));
        assert!(log.facts.timed_out);
        assert_eq!(executor.jobs_to_stop(&worker("w"), STOPS).await, [id("a")]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_closed_executor_answers_long_polls_and_still_applies_reports() {
    local(async {
        let (executor, mut service) = (executor(), TestService::default());
        let log = service.run(&executor, work("a", None));
        assert_eq!(take_one(&executor, "w").await, "a");
        executor.close();
        assert!(
            executor
                .take_jobs(&worker("x"), 1, Duration::MAX / 4)
                .await
                .is_empty()
        );
        assert!(
            executor
                .admit(&Account::ANONYMOUS, WaitPolicy::Unbounded)
                .is_err()
        );
        report(&executor, "w", "a", done("1")).await;
        assert!(log.await.unwrap().end.unwrap().is_ok());
    })
    .await;
}

#[test]
fn worker_ids_are_short_visible_ascii() {
    for good in ["w", "x-1_2.3:4", &"w".repeat(128)] {
        assert!(WorkerId::parse(good).is_ok(), "{good}");
    }
    for bad in ["", "a/b", "a b", "é", "a\n", &"w".repeat(129)] {
        assert!(WorkerId::parse(bad).is_err(), "{bad}");
    }
}
