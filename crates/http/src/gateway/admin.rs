//! Health, and the operation of the router: its configuration, endpoints, queues, and the commands reload
//! and drain.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post, put};
use serde::{Deserialize, Serialize};
use tidegate_core::chain;
use tidegate_router::EndpointKey;
use tidegate_router::control::ControlStatus;
use tidegate_router::fleet::{Algorithm, FleetDiff};
use tidegate_router::statistics::{EndpointStatistics, ModelStatistics};
use tokio::time::Instant;

use super::access::check_account;
use super::error::ErrorReply;
use super::model_metrics::millis;
use super::route::{ClientApi, path_account};
use super::{GatewayState, catalog, join, reply};
use crate::access::{Identity, TokenCheck, require_admin};
use crate::metrics::{self, MetricSources};
use crate::shared::response::json;
use crate::ui::{self, UiData};

/// The routes that are no inferences.
pub(super) fn routes(
    state: Arc<GatewayState>,
    metric_sources: MetricSources,
    ui: &UiData,
) -> Router {
    let admin = Router::new()
        .route("/admin/router", get(show))
        .route("/admin/router/reload", post(reload))
        .route("/admin/router/drain", post(drain))
        .route_layer(from_fn(require_admin));
    let open = Router::new()
        .route("/health-check", get(health))
        .route("/health", get(health))
        .route("/healthz", get(health))
        .route("/", get(index))
        .route("/docs", get(ui::docs_redirect))
        // A registration has a key of its own.
        .route("/join", put(join::join).delete(join::leave));
    Router::new()
        .route("/v1/models", get(catalog::list))
        .route("/v1/models/{*id}", get(catalog::show))
        .route("/ai/v1/models", get(catalog::list))
        .route("/ai/models/search", get(catalog::search))
        .route(
            "/client/v4/accounts/{account}/ai/models/search",
            get(catalog::search),
        )
        .route(
            "/client/v4/accounts/{account}/ai/v1/models",
            get(catalog::list),
        )
        .merge(admin)
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .with_state(Arc::clone(&state))
        .merge(metrics::routes(metric_sources))
        .merge(ui.routes())
        .layer(from_fn_with_state(Arc::clone(&state), identify))
        .merge(open.with_state(state))
        // The router stores no files.
        .merge(ui::page_routes(&[]))
}

/// Checks the token of a request and notes the client.
async fn identify(
    State(state): State<Arc<GatewayState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let table = state.registry.table();
    let found = state
        .accounts
        .identify(table.fleet(), request.headers(), request.extensions());
    let path = request.uri().path();
    let allowed = found.and_then(|identity| {
        check_account(
            table.fleet(),
            &identity.account,
            path_account(path).as_deref(),
        )?;
        Ok(identity)
    });
    match allowed {
        Ok(identity) => {
            if ui::is_api(path) {
                let check = token_check(&state, &identity, &request);
                request.extensions_mut().insert(check);
            }
            request.extensions_mut().insert(identity);
            next.run(request).await
        }
        Err(error) if ui::is_api(path) => {
            let reply = error.reply();
            refuse(reply.status, reply.message)
        }
        Err(error) => {
            let api = ClientApi::of_path(request.uri().path());
            reply::error_response(api, &error.reply())
        }
    }
}

/// Checks whether the token of a request still belongs to the same client.
fn token_check(state: &Arc<GatewayState>, identity: &Identity, request: &Request) -> TokenCheck {
    let (state, identity) = (Arc::clone(state), identity.clone());
    let (headers, extensions) = (request.headers().clone(), request.extensions().clone());
    TokenCheck::new(move || {
        let table = state.registry.table();
        let found = state
            .accounts
            .identify(table.fleet(), &headers, &extensions);
        found.is_ok_and(|found| found == identity)
    })
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
    site: String,
    models: usize,
    config_version: u64,
}

/// `GET /health-check`: whether load balancers should send requests.
async fn health(State(state): State<Arc<GatewayState>>) -> Response {
    let table = state.registry.table();
    let is_draining = state.is_draining();
    let health = Health {
        status: if is_draining { "DRAINING" } else { "READY" },
        site: table.fleet().site.clone(),
        models: table.fleet().models().len(),
        config_version: state.control.status().version,
    };
    let status = match is_draining {
        true => StatusCode::SERVICE_UNAVAILABLE,
        false => StatusCode::OK,
    };
    json(status, serialize(&health))
}

#[derive(Serialize)]
struct Index {
    name: &'static str,
    version: &'static str,
    models: &'static str,
    health: &'static str,
    admin: &'static str,
}

/// `GET /`: the paths of the router; for browsers, the web UI.
async fn index(State(state): State<Arc<GatewayState>>, headers: HeaderMap) -> Response {
    let index = Index {
        name: "tidegate router",
        version: state.build.version,
        models: "/v1/models",
        health: "/health-check",
        admin: "/admin/router",
    };
    ui::index_response(&headers, || json(StatusCode::OK, serialize(&index)))
}

#[derive(Serialize)]
struct RouterView {
    site: String,
    is_draining: bool,
    config: ControlStatus,
    accounts: Vec<AccountView>,
    models: Vec<ModelView>,
    sites: Vec<SiteView>,
    waiting_memory: usize,
    dropped_events: u64,
}

#[derive(Serialize)]
struct AccountView {
    name: String,
    active: u32,
    max_concurrent: Option<u32>,
    priority: String,
    admin: bool,
}

#[derive(Serialize)]
struct SiteView {
    name: String,
    urls: Vec<String>,
    step: u32,
    flow: Option<String>,
}

#[derive(Serialize)]
struct ModelView {
    name: String,
    aliases: Vec<String>,
    algorithm: &'static str,
    total_permits: u32,
    used_permits: usize,
    queue_size: usize,
    mean_used_permits: f64,
    mean_queue_size: f64,
    full_fraction: f64,
    service_time_ms: Option<f64>,
    waiting: Vec<WaitingView>,
    endpoints: Vec<EndpointView>,
}

#[derive(Serialize)]
struct WaitingView {
    account: String,
    requests: usize,
}

#[derive(Serialize)]
struct EndpointView {
    url: String,
    state: &'static str,
    used: u32,
    permits: u32,
    detached: usize,
    latency_ms: Option<f64>,
    backoffs: u64,
    failures: u64,
}

impl From<&EndpointStatistics> for EndpointView {
    fn from(endpoint: &EndpointStatistics) -> Self {
        Self {
            url: endpoint.key.to_string(),
            state: endpoint.state.name(),
            used: endpoint.used,
            permits: endpoint.limit,
            detached: endpoint.detached,
            latency_ms: endpoint.latency.map(millis),
            backoffs: endpoint.backoffs,
            failures: endpoint.failures,
        }
    }
}

fn model_view(
    model: &tidegate_router::fleet::FleetModel,
    statistics: &ModelStatistics,
) -> ModelView {
    let waiting = statistics.waiting_accounts.iter();
    ModelView {
        name: model.name.clone(),
        aliases: model.aliases.clone(),
        algorithm: match model.queue.algorithm {
            Algorithm::Fifo => "fifo",
            Algorithm::Fair => "fair",
        },
        total_permits: statistics.total_permits,
        used_permits: statistics.used_permits,
        queue_size: statistics.queue_size,
        mean_used_permits: statistics.mean_used_permits,
        mean_queue_size: statistics.mean_queue_size,
        full_fraction: statistics.full_fraction,
        service_time_ms: statistics.service_time.map(millis),
        waiting: waiting
            .map(|(account, requests)| WaitingView {
                account: account.to_string(),
                requests: *requests,
            })
            .collect(),
        endpoints: statistics
            .endpoints
            .iter()
            .map(EndpointView::from)
            .collect(),
    }
}

/// `GET /admin/router`
async fn show(State(state): State<Arc<GatewayState>>) -> Response {
    let table = state.registry.table();
    let fleet = table.fleet();
    let models = fleet.models().iter().zip(table.groups());
    let limits = state.registry.accounts();
    let view = RouterView {
        site: fleet.site.clone(),
        is_draining: state.is_draining(),
        config: state.control.status(),
        accounts: fleet
            .accounts
            .iter()
            .map(|account| AccountView {
                name: account.account.to_string(),
                active: limits.active(&account.account),
                max_concurrent: account.max_concurrent,
                priority: format!("{:?}", account.priority).to_lowercase(),
                admin: account.admin,
            })
            .collect(),
        models: models
            .map(|(model, group)| model_view(model, &group.statistics()))
            .collect(),
        sites: fleet
            .sites
            .iter()
            .map(|site| SiteView {
                name: site.name.clone(),
                urls: site.urls.iter().map(ToString::to_string).collect(),
                step: site.step,
                flow: site.flow.clone(),
            })
            .collect(),
        waiting_memory: state.registry.waiting_memory(),
        dropped_events: state.telemetry.dropped_events.get(),
    };
    json(StatusCode::OK, serialize(&view))
}

#[derive(Serialize)]
struct Reloaded {
    version: u64,
    changes: FleetDiff,
    summary: String,
}

/// `POST /admin/router/reload`
async fn reload(State(state): State<Arc<GatewayState>>) -> Response {
    let control = state.control.clone();
    // It starts the tasks of sources that are new.
    let reloaded = state
        .background
        .run_to_end(async move { control.reload().await });
    match reloaded.await {
        Ok(changes) => json(
            StatusCode::OK,
            serialize(&Reloaded {
                version: state.control.status().version,
                summary: changes.to_string(),
                changes,
            }),
        ),
        Err(error) => {
            let message = format!("the old configuration stays in force: {}", chain(&error));
            refuse(StatusCode::UNPROCESSABLE_ENTITY, message)
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DrainRequest {
    endpoint: String,
    #[serde(default = "default_true")]
    draining: bool,
}

fn default_true() -> bool {
    true
}

/// `POST /admin/router/drain`: takes an endpoint out of use, or back.
async fn drain(State(state): State<Arc<GatewayState>>, body: Bytes) -> Response {
    let request: DrainRequest = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => {
            let message = format!(
                "invalid body: {error}; send {{\"endpoint\": \"http://HOST:PORT\", \"draining\": true}}"
            );
            return refuse(StatusCode::BAD_REQUEST, message);
        }
    };
    let wanted = request.endpoint.trim_end_matches('/');
    let endpoints = state.registry.endpoints();
    let is_wanted = |key: &EndpointKey| key.as_str() == wanted;
    let Some(endpoint) = endpoints.iter().find(|endpoint| is_wanted(endpoint.key())) else {
        let message =
            format!("there is no endpoint `{wanted}`; `GET /admin/router` lists the endpoints");
        return refuse(StatusCode::NOT_FOUND, message);
    };
    endpoint.set_draining(request.draining);
    tracing::info!(endpoint = %endpoint.key(), draining = request.draining, "changed the drain state of an endpoint");
    let statistics = endpoint.statistics(Instant::now());
    json(StatusCode::OK, serialize(&EndpointView::from(&statistics)))
}

async fn unknown_path(method: Method, uri: Uri) -> Response {
    let path = uri.path();
    let message = format!(
        "no such path: {method} {path}; the router has /v1/…, /client/v4/accounts/ACCOUNT/ai/…, /predictions, /health-check, /metrics and /admin/router"
    );
    let mut error = ErrorReply::cut(message);
    error.status = StatusCode::NOT_FOUND;
    error.kind = "invalid_request_error";
    error.number = 7000;
    error.code = None;
    reply::error_response(ClientApi::of_path(path), &error)
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    let mut error = ErrorReply::cut(format!("method {method} not allowed for {}", uri.path()));
    error.status = StatusCode::METHOD_NOT_ALLOWED;
    error.kind = "invalid_request_error";
    error.number = 7001;
    error.code = None;
    reply::error_response(ClientApi::of_path(uri.path()), &error)
}

#[derive(Serialize)]
struct AdminError {
    error: String,
}

fn refuse(status: StatusCode, error: String) -> Response {
    json(status, serialize(&AdminError { error }))
}

fn serialize(document: &impl Serialize) -> bytes::Bytes {
    serde_json::to_vec(document)
        .expect("the documents are plain structs")
        .into()
}
