//! Which requests may turn their connection into a WebSocket.

use hyper::body::Body;
use hyper::header::{CONNECTION, UPGRADE};
use hyper::{HeaderMap, Method, Request, Version};

/// Whether the request asks for a WebSocket, and nothing else. Upgrades to other protocols are not
/// supported.
pub(super) fn is_handshake<B: Body>(request: &Request<B>) -> bool {
    request.method() == Method::GET
        && request.version() == Version::HTTP_11
        && request.body().is_end_stream()
        && names_websocket(request.headers())
}

fn names_websocket(headers: &HeaderMap) -> bool {
    let mut protocols = headers.get_all(UPGRADE).iter();
    let is_websocket = protocols
        .next()
        .is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let mut options = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    is_websocket
        && protocols.next().is_none()
        && options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body_util::{Empty, Full};

    fn handshake(headers: &[(&str, &str)]) -> hyper::http::request::Builder {
        headers
            .iter()
            .fold(Request::get("/"), |request, (name, value)| {
                request.header(*name, *value)
            })
    }

    #[test]
    fn only_a_get_without_a_body_is_a_handshake() {
        let headers = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
        ];
        let empty = Empty::<Bytes>::new();
        assert!(is_handshake(&handshake(&headers).body(empty).unwrap()));
        let post = handshake(&headers).method("POST").body(empty).unwrap();
        assert!(!is_handshake(&post));
        let old = handshake(&headers).version(Version::HTTP_10).body(empty);
        assert!(!is_handshake(&old.unwrap()));
        let with_body = handshake(&headers).body(Full::<Bytes>::from("body"));
        assert!(!is_handshake(&with_body.unwrap()));
    }

    #[test]
    fn other_protocols_are_no_handshake() {
        for headers in [
            &[("connection", "upgrade"), ("upgrade", "h2c")][..],
            &[("connection", "upgrade"), ("upgrade", "websocket, h2c")],
            &[
                ("connection", "upgrade"),
                ("upgrade", "websocket"),
                ("upgrade", "h2c"),
            ],
            &[("connection", "keep-alive"), ("upgrade", "websocket")],
            &[("upgrade", "websocket")],
            &[("connection", "upgrade")],
        ] {
            let request = handshake(headers).body(Empty::<Bytes>::new()).unwrap();
            assert!(!is_handshake(&request), "{headers:?}");
        }
    }
}
