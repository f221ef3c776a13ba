//! Closes the connections of Runpod's own workers after each response.

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::{CONNECTION, USER_AGENT};
use axum::middleware::Next;
use axum::response::Response;

use super::route_of;

/// The routes whose connections are closed.
const CLOSED: [&str; 4] = ["job-take", "job-take-batch", "job-done", "job-stop"];
/// The user agent of Runpod's own worker.
const SDK: &[u8] = b"RunPod-Python-SDK/";

/// Adds `Connection: close` for Runpod's own worker. The SDK keeps connections open, and while a
/// handler blocks, it does not notice that a restart of this server closed one. It would send the
/// result there once and drop it. `job-stream` keeps its connections: a stream starts again after a
/// restart anyway.
pub(super) async fn close_sdk_connections(request: Request, next: Next) -> Response {
    let closes = is_of_sdk(&request);
    let mut response = next.run(request).await;
    if closes {
        close(&mut response);
    }
    response
}

/// Whether the connection of a request that is forwarded to the owner of its endpoint is closed.
pub(super) fn closes_after(request: &Request) -> bool {
    let route = route_of(request.uri().path());
    route.is_some_and(|route| CLOSED.contains(&route)) && is_of_sdk(request)
}

/// Lets the server close the connection after this response.
pub(super) fn close(response: &mut Response) {
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
}

fn is_of_sdk(request: &Request) -> bool {
    let agent = request.headers().get(USER_AGENT);
    agent.is_some_and(|agent| agent.as_bytes().starts_with(SDK))
}
