//! Fuzz targets for what every face reads.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use tidegate_fuzzing::parts;

use super::cancel_after::{CANCEL_AFTER, cancel_after};
use super::header_lists::{accepts, prefers};

const EVENTS: &str = "text/event-stream";
const ASYNC: &str = "respond-async";

/// Lists mean the same in one line and in several, hold only what they name, and a deadline is a time
/// or is refused with a reason.
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
        !streams || names(&headers, "accept", EVENTS),
        "nobody named it"
    );
    assert_eq!(accepts(&in_one_line(&headers, "accept"), EVENTS), streams);
    let later = prefers(&headers, ASYNC);
    assert!(
        !later || names(&headers, "prefer", ASYNC),
        "nobody named it"
    );
    assert_eq!(prefers(&in_one_line(&headers, "prefer"), ASYNC), later);
    deadline(&headers);
}

fn names(headers: &HeaderMap, name: &str, what: &str) -> bool {
    headers.get_all(name).iter().any(|value| {
        String::from_utf8_lossy(value.as_bytes())
            .to_ascii_lowercase()
            .contains(what)
    })
}

fn in_one_line(headers: &HeaderMap, name: &'static str) -> HeaderMap {
    // A line that is no text is left out as a whole; it would take the others with it.
    let lines: Vec<&str> = headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    let line = HeaderValue::from_str(&lines.join(", "))
        .expect("values with a comma between them are a value");
    HeaderMap::from_iter([(HeaderName::from_static(name), line)])
}

fn deadline(headers: &HeaderMap) {
    match cancel_after(headers) {
        Ok(None) => assert!(!headers.contains_key(CANCEL_AFTER)),
        Ok(Some(after)) => {
            assert!(!after.is_zero(), "a deadline that is over at once");
            let again = HeaderValue::from_str(&format!(" {}s ", after.as_secs().clamp(1, 1 << 40)))
                .expect("digits are a value");
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
