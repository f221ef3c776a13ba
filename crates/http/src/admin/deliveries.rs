//! Which webhooks were sent, and what their receivers said.

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use tidegate_service::{DeliveryRecord, Jobs};
use url::form_urlencoded;

use super::wire;
use crate::access::{Identity, Role};
use crate::shared::json::json;

/// `GET /admin/deliveries[?job=ID]`, newest first: those of the caller's account, or all for an
/// administrator.
pub(super) async fn list(State(jobs): State<Jobs>, caller: Identity, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let job = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "job").map(|(_, id)| id);
    let wanted = |record: &DeliveryRecord| {
        let visible = caller.role == Role::Admin || record.account == caller.account;
        visible && job.as_deref().is_none_or(|id| record.job.as_str() == id)
    };
    let records = jobs.deliveries().list(wanted);
    let list = wire::Deliveries { deliveries: records.iter().map(Into::into).collect() };
    json(StatusCode::OK, serde_json::to_vec(&list).expect("our fields have string keys").into())
}
