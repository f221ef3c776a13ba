//! Which headers pass between clients and backends.
//!
//! Headers of a connection end with it, and credentials of a client are for this router only. All others
//! pass unchanged.

use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderMap, HeaderName,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};

/// Headers of one connection (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [HeaderName; 6] = [
    CONNECTION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
];
/// Headers of a request that a backend must not see.
const CLIENT_ONLY: [HeaderName; 7] = [
    AUTHORIZATION,
    PROXY_AUTHORIZATION,
    COOKIE,
    HOST,
    CONTENT_LENGTH,
    EXPECT,
    HeaderName::from_static("x-api-key"),
];
/// The prefix of the headers between routers, which only a site with a key may send.
const SITE_HEADERS: [&str; 2] = ["x-tidegate-", "cf-ai-"];

/// Removes the headers of a client's request that do not pass to a backend.
pub fn strip_request_headers(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    for name in &CLIENT_ONLY {
        headers.remove(name);
    }
    let site: Vec<HeaderName> = headers
        .keys()
        .filter(|name| SITE_HEADERS.iter().any(|p| name.as_str().starts_with(p)))
        .cloned()
        .collect();
    for name in site {
        headers.remove(name);
    }
}

/// Removes the headers of a backend's response that do not pass to a client. The length stays: the body
/// is the same.
pub fn strip_response_headers(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    headers.remove(PROXY_AUTHENTICATE);
    headers.remove(SET_COOKIE);
}

fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if let Some(connection) = headers.get(CONNECTION) {
        let named: Vec<HeaderName> = connection
            .to_str()
            .unwrap_or_default()
            .split(',')
            .filter_map(|name| name.trim().parse().ok())
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), value.parse().unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        headers.keys().map(HeaderName::as_str).collect()
    }

    #[test]
    fn credentials_and_headers_of_the_connection_do_not_reach_a_backend() {
        let mut headers = headers(&[
            ("authorization", "Bearer secret"),
            ("connection", "keep-alive, x-private"),
            ("x-private", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("cookie", "a=b"),
            ("x-tidegate-site-key", "forged"),
            ("cf-ai-requests-inflight", "3"),
            ("content-type", "application/json"),
            (
                "traceparent",
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            ),
        ]);
        strip_request_headers(&mut headers);
        let mut left = names(&headers);
        left.sort_unstable();
        assert_eq!(left, ["content-type", "traceparent"]);
    }

    #[test]
    fn the_length_of_a_response_passes() {
        let mut headers = headers(&[
            ("content-length", "5"),
            ("connection", "close"),
            ("x-request-id", "a"),
        ]);
        strip_response_headers(&mut headers);
        let mut left = names(&headers);
        left.sort_unstable();
        assert_eq!(left, ["content-length", "x-request-id"]);
    }
}
