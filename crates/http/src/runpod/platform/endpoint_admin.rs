//! The operators' API: lists, adds and removes endpoints, and prints the environment of a worker.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::clients::ok_json;
use super::endpoints::{Endpoint, EndpointLoad, UnfinishedJobs, WorkerKeys};
use super::reply::ApiError;
use super::{AppState, Config};
use crate::shared::parse_body::parse_object;

/// The maximum size of a body, in bytes.
pub(super) const MAX_BODY: usize = 64 * 1024;
/// The ping interval of workers. Shorter than the pause of the handout after a restart.
const PING_MS: &str = "3000";
/// Appended to each URL: workers append `&…`, which needs a `?` before it.
const QUERY: &str = "?gpu=any";

#[derive(Serialize, Deserialize)]
pub(super) struct EndpointListJson {
    pub(super) endpoints: Vec<EndpointEntry>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct EndpointEntry {
    pub(super) name: String,
    pub(super) url: String,
    waiting: usize,
    running: usize,
    workers: usize,
}

impl EndpointEntry {
    /// An endpoint without jobs and workers, or whose owner does not answer.
    pub(super) fn empty(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            url: String::new(),
            waiting: 0,
            running: 0,
            workers: 0,
        }
    }
}

#[derive(Deserialize)]
pub(super) struct AddEndpointBody {
    pub(super) name: String,
}

#[derive(Default, Deserialize)]
struct RemoveEndpointBody {
    #[serde(default)]
    force: bool,
}

#[derive(Serialize)]
struct EndpointRemoved {
    name: String,
    canceled: usize,
}

#[derive(Serialize)]
struct WorkerEnvJson {
    env: BTreeMap<&'static str, String>,
}

/// `GET /health-check`: jobs are accepted whether there are workers or not.
pub(super) async fn check() -> Response {
    ok_json(&serde_json::json!({ "status": "READY" }))
}

/// `GET /admin/endpoints`
pub(super) async fn list(State(app): State<Arc<AppState>>) -> Response {
    ok_json(&EndpointListJson {
        endpoints: app
            .endpoints
            .all()
            .iter()
            .map(|endpoint| app.entry(endpoint))
            .collect(),
    })
}

/// `POST /admin/endpoints` with `{"name": …}`
pub(super) async fn add(
    State(app): State<Arc<AppState>>,
    body: Body,
) -> Result<Response, ApiError> {
    let body = app.body(body, MAX_BODY).await?;
    let add: AddEndpointBody = parse_object(&body)?
        .ok_or_else(|| ApiError::InvalidRequest("the body has no `name`".to_owned()))?;
    let endpoint = app.endpoints.add(&add.name).await?;
    Ok(ok_json(&app.entry(&endpoint)))
}

/// `POST /admin/endpoints/{endpoint}/remove`, with `{"force": true}` also while it has jobs
pub(super) async fn remove(
    State(app): State<Arc<AppState>>,
    Path(name): Path<String>,
    body: Body,
) -> Result<Response, ApiError> {
    let body = app.body(body, MAX_BODY).await?;
    let RemoveEndpointBody { force } = parse_object(&body)?.unwrap_or_default();
    let canceled = app
        .endpoints
        .remove(
            &name,
            if force {
                UnfinishedJobs::Cancel
            } else {
                UnfinishedJobs::Keep
            },
        )
        .await?;
    tracing::info!(endpoint = name, canceled, "endpoint removed");
    Ok(ok_json(&EndpointRemoved { name, canceled }))
}

/// `GET /admin/endpoints/{endpoint}/env`: the environment of a new worker. Each call creates another
/// worker id.
pub(super) async fn env(
    State(app): State<Arc<AppState>>,
    Path(endpoint): Path<String>,
) -> Result<Response, ApiError> {
    let endpoint = app.endpoint(&endpoint)?;
    let Config {
        base_url,
        worker_keys,
        ..
    } = &app.config;
    Ok(worker_env(base_url, worker_keys.as_ref(), &endpoint.name))
}

/// The environment of a new worker of an endpoint.
pub(super) fn worker_env(base_url: &str, keys: Option<&WorkerKeys>, endpoint: &str) -> Response {
    let at = |path: &str| format!("{base_url}/v2/{endpoint}/{path}{QUERY}");
    let key = keys.map_or_else(|| "none".to_owned(), |keys| keys.key(endpoint));
    let mut bits = [0; 6];
    getrandom::fill(&mut bits).expect("the system provides random bytes");
    let worker: String = bits.iter().map(|byte| format!("{byte:02x}")).collect();
    ok_json(&WorkerEnvJson {
        env: BTreeMap::from([
            ("RUNPOD_AI_API_KEY", key),
            ("RUNPOD_ENDPOINT_ID", endpoint.to_owned()),
            ("RUNPOD_PING_INTERVAL", PING_MS.to_owned()),
            ("RUNPOD_POD_ID", worker),
            // The SDK's checks need memory and internet access, and end the worker without them.
            ("RUNPOD_SKIP_AUTO_SYSTEM_CHECKS", "true".to_owned()),
            ("RUNPOD_WEBHOOK_GET_JOB", at("job-take/$ID")),
            ("RUNPOD_WEBHOOK_PING", at("ping/$RUNPOD_POD_ID")),
            (
                "RUNPOD_WEBHOOK_POST_OUTPUT",
                at("job-done/$RUNPOD_POD_ID/$ID"),
            ),
            (
                "RUNPOD_WEBHOOK_POST_STREAM",
                at("job-stream/$RUNPOD_POD_ID/$ID"),
            ),
        ]),
    })
}

impl AppState {
    fn entry(&self, endpoint: &Endpoint) -> EndpointEntry {
        let EndpointLoad { waiting, running } = endpoint.load();
        let (name, workers) = (
            endpoint.name.clone(),
            endpoint.remote.worker_counts().available(),
        );
        EndpointEntry {
            url: format!("{}/v2/{name}", self.config.base_url),
            name,
            waiting,
            running,
            workers,
        }
    }
}
