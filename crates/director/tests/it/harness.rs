//! A director with a fake API, a queue in memory and a fake model.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use tidegate_core::director_api::DirectorJobKind;
use tidegate_core::queue::{Priority, Queue, QueueEntry, QueueName};
use tidegate_core::record::{Api, JobSpec, Target, WebhookSpec};
use tidegate_core::{Account, JobId, JobKind};
use tidegate_director::{
    ApiClient, Config, Director, DirectorDeps, DirectorError, Hooks, LoadTiming, OnIsolated,
};
use tidegate_net::{Client, Url};
use tidegate_queue::MemoryQueue;
use tidegate_service::{
    Config as ServiceConfig, Deps, Files, JobService, JobSettings, ModelRegistry, NoExecutor,
    OnLost, ServedVersion, WebhookRenderer, WebhookSecrets,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::fake_api::{ApiState, FakeApi, QUEUE, TOKEN, Timing};
use crate::fake_model::{FakeModel, within};

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// What a test sets.
pub(crate) struct Options {
    pub(crate) slots: usize,
    pub(crate) timing: Timing,
    pub(crate) on_isolated: OnIsolated,
    pub(crate) drain_timeout: Duration,
    pub(crate) first_url: FirstUrl,
    pub(crate) loading: LoadTiming,
    /// The queue; one in memory without it.
    pub(crate) queue: Option<Arc<dyn Queue>>,
    pub(crate) hooks: Hooks,
}

/// The first URL of the API.
#[derive(Clone, Copy)]
pub(crate) enum FirstUrl {
    Works,
    IsDead,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            slots: 1,
            timing: Timing {
                lease: LONG,
                interval: Duration::from_millis(30),
            },
            on_isolated: OnIsolated::Stop,
            drain_timeout: LONG,
            first_url: FirstUrl::Works,
            loading: LoadTiming::AtStart,
            queue: None,
            hooks: Hooks::default(),
        }
    }
}

/// A director that runs.
pub(crate) struct Harness {
    pub(crate) api: Arc<ApiState>,
    pub(crate) model: FakeModel,
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) director: Arc<Director>,
    stop: CancellationToken,
    running: JoinHandle<Result<bool, DirectorError>>,
    _server: FakeApi,
}

impl Harness {
    pub(crate) async fn start(options: Options) -> Self {
        let harness = Self::start_unconnected(options).await;
        eventually(|| !harness.api.calls().registered.is_empty()).await;
        harness
    }

    pub(crate) async fn start_unconnected(options: Options) -> Self {
        let server = FakeApi::start(options.timing, &version()).await;
        let model = match options.loading {
            LoadTiming::AtStart => FakeModel::new(options.slots),
            LoadTiming::OnDemand => FakeModel::unloaded(options.slots),
        };
        let queue = options
            .queue
            .unwrap_or_else(|| Arc::new(MemoryQueue::default()));
        // Another process of the API, which does not run.
        let dead = Url::parse("http://127.0.0.1:9").unwrap();
        let urls = match options.first_url {
            FirstUrl::Works => vec![server.url.clone()],
            FirstUrl::IsDead => vec![dead, server.url.clone()],
        };
        let api =
            ApiClient::new(Client::new(tidegate_net::Config::default()), urls, TOKEN).unwrap();
        let config = Config {
            name: "gpu-1".to_owned(),
            job_kind: DirectorJobKind::Prediction,
            claim_interval: Duration::from_millis(100),
            on_isolated: options.on_isolated,
            loading: options.loading,
        };
        let deps = DirectorDeps {
            api: Arc::new(api),
            queue: Arc::clone(&queue),
            models: registry(&model),
            live: None,
            trained: None,
        };
        let director = Arc::new(Director::with_hooks(config, deps, options.hooks));
        let running_director = Arc::clone(&director);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let running = TaskTracker::new()
            .spawn(async move { running_director.run(stopped, options.drain_timeout).await });
        Self {
            api: Arc::clone(&server.state),
            model,
            queue,
            director,
            stop,
            running,
            _server: server,
        }
    }

    /// Adds a job to the API and its message to the queue.
    pub(crate) async fn add(&self, id: &str) -> JobId {
        self.add_spec(spec(id)).await
    }

    pub(crate) async fn add_spec(&self, spec: JobSpec) -> JobId {
        let id = spec.id.clone();
        self.api.add(spec);
        self.push(&id).await;
        id
    }

    /// Adds a message to the queue.
    pub(crate) async fn push(&self, id: &JobId) {
        push(&*self.queue, id).await;
    }

    /// The number of messages that wait and that the director has.
    pub(crate) async fn messages(&self) -> (usize, usize) {
        let depth = self.queue.depth(&QueueName::new(QUEUE)).await.unwrap();
        (depth.waiting, depth.claimed)
    }

    /// Waits until these many messages wait and are claimed.
    pub(crate) async fn wait_for_messages(&self, expected: (usize, usize)) {
        within(async {
            while self.messages().await != expected {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// Asks the director to stop.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until the director has ended.
    pub(crate) async fn ended(self) -> Result<bool, DirectorError> {
        within(self.running).await.unwrap()
    }
}

/// Adds a message to the queue of the model.
pub(crate) async fn push(queue: &dyn Queue, id: &JobId) {
    let entry = QueueEntry {
        account: Account::ANONYMOUS,
        id: id.clone(),
        priority: Priority::Normal,
        deadline: None,
        details: None,
    };
    queue.push(&QueueName::new(QUEUE), entry).await.unwrap();
}

/// Waits until a condition holds.
pub(crate) async fn eventually(mut condition: impl FnMut() -> bool) {
    within(async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

pub(crate) fn version() -> String {
    "ab".repeat(32)
}

fn target() -> Target {
    Target {
        model: "ann/echo".to_owned(),
        version: version(),
        deployment: None,
    }
}

pub(crate) fn spec(id: &str) -> JobSpec {
    JobSpec {
        id: JobId::parse(id).unwrap(),
        account: Account::ANONYMOUS,
        kind: JobKind::Prediction,
        target: target(),
        input: Bytes::from_static(b"{}"),
        files: Vec::new(),
        secrets: Vec::new(),
        context: BTreeMap::new(),
        destination: None,
        hook: None,
        api: Api::Replicate,
        policies: Api::Replicate.policies(),
        deadline: None,
        created_at: Timestamp::now(),
    }
}

/// The same job with a webhook for these events.
pub(crate) fn with_hook(spec: JobSpec, events: &[&str]) -> JobSpec {
    JobSpec {
        hook: Some(WebhookSpec {
            url: "http://receiver.example/hook".to_owned(),
            events: events.iter().map(|event| (*event).to_owned()).collect(),
            headers: BTreeMap::new(),
            origin: None,
            streams: true,
            streams_files: false,
            stream_url: None,
        }),
        ..spec
    }
}

/// A registry with the fake model.
fn registry(model: &FakeModel) -> ModelRegistry {
    let net = Arc::new(Client::new(tidegate_net::Config::default()));
    let scratch = std::env::temp_dir().join("tidegate-director-tests");
    let deps = Deps {
        files: Files {
            net: Arc::clone(&net),
            upload_url: None,
            owner: None,
            file_store: None,
        },
        net,
        scratch: Arc::new(move || scratch.clone()),
        free_space: Arc::new(|| None),
        spill_above: 1024 * 1024,
        queue: Arc::new(MemoryQueue::default()),
        store: None,
        cluster: None,
    };
    let config = ServiceConfig {
        webhook_token: None,
        webhook_secrets: WebhookSecrets::default(),
        webhook_throttle: Duration::ZERO,
        webhook_retry_for: LONG,
        waiting_memory: usize::MAX,
        jobs: JobSettings {
            stream_history: 1024,
            keep_for: Duration::ZERO,
            keep_data_for: None,
            predictions_are: JobKind::Prediction,
            job_timeout: None,
            max_output: 1024 * 1024,
            on_lost: OnLost::Fail,
            renderer: Arc::new(|_, _, _| {
                WebhookRenderer::new(|job| Bytes::from(format!("\"{:?}\"", job.status)))
            }),
        },
    };
    let nothing = Target {
        model: String::new(),
        version: String::new(),
        deployment: None,
    };
    let models = ModelRegistry::new(JobService::new(Arc::new(NoExecutor), nothing, deps, config));
    models.offer(ServedVersion {
        jobs: models.lookup().for_model(Arc::new(model.clone()), target()),
        created_at: Timestamp::now(),
        description: None,
        folder: PathBuf::new(),
        is_handler: false,
    });
    models
}
