//! The W3C trace context of a request: taken over from the client, or created, so that the logs of backends
//! and the inference event name the same trace.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use tidegate_core::trace::{self, SpanContext};

/// The header of the trace context.
pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static(trace::TRACEPARENT);

/// The trace of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TraceContext {
    /// The 32 hexadecimal digits of the trace.
    pub(super) id: String,
    /// The header for backends, if it is not the one that the client sent.
    pub(super) new_header: Option<HeaderValue>,
}

impl TraceContext {
    /// The trace of the request's span; if the router exports none, the trace that the client names, or a new
    /// one.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        if let Some(span) = trace::request_context() {
            return Self::with_header(span);
        }
        let given = headers
            .get(TRACEPARENT)
            .and_then(|value| SpanContext::parse(value.to_str().ok()?));
        match given {
            Some(span) => Self {
                new_header: None,
                ..Self::with_header(span)
            },
            None => Self::with_header(SpanContext {
                trace_id: random_nonzero(),
                span_id: random_nonzero() as u64,
                is_sampled: true,
            }),
        }
    }

    fn with_header(span: SpanContext) -> Self {
        Self {
            id: format!("{:032x}", span.trace_id),
            new_header: HeaderValue::from_str(&span.to_string()).ok(),
        }
    }
}

/// An id of zeros is invalid.
fn random_nonzero() -> u128 {
    tidegate_core::random::bits() | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_of_the_client_is_taken_over() {
        let mut headers = HeaderMap::new();
        let given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        headers.insert(TRACEPARENT, given.parse().unwrap());
        let context = TraceContext::of(&headers);
        assert_eq!(context.id, "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(context.new_header, None);
    }

    #[test]
    fn a_request_without_a_valid_trace_gets_one() {
        for given in [None, Some("00-0-0-0"), Some("ff-x")] {
            let mut headers = HeaderMap::new();
            if let Some(given) = given {
                headers.insert(TRACEPARENT, given.parse().unwrap());
            }
            let context = TraceContext::of(&headers);
            let header = context.new_header.unwrap();
            let span = SpanContext::parse(header.to_str().unwrap()).unwrap();
            assert_eq!(format!("{:032x}", span.trace_id), context.id);
        }
    }
}
