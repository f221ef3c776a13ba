//! A fake model: the test sees the jobs that were started and sends their events.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt;
use tidegate_core::health::{Health, HealthReport};
use tidegate_core::port::{Admission, Admitted, Executor, Running, WaitPolicy};
use tidegate_core::record::{Api, Target};
use tidegate_core::store::Store;
use tidegate_core::{Account, Event, JobKind, OutputValue, Refusal, Work};
use tidegate_net::Client;
use tidegate_queue::MemoryQueue;
use tidegate_service::{
    Config, Deps, Files, JobService, JobSettings, OnDuplicateId, OnLost, ResponseMode, Resumed,
    Submission, WebhookRenderer, WebhookSecrets,
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

/// How long ended jobs are kept: longer than any pause of a busy machine.
pub(crate) const KEEP_FOR: Duration = Duration::from_secs(60 * 60);
/// The timeout of jobs in [`service_with_timeout`].
pub(crate) const JOB_TIMEOUT: Duration = Duration::from_millis(30);
/// The most bytes of output per job.
pub(crate) const MAX_OUTPUT: usize = 1024 * 1024;

/// A model whose jobs are run by the test.
#[derive(Clone)]
pub(crate) struct FakeModel {
    slots: Arc<Semaphore>,
    schema: Arc<Bytes>,
    runs: Arc<Mutex<Runs>>,
    changed: Arc<Notify>,
    stopped: CancellationToken,
}

#[derive(Default)]
struct Runs {
    started: usize,
    waiting: std::collections::VecDeque<Run>,
}

/// One started job, run by the test.
pub(crate) struct Run {
    /// The work that the model received.
    pub(crate) work: Work,
    events: mpsc::UnboundedSender<Event>,
    canceled: CancellationToken,
}

impl Run {
    pub(crate) fn send(&self, event: Event) {
        self.events
            .send(event)
            .expect("the tracker receives events");
    }

    pub(crate) async fn cancel_requested(&mut self) {
        self.canceled.cancelled().await;
    }

    pub(crate) fn is_cancel_requested(&self) -> bool {
        self.canceled.is_cancelled()
    }
}

impl FakeModel {
    fn new(slots: usize, schema: &'static str) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(slots)),
            schema: Arc::new(Bytes::from_static(schema.as_bytes())),
            runs: Arc::default(),
            changed: Arc::default(),
            stopped: CancellationToken::new(),
        }
    }

    pub(crate) fn without_streaming(slots: usize) -> Self {
        Self::new(slots, r#"{"components":{"schemas":{}},"paths":{}}"#)
    }

    pub(crate) fn with_file_input() -> Self {
        Self::new(
            1,
            r#"{"components":{"schemas":{"Input":{"type":"object","properties":{"image":{"type":"string","format":"uri"}, "text":{"type":"string"}}}}},"paths":{}}"#,
        )
    }

    /// Waits for the next job that the service starts.
    pub(crate) async fn started(&self) -> Run {
        loop {
            let changed = self.changed.notified();
            if let Some(run) = self
                .runs
                .lock()
                .expect("the lock is not poisoned")
                .waiting
                .pop_front()
            {
                return run;
            }
            changed.await;
        }
    }

    pub(crate) fn starts(&self) -> usize {
        self.runs.lock().expect("the lock is not poisoned").started
    }

    /// Canceled when the model was stopped.
    pub(crate) fn stopped(&self) -> &CancellationToken {
        &self.stopped
    }

    pub(crate) fn free_slots(&self) -> usize {
        self.slots.available_permits()
    }

    pub(crate) async fn wait_for_free_slots(&self, count: u32) {
        drop(self.slots.acquire_many(count).await);
    }
}

#[async_trait]
impl Executor for FakeModel {
    fn admit(&self, _account: &Account, wait: WaitPolicy) -> Result<Admitted, Refusal> {
        if let Ok(permit) = Arc::clone(&self.slots).try_acquire_owned() {
            return Ok(Admitted::Now(Box::new(FakeAdmission {
                model: self.clone(),
                permit,
            })));
        }
        if wait == WaitPolicy::NoWait {
            return Err(Refusal::AtCapacity);
        }
        let model = self.clone();
        // A semaphore queues a caller when its future is first polled. The runtime queues it in
        // `admit`, so this polls once here; otherwise the order of jobs would depend on the order
        // in which their tasks first run.
        let mut acquire = Box::pin(Arc::clone(&self.slots).acquire_owned());
        let at_once = (&mut acquire).now_or_never();
        Ok(Admitted::Queued(Box::pin(async move {
            let permit = match at_once {
                Some(permit) => permit,
                None => acquire.await,
            };
            let permit = permit.expect("the semaphore is never closed");
            Ok(Box::new(FakeAdmission { model, permit }) as Box<dyn Admission>)
        })))
    }

    fn schema(&self) -> Option<Arc<Bytes>> {
        Some(Arc::clone(&self.schema))
    }

    fn report(&self) -> HealthReport {
        HealthReport {
            health: Health::Ready,
            setup: None,
            health_error: None,
            python: None,
            sdk: None,
        }
    }

    async fn check(&self) -> HealthReport {
        self.report()
    }

    async fn stop(&self) {
        self.stopped.cancel();
    }
}

struct FakeAdmission {
    model: FakeModel,
    permit: OwnedSemaphorePermit,
}

#[async_trait]
impl Admission for FakeAdmission {
    async fn start(self: Box<Self>, work: Work) -> Box<dyn Running> {
        let (events, receiver) = mpsc::unbounded_channel();
        let canceled = CancellationToken::new();
        {
            let mut runs = self.model.runs.lock().expect("the lock is not poisoned");
            runs.started += 1;
            runs.waiting.push_back(Run {
                work,
                events,
                canceled: canceled.clone(),
            });
        }
        self.model.changed.notify_waiters();
        Box::new(FakeRunning {
            receiver,
            canceled,
            _permit: self.permit,
        })
    }
}

struct FakeRunning {
    receiver: mpsc::UnboundedReceiver<Event>,
    canceled: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

#[async_trait]
impl Running for FakeRunning {
    async fn next(&mut self) -> Event {
        self.receiver
            .recv()
            .await
            .expect("the test sends the end of the job")
    }

    fn cancel(&mut self) {
        self.canceled.cancel();
    }
}

/// A job service with a streaming model with this many slots.
pub(crate) fn streaming_service(slots: usize) -> (FakeModel, JobService) {
    let streaming = r#"{"components":{"schemas":{}},"paths":{"/predictions":{"post":{"x-cog-streaming":true}}}}"#;
    let model = FakeModel::new(slots, streaming);
    (model.clone(), service_for(model))
}

pub(crate) fn service_for(model: FakeModel) -> JobService {
    service_with(model, ServiceOptions::default())
}

/// A job service whose jobs time out after [`JOB_TIMEOUT`].
pub(crate) fn service_with_timeout(model: FakeModel) -> JobService {
    service_with(
        model,
        ServiceOptions {
            job_timeout: Some(JOB_TIMEOUT),
            ..ServiceOptions::default()
        },
    )
}

/// The options that tests set on a job service.
#[derive(Default)]
pub(crate) struct ServiceOptions {
    pub(crate) job_timeout: Option<Duration>,
    pub(crate) net: tidegate_net::Config,
    pub(crate) free_space: Option<u64>,
    /// The folder with the files of jobs.
    pub(crate) scratch: Option<PathBuf>,
    pub(crate) store: Option<Arc<dyn Store>>,
    /// The queue of waiting jobs; a queue of its own if absent.
    pub(crate) queue: Option<Arc<MemoryQueue>>,
    pub(crate) keep_data_for: Option<Duration>,
    /// The limit on the inputs of waiting jobs in memory; unlimited if absent.
    pub(crate) waiting_memory: Option<usize>,
    /// The number of attempts of lost jobs; without it they fail.
    pub(crate) attempts: Option<u32>,
    /// The retry window of webhooks; a day if absent.
    pub(crate) retry_for: Option<Duration>,
}

pub(crate) fn service_with(model: FakeModel, options: ServiceOptions) -> JobService {
    let ServiceOptions {
        job_timeout,
        net,
        free_space,
        scratch,
        store,
        queue,
        keep_data_for,
        waiting_memory,
        attempts,
        retry_for,
    } = options;
    let net = Arc::new(Client::new(net));
    let deps = Deps {
        files: Files {
            net: Arc::clone(&net),
            upload_url: None,
            owner: None,
            file_store: None,
        },
        net,
        scratch: Arc::new(move || scratch.clone().unwrap_or_else(|| "/nonexistent".into())),
        free_space: Arc::new(move || free_space),
        spill_above: 1024 * 1024,
        queue: queue.unwrap_or_default(),
        store,
        cluster: None,
    };
    let config = Config {
        webhook_token: None,
        webhook_secrets: WebhookSecrets::default(),
        webhook_throttle: Duration::ZERO,
        webhook_retry_for: retry_for.unwrap_or(Duration::from_secs(24 * 60 * 60)),
        waiting_memory: waiting_memory.unwrap_or(usize::MAX),
        jobs: JobSettings {
            stream_history: 1024,
            keep_for: KEEP_FOR,
            keep_data_for,
            predictions_are: JobKind::Prediction,
            job_timeout,
            max_output: MAX_OUTPUT,
            on_lost: attempts.map_or(OnLost::Fail, |attempts| OnLost::Retry { attempts }),
            renderer: Arc::new(|_, _, _| {
                WebhookRenderer::new(|job| Bytes::from(format!("{:?}", job.status)))
            }),
        },
    };
    let target = Target {
        model: "ann/echo".to_owned(),
        version: "0".repeat(64),
        deployment: None,
    };
    JobService::new(Arc::new(model), target, deps, config)
}

/// Resumes what the store of this service holds; the service runs the jobs of all models.
pub(crate) async fn resume(jobs: &JobService) -> Resumed {
    let service = jobs.clone();
    let resumed = jobs.resume(Arc::new(move |_: &Target| Some(service.clone())));
    resumed.await.expect("the store works")
}

pub(crate) fn submission(input: &'static str) -> Submission {
    Submission {
        account: Account::ANONYMOUS,
        id: None,
        kind: JobKind::Prediction,
        input: Bytes::from_static(input.as_bytes()),
        webhook: None,
        context: BTreeMap::new(),
        response_mode: ResponseMode::Async,
        on_duplicate: OnDuplicateId::Refuse,
        deadline: None,
        api: Api::Cog,
        policies: Api::Cog.policies(),
        deployment: None,
        destination: None,
        warnings: Vec::new(),
    }
}

pub(crate) fn value(json: &'static str) -> OutputValue {
    OutputValue {
        json: Bytes::from_static(json.as_bytes()),
        files: Vec::new(),
    }
}

/// Lets every other task run until all wait. The tests have one thread, so a few rounds are enough.
pub(crate) async fn yield_to_all_tasks() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
