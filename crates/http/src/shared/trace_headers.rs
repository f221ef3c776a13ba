//! Trace headers: passed on from a request to the webhooks of the job that it created.

use axum::http::HeaderMap;

const TRACE_HEADERS: [&str; 2] = ["traceparent", "tracestate"];

/// The trace headers of a request.
pub(crate) fn trace_headers(headers: &HeaderMap) -> HeaderMap {
    let mut found = HeaderMap::new();
    for name in TRACE_HEADERS {
        if let Some(value) = headers.get(name) {
            found.insert(name, value.clone());
        }
    }
    found
}
