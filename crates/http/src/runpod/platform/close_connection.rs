//! Which workers are told to come by another connection next time.

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::{CONNECTION, USER_AGENT};
use axum::middleware::Next;
use axum::response::Response;

/// How Runpod's own worker calls itself.
const SDK: &[u8] = b"RunPod-Python-SDK/";

/// Ends the connection of Runpod's own worker with the answer. It keeps connections, and while a handler blocks it
/// does not see that one is gone, because this server was started again. It would send the result there, once, and
/// forget it. Parts of streams are not worth a connection each: they begin again after a start.
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
