//! The models that the director offers to the API, with their schemas.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use ring::digest;
use tidegate_core::director_api::{
    DirectorJobKind, ModelOffer, ModelRegistration, RefusedModel, compact_schema,
};
use tidegate_service::{ModelRegistry, ServedModel, ServedVersion};

/// The models of a registry, as the API sees them.
pub(crate) struct ModelOffers {
    models: ModelRegistry,
    job_kind: DirectorJobKind,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The hashes of schemas, by version. The hash is of this document.
    hashes: HashMap<String, (Arc<Bytes>, String)>,
    /// The versions that the API refuses.
    refused: HashSet<String>,
}

impl ModelOffers {
    pub(crate) fn new(models: ModelRegistry, job_kind: DirectorJobKind) -> Self {
        Self {
            models,
            job_kind,
            state: Mutex::default(),
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The served version with this id.
    pub(crate) fn version(&self, id: &str) -> Option<Arc<ServedVersion>> {
        let model = self.models.get_by_current_version(id)?;
        Some(model.current()).filter(|version| version.id() == id)
    }

    /// What the director serves now.
    pub(crate) fn offers(&self) -> Vec<ModelOffer> {
        let is_accepted = |version: &str| self.with(|state| !state.refused.contains(version));
        let models = self.models.all();
        models
            .iter()
            .filter(|model| is_accepted(model.current().id()))
            .map(|model| self.offer(model))
            .collect()
    }

    fn offer(&self, model: &ServedModel) -> ModelOffer {
        let version = model.current();
        let executor = version.executor();
        let slots = executor.pool_status().slots.max(1);
        ModelOffer {
            model: model.name().to_owned(),
            version: version.id().to_owned(),
            schema_hash: schema_of(&version).map(|schema| self.hash(version.id(), schema)),
            slots: u32::try_from(slots).unwrap_or(u32::MAX),
        }
    }

    fn hash(&self, version: &str, schema: Arc<Bytes>) -> String {
        self.with(|state| {
            if let Some((known, hash)) = state.hashes.get(version)
                && Arc::ptr_eq(known, &schema)
            {
                return hash.clone();
            }
            let digest = digest::digest(&digest::SHA256, &compact_schema(&schema));
            let hash: String = digest
                .as_ref()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            state
                .hashes
                .insert(version.to_owned(), (schema, hash.clone()));
            hash
        })
    }

    /// Whether the schema of a model is not known yet.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.offers()
            .iter()
            .any(|offer| offer.schema_hash.is_none())
    }

    /// The registrations of these versions, as far as their schemas are known.
    pub(crate) fn registrations(&self, versions: &[String]) -> Vec<ModelRegistration> {
        let registration = |id: &String| {
            let version = self.version(id)?;
            Some(ModelRegistration {
                model: version.jobs.target().model.clone(),
                version: id.clone(),
                schema: Bytes::clone(&*schema_of(&version)?),
                description: version.description.clone(),
                created_at: version.created_at,
                is_handler: version.is_handler,
                is_procedure: self.job_kind == DirectorJobKind::Procedure,
            })
        };
        versions.iter().filter_map(registration).collect()
    }

    /// No longer offers a model that the API refuses. Returns whether others are left.
    pub(crate) fn refuse(&self, refused: &RefusedModel) -> bool {
        self.with(|state| state.refused.insert(refused.version.clone()));
        !self.offers().is_empty()
    }
}

/// The schema of a version, as soon as it is final: the script of a handler defines a part of it when it runs.
fn schema_of(version: &ServedVersion) -> Option<Arc<Bytes>> {
    let executor = version.executor();
    if version.is_handler {
        executor.schema()
    } else {
        executor.description()
    }
}
