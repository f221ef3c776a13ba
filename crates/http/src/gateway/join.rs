//! The routes with which backends register themselves: `PUT /join` and `DELETE /join`.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_core::chain;
use tidegate_router::join::JoinRefusal;

use super::GatewayState;
use crate::access::Peer;
use crate::shared::response::json;

#[derive(Serialize)]
struct Left {
    removed: bool,
}

#[derive(Serialize)]
struct JoinProblem {
    error: String,
}

/// `PUT /join`: registers a backend, or renews its registration.
pub(super) async fn join(
    State(state): State<Arc<GatewayState>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let request = match parse(&body) {
        Ok(request) => request,
        Err(response) => return *response,
    };
    let joined = state
        .control
        .join(&request, bearer(&headers), ip_of(peer))
        .await;
    match joined {
        Ok(joined) => json(StatusCode::OK, serialize(&joined)),
        Err(error) => problem(&error),
    }
}

/// `DELETE /join`: removes a registration.
pub(super) async fn leave(
    State(state): State<Arc<GatewayState>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let request = match parse(&body) {
        Ok(request) => request,
        Err(response) => return *response,
    };
    let left = state
        .control
        .leave(&request, bearer(&headers), ip_of(peer))
        .await;
    match left {
        Ok(removed) => json(StatusCode::OK, serialize(&Left { removed })),
        Err(error) => problem(&error),
    }
}

fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, Box<Response>> {
    serde_json::from_slice(body).map_err(|error| {
        let error = format!("invalid body: {error}");
        Box::new(json(
            StatusCode::BAD_REQUEST,
            serialize(&JoinProblem { error }),
        ))
    })
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

/// A peer of a Unix socket is on this machine.
fn ip_of(peer: Peer) -> IpAddr {
    match peer {
        Peer::Tcp(address) => address.ip().to_canonical(),
        Peer::Unix => IpAddr::from([127, 0, 0, 1]),
    }
}

fn problem(error: &JoinRefusal) -> Response {
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let error = chain(error).to_string();
    json(status, serialize(&JoinProblem { error }))
}

fn serialize(document: &impl Serialize) -> bytes::Bytes {
    serde_json::to_vec(document)
        .expect("the documents are plain structs")
        .into()
}
