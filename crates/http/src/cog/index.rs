//! The index, the OpenAPI schema and the shutdown of the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::reply::{self, ApiError};
use super::{AppState, COG_VERSION, Config};
use crate::access::Identity;
use crate::runpod::platform::{EndpointUrls, endpoint_urls};
use crate::shared::header_lists::accepts;
use crate::ui;

#[derive(Serialize)]
struct Index {
    cog_version: &'static str,
    docs_url: String,
    healthcheck_url: String,
    openapi_url: String,
    predictions_cancel_url: String,
    predictions_idempotent_url: String,
    predictions_url: String,
    shutdown_url: String,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    trainings: Option<TrainingUrls>,
    #[serde(flatten)]
    endpoints: EndpointLinks,
}

#[derive(Serialize)]
struct TrainingUrls {
    trainings_cancel_url: String,
    trainings_idempotent_url: String,
    trainings_url: String,
}

/// The paths of the endpoints of a server that has some besides its models.
#[derive(Default, Serialize)]
pub(super) struct EndpointLinks {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    endpoints: BTreeMap<String, EndpointUrls>,
}

impl EndpointLinks {
    pub(super) fn of(config: &Config) -> Self {
        let endpoints = config.endpoints.as_ref();
        Self {
            endpoints: endpoints.map(endpoint_urls).unwrap_or_default(),
        }
    }
}

/// `GET /`: the paths of the API; for browsers, the web UI. For a Runpod handler it is a page, as on Runpod's own
/// server, unless the client asks for JSON.
pub(super) async fn index(State(state): State<Arc<AppState>>, headers: HeaderMap) -> Response {
    let wants_page = state.model.current().is_handler && !accepts(&headers, "application/json");
    let index = || match wants_page {
        true => link_page(&ui_page(&state)),
        false => paths(&state),
    };
    if state.root.is_empty() {
        return ui::index_response(&headers, index);
    }
    index()
}

/// `GET /docs`: the page of the model in the web UI.
pub(super) async fn docs(State(state): State<Arc<AppState>>) -> Response {
    if state.root.is_empty() {
        return ui::docs_redirect().await;
    }
    ui::redirect(StatusCode::SEE_OTHER, &ui_page(&state))
}

/// The page of the model in the web UI, relative to the paths of the model's API.
fn ui_page(state: &AppState) -> String {
    if state.root.is_empty() {
        return "ui/".to_owned();
    }
    // Below `/models/OWNER/NAME`.
    format!("../../../ui/models/{}", state.model.name())
}

/// A page that leads to the web UI.
fn link_page(link: &str) -> Response {
    let page = format!(
        "<!doctype html>\n<title>tidegate</title>\n<meta http-equiv=\"refresh\" content=\"0; url={link}\">\n<a href=\"{link}\">Web UI</a>\n"
    );
    Html(page).into_response()
}

fn paths(state: &AppState) -> Response {
    let trainable = state
        .jobs()
        .description()
        .is_some_and(|schema| schema.trainable);
    let url = |path: &str| format!("{}{path}", state.root);
    let index = Index {
        cog_version: COG_VERSION,
        docs_url: url("/docs"),
        healthcheck_url: url("/health-check"),
        openapi_url: url("/openapi.json"),
        predictions_cancel_url: url("/predictions/{prediction_id}/cancel"),
        predictions_idempotent_url: url("/predictions/{prediction_id}"),
        predictions_url: url("/predictions"),
        shutdown_url: "/shutdown".to_owned(),
        trainings: trainable.then(|| TrainingUrls {
            trainings_cancel_url: url("/trainings/{training_id}/cancel"),
            trainings_idempotent_url: url("/trainings/{training_id}"),
            trainings_url: url("/trainings"),
        }),
        // The endpoints belong to the server, not to a model of it.
        endpoints: match state.root.is_empty() {
            true => EndpointLinks::of(&state.config),
            false => EndpointLinks::default(),
        },
    };
    reply::json(
        StatusCode::OK,
        serde_json::to_vec(&index)
            .expect("the index has string keys")
            .into(),
    )
}

/// `GET /openapi.json`: as soon as the model's code has been read, while the model still loads.
pub(super) async fn openapi(State(state): State<Arc<AppState>>) -> Result<Response, ApiError> {
    let schema = state.jobs().description().ok_or(ApiError::NoSchema)?;
    Ok(reply::json(
        StatusCode::OK,
        schema.document.as_ref().clone(),
    ))
}

/// `POST /shutdown`
pub(super) async fn shutdown(State(state): State<Arc<AppState>>, client: Identity) -> Response {
    shut_down(&state.shutdown, &client)
}

/// Shuts the server down.
pub(super) fn shut_down(shutdown: &CancellationToken, client: &Identity) -> Response {
    tracing::info!("shutdown requested over HTTP");
    if !client.account.is_anonymous() {
        tracing::info!(target: "audit", account = %client.account, "shutdown");
    }
    shutdown.cancel();
    reply::empty(StatusCode::OK)
}
