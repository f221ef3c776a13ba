//! Forwards a request to the process that owns the endpoint, and its response to the client. Bodies are streamed
//! in both directions.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::header::{
    CONNECTION, EXPECT, HOST, HeaderName, ORIGIN, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, REFERER,
    TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use tidegate_core::chain;
use tidegate_net::{ForwardedRequest, ForwardedResponse, Url};
use tokio::time::Instant;

use super::{ClusterConfig, RemoteOwner};
use crate::runpod::platform::close_connection::{close, closes_after};

/// Marks a request that another process has forwarded. It is not forwarded again.
pub(super) const FORWARDED: HeaderName = HeaderName::from_static("tidegate-forwarded");

/// The headers of a connection, not of a request or response.
const OF_CONNECTION: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("proxy-connection"),
];
/// What concerns the server that the client addressed: this process has checked it.
const OF_FIRST_SERVER: [HeaderName; 4] = [HOST, EXPECT, ORIGIN, REFERER];
/// The same, of browsers.
const FETCH_METADATA: &str = "sec-fetch-";

impl ClusterConfig {
    /// Forwards a request to the owner of the endpoint.
    pub(super) async fn forward(
        &self,
        name: &str,
        owner: &RemoteOwner,
        request: Request,
    ) -> Response {
        let closes = closes_after(&request);
        let sent = tokio::select! {
            sent = self.send(&owner.url, request) => sent,
            // The owner may be stopped: it accepts connections, and does not answer.
            () = self.until_replaced(name, owner) => None,
        };
        let Some(response) = sent else {
            return self.unavailable(owner.expires_at.saturating_duration_since(Instant::now()));
        };
        if response.status() == StatusCode::SERVICE_UNAVAILABLE {
            // It may not own the endpoint any more.
            self.directory.refresh();
        }
        let mut response = client_response(response);
        if closes {
            close(&mut response);
        }
        response
    }

    /// Sends a request to another process; `None` if there is no response.
    pub(super) async fn send(&self, base: &Url, request: Request) -> Option<ForwardedResponse> {
        let (parts, body) = request.into_parts();
        let target = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let url = Url::parse(&format!("{}{target}", base.as_str().trim_end_matches('/')));
        let mut headers = end_to_end(&parts.headers);
        for header in OF_FIRST_SERVER {
            headers.remove(header);
        }
        let metadata: Vec<HeaderName> = headers
            .keys()
            .filter(|name| name.as_str().starts_with(FETCH_METADATA))
            .cloned()
            .collect();
        for header in metadata {
            headers.remove(header);
        }
        headers.insert(FORWARDED, HeaderValue::from_static("1"));
        let forwarded = ForwardedRequest {
            method: parts.method,
            url: url.ok()?,
            headers,
            body: (!body.is_end_stream()).then(|| body.into_data_stream()),
        };
        match self.forwarder.send(forwarded).await {
            Ok(response) => Some(response),
            Err(error) => {
                tracing::warn!(owner = %base, error = %chain(&error), "failed to forward a request to the owner of its endpoint");
                None
            }
        }
    }

    /// Waits until another process may own the endpoint.
    async fn until_replaced(&self, name: &str, owner: &RemoteOwner) {
        /// How often the expiry of a claim is checked.
        const CHECK: Duration = Duration::from_secs(1);
        loop {
            let moved = self.directory.until_moved(name, owner);
            if tokio::time::timeout(CHECK, moved).await.is_ok() {
                return;
            }
        }
    }
}

/// The headers without those of the connection.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut kept = headers.clone();
    let named: Vec<String> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    for name in named {
        kept.remove(name);
    }
    for name in OF_CONNECTION {
        kept.remove(name);
    }
    kept
}

fn client_response(response: ForwardedResponse) -> Response {
    let (status, headers) = (response.status(), end_to_end(response.headers()));
    let mut forwarded = Response::new(Body::from_stream(response.into_body()));
    *forwarded.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    *forwarded.headers_mut() = headers;
    forwarded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_connection_are_not_forwarded() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, x-private"),
            ("x-private", "1"),
            ("transfer-encoding", "chunked"),
            ("authorization", "Bearer a"),
            ("content-length", "3"),
        ] {
            headers.insert(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        let kept = end_to_end(&headers);
        let mut names: Vec<&str> = kept.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "content-length"]);
    }
}
