//! The model registry: the models of a server, each with the job service of its current version.

pub(crate) mod succession;
pub(crate) mod trained;

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use jiff::Timestamp;
use tidegate_core::health::{Health, HealthReport};
use tidegate_core::port::{Admitted, Executor, WaitPolicy};
use tidegate_core::queue::Queue;
use tidegate_core::record::Target;
use tidegate_core::store::StoreError;
use tidegate_core::{Account, Refusal};
use tokio_util::task::TaskTracker;

use crate::job_service::JobService;
use crate::models::trained::TrainedModel;
use crate::run::Resumed;

/// How long a replaced version still accepts jobs.
const REPLACED_GRACE: Duration = Duration::from_secs(1);

/// An executor that refuses every job, for a [`JobService`] that only looks up jobs.
pub struct NoExecutor;

#[async_trait]
impl Executor for NoExecutor {
    fn admit(&self, _account: &Account, _wait: WaitPolicy) -> Result<Admitted, Refusal> {
        Err(Refusal::NotReady {
            health: Health::Unknown,
        })
    }

    fn accepts(&self) -> Result<(), Refusal> {
        Err(Refusal::NotReady {
            health: Health::Unknown,
        })
    }

    fn schema(&self) -> Option<Arc<Bytes>> {
        None
    }

    fn report(&self) -> HealthReport {
        HealthReport {
            health: Health::Unknown,
            setup: None,
            health_error: None,
            python: None,
            sdk: None,
        }
    }

    async fn check(&self) -> HealthReport {
        self.report()
    }
}

/// The models that are served. Clones share the same state.
#[derive(Clone)]
pub struct ModelRegistry {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    /// Looks up the jobs of all models, and runs none.
    lookup: JobService,
    models: ArcSwap<ModelsByName>,
    /// The services of endpoints, by the name of their model. Requests for models do not find them.
    endpoints: ArcSwap<BTreeMap<String, JobService>>,
    /// Trained versions, newest first.
    pub(crate) trained: ArcSwap<Vec<Arc<TrainedModel>>>,
    /// The ids of removed trained versions: no other version runs their remaining jobs.
    pub(crate) removed: Mutex<HashSet<String>>,
    /// Serializes writers; readers do not lock.
    write_lock: Mutex<()>,
    /// One task per replaced version that still has jobs.
    draining: TaskTracker,
}

type ModelsByName = BTreeMap<String, Arc<ServedModel>>;

/// A served model and its versions.
pub struct ServedModel {
    name: String,
    current: ArcSwap<ServedVersion>,
    /// The versions that were served before, newest first.
    previous: Mutex<Vec<Arc<ServedVersion>>>,
}

/// One version of a model, with the job service that runs its jobs.
pub struct ServedVersion {
    /// The job service; its target identifies the version.
    pub jobs: JobService,
    /// When the model's files were last modified.
    pub created_at: Timestamp,
    /// The one-sentence description that the model declares.
    pub description: Option<String>,
    /// The folder with the model's files.
    pub folder: PathBuf,
    /// Whether it is a script with a Runpod handler.
    pub is_handler: bool,
}

impl ServedVersion {
    /// The executor of its jobs.
    pub fn executor(&self) -> Arc<dyn Executor> {
        Arc::clone(&self.jobs.model.executor)
    }

    /// The id of the version: 64 hexadecimal digits.
    pub fn id(&self) -> &str {
        &self.jobs.target().version
    }
}

impl ServedModel {
    pub(crate) fn new(version: ServedVersion) -> Self {
        Self {
            name: version.jobs.target().model.clone(),
            current: ArcSwap::from_pointee(version),
            previous: Mutex::default(),
        }
    }

    /// The name of the model, `owner/name`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The current version.
    pub fn current(&self) -> Arc<ServedVersion> {
        self.current.load_full()
    }

    /// The job service of the current version.
    pub fn jobs(&self) -> JobService {
        self.current.load().jobs.clone()
    }

    /// All versions since the server started, newest first; a version that was served twice is
    /// listed once. Only the first accepts jobs.
    pub fn versions(&self) -> Vec<Arc<ServedVersion>> {
        let previous = self.previous.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = HashSet::new();
        std::iter::once(self.current())
            .chain(previous.iter().cloned())
            .filter(|version| seen.insert(version.id().to_owned()))
            .collect()
    }
}

impl ModelRegistry {
    /// An empty registry; `lookup` finds the jobs of all models.
    pub fn new(lookup: JobService) -> Self {
        let inner = Inner {
            lookup,
            models: ArcSwap::default(),
            endpoints: ArcSwap::default(),
            trained: ArcSwap::default(),
            removed: Mutex::default(),
            write_lock: Mutex::new(()),
            draining: TaskTracker::new(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// A job service that finds and cancels the jobs of all models, and accepts none.
    pub fn lookup(&self) -> &JobService {
        &self.inner.lookup
    }

    /// The queue of all models.
    pub fn queue(&self) -> Arc<dyn Queue> {
        Arc::clone(&self.inner.lookup.shared().deps.queue)
    }

    /// The model with this name.
    pub fn get(&self, name: &str) -> Option<Arc<ServedModel>> {
        self.inner.models.load().get(name).cloned()
    }

    /// The model whose current version has this id.
    pub fn get_by_current_version(&self, id: &str) -> Option<Arc<ServedModel>> {
        self.inner
            .models
            .load()
            .values()
            .find(|model| model.current.load().id() == id)
            .cloned()
    }

    /// The models that are served from folders, by name.
    pub fn all(&self) -> Vec<Arc<ServedModel>> {
        self.inner.models.load().values().cloned().collect()
    }

    /// The job services of all versions that accept jobs; those of trained versions come after those
    /// of models, and those of endpoints last.
    pub fn services(&self) -> Vec<JobService> {
        let mut services = self.model_services();
        services.extend(self.endpoint_services());
        services
    }

    fn model_services(&self) -> Vec<JobService> {
        let trained = self.trained_models();
        let trained = trained.iter().filter_map(|trained| trained.jobs());
        self.all()
            .iter()
            .map(|model| model.jobs())
            .chain(trained)
            .collect()
    }

    fn endpoint_services(&self) -> Vec<JobService> {
        self.inner.endpoints.load().values().cloned().collect()
    }

    /// Serves an endpoint.
    pub fn offer_endpoint(&self, jobs: JobService) {
        let _guard = self.lock_for_write();
        let mut endpoints = BTreeMap::clone(&self.inner.endpoints.load());
        endpoints.insert(jobs.target().model.clone(), jobs);
        self.inner.endpoints.store(Arc::new(endpoints));
    }

    /// Stops serving an endpoint, by the name of its model. It finishes its jobs.
    pub fn withdraw_endpoint(&self, name: &str) {
        let _guard = self.lock_for_write();
        let mut endpoints = BTreeMap::clone(&self.inner.endpoints.load());
        if let Some(jobs) = endpoints.remove(name) {
            self.inner.endpoints.store(Arc::new(endpoints));
            jobs.model.succession.pass_to(None);
            self.drain(jobs);
        }
    }

    /// Serves a model, or another version of one. The previous version finishes its jobs and stops.
    pub fn offer(&self, version: ServedVersion) {
        let _guard = self.lock_for_write();
        let mut models = ModelsByName::clone(&self.inner.models.load());
        match models.get(&version.jobs.target().model) {
            Some(model) => self.replace_version(model, Arc::new(version)),
            None => {
                let model = ServedModel::new(version);
                models.insert(model.name.clone(), Arc::new(model));
                self.inner.models.store(Arc::new(models));
            }
        }
    }

    /// Stops serving a model. It finishes its jobs.
    pub fn withdraw(&self, name: &str) {
        let _guard = self.lock_for_write();
        let mut models = ModelsByName::clone(&self.inner.models.load());
        if let Some(model) = models.remove(name) {
            self.inner.models.store(Arc::new(models));
            self.retire_model(&model);
        }
    }

    pub(crate) fn lock_for_write(&self) -> MutexGuard<'_, ()> {
        self.inner
            .write_lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the current version of a model.
    pub(crate) fn replace_version(&self, model: &ServedModel, version: Arc<ServedVersion>) {
        let previous = model.current.swap(Arc::clone(&version));
        previous
            .jobs
            .model
            .succession
            .pass_to(Some(version.jobs.clone()));
        model
            .previous
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(0, Arc::clone(&previous));
        self.drain(previous.jobs.clone());
    }

    /// Stops a model that has no successor.
    pub(crate) fn retire_model(&self, model: &ServedModel) {
        model.current().jobs.model.succession.pass_to(None);
        self.drain(model.jobs());
    }

    /// Stops a version when its jobs have ended.
    fn drain(&self, jobs: JobService) {
        self.inner.draining.spawn(async move {
            // A request may hold this version and be about to submit a job.
            tokio::time::sleep(REPLACED_GRACE).await;
            jobs.drained().await;
            jobs.model.executor.stop().await;
            tracing::info!(
                model = jobs.target().model,
                version = jobs.target().version,
                "stopped replaced version"
            );
        });
    }

    /// Resumes the jobs of the previous run. Call it once, after the models were added.
    pub async fn resume(&self) -> Result<Resumed, StoreError> {
        let models = self.clone();
        let service_of = move |target: &Target| models.service_for_resumed_job(target);
        self.inner.lookup.resume(Arc::new(service_of)).await
    }

    /// Loads the open jobs of an endpoint that another process owned before. Call it once, after the
    /// endpoint was offered.
    pub async fn take_over(&self) -> Result<Resumed, StoreError> {
        let models = self.clone();
        let service_of = move |target: &Target| models.service_for_resumed_job(target);
        self.inner.lookup.take_over(Arc::new(service_of)).await
    }

    /// Leaves all jobs without an end: another process owns them now. Changes that are in progress are
    /// waited for, up to `timeout`.
    pub async fn abandon(&self, timeout: Duration) {
        let shared = self.inner.lookup.shared();
        shared.closing.cancel();
        if let Some(abandoned) = &shared.abandoned {
            abandoned.cancel();
        }
        let services = self.services();
        let drained = join_all(services.iter().map(JobService::drained));
        if tokio::time::timeout(timeout, drained).await.is_err() {
            tracing::warn!(?timeout, "jobs of an endpoint were not left in time");
        }
    }

    /// The job service that runs a stored job. If the server has only one model, that model runs
    /// the job even if its name differs: the model may have been renamed.
    pub(crate) fn service_for_resumed_job(&self, target: &Target) -> Option<JobService> {
        // Only this version has the weights that the job needs.
        if let Some(trained) = self.trained_model_by_any_id(target) {
            return trained.jobs();
        }
        if self.was_removed(&target.version) {
            return None;
        }
        // A stored message has no version.
        let is_at = |jobs: &&JobService| {
            target.version.is_empty() || jobs.target().version == target.version
        };
        if let Some(endpoint) = self.inner.endpoints.load().get(&target.model).filter(is_at) {
            return Some(endpoint.clone());
        }
        let models = self.inner.models.load();
        let only = if models.len() == 1 && self.trained_models_of(&target.model).is_empty() {
            models.values().next()
        } else {
            None
        };
        models.get(&target.model).or(only).map(|model| model.jobs())
    }

    /// The same; a service that only ends jobs if the model is not served.
    pub(crate) fn service_or_lookup(&self, target: &Target) -> JobService {
        self.service_for_resumed_job(target)
            .unwrap_or_else(|| self.lookup().clone())
    }

    /// Accepts no more jobs. Clients can still follow those that directors run, until [`ModelRegistry::close`].
    pub fn stop_accepting(&self) {
        self.inner.lookup.shared().closing.cancel();
    }

    /// Stops accepting jobs, waits up to `timeout` for running jobs, then cancels the rest, and
    /// sends pending webhooks within the same time. Jobs of endpoints are not canceled: the next
    /// process accepts their results. Returns whether all jobs of models ended without a cancel.
    pub async fn close(&self, timeout: Duration) -> bool {
        let deadline = tokio::time::Instant::now() + timeout;
        let Inner {
            lookup, draining, ..
        } = &*self.inner;
        lookup.shared().close();
        draining.close();
        let (services, endpoints) = (self.model_services(), self.endpoint_services());
        let drained = async || {
            let services = services.iter().chain([lookup]);
            join_all(services.map(JobService::drained)).await;
            draining.wait().await;
        };
        let close_models = async {
            let in_time = tokio::time::timeout_at(deadline, drained()).await.is_ok();
            if !in_time {
                lookup.cancel_all(&endpoints);
                drained().await;
            }
            in_time
        };
        let close_endpoints = async {
            let drained = join_all(endpoints.iter().map(JobService::drained));
            if tokio::time::timeout_at(deadline, drained).await.is_err() {
                tracing::warn!(
                    ?timeout,
                    "left unfinished jobs of endpoints to the next run"
                );
            }
        };
        let (in_time, ()) = tokio::join!(close_models, close_endpoints);
        lookup.flush_webhooks(deadline).await;
        in_time
    }

    /// Stops the executors of all models.
    pub async fn stop(&self) {
        join_all(
            self.services()
                .iter()
                .map(|service| service.model.executor.stop()),
        )
        .await;
    }
}
