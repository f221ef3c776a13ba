//! The trace of a request, which goes with the webhooks of the job that it made.

use axum::http::HeaderMap;

const TRACE_HEADERS: [&str; 2] = ["traceparent", "tracestate"];

/// The headers of the caller that are passed on to its webhooks.
pub(crate) fn trace_headers(headers: &HeaderMap) -> HeaderMap {
    let mut passed_on = HeaderMap::new();
    for name in TRACE_HEADERS {
        if let Some(value) = headers.get(name) {
            passed_on.insert(name, value.clone());
        }
    }
    passed_on
}
