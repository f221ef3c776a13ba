//! Fuzz targets for the headers that several APIs read.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use tidegate_fuzzing::parts;

use super::cancel_after::{CANCEL_AFTER, cancel_after};
use super::header_lists::{accepts, prefers};

const EVENTS: &str = "text/event-stream";
const ASYNC: &str = "respond-async";

/// A list means the same in one header and in several, and contains only what the headers name; a
/// `Cancel-After` is a positive duration or an error with a message.
///
/// A part is a header: `a` for `Accept`, `p` for `Prefer`, `c` for `Cancel-After`, then its value.
pub fn headers(input: &[u8]) {
    let mut headers = HeaderMap::new();
    for part in parts(input) {
        let Some((kind, value)) = part.split_first() else {
            continue;
        };
        let name = match kind {
            b'a' => "accept",
            b'p' => "prefer",
            b'c' => CANCEL_AFTER,
            _ => continue,
        };
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(name, value);
        }
    }
    let streams = accepts(&headers, EVENTS);
    assert!(
        !streams || contains(&headers, "accept", EVENTS),
        "not in the header"
    );
    assert_eq!(accepts(&joined(&headers, "accept"), EVENTS), streams);
    let asynchronous = prefers(&headers, ASYNC);
    assert!(
        !asynchronous || contains(&headers, "prefer", ASYNC),
        "not in the header"
    );
    assert_eq!(prefers(&joined(&headers, "prefer"), ASYNC), asynchronous);
    deadline(&headers);
}

fn contains(headers: &HeaderMap, name: &str, what: &str) -> bool {
    headers.get_all(name).iter().any(|value| {
        String::from_utf8_lossy(value.as_bytes())
            .to_ascii_lowercase()
            .contains(what)
    })
}

fn joined(headers: &HeaderMap, name: &'static str) -> HeaderMap {
    // A header that is not text is skipped as a whole; joined, it would hide the others.
    let lines: Vec<&str> = headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    let line = HeaderValue::from_str(&lines.join(", "))
        .expect("values joined by commas are a valid value");
    HeaderMap::from_iter([(HeaderName::from_static(name), line)])
}

fn deadline(headers: &HeaderMap) {
    match cancel_after(headers) {
        Ok(None) => assert!(!headers.contains_key(CANCEL_AFTER)),
        Ok(Some(after)) => {
            assert!(!after.is_zero(), "a zero deadline is accepted");
            let again = HeaderValue::from_str(&format!(" {}s ", after.as_secs().clamp(1, 1 << 40)))
                .expect("digits are a valid value");
            let again = cancel_after(&HeaderMap::from_iter([(
                HeaderName::from_static(CANCEL_AFTER),
                again,
            )]));
            assert_eq!(
                again.map(|time| time.map(|time| time.as_secs())),
                Ok(Some(after.as_secs().clamp(1, 1 << 40)))
            );
        }
        Err(error) => {
            let message = error.to_string();
            assert!(
                message.starts_with("`Cancel-After: ") && message.chars().count() < 250,
                "{message}"
            );
        }
    }
}
