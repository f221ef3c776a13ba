//! The server span of a request, exported when the response has ended and the request asked for a job.

use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use hyper::{Request, Response};
use tidegate_core::trace::{self, RequestScope, Span, SpanContext, SpanKind, TRACEPARENT};

use crate::request_metrics::ResourceIndex;

/// The span of one request. Dropping it ends it: with the body of the response, or with the handler whose
/// client has gone.
pub(super) struct RequestSpan {
    span: Span,
    scope: Arc<RequestScope>,
}

impl RequestSpan {
    /// Starts the span; `None` if the process exports no traces.
    pub(super) fn start<B>(request: &Request<B>, resource: ResourceIndex) -> Option<Box<Self>> {
        if !trace::is_enabled() {
            return None;
        }
        let header = request.headers().get(TRACEPARENT);
        let parent = header.and_then(|value| SpanContext::parse(value.to_str().ok()?));
        let (method, path) = (request.method().as_str(), request.uri().path());
        // The name has few values: a path may contain ids and names of models.
        let name = match resource.path_prefix() {
            Some(prefix) if prefix == path => format!("{method} {prefix}"),
            Some(prefix) => format!("{method} {prefix}/*"),
            None => method.to_owned(),
        };
        let mut span = Span::start(name, SpanKind::Server, parent)?;
        span.attribute("http.request.method", method);
        span.attribute("url.path", path);
        let scope = RequestScope::new(span.context());
        Some(Box::new(Self { span, scope }))
    }

    fn answered(&mut self, response: &Response<Body>) {
        let status = response.status();
        self.span
            .attribute("http.response.status_code", status.as_u16());
        if status.is_server_error() {
            self.span.fail();
        }
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        if !self.scope.is_kept() {
            self.span.discard();
        }
    }
}

/// Runs the handler of a request in the scope of its span.
pub(super) async fn in_span(
    span: &mut Option<Box<RequestSpan>>,
    mut handler: Pin<&mut impl Future<Output = Response<Body>>>,
) -> Response<Body> {
    let response = std::future::poll_fn(|cx| match span {
        Some(span) => span.scope.enter(|| handler.as_mut().poll(cx)),
        None => handler.as_mut().poll(cx),
    });
    let response = response.await;
    if let Some(span) = span {
        span.answered(&response);
    }
    response
}
