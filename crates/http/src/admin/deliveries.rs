//! Which webhooks were sent, what their receivers said, and sending one again.

use std::collections::HashSet;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use tidegate_service::{DeliveryRecord, ReplayError};

use super::query::JobQuery;
use super::reply::ApiError;
use super::{JobServices, reply, scope, wire};
use crate::access::Identity;

/// How many are read from the store.
const MOST: usize = 1000;

/// `GET /admin/deliveries[?job=ID]`, newest first: those of the caller's account, or all for an
/// administrator. First those that this server has sent, then those of servers before it.
pub(super) async fn list(
    State(job_services): State<JobServices>,
    caller: Identity,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let (job_services, scope) = (job_services(), scope(&caller));
    let job = match JobQuery::read(query.as_deref()).job("job") {
        Ok(job) => job,
        // Nothing was ever told about a job that cannot be.
        Err(_) => {
            return Ok(reply::shown(&wire::Deliveries {
                deliveries: Vec::new(),
            }));
        }
    };
    let wanted = |record: &DeliveryRecord| {
        let visible = scope
            .as_ref()
            .is_none_or(|account| record.account == *account);
        visible && job.as_ref().is_none_or(|id| record.job == *id)
    };
    let mut found: Vec<DeliveryRecord> = Vec::new();
    // What was told is known to all job_services together.
    if let Some(jobs) = job_services.first() {
        found.extend(jobs.deliveries().list(wanted));
        let known: HashSet<String> = found.iter().map(|record| record.id.clone()).collect();
        let settled = jobs
            .settled_deliveries(scope.as_ref(), job.as_ref(), MOST)
            .await?;
        found.extend(
            settled
                .into_iter()
                .filter(|record| !known.contains(&record.id)),
        );
    }
    let deliveries = found.iter().map(Into::into).collect();
    Ok(reply::shown(&wire::Deliveries { deliveries }))
}

/// `POST /admin/deliveries/{webhook-id}/replay`
pub(super) async fn replay(
    State(job_services): State<JobServices>,
    caller: Identity,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let scope = scope(&caller);
    let mut refused = ReplayError::Unknown(id.clone());
    for jobs in job_services() {
        match jobs.replay_delivery(&id, scope.as_ref()).await {
            Ok(()) => {
                if !caller.account.is_anonymous() {
                    tracing::info!(target: "audit", account = %caller.account, message = id, "webhook sent again");
                }
                return Ok(reply::said(
                    StatusCode::ACCEPTED,
                    &wire::Replayed { id: &id },
                ));
            }
            Err(ReplayError::Unknown(_)) => {}
            Err(other) => refused = other,
        }
    }
    Err(refused.into())
}
