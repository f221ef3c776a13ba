//! Byte ranges and conditional requests for files (RFC 9110).

use std::ops::Range;

use axum::http::header::{IF_NONE_MATCH, IF_RANGE, RANGE};
use axum::http::{HeaderMap, HeaderName};

/// The part of a file that a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestedRange {
    /// The whole file.
    Whole,
    /// These bytes.
    Part(Range<u64>),
    /// Bytes outside of the file: 416.
    Unsatisfiable,
    /// The client has the file already: 304.
    NotModified,
}

impl RequestedRange {
    /// Reads the headers of a request for a file with this size and this quoted entity tag.
    pub(super) fn read(headers: &HeaderMap, size: u64, tag: &str) -> Self {
        if list(headers, &IF_NONE_MATCH)
            .any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
        {
            return Self::NotModified;
        }
        // A range is only valid for the file that the client knows; otherwise it gets the new file
        // whole. A date never matches, because responses have no `Last-Modified`.
        if headers
            .get(IF_RANGE)
            .is_some_and(|known| known.as_bytes() != tag.as_bytes())
        {
            return Self::Whole;
        }
        let mut ranges = headers.get_all(RANGE).iter();
        match (
            ranges.next().and_then(|range| range.to_str().ok()),
            ranges.next(),
        ) {
            (Some(range), None) => part(range, size),
            _ => Self::Whole,
        }
    }
}

fn list<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

/// Parses one byte range. Several ranges and other units are answered with the whole file.
fn part(range: &str, size: u64) -> RequestedRange {
    let Some((unit, range)) = range.split_once('=') else {
        return RequestedRange::Whole;
    };
    let Some((first, last)) = range
        .trim()
        .split_once('-')
        .filter(|_| unit.trim().eq_ignore_ascii_case("bytes"))
    else {
        return RequestedRange::Whole;
    };
    let part = match (number(first), number(last)) {
        (Some(first), Some(last)) if first > last => return RequestedRange::Whole,
        (Some(first), Some(last)) => first..last.saturating_add(1).min(size),
        (Some(first), None) if last.is_empty() => first..size,
        (None, Some(count)) if first.is_empty() => size.saturating_sub(count)..size,
        _ => return RequestedRange::Whole,
    };
    if part.start < size {
        RequestedRange::Part(part)
    } else {
        RequestedRange::Unsatisfiable
    }
}

/// Parses digits only. A number that does not fit is larger than any file.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use axum::http::header::IF_RANGE;

    use super::*;

    #[test]
    fn ranges() {
        for (range, want) in [
            ("bytes=0-4", RequestedRange::Part(0..5)),
            ("Bytes=0-0", RequestedRange::Part(0..1)),
            ("bytes=5-", RequestedRange::Part(5..10)),
            ("bytes=5-99", RequestedRange::Part(5..10)),
            (
                "bytes=5-99999999999999999999999",
                RequestedRange::Part(5..10),
            ),
            ("bytes=-3", RequestedRange::Part(7..10)),
            ("bytes=-99", RequestedRange::Part(0..10)),
            ("bytes=9-", RequestedRange::Part(9..10)),
            ("bytes=10-", RequestedRange::Unsatisfiable),
            (
                "bytes=99999999999999999999999-",
                RequestedRange::Unsatisfiable,
            ),
            ("bytes=-0", RequestedRange::Unsatisfiable),
            ("bytes=4-1", RequestedRange::Whole),
            ("bytes=+1-4", RequestedRange::Whole),
            ("bytes=0-1,3-4", RequestedRange::Whole),
            ("lines=0-1", RequestedRange::Whole),
            ("bytes=", RequestedRange::Whole),
            ("bytes=-", RequestedRange::Whole),
            ("bytes", RequestedRange::Whole),
        ] {
            assert_eq!(part(range, 10), want, "{range}");
        }
        assert_eq!(part("bytes=0-", 0), RequestedRange::Unsatisfiable);
        assert_eq!(part("bytes=-5", 0), RequestedRange::Unsatisfiable);
    }

    #[test]
    fn conditions() {
        for (name, value, want) in [
            (IF_NONE_MATCH, "\"a\"", RequestedRange::NotModified),
            (IF_NONE_MATCH, "\"b\", W/\"a\"", RequestedRange::NotModified),
            (IF_NONE_MATCH, "*", RequestedRange::NotModified),
            (IF_NONE_MATCH, "\"b\"", RequestedRange::Part(1..3)),
            (IF_RANGE, "\"a\"", RequestedRange::Part(1..3)),
            (IF_RANGE, "W/\"a\"", RequestedRange::Whole),
            (IF_RANGE, "\"b\"", RequestedRange::Whole),
            (
                IF_RANGE,
                "Sat, 31 Jan 2026 12:00:00 GMT",
                RequestedRange::Whole,
            ),
        ] {
            let range = (RANGE, HeaderValue::from_static("bytes=1-2"));
            let headers = HeaderMap::from_iter([range, (name, HeaderValue::from_static(value))]);
            assert_eq!(RequestedRange::read(&headers, 10, "\"a\""), want, "{value}");
        }
    }
}
