//! Lists webhook deliveries with their attempts, and replays one.

use std::collections::HashSet;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use tidegate_service::{DeliveryRecord, ReplayError};

use super::query::AdminQuery;
use super::reply::ApiError;
use super::{JobServices, reply, scope, wire};
use crate::access::Identity;

/// How many pending and how many settled deliveries are read from the store.
const MAX_STORED: usize = 1000;

/// `GET /admin/deliveries[?job=ID]`, newest first: the deliveries of the client's account, or all
/// for an administrator. First those of this server, then those that only the store has.
pub(super) async fn list(
    State(job_services): State<JobServices>,
    client: Identity,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let (job_services, scope) = (job_services(), scope(&client));
    let job = match AdminQuery::parse(query.as_deref()).job("job") {
        Ok(job) => job,
        // An invalid id belongs to no job, so it has no deliveries.
        Err(_) => {
            return Ok(reply::ok(&wire::Deliveries {
                deliveries: Vec::new(),
            }));
        }
    };
    let matches = |record: &DeliveryRecord| {
        let visible = scope
            .as_ref()
            .is_none_or(|account| record.account == *account);
        visible && job.as_ref().is_none_or(|id| record.job == *id)
    };
    let mut found: Vec<DeliveryRecord> = Vec::new();
    // All job services share the list of deliveries.
    if let Some(jobs) = job_services.first() {
        found.extend(jobs.deliveries().list(matches));
        let known: HashSet<String> = found.iter().map(|record| record.id.clone()).collect();
        let stored = jobs
            .stored_deliveries(scope.as_ref(), job.as_ref(), MAX_STORED)
            .await?;
        found.extend(
            stored
                .into_iter()
                .filter(|record| !known.contains(&record.id)),
        );
    }
    let deliveries = found.iter().map(Into::into).collect();
    Ok(reply::ok(&wire::Deliveries { deliveries }))
}

/// `POST /admin/deliveries/{webhook-id}/replay`
pub(super) async fn replay(
    State(job_services): State<JobServices>,
    client: Identity,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let scope = scope(&client);
    let mut failure = ReplayError::Unknown(id.clone());
    for jobs in job_services() {
        match jobs.replay_delivery(&id, scope.as_ref()).await {
            Ok(()) => {
                if !client.account.is_anonymous() {
                    tracing::info!(target: "audit", account = %client.account, message = id, "webhook replayed");
                }
                return Ok(reply::with_status(
                    StatusCode::ACCEPTED,
                    &wire::Replayed { id: &id },
                ));
            }
            Err(ReplayError::Unknown(_)) => {}
            Err(other) => failure = other,
        }
    }
    Err(failure.into())
}
