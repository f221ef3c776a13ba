//! What workers and jobs can rely on, with a desk in small. The clock is paused: `sleep` takes no time.

mod lost;
mod restart;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_core::port::{Admitted, Executor, WaitPolicy};
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

fn remote() -> RemoteExecutor {
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

/// What a job came to.
#[derive(Debug, Default, PartialEq)]
struct Ran {
    parts: Vec<String>,
    notes: BTreeMap<String, Value>,
    end: Option<Result<Option<String>, String>>,
}

/// A desk in small: a job that runs to its end, as a task of its own.
#[derive(Default)]
struct Desk(JoinSet<()>);

impl Desk {
    fn run(&mut self, remote: &RemoteExecutor, work: Work) -> JoinHandle<Ran> {
        self.run_for(remote, work, Account::ANONYMOUS)
    }

    fn run_for(
        &mut self,
        remote: &RemoteExecutor,
        work: Work,
        account: Account,
    ) -> JoinHandle<Ran> {
        let Ok(Admitted::Queued(place)) = remote.admit(&account, WaitPolicy::Unbounded) else {
            panic!("a line is always there")
        };
        let (tell, told) = tokio::sync::oneshot::channel();
        self.0.spawn(async move {
            let mut running = place.await.ok().unwrap().start(work).await;
            let mut ran = Ran::default();
            while ran.end.is_none() {
                match running.next().await {
                    Event::Output(value) => ran
                        .parts
                        .push(String::from_utf8(value.json.to_vec()).unwrap()),
                    Event::Metric(metric) => drop(ran.notes.insert(metric.name, metric.value)),
                    Event::Log { .. } => {}
                    Event::Ended(Outcome::Succeeded { output }) => {
                        ran.end =
                            Some(Ok(output.map(|output| {
                                String::from_utf8(output.json.to_vec()).unwrap()
                            })));
                    }
                    Event::Ended(Outcome::Failed { error }) => ran.end = Some(Err(error)),
                    Event::Ended(Outcome::Canceled) => ran.end = Some(Err("canceled".to_owned())),
                }
            }
            tell.send(ran).ok();
        });
        // A handle of the same kind for all tests.
        tokio::task::spawn_local(async move { told.await.unwrap() })
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

async fn take_one(remote: &RemoteExecutor, name: &str) -> String {
    let mut offers = remote.take_jobs(&worker(name), 1, HOLD).await;
    let offer = offers.pop().expect("a job waits");
    let id = offer.work().id.to_string();
    offer.confirm_delivered();
    id
}

async fn local<T>(test: impl Future<Output = T>) -> T {
    tokio::task::LocalSet::new().run_until(test).await
}

#[tokio::test(start_paused = true)]
async fn a_job_goes_to_a_worker_and_its_result_comes_back() {
    local(async {
        let (remote, mut desk) = (remote(), Desk::default());
        let ran = desk.run(&remote, work("a", None));
        assert_eq!(take_one(&remote, "w").await, "a");
        assert_eq!(remote.worker_counts().running, 1);
        assert_eq!(
            remote.apply_report(&worker("w"), &id("a"), JobReport::Progress(json!("half"))),
            ReportOutcome::Applied
        );
        assert_eq!(
            remote.apply_report(&worker("w"), &id("a"), done("[1]")),
            ReportOutcome::Applied
        );
        assert_eq!(
            remote.apply_report(&worker("w"), &id("a"), done("[2]")),
            ReportOutcome::Ignored,
            "the first end counts"
        );
        let ran = ran.await.unwrap();
        assert_eq!(ran.end, Some(Ok(Some("[1]".to_owned()))));
        assert_eq!(ran.notes["worker"], "w");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_asks_first_waits_and_gets_the_job() {
    local(async {
        let (remote, mut desk) = (remote(), Desk::default());
        let asked = remote.clone();
        let asking = tokio::task::spawn_local(async move { take_one(&asked, "w").await });
        tokio::task::yield_now().await;
        assert_eq!(remote.worker_counts().idle, 1);
        let _ran = desk.run(&remote, work("a", None));
        assert_eq!(asking.await.unwrap(), "a");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_than_it_is_held() {
    let remote = remote();
    assert!(remote.take_jobs(&worker("w"), 1, HOLD).await.is_empty());
    assert!(remote.jobs_to_stop(&worker("w"), STOPS).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_as_many_as_are_wanted_and_accounts_take_turns() {
    local(async {
        let (remote, mut desk) = (remote(), Desk::default());
        let account = |name| Account::parse(name).unwrap();
        let _ran: Vec<_> = [("a1", "ann"), ("a2", "ann"), ("a3", "ann"), ("b1", "bob")]
            .map(|(job, owner)| desk.run_for(&remote, work(job, None), account(owner)))
            .into();
        assert_eq!(
            names(&remote.take_jobs(&worker("w"), 3, HOLD).await),
            ["a1", "b1", "a2"]
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_the_job_at_once_and_tells_its_worker() {
    local(async {
        let (remote, mut desk) = (remote(), Desk::default());
        let ran = desk.run(&remote, work("a", None));
        assert_eq!(take_one(&remote, "w").await, "a");
        let asked = remote.clone();
        let asking =
            tokio::task::spawn_local(async move { asked.jobs_to_stop(&worker("w"), STOPS).await });
        tokio::task::yield_now().await;
        remote.cancel(&id("a"));
        assert_eq!(asking.await.unwrap(), [id("a")]);
        assert_eq!(ran.await.unwrap().end, Some(Err("canceled".to_owned())));
        assert_eq!(
            remote.apply_report(&worker("w"), &id("a"), done("1")),
            ReportOutcome::Ignored
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_may_have_a_job_only_so_long() {
    local(async {
        let (remote, mut desk) = (remote(), Desk::default());
        let ran = desk.run(&remote, work("a", Some(5000)));
        // AdmissionWaiter is not working.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(take_one(&remote, "w").await, "a");
        let ran = ran.await.unwrap();
        assert!(ran.end.unwrap().unwrap_err().contains("5000 ms"));
        assert_eq!(ran.notes["timed_out"], true);
        assert_eq!(remote.jobs_to_stop(&worker("w"), STOPS).await, [id("a")]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn whoever_closes_answers_all_questions_and_still_hears() {
    local(async {
        let (remote, mut desk) = (remote(), Desk::default());
        let ran = desk.run(&remote, work("a", None));
        assert_eq!(take_one(&remote, "w").await, "a");
        remote.close();
        assert!(
            remote
                .take_jobs(&worker("x"), 1, Duration::MAX / 4)
                .await
                .is_empty()
        );
        assert!(
            remote
                .admit(&Account::ANONYMOUS, WaitPolicy::Unbounded)
                .is_err()
        );
        remote.apply_report(&worker("w"), &id("a"), done("1"));
        assert!(ran.await.unwrap().end.unwrap().is_ok());
    })
    .await;
}

#[test]
fn workers_have_plain_names() {
    for good in ["w", "x-1_2.3:4", &"w".repeat(128)] {
        assert!(WorkerId::parse(good).is_ok(), "{good}");
    }
    for bad in ["", "a/b", "a b", "é", "a\n", &"w".repeat(129)] {
        assert!(WorkerId::parse(bad).is_err(), "{bad}");
    }
}
