//! Jobs of another process, which this process runs under a lease and without a store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use tidegate_core::lease::{Fence, LeaseRequest, LeaseResult, Nonce};
use tidegate_core::outbox::OutboxMessage;
use tidegate_core::port::{Admitted, Executor, WaitPolicy};
use tidegate_core::record::{Api, JobSpec, Target, WebhookSpec};
use tidegate_core::store::{FinishOutcome, JobFinish, JobRecords, StoreError};
use tidegate_core::{Account, Event, JobId, JobKind, Outcome, Refusal, Status};
use tidegate_service::{InterimMessages, JobService, LeasedRun, OnRefused, RunOutcome};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::fake_model::{FakeModel, streaming_service, value};

const NOT_POISONED: &str = "the lock is not poisoned";
const FENCE: Fence = Fence {
    attempt: 2,
    nonce: Nonce(7),
};

/// The other process: it replies to ends as the test says, and keeps the last end and the messages.
#[derive(Default)]
struct Elsewhere {
    replies: Mutex<Vec<Result<FinishOutcome, StoreError>>>,
    ends: Mutex<Vec<JobFinish>>,
    messages: Mutex<Vec<OutboxMessage>>,
}

impl Elsewhere {
    fn replying(replies: Vec<Result<FinishOutcome, StoreError>>) -> Arc<Self> {
        Arc::new(Self {
            replies: Mutex::new(replies),
            ..Self::default()
        })
    }

    fn ends(&self) -> Vec<JobFinish> {
        self.ends.lock().expect(NOT_POISONED).clone()
    }
}

#[async_trait]
impl JobRecords for Elsewhere {
    async fn lease(&self, _: LeaseRequest) -> Result<LeaseResult, StoreError> {
        panic!("the job is leased already")
    }

    async fn finish(&self, finish: JobFinish) -> Result<FinishOutcome, StoreError> {
        self.ends.lock().expect(NOT_POISONED).push(finish);
        let mut replies = self.replies.lock().expect(NOT_POISONED);
        if replies.is_empty() {
            return Ok(FinishOutcome::Committed);
        }
        replies.remove(0)
    }
}

#[async_trait]
impl InterimMessages for Elsewhere {
    async fn put(&self, message: OutboxMessage) -> bool {
        self.messages.lock().expect(NOT_POISONED).push(message);
        true
    }
}

fn spec() -> JobSpec {
    JobSpec {
        id: JobId::parse("a").expect("an id"),
        account: Account::ANONYMOUS,
        kind: JobKind::Prediction,
        target: Target {
            model: "ann/echo".to_owned(),
            version: "0".repeat(64),
            deployment: None,
        },
        input: Bytes::from_static(b"{}"),
        files: Vec::new(),
        secrets: Vec::new(),
        context: BTreeMap::new(),
        destination: None,
        hook: None,
        api: Api::Replicate,
        policies: Api::Replicate.policies(),
        // Passed long ago, by the clock of this process.
        deadline: Some(Timestamp::UNIX_EPOCH),
        created_at: Timestamp::now(),
    }
}

fn admitted(model: &FakeModel) -> Admitted {
    model
        .admit(&Account::shared(), WaitPolicy::Unbounded)
        .expect("the model admits all jobs")
}

fn leased(elsewhere: &Arc<Elsewhere>, admitted: Admitted) -> LeasedRun {
    LeasedRun {
        spec: spec(),
        fence: FENCE,
        began_at: Timestamp::now(),
        remaining: None,
        admitted,
        on_refused: OnRefused::Leave,
        records: Arc::clone(elsewhere) as _,
        interim: Arc::clone(elsewhere) as _,
        uploads: None,
        downloads: None,
        versions: None,
        abandon: CancellationToken::new(),
    }
}

fn spawn(jobs: &JobService, run: LeasedRun) -> tokio::task::JoinHandle<RunOutcome> {
    let (_, run) = jobs.run_leased(run);
    TaskTracker::new().spawn(run)
}

fn succeeded() -> Event {
    Event::Ended(Outcome::Succeeded {
        output: Some(value("7")),
    })
}

#[tokio::test(start_paused = true)]
async fn the_end_is_reported_under_the_lease() {
    let (model, jobs) = streaming_service(1);
    let elsewhere = Elsewhere::replying(Vec::new());
    let run = spawn(&jobs, leased(&elsewhere, admitted(&model)));
    model.started().await.send(succeeded());
    assert_eq!(run.await.unwrap(), RunOutcome::Committed);
    let ends = elsewhere.ends();
    assert_eq!(
        (ends.len(), ends[0].fence, ends[0].status),
        (1, FENCE, Status::Succeeded)
    );
    assert!(ends[0].began_at.is_some());
    assert_eq!(model.free_slots(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_end_is_retried_and_a_recorded_cancel_decides_it() {
    let (model, jobs) = streaming_service(1);
    let unavailable = || Err(StoreError::Unavailable("down".to_owned()));
    let mut replies: Vec<_> = (0..100).map(|_| unavailable()).collect();
    replies.push(Ok(FinishOutcome::CancelRequested));
    let elsewhere = Elsewhere::replying(replies);
    let run = spawn(&jobs, leased(&elsewhere, admitted(&model)));
    model.started().await.send(succeeded());
    assert_eq!(run.await.unwrap(), RunOutcome::Committed);
    let ends = elsewhere.ends();
    assert_eq!((ends.len(), ends[101].status), (102, Status::Canceled));
}

#[tokio::test(start_paused = true)]
async fn a_result_that_is_never_accepted_becomes_a_failure() {
    let (model, jobs) = streaming_service(1);
    let elsewhere = Elsewhere::replying(vec![Err(StoreError::Invalid("too large".to_owned()))]);
    let run = spawn(&jobs, leased(&elsewhere, admitted(&model)));
    model.started().await.send(succeeded());
    assert_eq!(run.await.unwrap(), RunOutcome::Committed);
    let end = elsewhere.ends().remove(1);
    assert_eq!((end.status, end.completion.output), (Status::Failed, None));
    assert!(end.completion.error.unwrap().contains("too large"));
}

#[tokio::test(start_paused = true)]
async fn a_result_that_does_not_count_is_reported_as_such() {
    let (model, jobs) = streaming_service(1);
    let elsewhere = Elsewhere::replying(vec![Ok(FinishOutcome::ByAnother)]);
    let run = spawn(&jobs, leased(&elsewhere, admitted(&model)));
    model.started().await.send(succeeded());
    assert_eq!(run.await.unwrap(), RunOutcome::ByAnother);
    assert!(
        jobs.get(&Account::ANONYMOUS, &spec().id)
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_request_cancels_the_job() {
    let (model, jobs) = streaming_service(1);
    let elsewhere = Elsewhere::replying(Vec::new());
    let run = spawn(&jobs, leased(&elsewhere, admitted(&model)));
    let mut started = model.started().await;
    assert!(jobs.request_stop(&Account::ANONYMOUS, &spec().id));
    started.cancel_requested().await;
    started.send(succeeded());
    assert_eq!(run.await.unwrap(), RunOutcome::Committed);
    assert_eq!(elsewhere.ends()[0].status, Status::Canceled);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_job_stops_without_an_end() {
    let (model, jobs) = streaming_service(1);
    let elsewhere = Elsewhere::replying(Vec::new());
    let leased = leased(&elsewhere, admitted(&model));
    let abandon = leased.abandon.clone();
    let run = spawn(&jobs, leased);
    let _started = model.started().await;
    abandon.cancel();
    assert_eq!(run.await.unwrap(), RunOutcome::Left);
    assert_eq!((elsewhere.ends().len(), model.free_slots()), (0, 1));
    assert!(!jobs.request_stop(&Account::ANONYMOUS, &spec().id));
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_end_is_decided_is_not_abandoned() {
    let (model, jobs) = streaming_service(1);
    let unavailable = Err(StoreError::Unavailable("down".to_owned()));
    let elsewhere = Elsewhere::replying(vec![unavailable]);
    let leased = leased(&elsewhere, admitted(&model));
    let abandon = leased.abandon.clone();
    let run = spawn(&jobs, leased);
    model.started().await.send(succeeded());
    while elsewhere.ends().is_empty() {
        tokio::task::yield_now().await;
    }
    abandon.cancel();
    assert_eq!(run.await.unwrap(), RunOutcome::Committed);
}

#[tokio::test(start_paused = true)]
async fn a_job_without_capacity_is_left() {
    let (_model, jobs) = streaming_service(1);
    let elsewhere = Elsewhere::replying(Vec::new());
    let refused = Admitted::Queued(Box::pin(std::future::ready(Err(Refusal::Closing))));
    let run = spawn(&jobs, leased(&elsewhere, refused));
    assert_eq!(run.await.unwrap(), RunOutcome::Left);
    assert!(elsewhere.ends().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_remaining_time_is_the_deadline() {
    let (model, jobs) = streaming_service(1);
    let elsewhere = Elsewhere::replying(Vec::new());
    let run = LeasedRun {
        remaining: Some(Duration::from_secs(5)),
        ..leased(&elsewhere, admitted(&model))
    };
    let run = spawn(&jobs, run);
    let mut started = model.started().await;
    started.cancel_requested().await;
    started.send(succeeded());
    assert_eq!(run.await.unwrap(), RunOutcome::Committed);
    assert_eq!(elsewhere.ends()[0].status, Status::Canceled);
}

#[tokio::test(start_paused = true)]
async fn webhook_messages_go_to_the_other_process() {
    let (model, jobs) = streaming_service(1);
    let elsewhere = Elsewhere::replying(Vec::new());
    let mut run = leased(&elsewhere, admitted(&model));
    run.spec.hook = Some(WebhookSpec {
        url: "http://receiver.example/".to_owned(),
        events: vec!["start".to_owned(), "completed".to_owned()],
        headers: BTreeMap::new(),
        origin: None,
        streams: false,
        streams_files: false,
        stream_url: None,
    });
    let run = spawn(&jobs, run);
    let started = model.started().await;
    while elsewhere.messages.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    started.send(succeeded());
    assert_eq!(run.await.unwrap(), RunOutcome::Committed);
    let messages = elsewhere.messages.lock().unwrap().clone();
    assert_eq!(
        (messages.len(), &messages[0].body[..]),
        (1, &b"Processing"[..])
    );
    let last = elsewhere.ends()[0].message.clone().unwrap();
    assert_eq!((&last.body[..], last.claim), (&b"Succeeded"[..], None));
}
