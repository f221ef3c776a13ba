//! The Cog face of a server with multi_model models: each has all of it below `/models/OWNER/NAME`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{StatusCode, Uri};
use axum::middleware::from_fn;
use axum::response::{Html, Response};
use axum::routing::{get, post};
use serde::Serialize;
use tidegate_core::health::Health;
use tidegate_service::{ModelRegistry, ServedModel};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::{Config, health, index, reply};
use crate::access::{Identity, require_admin};

/// What all models are below of.
const ROOT: &str = "/models/";

struct Many {
    models: ModelRegistry,
    config: Config,
    shutdown: CancellationToken,
    /// The faces of the models, made when they are first asked for.
    faces: Mutex<BTreeMap<String, (Arc<ServedModel>, Router)>>,
}

type Shared = Arc<Many>;

/// The faces of all models. `POST /shutdown` of an administrator cancels `shutdown`.
pub fn multi_model_routes(
    models: ModelRegistry,
    config: Config,
    shutdown: CancellationToken,
) -> Router {
    let many = Arc::new(Many {
        models,
        config,
        shutdown,
        faces: Mutex::default(),
    });
    Router::new()
        .route("/", get(list))
        .route("/docs", get(docs))
        .route("/health-check", get(check))
        .route("/shutdown", post(end).route_layer(from_fn(require_admin)))
        .fallback(hand_on)
        .method_not_allowed_fallback(reply::no_such_method)
        .with_state(many)
}

#[derive(Serialize)]
struct Entry {
    docs_url: String,
    healthcheck_url: String,
    openapi_url: String,
    predictions_url: String,
    version: String,
}

/// `GET /`: the models, each with its addresses.
async fn list(State(many): State<Shared>) -> Response {
    let entry = |model: &Arc<ServedModel>| {
        let at = |path: &str| format!("{ROOT}{}/{path}", model.name());
        let entry = Entry {
            docs_url: at("docs"),
            healthcheck_url: at("health-check"),
            openapi_url: at("openapi.json"),
            predictions_url: at("predictions"),
            version: model.now().id().to_owned(),
        };
        (model.name().to_owned(), entry)
    };
    let models: BTreeMap<String, Entry> = many.models.all().iter().map(entry).collect();
    let body = serde_json::json!({ "healthcheck_url": "/health-check", "shutdown_url": "/shutdown", "models": models });
    reply::json(StatusCode::OK, body.to_string().into())
}

/// `GET /docs`: a page that leads to those of the models.
async fn docs(State(many): State<Shared>) -> Html<String> {
    // Names have letters, digits and `-_./` only.
    let link = |model: &Arc<ServedModel>| {
        format!("<li><a href=\"models/{0}/docs\">{0}</a></li>", model.name())
    };
    let links: String = many.models.all().iter().map(link).collect();
    Html(format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>models</title><h1>Models</h1><ul>{links}</ul></html>"
    ))
}

/// `GET /health-check`: ready when every model takes jobs, and how each of them is.
async fn check(State(many): State<Shared>) -> Response {
    let reports: BTreeMap<String, _> = many
        .models
        .all()
        .iter()
        .map(|model| (model.name().to_owned(), model.jobs().report()))
        .collect();
    let worst = reports
        .values()
        .map(|report| report.health)
        .max_by_key(|health| badness(*health))
        .unwrap_or(Health::Ready);
    if let (Health::Ready | Health::Busy, Some(file)) = (worst, &many.config.ready_file) {
        health::touch(file).await;
    }
    let models: BTreeMap<_, _> = reports
        .iter()
        .map(|(name, report)| (name, health::word(report)))
        .collect();
    let status = health::word(&tidegate_core::health::HealthReport {
        health: worst,
        setup: None,
        health_error: None,
        python: None,
        sdk: None,
    });
    let body = serde_json::json!({ "status": status, "models": models, "version": { "tidegate": many.config.build.version } });
    reply::json(StatusCode::OK, body.to_string().into())
}

fn badness(health: Health) -> u8 {
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
async fn end(State(many): State<Shared>, caller: Identity) -> Response {
    index::end(&many.shutdown, &caller)
}

/// Everything else is for one of the models.
async fn hand_on(State(many): State<Shared>, request: Request) -> Response {
    let Some((name, rest)) = parts(request.uri()) else {
        return not_here(&many, request.uri());
    };
    let Some(model) = many.models.get(&name) else {
        return not_here(&many, request.uri());
    };
    let mut request = request;
    *request.uri_mut() = rest;
    match many.face_of(model).oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

impl Many {
    fn face_of(&self, model: Arc<ServedModel>) -> Router {
        let mut faces = self.faces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, face)) = faces.get(model.name())
            && Arc::ptr_eq(known, &model)
        {
            return face.clone();
        }
        let face = super::routes_below(
            format!("{ROOT}{}", model.name()),
            Arc::clone(&model),
            self.config.clone(),
            self.shutdown.clone(),
        );
        faces.insert(model.name().to_owned(), (model, face.clone()));
        face
    }
}

/// The model that a path names, and what is asked of it.
fn parts(uri: &Uri) -> Option<(String, Uri)> {
    let mut parts = uri.path().strip_prefix(ROOT)?.splitn(3, '/');
    let name = format!("{}/{}", parts.next()?, parts.next()?);
    let path = format!("/{}", parts.next().unwrap_or_default());
    let rest = match uri.query() {
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")),
        None => PathAndQuery::try_from(path),
    };
    Some((name, Uri::from(rest.ok()?)))
}

fn not_here(many: &Many, uri: &Uri) -> Response {
    let models = many.models.all();
    let names: Vec<&str> = models.iter().map(|model| model.name()).take(10).collect();
    let path = uri.path().chars().take(200).collect::<String>();
    let first = names.first().copied().unwrap_or("OWNER/NAME");
    let message = format!(
        "there is nothing at `{path}`; this server has the models {}, each below {ROOT}: POST {ROOT}{first}/predictions. GET / lists all",
        names.join(", ")
    );
    reply::plain_error(StatusCode::NOT_FOUND, &message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_model_and_what_is_asked_of_it() {
        let read = |path: &'static str| {
            parts(&Uri::from_static(path)).map(|(name, rest)| (name, rest.to_string()))
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
    }
}
