//! Closes the connections of Runpod's own workers after each response.

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::{CONNECTION, USER_AGENT};
use axum::middleware::Next;
use axum::response::Response;

/// The user agent of Runpod's own worker.
const SDK: &[u8] = b"RunPod-Python-SDK/";

/// Adds `Connection: close` for Runpod's own worker. The SDK keeps connections open, and while a
/// handler blocks, it does not notice that a restart of this server closed one. It would send the
/// result there once and drop it. `job-stream` keeps its connections: a stream starts again after a
/// restart anyway.
pub(super) async fn close_sdk_connections(request: Request, next: Next) -> Response {
    let keeps = request
        .headers()
        .get(USER_AGENT)
        .is_some_and(|agent| agent.as_bytes().starts_with(SDK));
    let mut response = next.run(request).await;
    if keeps {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
