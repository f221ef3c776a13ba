//! `GET /health-check`: always 200; the body contains the health. On a server with tokens, only administrators
//! see the logs of the setup.

use std::path::Path;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use serde::Serialize;
use tidegate_core::health::{Health, HealthReport, SetupStatus};

use super::{AppState, COG_VERSION, reply};
use crate::access::HealthAccess;

pub(super) async fn check(State(state): State<Arc<AppState>>, access: HealthAccess) -> Response {
    let report = state.jobs().health().await;
    if let (Health::Ready | Health::Busy, Some(file)) = (report.health, &state.config.ready_file) {
        touch(file).await;
    }
    let body = serde_json::to_vec(&body(&report, &state.config.build, access))
        .expect("the report has string keys");
    reply::json(StatusCode::OK, body.into())
}

#[derive(Serialize)]
struct HealthBody<'a> {
    /// How the model's process died, until another one serves. Cog has no such field, because it
    /// ends with its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    setup: Option<SetupBody<'a>>,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_healthcheck_error: Option<&'a str>,
    version: Versions<'a>,
}

#[derive(Serialize)]
struct SetupBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logs: Option<&'a str>,
    started_at: String,
    status: SetupStatus,
}

#[derive(Serialize)]
struct Versions<'a> {
    build_time: &'static str,
    coglet: &'static str,
    git_sha: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    python: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    python_sdk: Option<&'a str>,
    tidegate: &'static str,
}

fn body<'a>(
    report: &'a HealthReport,
    build: &super::BuildInfo,
    access: HealthAccess,
) -> HealthBody<'a> {
    let serving = matches!(report.health, Health::Ready | Health::Busy);
    let is_whole = access == HealthAccess::Whole;
    let error = report.health_error.as_deref().map(|error| match is_whole {
        true => error,
        false => error.lines().next().unwrap_or_default(),
    });
    HealthBody {
        error: error.filter(|_| !serving),
        setup: report.setup.as_ref().map(|setup| SetupBody {
            completed_at: setup.completed_at.map(timestamp),
            logs: (setup.status != SetupStatus::Starting || !setup.logs.is_empty())
                .then_some(setup.logs.as_str())
                .filter(|_| is_whole),
            started_at: timestamp(setup.started_at),
            status: setup.status,
        }),
        status: status(report),
        user_healthcheck_error: error.filter(|_| serving),
        version: Versions {
            build_time: build.built_at,
            coglet: COG_VERSION,
            git_sha: build.git_sha,
            python: report.python.as_deref(),
            python_sdk: report.sdk.as_deref(),
            tidegate: build.version,
        },
    }
}

/// The status in Cog's API. While the model serves, an error of its own health check takes
/// precedence.
pub(crate) fn status(report: &HealthReport) -> &'static str {
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

/// Formats a time as Cog does.
pub(super) fn timestamp(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.9f+00:00").to_string()
}

pub(super) async fn touch(file: &Path) {
    if tokio::fs::try_exists(file).await.unwrap_or(false) {
        return;
    }
    let create = async {
        if let Some(folder) = file.parent() {
            tokio::fs::create_dir_all(folder).await?;
        }
        tokio::fs::write(file, b"").await
    };
    if let Err(error) = create.await {
        tracing::warn!(file = %file.display(), %error, "failed to create the ready file");
    }
}
