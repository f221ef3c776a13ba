//! The `Cancel-After` header: how long the job of a request may take.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName};

/// The header's name.
pub(crate) const CANCEL_AFTER: &str = "cancel-after";
/// The parsed name, for lookups.
static NAME: HeaderName = HeaderName::from_static(CANCEL_AFTER);

/// The value of the header is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`Cancel-After: {0}` is not a duration; use `30s`, `1m30s` or a number of seconds")]
pub(crate) struct InvalidCancelAfter(String);

/// How long the job may take, counted from now.
pub(crate) fn cancel_after(headers: &HeaderMap) -> Result<Option<Duration>, InvalidCancelAfter> {
    let Some(value) = headers.get(&NAME) else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(value.as_bytes());
    match duration(text.trim()) {
        Some(after) if !after.is_zero() => Ok(Some(after)),
        Some(_) | None => Err(InvalidCancelAfter(text.chars().take(100).collect())),
    }
}

fn duration(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let signed: jiff::SignedDuration = text.parse().ok()?;
    Duration::try_from(signed).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Duration>, InvalidCancelAfter> {
        let mut headers = HeaderMap::new();
        headers.insert(&NAME, text.parse().unwrap());
        cancel_after(&headers)
    }

    #[test]
    fn durations_and_seconds_are_accepted() {
        for (text, seconds) in [
            ("30s", 30.0),
            ("1m30s", 90.0),
            ("1h", 3600.0),
            ("2.5", 2.5),
            (" 7 ", 7.0),
            ("500ms", 0.5),
        ] {
            assert_eq!(
                read(text),
                Ok(Some(Duration::from_secs_f64(seconds))),
                "{text}"
            );
        }
        assert_eq!(cancel_after(&HeaderMap::new()), Ok(None));
    }

    #[test]
    fn other_values_are_errors() {
        for text in [
            "",
            "soon",
            "0",
            "0s",
            "-5s",
            "-1",
            "nan",
            "inf",
            "1e400",
            "5 parsecs",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
