//! The door of the desk: submit, find, cancel, wait.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use tidegate_core::health::{Health, HealthReport};
use tidegate_core::planted::{Planted, planted};
use tidegate_core::port::Executor;
use tidegate_core::queue::QueueName;
use tidegate_core::record::{DeploymentRef, JobRecord, Target};
use tidegate_core::store::{JobQuery, Page, StoreError};
use tidegate_core::{Account, JobId, JobKind, Refusal, chain};
use tidegate_net::Url;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit;
use crate::config::{Config, Deps, OnLost, RendererFactory};
use crate::input::ModelSchema;
use crate::job::Job;
use crate::metrics::JobMetrics;
use crate::models::succession::Succession;
use crate::models::trained::training::VersionMaker;
use crate::registry::{Registry, Retention};
use crate::run::recorder::BeginWrite;
use crate::waiting::claims::ActiveClaims;
use crate::waiting::waiting_jobs::WaitingJobs;
use crate::webhook::{DeliveryLog, RetryBuffer, RetryBufferLimits, SenderDeps};

/// Webhooks that wait to be sent again.
const WAITING: RetryBufferLimits = RetryBufferLimits {
    messages: 10_000,
    bytes: 256 * 1024 * 1024,
};
/// Nobody waits longer for a webhook; beyond it clocks overflow.
const LONGEST_RETRY: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How often is looked whether the model's code has been read.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The desk. Cloning gives another handle.
#[derive(Clone)]
pub struct JobService {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) deps: Arc<Deps>,
    pub(crate) senders: Arc<SenderDeps>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) metrics: Arc<JobMetrics>,
    schema: ArcSwapOption<ModelSchema>,
    pub(crate) stream_history: usize,
    pub(crate) predictions_are: JobKind,
    pub(crate) job_timeout: Option<Duration>,
    pub(crate) max_output: usize,
    pub(crate) target: Arc<Target>,
    pub(crate) keep_for: Duration,
    pub(crate) keep_data_for: Option<Duration>,
    pub(crate) on_lost: OnLost,
    pub(crate) renderer: RendererFactory,
    pub(crate) tasks: TaskTracker,
    pub(crate) closing: CancellationToken,
    pub(crate) succession: Succession,
    /// Makes versions of what trainings give.
    pub(crate) maker: Arc<OnceLock<Weak<dyn VersionMaker>>>,
    /// The line that jobs wait in, those who do, and what is in hand.
    pub(crate) line: QueueName,
    pub(crate) waiting_jobs: Arc<WaitingJobs>,
    pub(crate) claims: Arc<ActiveClaims>,
    /// Whether somebody pulls jobs out of the line.
    pub(crate) has_director: AtomicBool,
    /// Something has changed for whoever does.
    pub(crate) wake_director: Arc<Notify>,
    /// The desk gets no more jobs.
    pub(crate) leaving: CancellationToken,
    /// The store did not take the last job.
    pub(crate) last_insert_failed: AtomicBool,
}

impl Inner {
    /// A job that may be run again can be noted when it has run for a moment.
    pub(crate) fn begin_write(&self) -> BeginWrite {
        match self.on_lost {
            OnLost::Fail => BeginWrite::Immediate,
            OnLost::Retry { .. } => BeginWrite::Deferred,
        }
    }

    /// What a job is for; most come through no deployment and share it.
    pub(crate) fn target_of(&self, deployment: Option<DeploymentRef>) -> Arc<Target> {
        match deployment {
            None => Arc::clone(&self.target),
            Some(_) => Arc::new(Target {
                deployment,
                ..(*self.target).clone()
            }),
        }
    }
}

impl JobService {
    /// Opens the desk.
    pub fn new(deps: Deps, config: Config) -> Self {
        let closing = CancellationToken::new();
        let metrics = Arc::new(JobMetrics::default());
        let senders = SenderDeps {
            net: Arc::clone(&deps.net),
            tasks: TaskTracker::new(),
            token: config.webhook_token,
            secrets: config.webhook_secrets,
            throttle: config.webhook_throttle,
            retry_for: config.webhook_retry_for.min(LONGEST_RETRY),
            retry_buffer: Arc::new(RetryBuffer::new(WAITING)),
            deliveries: Arc::default(),
            metrics: Arc::clone(&metrics),
            store: deps.store.clone(),
            closing: closing.clone(),
        };
        // What is left of a job without its data is in the store only.
        let age = config
            .keep_data_for
            .map_or(config.keep_for, |data| data.min(config.keep_for));
        let retention = Retention {
            jobs: 1024,
            bytes: 32 * 1024 * 1024,
            age,
        };
        let inner = Inner {
            deps: Arc::new(deps),
            senders: Arc::new(senders),
            registry: Arc::new(Registry::new(retention)),
            metrics,
            schema: ArcSwapOption::empty(),
            stream_history: config.stream_history,
            predictions_are: config.predictions_are,
            job_timeout: config.job_timeout,
            max_output: config.max_output,
            line: line_of(&config.target),
            waiting_jobs: Arc::new(WaitingJobs::new(config.waiting_memory)),
            claims: Arc::default(),
            has_director: AtomicBool::new(false),
            wake_director: Arc::default(),
            leaving: CancellationToken::new(),
            last_insert_failed: AtomicBool::new(false),
            target: Arc::new(config.target),
            keep_for: config.keep_for,
            keep_data_for: config.keep_data_for,
            on_lost: config.on_lost,
            renderer: config.renderer,
            tasks: TaskTracker::new(),
            closing,
            succession: Succession::default(),
            maker: Arc::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// A desk for another model. All but the model is the same: callers of one find the jobs of the other,
    /// and they close together.
    pub fn beside(&self, executor: Arc<dyn Executor>, target: Target) -> Self {
        self.another(
            executor,
            target,
            Arc::default(),
            Arc::new(RetryBuffer::new(WAITING)),
        )
    }

    /// A desk for another version of this model: it goes on counting where this one is.
    pub fn succeeding(&self, executor: Arc<dyn Executor>, target: Target) -> Self {
        self.another(
            executor,
            target,
            Arc::clone(&self.inner.metrics),
            Arc::clone(&self.inner.senders.retry_buffer),
        )
    }

    fn another(
        &self,
        executor: Arc<dyn Executor>,
        target: Target,
        metrics: Arc<JobMetrics>,
        waiting: Arc<RetryBuffer>,
    ) -> Self {
        let same = &*self.inner;
        let inner = Inner {
            deps: Arc::new(Deps {
                executor,
                ..Deps::clone(&same.deps)
            }),
            senders: Arc::new(SenderDeps {
                metrics: Arc::clone(&metrics),
                retry_buffer: waiting,
                ..SenderDeps::clone(&same.senders)
            }),
            registry: Arc::clone(&same.registry),
            metrics,
            schema: ArcSwapOption::empty(),
            stream_history: same.stream_history,
            predictions_are: same.predictions_are,
            job_timeout: same.job_timeout,
            max_output: same.max_output,
            line: line_of(&target),
            waiting_jobs: Arc::clone(&same.waiting_jobs),
            claims: Arc::clone(&same.claims),
            has_director: AtomicBool::new(false),
            wake_director: Arc::default(),
            leaving: CancellationToken::new(),
            last_insert_failed: AtomicBool::new(false),
            target: Arc::new(target),
            keep_for: same.keep_for,
            keep_data_for: same.keep_data_for,
            on_lost: same.on_lost,
            renderer: Arc::clone(&same.renderer),
            tasks: TaskTracker::new(),
            closing: same.closing.clone(),
            succession: Succession::default(),
            maker: Arc::clone(&same.maker),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Reads the address of a webhook; private ones are refused unless they are allowed.
    pub fn webhook_url(&self, text: &str) -> Result<Url, Refusal> {
        self.inner
            .deps
            .net
            .check(text)
            .map_err(|error| Refusal::BadWebhook {
                reason: error.to_string(),
            })
    }

    /// A job of this account that runs, or that was over not too long ago.
    pub async fn get(&self, account: &Account, id: &JobId) -> Option<Arc<Job>> {
        if let Some(job) = self.inner.registry.get(account, id) {
            return Some(self.with_input(job).await);
        }
        let store = self.inner.deps.store.as_ref()?;
        match store.get(account, id).await {
            Ok(record) => record
                .filter(|record| record.status.is_terminal())
                .map(|record| Arc::new(Job::restored(record))),
            Err(error) => {
                tracing::error!(job = %id, error = %chain(&error), "a job could not be looked up");
                None
            }
        }
    }

    /// Jobs of an account that are written down, newest first. Those that are not over are as they are now.
    pub async fn list(&self, query: JobQuery) -> Result<Page<Arc<Job>>, StoreError> {
        let Some(store) = &self.inner.deps.store else {
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
        let live = |record: JobRecord| match self
            .inner
            .registry
            .get(&record.spec.account, &record.spec.id)
        {
            Some(known) if known.input().is_none() => Arc::new(known.with_input(record.spec.input)),
            Some(known) => known,
            None => Arc::new(Job::restored(record)),
        };
        Ok(Page {
            items: items.into_iter().map(live).collect(),
            next,
            previous,
        })
    }

    /// Asks a job of this account to stop, for good: one that the server dies with is not run again. Says whether it
    /// was running.
    pub async fn cancel(&self, account: &Account, id: &JobId) -> bool {
        let running = self.stop(account, id);
        if running
            && !planted(Planted::ForgottenCancel)
            && let Some(store) = &self.inner.deps.store
            && let Err(error) = store.ask_cancel(account, id).await
        {
            tracing::warn!(job = %id, error = %chain(&error), "that a job stops could not be written down");
        }
        running
    }

    /// Asks a job of this account to stop, for whoever does not wait for an answer. Says whether it was running.
    pub fn stop(&self, account: &Account, id: &JobId) -> bool {
        let Some(job) = self.inner.registry.get(account, id) else {
            return false;
        };
        let running = if planted(Planted::DeafCancel) {
            !job.status().is_terminal()
        } else {
            job.cancel()
        };
        if running {
            audit::canceled(&job);
            self.wake(&job);
        }
        running
    }

    /// Waits until a job is over; or until it is certain that this server does not run it, because it goes.
    pub async fn over(&self, job: &Arc<Job>) {
        tokio::select! {
            () = job.ended() => return,
            () = self.inner.closing.cancelled() => {}
        }
        if self.inner.deps.store.is_none() || !self.inner.waiting_jobs.has(job) {
            job.ended().await;
        }
    }

    /// Which model the jobs are for.
    pub fn target(&self) -> &Target {
        &self.inner.target
    }

    /// Whether a job of this account that came through this deployment is not over.
    pub fn is_in_use(&self, account: &Account, deployment: &str) -> bool {
        let through = |job: &Arc<Job>| {
            job.account() == account
                && job
                    .target()
                    .deployment
                    .as_ref()
                    .is_some_and(|through| through.deployment == deployment)
        };
        self.inner.registry.running().iter().any(through)
    }

    /// What became of the last webhooks.
    pub fn deliveries(&self) -> &DeliveryLog {
        &self.inner.senders.deliveries
    }

    /// The model's schema, once it has been loaded.
    pub fn schema(&self) -> Option<Arc<ModelSchema>> {
        self.read(self.inner.deps.executor.schema()?)
    }

    /// The same as soon as the model's code has been read: what the model takes is known while it loads.
    pub fn description(&self) -> Option<Arc<ModelSchema>> {
        self.read(self.inner.deps.executor.description()?)
    }

    fn read(&self, document: Arc<Bytes>) -> Option<Arc<ModelSchema>> {
        let known = self.inner.schema.load_full();
        if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.document, &document)) {
            return Some(known);
        }
        match ModelSchema::read(document) {
            Ok(schema) => {
                let schema = Arc::new(schema);
                self.inner.schema.store(Some(Arc::clone(&schema)));
                Some(schema)
            }
            Err(error) => {
                tracing::error!(error = %chain(&error), "the model's schema cannot be used");
                None
            }
        }
    }

    /// Waits until it is known what the model takes, as long as that may still happen and `patience` lasts.
    pub async fn described(&self, patience: Duration) {
        let still_reads = || match self.inner.deps.executor.report().health {
            Health::Unknown | Health::Starting => self.description().is_none(),
            Health::Ready | Health::Busy | Health::SetupFailed | Health::Defunct => false,
        };
        let until_read = async {
            while still_reads() {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        tokio::time::timeout(patience, until_read).await.ok();
    }

    /// How the model is, as its own health check says too.
    pub async fn health(&self) -> HealthReport {
        if planted(Planted::SlowHealth) && !self.inner.registry.running().is_empty() {
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        self.inner.deps.executor.check().await
    }

    /// Takes no more jobs, waits up to `patience` for those that run and then stops them, and sends
    /// what is still to be told within the same time. Says whether all ended by themselves.
    pub async fn close(&self, patience: Duration) -> bool {
        let deadline = tokio::time::Instant::now() + patience;
        self.inner.closing.cancel();
        let in_time = tokio::time::timeout_at(deadline, self.drained())
            .await
            .is_ok();
        if !in_time {
            self.cancel_all();
            self.drained().await;
        }
        self.flush_webhooks(deadline).await;
        in_time
    }

    /// Waits until all jobs of this desk are over, for one that gets no more.
    pub(crate) async fn drained(&self) {
        self.inner.leaving.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    /// Asks every job to stop, also those of the desks beside this one.
    pub(crate) fn cancel_all(&self) {
        for job in self.inner.registry.running() {
            // Those who wait and are written down are left to the next server.
            if self.inner.deps.store.is_none() || !self.inner.waiting_jobs.has(&job) {
                job.cancel();
                self.wake(&job);
            }
        }
    }

    /// Waits until what is to be told has been told, for all desks.
    pub(crate) async fn flush_webhooks(&self, deadline: tokio::time::Instant) {
        self.inner.senders.tasks.close();
        // A receiver gets at least a moment for the last message, even when the time is up.
        let deadline = deadline.max(tokio::time::Instant::now() + Duration::from_secs(5));
        if tokio::time::timeout_at(deadline, self.inner.senders.tasks.wait())
            .await
            .is_err()
        {
            tracing::error!(
                count = self.inner.senders.tasks.len(),
                "webhooks were not delivered before the end"
            );
        }
    }
}

/// A line of its own for each desk: a version that comes back while it leaves is another desk, and an endpoint of the
/// same name another endpoint.
fn line_of(target: &Target) -> QueueName {
    static DESKS: AtomicU64 = AtomicU64::new(0);
    let number = DESKS.fetch_add(1, Ordering::Relaxed);
    QueueName::new(&format!("{}:{}#{number}", target.model, target.version))
}
