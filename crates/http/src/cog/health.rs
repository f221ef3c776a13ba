//! `GET /health-check`: always 200, the body says how it is.

use std::path::Path;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use serde::Serialize;
use tidegate_core::health::{Health, HealthReport, SetupStatus};

use super::{COG_VERSION, Shared, reply};

pub(super) async fn check(State(face): State<Shared>) -> Response {
    let report = face.jobs().health().await;
    if let (Health::Ready | Health::Busy, Some(file)) = (report.health, &face.config.ready_file) {
        touch(file).await;
    }
    let body =
        serde_json::to_vec(&body(&report, &face.config.build)).expect("the report has string keys");
    reply::json(StatusCode::OK, body.into())
}

#[derive(Serialize)]
struct Body<'a> {
    /// How the model's process died, until another works; Cog has no word for it because it never gets
    /// there.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    setup: Option<Setup<'a>>,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_healthcheck_error: Option<&'a str>,
    version: Version<'a>,
}

#[derive(Serialize)]
struct Setup<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logs: Option<&'a str>,
    started_at: String,
    status: SetupStatus,
}

#[derive(Serialize)]
struct Version<'a> {
    build_time: &'static str,
    coglet: &'static str,
    git_sha: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    python: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    python_sdk: Option<&'a str>,
    tidegate: &'static str,
}

fn body<'a>(report: &'a HealthReport, build: &super::BuildInfo) -> Body<'a> {
    let serves = matches!(report.health, Health::Ready | Health::Busy);
    Body {
        error: report.health_error.as_deref().filter(|_| !serves),
        setup: report.setup.as_ref().map(|setup| Setup {
            completed_at: setup.completed_at.map(timestamp),
            logs: (setup.status != SetupStatus::Starting || !setup.logs.is_empty())
                .then_some(&setup.logs),
            started_at: timestamp(setup.started_at),
            status: setup.status,
        }),
        status: word(report),
        user_healthcheck_error: report.health_error.as_deref().filter(|_| serves),
        version: Version {
            build_time: build.built_at,
            coglet: COG_VERSION,
            git_sha: build.git_sha,
            python: report.python.as_deref(),
            python_sdk: report.sdk.as_deref(),
            tidegate: build.version,
        },
    }
}

/// A complaint of the model's own check outranks everything while it serves.
pub(super) fn word(report: &HealthReport) -> &'static str {
    match report.health {
        Health::Ready | Health::Busy if report.health_error.is_some() => "UNHEALTHY",
        Health::Unknown => "UNKNOWN",
        Health::Starting => "STARTING",
        Health::Ready => "READY",
        Health::Busy => "BUSY",
        Health::SetupFailed => "SETUP_FAILED",
        Health::Defunct => "DEFUNCT",
    }
}

/// The form in which Cog writes moments.
pub(super) fn timestamp(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%S%.9f+00:00").to_string()
}

pub(super) async fn touch(file: &Path) {
    if tokio::fs::try_exists(file).await.unwrap_or(false) {
        return;
    }
    let made = async {
        if let Some(folder) = file.parent() {
            tokio::fs::create_dir_all(folder).await?;
        }
        tokio::fs::write(file, b"").await
    };
    if let Err(error) = made.await {
        tracing::warn!(file = %file.display(), %error, "could not make the file for readiness probes");
    }
}
