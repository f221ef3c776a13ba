//! What the server offers, its schema, and its end.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::reply::{self, ApiError};
use super::{COG_VERSION, Shared};
use crate::access::Identity;

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
    trainings: Option<Trainings>,
}

#[derive(Serialize)]
struct Trainings {
    trainings_cancel_url: String,
    trainings_idempotent_url: String,
    trainings_url: String,
}

/// `GET /`
pub(super) async fn index(State(face): State<Shared>) -> Response {
    let trainable = face.jobs().schema().is_some_and(|schema| schema.trainable);
    let at = |path: &str| format!("{}{path}", face.root);
    let index = Index {
        cog_version: COG_VERSION,
        docs_url: at("/docs"),
        healthcheck_url: at("/health-check"),
        openapi_url: at("/openapi.json"),
        predictions_cancel_url: at("/predictions/{prediction_id}/cancel"),
        predictions_idempotent_url: at("/predictions/{prediction_id}"),
        predictions_url: at("/predictions"),
        shutdown_url: "/shutdown".to_owned(),
        trainings: trainable.then(|| Trainings {
            trainings_cancel_url: at("/trainings/{training_id}/cancel"),
            trainings_idempotent_url: at("/trainings/{training_id}"),
            trainings_url: at("/trainings"),
        }),
    };
    reply::json(
        StatusCode::OK,
        serde_json::to_vec(&index)
            .expect("the index has string keys")
            .into(),
    )
}

/// `GET /openapi.json`
pub(super) async fn openapi(State(face): State<Shared>) -> Result<Response, ApiError> {
    let schema = face.jobs().schema().ok_or(ApiError::NoSchema)?;
    Ok(reply::json(
        StatusCode::OK,
        schema.document.as_ref().clone(),
    ))
}

/// `POST /shutdown`
pub(super) async fn shutdown(State(face): State<Shared>, caller: Identity) -> Response {
    end(&face.shutdown, &caller)
}

/// Ends the server.
pub(super) fn end(shutdown: &CancellationToken, caller: &Identity) -> Response {
    tracing::info!("shutdown was asked for over HTTP");
    if !caller.account.is_anonymous() {
        tracing::info!(target: "audit", account = %caller.account, "shutdown");
    }
    shutdown.cancel();
    reply::empty(StatusCode::OK)
}
