//! Headers whose values are lists: `Accept`, `Accept-Encoding` and `Prefer`.

use axum::http::{HeaderMap, HeaderName};

/// Whether the `Accept` header names this media type, other than with `q=0`.
pub(crate) fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    members(headers, &axum::http::header::ACCEPT).any(|member| {
        let mut parts = member.split(';').map(str::trim);
        let named = parts
            .next()
            .is_some_and(|essence| essence.eq_ignore_ascii_case(media_type));
        named && !parts.any(is_zero_quality)
    })
}

/// Whether the `Accept-Encoding` header permits gzip.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let named = |encoding: &str| {
        members(headers, &axum::http::header::ACCEPT_ENCODING).find_map(|member| {
            let mut parts = member.split(';').map(str::trim);
            let is_named = parts.next()?.eq_ignore_ascii_case(encoding);
            is_named.then(|| !parts.any(is_zero_quality))
        })
    };
    named("gzip").or_else(|| named("*")).unwrap_or(false)
}

/// Whether the `Prefer` header contains this preference, with or without parameters.
pub(crate) fn prefers(headers: &HeaderMap, preference: &str) -> bool {
    members(headers, &HeaderName::from_static("prefer")).any(|member| {
        let name = member.split([';', '=']).next().unwrap_or_default();
        name.trim().eq_ignore_ascii_case(preference)
    })
}

/// The value of a preference in the `Prefer` header; empty when it has no value.
pub(crate) fn preference<'a>(headers: &'a HeaderMap, preference: &str) -> Option<&'a str> {
    members(headers, &HeaderName::from_static("prefer")).find_map(|member| {
        let member = member.split(';').next().unwrap_or_default();
        let (name, value) = member.split_once('=').unwrap_or((member, ""));
        name.trim()
            .eq_ignore_ascii_case(preference)
            .then(|| value.trim().trim_matches('"'))
    })
}

fn is_zero_quality(parameter: &str) -> bool {
    parameter
        .strip_prefix("q=")
        .or_else(|| parameter.strip_prefix("Q="))
        .is_some_and(|q| q.parse::<f32>() == Ok(0.0))
}

fn members<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, values: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn gzip_is_named_or_any_encoding_is_permitted() {
        for yes in [
            "gzip",
            "gzip, deflate, br, zstd",
            "br, GZIP;q=0.5",
            "*",
            "identity;q=0, *;q=0.1",
        ] {
            assert!(accepts_gzip(&headers("accept-encoding", &[yes])), "{yes}");
        }
        for no in [
            "",
            "identity",
            "br",
            "gzip;q=0",
            "gzip;q=0.0, *",
            "*;q=0",
            "x-gzipped",
        ] {
            assert!(!accepts_gzip(&headers("accept-encoding", &[no])), "{no}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    #[test]
    fn an_event_stream_must_be_named() {
        for yes in [
            "text/event-stream",
            "application/json, text/event-stream;q=0.5",
            "TEXT/EVENT-STREAM",
        ] {
            assert!(
                accepts(&headers("accept", &[yes]), "text/event-stream"),
                "{yes}"
            );
        }
        for no in [
            "*/*",
            "text/*",
            "text/event-streams",
            "text/event-stream;q=0",
        ] {
            assert!(
                !accepts(&headers("accept", &[no]), "text/event-stream"),
                "{no}"
            );
        }
    }

    #[test]
    fn preferences_are_found_in_lists_and_repeated_headers() {
        for yes in [
            &["respond-async"][..],
            &["Respond-Async, wait=5"],
            &["wait=5", "return=minimal,respond-async; x=y"],
        ] {
            assert!(prefers(&headers("prefer", yes), "respond-async"), "{yes:?}");
        }
        assert!(!prefers(
            &headers("prefer", &["respond-asynchronously"]),
            "respond-async"
        ));
    }
}
