//! The models of a server, each with the desk of the version that is served now.

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

/// How long a version that was replaced still takes jobs.
const IN_HAND: Duration = Duration::from_secs(1);

/// Runs nothing: for a desk that only looks jobs up.
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

/// All models on offer. Cloning gives another handle.
#[derive(Clone)]
pub struct ModelRegistry {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    /// Knows the jobs of all models, and has none itself.
    lookup: JobService,
    models: ArcSwap<ModelsByName>,
    /// Versions that were trained, newest first.
    pub(crate) trained: ArcSwap<Vec<Arc<TrainedModel>>>,
    /// The ids of those that were removed: nobody else takes the jobs that they have left.
    pub(crate) removed: Mutex<HashSet<String>>,
    /// Writers take turns; readers do not wait.
    changing: Mutex<()>,
    /// Versions that were replaced, while they work on what they have taken.
    leaving: TaskTracker,
}

type ModelsByName = BTreeMap<String, Arc<ServedModel>>;

/// A model on offer: whichever version of it is served now.
pub struct ServedModel {
    name: String,
    current: ArcSwap<ServedVersion>,
    /// What was served before, newest first.
    past: Mutex<Vec<Arc<ServedVersion>>>,
}

/// One version of a model, with the desk that takes its jobs.
pub struct ServedVersion {
    /// The desk; its target says which version this is.
    pub jobs: JobService,
    /// When the model's files were changed last.
    pub created_at: Timestamp,
    /// What the model says about itself, in one sentence.
    pub description: Option<String>,
    /// Where its files are.
    pub folder: PathBuf,
}

impl ServedVersion {
    /// Runs its jobs.
    pub fn executor(&self) -> Arc<dyn Executor> {
        Arc::clone(&self.jobs.model.executor)
    }

    /// 64 hexadecimal digits.
    pub fn id(&self) -> &str {
        &self.jobs.target().version
    }
}

impl ServedModel {
    pub(crate) fn new(version: ServedVersion) -> Self {
        Self {
            name: version.jobs.target().model.clone(),
            current: ArcSwap::from_pointee(version),
            past: Mutex::default(),
        }
    }

    /// `owner/name`
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version that is served now.
    pub fn current(&self) -> Arc<ServedVersion> {
        self.current.load_full()
    }

    /// The desk of the version that is served now.
    pub fn jobs(&self) -> JobService {
        self.current.load().jobs.clone()
    }

    /// All versions since the server was started, newest first; one that came back is there once. Only the first
    /// takes jobs.
    pub fn versions(&self) -> Vec<Arc<ServedVersion>> {
        let past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = HashSet::new();
        std::iter::once(self.current())
            .chain(past.iter().cloned())
            .filter(|version| seen.insert(version.id().to_owned()))
            .collect()
    }
}

impl ModelRegistry {
    /// No models yet; `lookup` finds the jobs of all.
    pub fn new(lookup: JobService) -> Self {
        let inner = Inner {
            lookup,
            models: ArcSwap::default(),
            trained: ArcSwap::default(),
            removed: Mutex::default(),
            changing: Mutex::new(()),
            leaving: TaskTracker::new(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// A desk that finds and cancels the jobs of all models, and takes none.
    pub fn lookup(&self) -> &JobService {
        &self.inner.lookup
    }

    /// The lines that the jobs of all models wait in.
    pub fn queue(&self) -> Arc<dyn Queue> {
        Arc::clone(&self.inner.lookup.shared().deps.queue)
    }

    /// The model with this name.
    pub fn get(&self, name: &str) -> Option<Arc<ServedModel>> {
        self.inner.models.load().get(name).cloned()
    }

    /// The model whose present version this is.
    pub fn get_by_current_version(&self, id: &str) -> Option<Arc<ServedModel>> {
        self.inner
            .models
            .load()
            .values()
            .find(|model| model.current.load().id() == id)
            .cloned()
    }

    /// All that are served from folders, by name.
    pub fn all(&self) -> Vec<Arc<ServedModel>> {
        self.inner.models.load().values().cloned().collect()
    }

    /// The desks of all versions that take jobs, those of versions that were trained last.
    pub fn services(&self) -> Vec<JobService> {
        let trained = self.trained_models();
        let trained = trained.iter().filter_map(|trained| trained.jobs());
        self.all()
            .iter()
            .map(|model| model.jobs())
            .chain(trained)
            .collect()
    }

    /// Offers a model, or another version of one. The version before ends what it has taken, and leaves.
    pub fn offer(&self, version: ServedVersion) {
        let _turn = self.changing();
        let mut models = ModelsByName::clone(&self.inner.models.load());
        match models.get(&version.jobs.target().model) {
            Some(model) => self.succeed(model, Arc::new(version)),
            None => {
                let model = ServedModel::new(version);
                models.insert(model.name.clone(), Arc::new(model));
                self.inner.models.store(Arc::new(models));
            }
        }
    }

    /// Offers a model no longer. It ends what it has taken.
    pub fn withdraw(&self, name: &str) {
        let _turn = self.changing();
        let mut models = ModelsByName::clone(&self.inner.models.load());
        if let Some(model) = models.remove(name) {
            self.inner.models.store(Arc::new(models));
            self.end(&model);
        }
    }

    pub(crate) fn changing(&self) -> MutexGuard<'_, ()> {
        self.inner
            .changing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts another version in the place of the one that is served.
    pub(crate) fn succeed(&self, model: &ServedModel, version: Arc<ServedVersion>) {
        let before = model.current.swap(Arc::clone(&version));
        before
            .jobs
            .model
            .succession
            .pass_to(Some(version.jobs.clone()));
        model
            .past
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(0, Arc::clone(&before));
        self.dismiss(before);
    }

    /// Lets a model go that nothing comes after.
    pub(crate) fn end(&self, model: &ServedModel) {
        model.current().jobs.model.succession.pass_to(None);
        self.dismiss(model.current());
    }

    /// Ends a version when its jobs are over.
    fn dismiss(&self, version: Arc<ServedVersion>) {
        self.inner.leaving.spawn(async move {
            // Somebody may have it in hand and be about to bring a job.
            tokio::time::sleep(IN_HAND).await;
            version.jobs.drained().await;
            version.jobs.model.executor.stop().await;
            tracing::info!(
                model = version.jobs.target().model,
                version = version.id(),
                "a version that was replaced has ended"
            );
        });
    }

    /// Takes up what a server before this one has left. To be called once, with the models in place.
    pub async fn resume(&self) -> Result<Resumed, StoreError> {
        self.inner
            .lookup
            .resume(&|target| self.service_for_resumed_job(target))
            .await
    }

    /// Who runs a job that was written down. The only model there is takes all: it may have been renamed.
    pub(crate) fn service_for_resumed_job(&self, target: &Target) -> Option<JobService> {
        // With other weights it would be another answer.
        if let Some(trained) = self.trained_model_by_any_id(target) {
            return trained.jobs();
        }
        if self.was_removed(&target.version) {
            return None;
        }
        let models = self.inner.models.load();
        let only = if models.len() == 1 && self.trained_models_of(&target.model).is_empty() {
            models.values().next()
        } else {
            None
        };
        models.get(&target.model).or(only).map(|model| model.jobs())
    }

    /// Takes no more jobs, waits up to `patience` for those that run and then stops them, and sends what
    /// is still to be told within the same time. Says whether all ended by themselves.
    pub async fn close(&self, patience: Duration) -> bool {
        let deadline = tokio::time::Instant::now() + patience;
        let Inner {
            lookup, leaving, ..
        } = &*self.inner;
        lookup.shared().closing.cancel();
        leaving.close();
        let services: Vec<JobService> = self
            .services()
            .into_iter()
            .chain([lookup.clone()])
            .collect();
        let drained = async || {
            join_all(services.iter().map(JobService::drained)).await;
            leaving.wait().await;
        };
        let in_time = tokio::time::timeout_at(deadline, drained()).await.is_ok();
        if !in_time {
            lookup.cancel_all();
            drained().await;
        }
        lookup.flush_webhooks(deadline).await;
        in_time
    }

    /// Ends the models themselves.
    pub async fn stop(&self) {
        join_all(
            self.services()
                .iter()
                .map(|service| service.model.executor.stop()),
        )
        .await;
    }
}
