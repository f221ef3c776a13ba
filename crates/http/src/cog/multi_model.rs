//! The Cog API of a server with several models: each model has it below `/models/OWNER/NAME`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::from_fn;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Serialize;
use tidegate_core::health::Health;
use tidegate_service::{ModelRegistry, ServedModel};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::index::EndpointLinks;
use super::{Config, health, index, reply};
use crate::access::{Identity, require_admin};
use crate::inference::find_model;
use crate::ui;

/// The path prefix of all models.
const ROOT: &str = "/models/";

/// The state of the routes that concern all models.
struct AppState {
    models: ModelRegistry,
    config: Config,
    shutdown: CancellationToken,
    handler_routes: HandlerRoutes,
    /// The router of each model, created with its first request.
    routers: Mutex<BTreeMap<String, CachedRouter>>,
}

/// The additional routes of a model that is a Runpod handler.
pub type HandlerRoutes = Arc<dyn Fn(Arc<ServedModel>) -> Router + Send + Sync>;

struct CachedRouter {
    model: Arc<ServedModel>,
    /// Whether the model was a handler then; another version may be something else.
    is_handler: bool,
    router: Router,
}

/// The routes of all models. `POST /shutdown` of an administrator cancels `shutdown`.
pub fn multi_model_routes(
    models: ModelRegistry,
    config: Config,
    handler_routes: HandlerRoutes,
    shutdown: CancellationToken,
) -> Router {
    let state = Arc::new(AppState {
        models,
        config,
        shutdown,
        handler_routes,
        routers: Mutex::default(),
    });
    Router::new()
        .route("/", get(index))
        .route("/docs", get(ui::docs_redirect))
        .route("/health-check", get(check))
        .route(
            "/shutdown",
            post(shut_down).route_layer(from_fn(require_admin)),
        )
        .fallback(forward)
        .method_not_allowed_fallback(reply::no_such_method)
        .with_state(state)
}

#[derive(Serialize)]
struct ServerIndex {
    #[serde(flatten)]
    endpoints: EndpointLinks,
    healthcheck_url: &'static str,
    models: BTreeMap<String, ModelLinks>,
    shutdown_url: &'static str,
}

#[derive(Serialize)]
struct ModelLinks {
    docs_url: String,
    healthcheck_url: String,
    openapi_url: String,
    predictions_url: String,
    version: String,
}

/// `GET /`: the models with their URLs; for browsers, the web UI.
async fn index(State(state): State<Arc<AppState>>, headers: HeaderMap) -> Response {
    ui::index_response(&headers, || list(&state))
}

fn list(state: &AppState) -> Response {
    let links_of = |model: &Arc<ServedModel>| {
        let at = |path: &str| format!("{ROOT}{}/{path}", model.name());
        let links = ModelLinks {
            docs_url: at("docs"),
            healthcheck_url: at("health-check"),
            openapi_url: at("openapi.json"),
            predictions_url: at("predictions"),
            version: model.current().id().to_owned(),
        };
        (model.name().to_owned(), links)
    };
    let models: BTreeMap<String, ModelLinks> = state.models.all().iter().map(links_of).collect();
    let index = ServerIndex {
        endpoints: EndpointLinks::of(&state.config),
        healthcheck_url: "/health-check",
        models,
        shutdown_url: "/shutdown",
    };
    let body = serde_json::to_vec(&index).expect("the index has string keys");
    reply::json(StatusCode::OK, body.into())
}

/// `GET /health-check`: the health of each model, and the worst of them as the status of the
/// server.
async fn check(State(state): State<Arc<AppState>>) -> Response {
    let reports: BTreeMap<String, _> = state
        .models
        .all()
        .iter()
        .map(|model| (model.name().to_owned(), model.jobs().report()))
        .collect();
    let worst = reports
        .values()
        .map(|report| report.health)
        .max_by_key(|health| severity(*health))
        .unwrap_or(Health::Ready);
    if let (Health::Ready | Health::Busy, Some(file)) = (worst, &state.config.ready_file) {
        health::touch(file).await;
    }
    let models: BTreeMap<_, _> = reports
        .iter()
        .map(|(name, report)| (name, health::status(report)))
        .collect();
    let status = health::status(&tidegate_core::health::HealthReport {
        health: worst,
        setup: None,
        health_error: None,
        python: None,
        sdk: None,
    });
    let body = serde_json::json!({ "status": status, "models": models, "version": { "tidegate": state.config.build.version } });
    reply::json(StatusCode::OK, body.to_string().into())
}

fn severity(health: Health) -> u8 {
    match health {
        Health::Ready => 0,
        Health::Busy => 1,
        Health::Unknown => 2,
        Health::Starting => 3,
        Health::Defunct => 4,
        Health::SetupFailed => 5,
    }
}

/// `POST /shutdown`
async fn shut_down(State(state): State<Arc<AppState>>, client: Identity) -> Response {
    index::shut_down(&state.shutdown, &client)
}

/// Forwards every other request to the router of its model.
async fn forward(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let Some((model, rest)) = state.named_model(request.uri()) else {
        return no_such_path(&state, request.uri());
    };
    let mut request = request;
    *request.uri_mut() = rest;
    match state.router_of(model).oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

impl AppState {
    /// The model that a path names by `OWNER/NAME`, or by `NAME` as in the other APIs, and the path below it.
    fn named_model(&self, uri: &Uri) -> Option<(Arc<ServedModel>, Uri)> {
        if let Some((name, rest)) = split_path(uri, 2)
            && let Some(model) = self.models.get(&name)
        {
            return Some((model, rest));
        }
        let (name, rest) = split_path(uri, 1)?;
        Some((find_model(&self.models, &name)?, rest))
    }

    fn router_of(&self, model: Arc<ServedModel>) -> Router {
        let mut routers = self.routers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_handler = model.current().is_handler;
        if let Some(known) = routers.get(model.name())
            && Arc::ptr_eq(&known.model, &model)
            && known.is_handler == is_handler
        {
            return known.router.clone();
        }
        let mut router = super::routes_below(
            format!("{ROOT}{}", model.name()),
            Arc::clone(&model),
            self.config.clone(),
            self.shutdown.clone(),
        );
        if is_handler {
            router = router.merge((self.handler_routes)(Arc::clone(&model)));
        }
        let cached = CachedRouter {
            model: Arc::clone(&model),
            is_handler,
            router: router.clone(),
        };
        routers.insert(model.name().to_owned(), cached);
        router
    }
}

/// Splits a path into the name of the model, which has this many segments, and the path below it.
fn split_path(uri: &Uri, segments: usize) -> Option<(String, Uri)> {
    let mut parts = uri.path().strip_prefix(ROOT)?.splitn(segments + 1, '/');
    let name: Vec<&str> = parts.by_ref().take(segments).collect();
    if name.len() < segments {
        return None;
    }
    let name = name.join("/");
    let path = format!("/{}", parts.next().unwrap_or_default());
    let rest = match uri.query() {
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")),
        None => PathAndQuery::try_from(path),
    };
    Some((name, Uri::from(rest.ok()?)))
}

fn no_such_path(state: &AppState, uri: &Uri) -> Response {
    let models = state.models.all();
    let names: Vec<&str> = models.iter().map(|model| model.name()).take(10).collect();
    let path = uri.path().chars().take(200).collect::<String>();
    let first = names.first().copied().unwrap_or("OWNER/NAME");
    let message = format!(
        "no such path: `{path}`; the models of this server ({}) are below {ROOT}, for example POST {ROOT}{first}/predictions; GET / lists all of them",
        names.join(", ")
    );
    reply::plain_error(StatusCode::NOT_FOUND, &message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_into_model_and_rest() {
        let read = |path: &'static str| {
            split_path(&Uri::from_static(path), 2).map(|(name, rest)| (name, rest.to_string()))
        };
        let some = |name: &str, rest: &str| Some((name.to_owned(), rest.to_owned()));
        assert_eq!(
            read("/models/ann/echo/predictions/x?y=1"),
            some("ann/echo", "/predictions/x?y=1")
        );
        assert_eq!(read("/models/ann/echo/"), some("ann/echo", "/"));
        assert_eq!(read("/models/ann/echo"), some("ann/echo", "/"));
        for other in [
            "/",
            "/predictions",
            "/models",
            "/models/ann",
            "/model/ann/echo/x",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
        let (name, rest) = split_path(&Uri::from_static("/models/echo/predictions/x"), 1).unwrap();
        assert_eq!((&*name, &*rest.to_string()), ("echo", "/predictions/x"));
    }
}
