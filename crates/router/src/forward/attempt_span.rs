//! The client span of one attempt: from sending the request to the end of the response. The backend gets its
//! context, so that the spans of the backend are its children.

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use tidegate_core::trace::{Span, SpanContext, SpanKind, TRACEPARENT};

use super::PlannedCall;
use crate::fleet::BackendUrl;

/// The span of one attempt; empty if the process exports no traces.
#[derive(Debug, Default)]
pub(super) struct AttemptSpan(Option<Span>);

impl AttemptSpan {
    /// Starts the span and puts its context into the request.
    pub(super) fn start(
        parent: Option<SpanContext>,
        model: &str,
        url: &BackendUrl,
        call: &mut PlannedCall,
    ) -> Self {
        let start = |parent| {
            let name = call.method.as_str().to_owned();
            Span::start(name, SpanKind::Client, Some(parent))
        };
        let Some(mut span) = parent.and_then(start) else {
            return Self::default();
        };
        span.attribute("http.request.method", call.method.as_str());
        span.attribute("url.path", call.target.path());
        span.attribute("server.address", url.host.as_str());
        span.attribute("server.port", url.port);
        span.attribute("tidegate.endpoint", url.to_string().as_str());
        span.attribute("tidegate.model", model);
        if let Ok(value) = HeaderValue::from_str(&span.context().to_string()) {
            call.headers
                .insert(HeaderName::from_static(TRACEPARENT), value);
        }
        Self(Some(span))
    }

    /// The backend has answered.
    pub(super) fn answered(&mut self, status: StatusCode) {
        if let Some(span) = &mut self.0 {
            span.attribute("http.response.status_code", status.as_u16());
            if status.is_client_error() || status.is_server_error() {
                span.fail();
            }
        }
    }

    /// The attempt got no answer, or only part of one.
    pub(super) fn failed(&mut self, error_type: &'static str) {
        if let Some(span) = &mut self.0 {
            span.attribute("error.type", error_type);
            span.fail();
        }
    }
}
