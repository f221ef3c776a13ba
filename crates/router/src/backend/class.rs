//! What the head of a response says about a backend and about retries.

use std::time::Duration;

use hyper::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};
use hyper::{StatusCode, header};

use crate::fleet::BackendKind;

/// What the status of a response means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseClass {
    /// The backend answered. The model can still have failed: that is in the body.
    Success,
    /// The backend refused the request for a reason that lies in the request, or the model failed. It is
    /// passed to the client and never retried.
    ClientError,
    /// The backend works and is busy, or not ready yet.
    Backpressure {
        /// How long it asks to be avoided.
        retry_after: Option<Duration>,
    },
    /// The backend does not work.
    ServerError,
}

/// Judges the head of a response.
pub fn classify(kind: BackendKind, status: StatusCode, headers: &HeaderMap) -> ResponseClass {
    if is_backpressure(kind, status) {
        return ResponseClass::Backpressure {
            retry_after: retry_after(headers),
        };
    }
    match status.as_u16() {
        400..500 => ResponseClass::ClientError,
        500.. => ResponseClass::ServerError,
        _ => ResponseClass::Success,
    }
}

/// Triton answers 503 for UNAVAILABLE, TGI and TEI 429 when they are overloaded, and 529 is what some
/// servers send in place of 503. A Cog server has no free slot at 409.
fn is_backpressure(kind: BackendKind, status: StatusCode) -> bool {
    match status.as_u16() {
        429 | 503 | 529 => true,
        409 => kind == BackendKind::Cog,
        _ => false,
    }
}

/// The time of `Retry-After`: seconds, or a date that is compared with the clock of the backend.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let asked = text(RETRY_AFTER)?.trim();
    if let Ok(seconds) = asked.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = httpdate::parse_http_date(asked).ok()?;
    let now = httpdate::parse_http_date(text(DATE)?).ok()?;
    Some(at.duration_since(now).unwrap_or_default())
}

/// Whether the body of a response is a stream of events.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return false;
    };
    let media_type = value.as_bytes().split(|byte| *byte == b';').next();
    media_type
        .unwrap_or_default()
        .trim_ascii()
        .eq_ignore_ascii_case(b"text/event-stream")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(kind: BackendKind, status: u16) -> ResponseClass {
        classify(
            kind,
            StatusCode::from_u16(status).unwrap(),
            &HeaderMap::new(),
        )
    }

    #[test]
    fn each_status_has_one_class_for_every_kind() {
        use ResponseClass::{ClientError, ServerError, Success};
        let busy = ResponseClass::Backpressure { retry_after: None };
        for kind in BackendKind::ALL {
            for (status, expected) in [
                (200, Success),
                (202, Success),
                (307, Success),
                (400, ClientError),
                (401, ClientError),
                (404, ClientError),
                (406, ClientError),
                (413, ClientError),
                (422, ClientError),
                (424, ClientError),
                (429, busy),
                (500, ServerError),
                (501, ServerError),
                (502, ServerError),
                (503, busy),
                (504, ServerError),
                (529, busy),
                (599, ServerError),
            ] {
                assert_eq!(class(kind, status), expected, "{kind:?} {status}");
            }
            let expected = match kind {
                BackendKind::Cog => busy,
                _ => ClientError,
            };
            assert_eq!(class(kind, 409), expected, "{kind:?} 409");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        for (retry_after, expected) in [
            ("7", Some(7.0)),
            (" 0.5 ", Some(0.5)),
            ("Sun, 06 Nov 1994 08:49:40 GMT", Some(3.0)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0.0)),
            ("-1", None),
            ("soon", None),
            ("NaN", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, retry_after.parse().unwrap());
            headers.insert(DATE, "Sun, 06 Nov 1994 08:49:37 GMT".parse().unwrap());
            assert_eq!(
                classify(BackendKind::Tgi, StatusCode::TOO_MANY_REQUESTS, &headers),
                ResponseClass::Backpressure {
                    retry_after: expected.map(Duration::from_secs_f64)
                },
                "{retry_after}"
            );
        }
    }
}
