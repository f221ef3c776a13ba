//! The schemas of models with named inputs, read from their backends when a form needs them.
//!
//! Only backends of the kinds `tidegate` and `cog` have such schemas. A schema is kept for a short time, so
//! that a page that is loaded often does not ask the backend each time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::control::FleetControl;
use crate::endpoint::ResolvedEndpoint;
use crate::fleet::BackendKind;
use crate::outbound::{OutboundClient, OutboundRequest};

/// The time for all backends of a model together.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The most backends that are asked for one schema.
const MAX_ASKED: usize = 2;
/// How long a schema is kept. A backend may be replaced by another version.
const KEEP: Duration = Duration::from_secs(30);
/// How long it is known that no backend has told a schema.
const KEEP_MISSING: Duration = Duration::from_secs(2);
/// The most schemas that are kept.
const MAX_KEPT: usize = 32;
/// The largest schema in bytes.
const MAX_SCHEMA: usize = 512 * 1024;

/// The schemas that backends have told lately, by the name of the model.
#[derive(Default)]
pub(crate) struct ModelSchemas {
    kept: Mutex<HashMap<String, KeptSchema>>,
}

struct KeptSchema {
    until: Instant,
    document: Option<Bytes>,
}

/// An OpenAPI document of the schema of a model.
#[derive(Deserialize)]
struct SchemaDocument<'a> {
    #[serde(borrow)]
    #[allow(dead_code, reason = "only its presence counts")]
    components: &'a RawValue,
}

impl FleetControl {
    /// The OpenAPI document of a model, as one of its backends told it; `None` if no backend tells one.
    pub async fn model_schema(&self, model: &str) -> Option<Bytes> {
        let shared = self.shared();
        if let Some(document) = shared.schemas.get(model) {
            return document;
        }
        let asked = ask(&shared.client, model, self.form_backends(model));
        let document = tokio::time::timeout(TIMEOUT, asked).await.ok().flatten();
        shared.schemas.keep(model, document.clone());
        document
    }

    /// The backends of a model that may have a schema, as far as they are in use.
    fn form_backends(&self, model: &str) -> Vec<ResolvedEndpoint> {
        let registry = &self.shared().registry;
        let table = registry.table();
        let Some((_, group)) = table.route(model) else {
            return Vec::new();
        };
        let now = Instant::now();
        let is_usable = |endpoint: &ResolvedEndpoint| {
            let live = registry.endpoint(&endpoint.key);
            live.is_some_and(|live| live.state(now).is_usable())
        };
        let mut endpoints = group.resolved();
        endpoints.retain(|endpoint| {
            schema_path(endpoint.config.kind, model).is_some() && is_usable(endpoint)
        });
        endpoints.truncate(MAX_ASKED);
        endpoints
    }
}

impl ModelSchemas {
    fn get(&self, model: &str) -> Option<Option<Bytes>> {
        let kept = self.lock();
        let schema = kept.get(model)?;
        (Instant::now() < schema.until).then(|| schema.document.clone())
    }

    fn keep(&self, model: &str, document: Option<Bytes>) {
        let now = Instant::now();
        let mut kept = self.lock();
        kept.retain(|_, schema| now < schema.until);
        if kept.len() >= MAX_KEPT {
            let first = kept.iter().min_by_key(|(_, schema)| schema.until);
            if let Some(name) = first.map(|(name, _)| name.clone()) {
                kept.remove(&name);
            }
        }
        let until = now + document.as_ref().map_or(KEEP_MISSING, |_| KEEP);
        kept.insert(model.to_owned(), KeptSchema { until, document });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, KeptSchema>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks backends in turn until one tells a schema.
async fn ask(
    client: &OutboundClient,
    model: &str,
    endpoints: Vec<ResolvedEndpoint>,
) -> Option<Bytes> {
    for ResolvedEndpoint { url, config, .. } in &endpoints {
        let name = config.upstream_model.as_deref().unwrap_or(model);
        let path = schema_path(config.kind, name)?;
        let request = OutboundRequest {
            url,
            http: config.http,
            method: Method::GET,
            path: &path,
            headers: &config.headers,
            body: None,
            timeout: TIMEOUT,
        };
        if let Ok(response) = client.send(request).await
            && response.body.len() <= MAX_SCHEMA
            && response.status.is_success()
            && serde_json::from_slice::<SchemaDocument<'_>>(&response.body).is_ok()
        {
            return Some(response.body);
        }
    }
    None
}

/// The path of the OpenAPI document of a model.
fn schema_path(kind: BackendKind, model: &str) -> Option<String> {
    match kind {
        BackendKind::Cog => Some("/openapi.json".to_owned()),
        BackendKind::Tidegate => Some(format!("/models/{model}/openapi.json")),
        BackendKind::OpenAi | BackendKind::Tgi | BackendKind::Tei | BackendKind::Triton => None,
    }
}
