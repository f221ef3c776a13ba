//! The job service of one model: submit, find, cancel and wait for jobs.
//!
//! The services of all models of a server share one [`Shared`]: the store, the queue, the registry of
//! jobs, the delivery log. What belongs to one model (executor, target, queue name, metrics) is in
//! [`PerModel`]. Submitting is in `submit/`, waiting in `waiting/`, running in `run/`.

mod per_model;
mod shared;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::health::{Health, HealthReport};
use tidegate_core::planted;
use tidegate_core::port::Executor;
use tidegate_core::queue::Queue;
use tidegate_core::record::{JobRecord, JobSpec, Target};
use tidegate_core::store::{
    CancelRequestResult, JobFilter, JobHead, JobQuery, Page, Store, StoreError,
};
use tidegate_core::{Account, JobId, Refusal, Status, chain};
use tidegate_net::Url;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit;
use crate::cluster::Cluster;
use crate::config::{Config, Deps, OnLost};
use crate::input::ModelSchema;
use crate::job::Job;
use crate::metrics::JobMetrics;
use crate::webhook::{DeliveryLog, Outbox, RetryBuffer, RetryBufferLimits, SenderDeps};

pub(crate) use per_model::PerModel;
pub(crate) use shared::Shared;

/// Limits of the webhooks of one model that wait for a retry in memory: those that are not in the
/// outbox.
const RETRY_BUFFER: RetryBufferLimits = RetryBufferLimits {
    messages: 10_000,
    bytes: 256 * 1024 * 1024,
};
/// The longest retry window of a webhook; beyond it clocks overflow.
const MAX_RETRY_WINDOW: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How often the executor is asked whether it has read the model's code.
const DESCRIPTION_POLL: Duration = Duration::from_millis(50);

/// Accepts, finds and cancels the jobs of one model. Cloning gives another handle.
#[derive(Clone)]
pub struct JobService {
    pub(crate) model: Arc<PerModel>,
}

impl JobService {
    /// Creates the service of a server's first model.
    pub fn new(executor: Arc<dyn Executor>, target: Target, deps: Deps, config: Config) -> Self {
        let closing = CancellationToken::new();
        let metrics = Arc::new(JobMetrics::default());
        let retry_for = config.webhook_retry_for.min(MAX_RETRY_WINDOW);
        let attempt_timeout = deps.net.webhook_timeout();
        let outbox = |store| Arc::new(Outbox::new(store, attempt_timeout, retry_for));
        let senders = SenderDeps {
            net: Arc::clone(&deps.net),
            tasks: TaskTracker::new(),
            token: config.webhook_token,
            secrets: config.webhook_secrets,
            throttle: config.webhook_throttle,
            retry_for,
            retry_buffer: Arc::new(RetryBuffer::new(RETRY_BUFFER)),
            deliveries: Arc::default(),
            metrics: Arc::clone(&metrics),
            outbox: deps.store.clone().map(outbox),
            closing: closing.clone(),
        };
        let shared = Shared::new(deps, config.jobs, config.waiting_memory, closing, None);
        Self::of_model(Arc::new(shared), executor, target, metrics, senders)
    }

    /// The service that looks up the jobs of an endpoint that this process of a cluster owns. Its jobs wait
    /// and run here, as on a single machine, with the settings and webhooks of this server, until
    /// [`ModelRegistry::abandon`](crate::ModelRegistry::abandon).
    pub fn for_owned_endpoint(
        &self,
        executor: Arc<dyn Executor>,
        store: Arc<dyn Store>,
        queue: Arc<dyn Queue>,
        waiting_memory: usize,
    ) -> Self {
        let Shared { deps, settings, .. } = self.shared();
        let deps = Deps {
            queue,
            store: Some(store),
            cluster: None,
            ..deps.clone()
        };
        let (closing, abandoned) = (CancellationToken::new(), CancellationToken::new());
        let settings = settings.clone();
        let shared = Shared::new(deps, settings, waiting_memory, closing, Some(abandoned));
        let metrics = Arc::<JobMetrics>::default();
        let senders = SenderDeps {
            metrics: Arc::clone(&metrics),
            ..SenderDeps::clone(&self.model.senders)
        };
        let target = Target::clone(&self.model.target);
        Self::of_model(Arc::new(shared), executor, target, metrics, senders)
    }

    /// The service of another model of the same server: each finds the jobs of the other, and both
    /// close together.
    pub fn for_model(&self, executor: Arc<dyn Executor>, target: Target) -> Self {
        Self {
            model: Arc::new(self.per_model(executor, target)),
        }
    }

    /// The state of the service of another model of the same server.
    fn per_model(&self, executor: Arc<dyn Executor>, target: Target) -> PerModel {
        let metrics = Arc::<JobMetrics>::default();
        let senders = SenderDeps {
            metrics: Arc::clone(&metrics),
            retry_buffer: Arc::new(RetryBuffer::new(RETRY_BUFFER)),
            ..SenderDeps::clone(&self.model.senders)
        };
        let shared = Arc::clone(&self.model.shared);
        PerModel::new(shared, executor, target, metrics, senders)
    }

    /// The service of an endpoint of the same server. Its workers keep their jobs while the server
    /// restarts, and its requests set their own time limits, so the server's settings do not apply.
    pub fn for_endpoint(
        &self,
        executor: Arc<dyn Executor>,
        target: Target,
        on_lost: OnLost,
    ) -> Self {
        let model = PerModel {
            on_lost,
            job_timeout: None,
            ..self.per_model(executor, target)
        };
        Self {
            model: Arc::new(model),
        }
    }

    /// The same service, which keeps this many events of a stream for late readers. Only for a
    /// service without other handles.
    pub fn with_stream_history(mut self, events: usize) -> Self {
        let model = Arc::get_mut(&mut self.model).expect("the service has no other handles");
        model.stream_history = events;
        self
    }

    /// The service of another version of this model. It continues this service's metrics.
    pub fn for_version(&self, executor: Arc<dyn Executor>, target: Target) -> Self {
        let PerModel {
            shared,
            metrics,
            senders,
            ..
        } = &*self.model;
        let senders = SenderDeps::clone(senders);
        Self::of_model(
            Arc::clone(shared),
            executor,
            target,
            Arc::clone(metrics),
            senders,
        )
    }

    fn of_model(
        shared: Arc<Shared>,
        executor: Arc<dyn Executor>,
        target: Target,
        metrics: Arc<JobMetrics>,
        senders: SenderDeps,
    ) -> Self {
        let model = PerModel::new(shared, executor, target, metrics, senders);
        Self {
            model: Arc::new(model),
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.model.shared
    }

    pub(crate) fn store(&self) -> Option<&Arc<dyn Store>> {
        self.shared().deps.store.as_ref()
    }

    /// The cluster whose directors run the jobs, if there is one.
    pub(crate) fn cluster(&self) -> Option<&Cluster> {
        self.shared().deps.cluster.as_ref()
    }

    /// Parses the URL of a webhook and checks that its address is allowed.
    pub fn webhook_url(&self, text: &str) -> Result<Url, Refusal> {
        self.shared()
            .deps
            .net
            .check(text)
            .map_err(|error| Refusal::BadWebhook {
                reason: error.to_string(),
            })
    }

    /// A job of this account that is running, or that ended and is still kept.
    pub async fn get(&self, account: &Account, id: &JobId) -> Result<Option<Arc<Job>>, Refusal> {
        if let Some(job) = self.shared().registry.get(account, id) {
            return Ok(Some(self.with_input(job).await));
        }
        Ok(match self.record_of(account, id).await? {
            Some(record) => self.ended_or_followed(&record).await,
            None => None,
        })
    }

    /// The record of a job, if there is one.
    pub(crate) async fn record_of(
        &self,
        account: &Account,
        id: &JobId,
    ) -> Result<Option<JobRecord>, Refusal> {
        let Some(store) = self.store() else {
            return Ok(None);
        };
        store.get(account, id).await.map_err(|error| {
            tracing::error!(job = %id, error = %chain(&error), "failed to read job");
            Refusal::StoreUnavailable
        })
    }

    /// Recorded jobs of an account, newest first. Jobs that have not ended show their live state.
    pub async fn list(&self, query: JobQuery) -> Result<Page<Arc<Job>>, StoreError> {
        let Some(store) = self.store() else {
            return Ok(Page {
                items: Vec::new(),
                next: None,
                previous: None,
            });
        };
        let Page {
            items,
            next,
            previous,
        } = store.list(query).await?;
        let mut jobs = Vec::with_capacity(items.len());
        for record in items {
            let JobSpec { account, id, .. } = &record.spec;
            jobs.push(match self.shared().registry.get(account, id) {
                Some(known) => known,
                None => self.job_of_record(record).await,
            });
        }
        Ok(Page {
            items: jobs,
            next,
            previous,
        })
    }

    /// Cancels a job of this account. The cancel of a recorded job is committed first: from then on
    /// the job can only end as canceled, in this server process or in the next. Returns whether the
    /// job had not ended.
    pub async fn cancel(&self, account: &Account, id: &JobId) -> Result<bool, Refusal> {
        let found = self.get(account, id).await?;
        if found.as_ref().is_some_and(|job| job.status().is_terminal()) {
            return Ok(false);
        }
        if let Some(cluster) = self.cluster() {
            return match found {
                Some(_) => self.cancel_in_cluster(cluster, account, id).await,
                None => Ok(false),
            };
        }
        // A recorded job that leaves the queue for a slot, or that a server that shuts down leaves to the
        // next process, is not found. The recorded cancel prevents its start.
        let stop = || match found.or_else(|| self.get_in_memory(account, id)) {
            Some(job) => self.stop(&job),
            None => false,
        };
        planted!(DeafCancel, return Ok(true));
        planted!(ForgottenCancel, return Ok(stop()));
        let requested = match self.store() {
            Some(store) => store.request_cancel(account, id).await,
            None => Ok(CancelRequestResult::Unknown),
        };
        match requested {
            Ok(CancelRequestResult::Recorded) => {
                stop();
                Ok(true)
            }
            Ok(CancelRequestResult::Ended) => Ok(false),
            // The job exists in memory only.
            Ok(CancelRequestResult::Unknown) => Ok(stop()),
            Err(error) => {
                tracing::error!(job = %id, error = %chain(&error), "failed to record cancel request, refused it");
                Err(Refusal::StoreUnavailable)
            }
        }
    }

    /// Asks a job of this account to stop, without recording it. Returns whether the job was running.
    pub fn request_stop(&self, account: &Account, id: &JobId) -> bool {
        let job = self.shared().registry.get(account, id);
        job.is_some_and(|job| self.stop(&job))
    }

    fn stop(&self, job: &Arc<Job>) -> bool {
        let running = job.cancel();
        if running {
            audit::canceled(job);
            // A job that is about to start gets to know.
            self.shared().waiting_jobs.keep_handle(job);
            self.wake(job);
        }
        running
    }

    /// Waits until a job has ended, or until the server shuts down and leaves it to the next process.
    pub async fn ended_or_left(&self, job: &Arc<Job>) {
        let is_closing = match self.cluster() {
            Some(_) => &self.shared().unfollowed,
            None => &self.shared().closing,
        };
        tokio::select! {
            () = job.ended() => return,
            () = is_closing.cancelled() => {}
        }
        // In a cluster other processes show the job.
        let is_left = self.cluster().is_some() || self.shared().waiting_jobs.contains(job);
        if self.store().is_none() || !is_left {
            job.ended().await;
        }
    }

    /// Runs work on jobs of this model in a task of its own, which closing the service waits for.
    pub fn spawn_tracked(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.model.tasks.spawn(work);
    }

    /// The model and version of this service.
    pub fn target(&self) -> &Target {
        &self.model.target
    }

    /// Whether a job of this account that names this deployment has not ended.
    pub async fn is_in_use(&self, account: &Account, deployment: &str) -> Result<bool, StoreError> {
        let filter = JobFilter {
            account: Some(account.clone()),
            deployment: Some(deployment.to_owned()),
            statuses: vec![Status::Queued, Status::Starting, Status::Processing],
            limit: 1,
            ..JobFilter::default()
        };
        if let (Some(_), Some(store)) = (self.cluster(), self.store()) {
            return Ok(!store.recent(filter).await?.is_empty());
        }
        self.loaded().await;
        let open = |job: JobHead<'_>| filter.matches(job).then_some(());
        Ok(!self.select_in_memory(1, open).is_empty())
    }

    /// The latest webhook deliveries.
    pub fn deliveries(&self) -> &DeliveryLog {
        &self.model.senders.deliveries
    }

    /// The model's schema, once the model is loaded.
    pub fn schema(&self) -> Option<Arc<ModelSchema>> {
        self.parse_schema(self.model.executor.schema()?)
    }

    /// The model's schema, known as soon as its code has been read, while the model still loads.
    pub fn description(&self) -> Option<Arc<ModelSchema>> {
        self.parse_schema(self.model.executor.description()?)
    }

    fn parse_schema(&self, document: Arc<Bytes>) -> Option<Arc<ModelSchema>> {
        let known = self.model.schema.load_full();
        if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.source, &document)) {
            return Some(known);
        }
        match ModelSchema::read(document) {
            Ok(schema) => {
                let schema = Arc::new(schema);
                self.model.schema.store(Some(Arc::clone(&schema)));
                Some(schema)
            }
            Err(error) => {
                tracing::error!(error = %chain(&error), "failed to parse the model's schema");
                None
            }
        }
    }

    /// Waits up to `timeout` until the model's schema is known, as long as the model is starting.
    pub async fn wait_for_description(&self, timeout: Duration) {
        let is_unknown = || match self.model.executor.report().health {
            Health::Unknown | Health::Starting => self.description().is_none(),
            Health::Ready | Health::Busy | Health::SetupFailed | Health::Defunct => false,
        };
        let until_known = async {
            while is_unknown() {
                tokio::time::sleep(DESCRIPTION_POLL).await;
            }
        };
        tokio::time::timeout(timeout, until_known).await.ok();
    }

    /// The model's health, including the result of its own health check.
    pub async fn health(&self) -> HealthReport {
        planted!(
            SlowHealth,
            if !self.shared().registry.running().is_empty() {
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        );
        self.model.executor.check().await
    }

    /// Accepts no more jobs, waits up to `grace` for running ones and then cancels them, and sends
    /// pending webhooks within the same time. Returns whether all jobs ended by themselves.
    pub async fn close(&self, grace: Duration) -> bool {
        let deadline = tokio::time::Instant::now() + grace;
        self.shared().close();
        let in_time = tokio::time::timeout_at(deadline, self.drained())
            .await
            .is_ok();
        if !in_time {
            self.cancel_all(&[]);
            self.drained().await;
        }
        self.flush_webhooks(deadline).await;
        in_time
    }

    /// Retires the service and waits until all its jobs have ended.
    pub(crate) async fn drained(&self) {
        self.model.retired.cancel();
        self.model.tasks.close();
        self.model.tasks.wait().await;
    }

    /// Cancels every job of the server, except recorded jobs that still wait, and those of endpoints:
    /// the next server process has those.
    pub(crate) fn cancel_all(&self, endpoints: &[JobService]) {
        let at_endpoint = |job: &Job| {
            endpoints
                .iter()
                .any(|endpoint| endpoint.target() == job.target())
        };
        for job in self.shared().registry.running() {
            let is_left = self.shared().waiting_jobs.contains(&job) || at_endpoint(&job);
            if self.store().is_none() || !is_left {
                job.cancel();
                self.wake(&job);
            }
        }
    }

    /// Waits until the webhooks in memory are sent, up to `deadline`. Those of the outbox that wait
    /// for a retry are left to the next process.
    pub(crate) async fn flush_webhooks(&self, deadline: tokio::time::Instant) {
        let SenderDeps { tasks, outbox, .. } = &*self.model.senders;
        if let Some(outbox) = outbox {
            outbox.stop();
        }
        tasks.close();
        // Receivers get at least a moment for the terminal webhook, even after the deadline.
        let deadline = deadline.max(tokio::time::Instant::now() + Duration::from_secs(5));
        if tokio::time::timeout_at(deadline, tasks.wait())
            .await
            .is_err()
        {
            tracing::error!(
                count = tasks.len(),
                "failed to deliver webhooks before shutdown"
            );
        }
    }
}
