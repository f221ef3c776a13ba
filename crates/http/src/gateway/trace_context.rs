//! The W3C trace context of a request: taken over from the client, or created, so that the logs of backends
//! and the inference event name the same trace.

use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// The header of the trace context.
pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The trace of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TraceContext {
    /// The 32 hexadecimal digits of the trace.
    pub(super) id: String,
    /// The header for backends, if the client sent none.
    pub(super) new_header: Option<HeaderValue>,
}

impl TraceContext {
    /// The trace that the client names, or a new one.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let given = headers
            .get(TRACEPARENT)
            .and_then(|value| value.to_str().ok());
        if let Some(id) = given.and_then(trace_id) {
            return Self {
                id: id.to_owned(),
                new_header: None,
            };
        }
        let (trace, span) = (random_nonzero(), random_nonzero());
        let id = format!("{trace:032x}");
        let span = format!("{span:032x}");
        let header = format!("00-{id}-{}-01", &span[16..]);
        Self {
            new_header: HeaderValue::from_str(&header).ok(),
            id,
        }
    }
}

/// An id of zeros is invalid.
fn random_nonzero() -> u128 {
    tidegate_core::random::bits() | 1
}

/// The trace of a valid header.
fn trace_id(header: &str) -> Option<&str> {
    let mut fields = header.split('-');
    let (version, trace, span, flags) = (
        fields.next()?,
        fields.next()?,
        fields.next()?,
        fields.next()?,
    );
    let is_hex = |text: &str, len: usize| {
        let digits = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        text.len() == len && text.bytes().all(digits)
    };
    let is_valid = is_hex(version, 2)
        && version != "ff"
        && is_hex(trace, 32)
        && is_hex(span, 16)
        && is_hex(flags, 2)
        && trace.bytes().any(|byte| byte != b'0');
    is_valid.then_some(trace)
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
            assert_eq!(
                trace_id(header.to_str().unwrap()),
                Some(context.id.as_str())
            );
        }
    }
}
