//! What the server offers, its schema, and its end.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::reply::{self, Trouble};
use super::{COG_VERSION, Shared};
use crate::access::Identity;

#[derive(Serialize)]
struct Index {
    cog_version: &'static str,
    docs_url: &'static str,
    healthcheck_url: &'static str,
    openapi_url: &'static str,
    predictions_cancel_url: &'static str,
    predictions_idempotent_url: &'static str,
    predictions_url: &'static str,
    shutdown_url: &'static str,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    trainings: Option<Trainings>,
}

#[derive(Serialize)]
struct Trainings {
    trainings_cancel_url: &'static str,
    trainings_idempotent_url: &'static str,
    trainings_url: &'static str,
}

/// `GET /`
pub(super) async fn index(State(face): State<Shared>) -> Response {
    let trainable = face.jobs().schema().is_some_and(|schema| schema.trainable);
    let index = Index {
        cog_version: COG_VERSION,
        docs_url: "/docs",
        healthcheck_url: "/health-check",
        openapi_url: "/openapi.json",
        predictions_cancel_url: "/predictions/{prediction_id}/cancel",
        predictions_idempotent_url: "/predictions/{prediction_id}",
        predictions_url: "/predictions",
        shutdown_url: "/shutdown",
        trainings: trainable.then_some(Trainings {
            trainings_cancel_url: "/trainings/{training_id}/cancel",
            trainings_idempotent_url: "/trainings/{training_id}",
            trainings_url: "/trainings",
        }),
    };
    reply::json(StatusCode::OK, serde_json::to_vec(&index).expect("the index has string keys").into())
}

/// `GET /openapi.json`
pub(super) async fn openapi(State(face): State<Shared>) -> Result<Response, Trouble> {
    let schema = face.jobs().schema().ok_or(Trouble::NoSchema)?;
    Ok(reply::json(StatusCode::OK, schema.document.as_ref().clone()))
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
