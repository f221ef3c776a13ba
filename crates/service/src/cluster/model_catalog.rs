//! The models of a cluster: directors register them with their schemas, the store keeps them, and every API
//! process serves all of them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use ring::digest;
use serde::{Deserialize, Serialize};
use tidegate_core::chain;
use tidegate_core::clock;
use tidegate_core::director_api::{
    DirectorJobKind, ModelRegistration, RefusedModel, compact_schema,
};
use tidegate_core::record::Target;
use tidegate_core::store::{Documents, StoreError};
use tokio::time::Instant;

use super::registered_model::RegisteredModel;
use crate::models::{ModelRegistry, ServedVersion};

/// The namespace of the documents; their names are `owner/name:version`.
const NAMESPACE: &str = "registered_models";
/// The namespace and the name of a document that changes with every new registration.
const LAST_REGISTRATION: (&str, &str) = ("registered_models_change", "last");
/// How often that document is read: another process may have registered a model.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// How often all documents are read, because a process may have died before it changed that document.
const FULL_REFRESH_INTERVAL: Duration = Duration::from_secs(60);

/// Why a model is refused.
const OTHER_KIND: &str = "this version is registered for jobs of another kind: the predictions of a version either are procedures (--job-kind procedure) or are not; use the same kind for all of its directors";
const OTHER_SCHEMA: &str = "this version is registered with a different schema; use the same code and packages on every machine";

/// The models that directors have registered.
pub struct ModelCatalog {
    models: ModelRegistry,
    documents: Arc<dyn Documents>,
    /// The versions that are served.
    served: Mutex<HashMap<String, KnownVersion>>,
    /// When all documents were read, and what the last registration was at that time.
    last_refresh: Mutex<Option<(Instant, Option<Bytes>)>>,
}

/// What is known of a version that is served.
struct KnownVersion {
    /// The hash of its schema; absent for a handler, whose schema depends on what its script did when it
    /// ran.
    hash: Option<String>,
    is_procedure: bool,
}

/// A registered model as it is stored.
#[derive(Serialize, Deserialize)]
struct StoredModel {
    #[serde(flatten)]
    target: Target,
    /// The OpenAPI document, as text.
    schema: String,
    description: Option<String>,
    created_at: Timestamp,
    #[serde(default)]
    is_handler: bool,
    /// Whether its predictions are calls of a procedure.
    #[serde(default)]
    is_procedure: bool,
    /// The last registered version of a model is its current one.
    registered_at: Timestamp,
}

impl From<ModelRegistration> for StoredModel {
    fn from(model: ModelRegistration) -> Self {
        Self {
            target: Target {
                model: model.model,
                version: model.version,
                deployment: None,
            },
            schema: String::from_utf8_lossy(&model.schema).into_owned(),
            description: model.description,
            created_at: model.created_at,
            is_handler: model.is_handler,
            is_procedure: model.is_procedure,
            registered_at: clock::now(),
        }
    }
}

impl ModelCatalog {
    /// Serves the registered models in `models`.
    pub fn new(models: ModelRegistry, documents: Arc<dyn Documents>) -> Self {
        Self {
            models,
            documents,
            served: Mutex::default(),
            last_refresh: Mutex::default(),
        }
    }

    /// The versions among these whose schema is unknown or differs, by version and hash of the schema, or
    /// that are not served for this kind of jobs.
    pub(super) fn unknown<'a>(
        &self,
        offers: impl Iterator<Item = (&'a str, Option<&'a str>)>,
        job_kind: DirectorJobKind,
    ) -> Vec<String> {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        offers
            .filter_map(|(version, hash)| Some((version, hash?)))
            .filter(|(version, hash)| match served.get(*version) {
                Some(known) => {
                    let is_same = known.hash.as_deref().is_none_or(|known| known == *hash);
                    !is_same || !is_for(known.is_procedure, job_kind)
                }
                None => true,
            })
            .map(|(version, _)| version.to_owned())
            .collect()
    }

    /// Whether a version is registered.
    pub(super) fn knows(&self, version: &str) -> bool {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        served.contains_key(version)
    }

    /// Registers models. The first schema of a version wins: a model with another one is refused, unless it is
    /// a handler.
    pub async fn register(
        &self,
        models: Vec<ModelRegistration>,
    ) -> Result<Vec<RefusedModel>, StoreError> {
        let mut refused = Vec::new();
        for model in models.into_iter().map(StoredModel::from) {
            let name = format!("{}:{}", model.target.model, model.target.version);
            let json = Bytes::from(serde_json::to_vec(&model).expect("a model serializes"));
            let first = self
                .documents
                .put_new(NAMESPACE, &name, json.clone())
                .await?;
            if first == json {
                self.record_registration(&name).await?;
            }
            let first: StoredModel = serde_json::from_slice(&first).map_err(|error| {
                StoreError::Corrupt(format!("registered model `{name}`: {error}"))
            })?;
            let reason = if !first.is_handler && !is_same_schema(&first, &model) {
                OTHER_SCHEMA
            } else if first.is_procedure != model.is_procedure {
                OTHER_KIND
            } else {
                self.serve(first);
                continue;
            };
            refused.push(RefusedModel {
                model: model.target.model,
                version: model.target.version,
                reason: reason.to_owned(),
            });
        }
        Ok(refused)
    }

    /// Makes the other processes read the models.
    async fn record_registration(&self, name: &str) -> Result<(), StoreError> {
        let (namespace, document) = LAST_REGISTRATION;
        let change = serde_json::to_vec(&(name, clock::now()));
        let change = change.expect("a name and a time serialize");
        self.documents.put(namespace, document, change.into()).await
    }

    /// Reads the models that other processes have registered, if there are new ones.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        let (namespace, document) = LAST_REGISTRATION;
        let registration = self.documents.fetch(namespace, document).await?;
        let is_current = self.last_refresh().as_ref().is_some_and(|(at, seen)| {
            *seen == registration && at.elapsed() < FULL_REFRESH_INTERVAL
        });
        if !is_current {
            self.read_all().await?;
            *self.last_refresh() = Some((Instant::now(), registration));
        }
        Ok(())
    }

    fn last_refresh(&self) -> MutexGuard<'_, Option<(Instant, Option<Bytes>)>> {
        self.last_refresh
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn read_all(&self) -> Result<(), StoreError> {
        let mut found = Vec::new();
        for (name, json) in self.documents.all(NAMESPACE, "").await? {
            match serde_json::from_slice::<StoredModel>(&json) {
                Ok(model) => found.push(model),
                Err(error) => {
                    tracing::error!(model = name, error = %chain(&error), "failed to read registered model");
                }
            }
        }
        found.sort_by_key(|model| model.registered_at);
        found.into_iter().for_each(|model| self.serve(model));
        Ok(())
    }

    /// Keeps the models up to date, forever.
    pub async fn run(&self) {
        loop {
            if let Err(error) = self.refresh().await {
                tracing::warn!(error = %chain(&error), "failed to read the registered models, retrying");
            }
            tokio::time::sleep(REFRESH_INTERVAL).await;
        }
    }

    fn serve(&self, stored: StoredModel) {
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        if served.contains_key(&stored.target.version) {
            return;
        }
        let hash = (!stored.is_handler).then(|| hash_of(stored.schema.as_bytes()));
        let known = KnownVersion {
            hash,
            is_procedure: stored.is_procedure,
        };
        served.insert(stored.target.version.clone(), known);
        if stored.is_procedure
            && let Some(cluster) = self.models.lookup().cluster()
        {
            cluster.queues.add_procedure(&stored.target.version);
        }
        let Target { model, version, .. } = &stored.target;
        tracing::info!(model, version, "serving a registered model");
        let executor = Arc::new(RegisteredModel::new(Bytes::from(stored.schema)));
        self.models.offer(ServedVersion {
            jobs: self.models.lookup().for_model(executor, stored.target),
            created_at: stored.created_at,
            description: stored.description,
            folder: PathBuf::new(),
            is_handler: stored.is_handler,
        });
    }
}

/// Whether directors for this kind of jobs may serve a version. Every version may be trained.
fn is_for(is_procedure: bool, job_kind: DirectorJobKind) -> bool {
    match job_kind {
        DirectorJobKind::Prediction => !is_procedure,
        DirectorJobKind::Procedure => is_procedure,
        DirectorJobKind::Training => true,
    }
}

fn is_same_schema(first: &StoredModel, model: &StoredModel) -> bool {
    compact_schema(first.schema.as_bytes()) == compact_schema(model.schema.as_bytes())
}

/// The SHA-256 of a schema, in hexadecimal digits. Whitespace does not count.
pub(super) fn hash_of(schema: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, &compact_schema(schema));
    digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
