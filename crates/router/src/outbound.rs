//! The HTTP requests of the control plane: health checks, questions about models, Consul.
//!
//! Redirects are not followed, bodies and times are limited, and one backend gets one such request at a
//! time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::header::{ACCEPT, HeaderName, HeaderValue, USER_AGENT};
use hyper::{HeaderMap, Method, Request, StatusCode};
use serde::de::DeserializeOwned;
use tidegate_net::upstream::{UpstreamError, UpstreamPool, UpstreamRequestBody};

use crate::fleet::{BackendUrl, HttpVersion, SecretHeader};

/// The most bytes of a response that are read.
const MAX_BODY: usize = 4 * 1024 * 1024;

/// Sends the requests of the control plane.
#[derive(Clone)]
pub(crate) struct OutboundClient {
    pool: UpstreamPool,
    /// A lock for each backend that is being asked.
    busy: Arc<Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>>,
}

/// A request to a backend or an agent.
pub(crate) struct OutboundRequest<'a> {
    pub(crate) url: &'a BackendUrl,
    pub(crate) http: HttpVersion,
    pub(crate) method: Method,
    /// The path and query after the prefix of the URL.
    pub(crate) path: &'a str,
    pub(crate) headers: &'a [SecretHeader],
    pub(crate) body: Option<Bytes>,
    pub(crate) timeout: Duration,
}

/// A response of any status with its body.
pub(crate) struct OutboundResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A request of the control plane has no complete response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutboundError {
    #[error("failed to ask `{url}`")]
    Upstream { url: String, source: UpstreamError },
    #[error("`{url}` did not answer within {limit:?}")]
    Timeout { url: String, limit: Duration },
    #[error("failed to read the answer of `{url}`: {reason}")]
    Body { url: String, reason: String },
    #[error("the request to `{url}` cannot be built: {reason}")]
    Invalid { url: String, reason: String },
}

impl OutboundError {
    /// Whether nothing listens at the address.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(
            self,
            Self::Upstream { source: UpstreamError::Connect { source, .. }, .. }
                if source.kind() == std::io::ErrorKind::ConnectionRefused
        )
    }
}

impl OutboundResponse {
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Option<T> {
        let is_success = self.status.is_success();
        is_success.then(|| serde_json::from_slice(&self.body).ok())?
    }
}

impl OutboundClient {
    pub(crate) fn new(pool: UpstreamPool) -> Self {
        Self {
            pool,
            busy: Arc::default(),
        }
    }

    /// Sends a request after earlier ones to the same backend have ended.
    pub(crate) async fn send(
        &self,
        request: OutboundRequest<'_>,
    ) -> Result<OutboundResponse, OutboundError> {
        let lock = self.lock(request.url);
        let _turn = lock.lock().await;
        self.send_now(request).await
    }

    /// Sends a request at once.
    pub(crate) async fn send_now(
        &self,
        request: OutboundRequest<'_>,
    ) -> Result<OutboundResponse, OutboundError> {
        let (url, limit) = (request.url, request.timeout);
        let exchange = self.exchange(request);
        tokio::time::timeout(limit, exchange)
            .await
            .unwrap_or_else(|_| {
                let url = url.to_string();
                Err(OutboundError::Timeout { url, limit })
            })
    }

    async fn exchange(
        &self,
        request: OutboundRequest<'_>,
    ) -> Result<OutboundResponse, OutboundError> {
        let url = || request.url.to_string();
        let address = request.url.upstream_address(request.http);
        let response = self.pool.send(&address, build(&request)?).await;
        let response = response.map_err(|source| OutboundError::Upstream { url: url(), source })?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_BODY).collect().await;
        let body = body.map_err(|error| OutboundError::Body {
            url: url(),
            reason: error.to_string(),
        })?;
        Ok(OutboundResponse {
            status: head.status,
            headers: head.headers,
            body: body.to_bytes(),
        })
    }

    fn lock(&self, url: &BackendUrl) -> Arc<tokio::sync::Mutex<()>> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let key = url.to_string();
        if let Some(lock) = busy.get(&key).and_then(Weak::upgrade) {
            return lock;
        }
        busy.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        busy.insert(key, Arc::downgrade(&lock));
        lock
    }
}

fn build(request: &OutboundRequest<'_>) -> Result<Request<UpstreamRequestBody>, OutboundError> {
    let invalid = |reason: String| OutboundError::Invalid {
        url: request.url.to_string(),
        reason,
    };
    let target = format!("{}{}", request.url.prefix, request.path);
    let mut built = Request::builder()
        .method(request.method.clone())
        .uri(target)
        .header(USER_AGENT, "tidegate-router")
        .header(ACCEPT, "application/json, text/plain, */*")
        .body(UpstreamRequestBody::Empty)
        .map_err(|error| invalid(error.to_string()))?;
    if let Some(body) = &request.body {
        let json = HeaderValue::from_static("application/json");
        built
            .headers_mut()
            .insert(hyper::header::CONTENT_TYPE, json);
        *built.body_mut() = UpstreamRequestBody::Full(body.clone());
    }
    for SecretHeader { name, value } in request.headers {
        let name = HeaderName::try_from(name.as_str());
        let value = HeaderValue::from_str(value);
        let (Ok(name), Ok(mut value)) = (name, value) else {
            return Err(invalid("a header is not valid".to_owned()));
        };
        value.set_sensitive(true);
        built.headers_mut().insert(name, value);
    }
    Ok(built)
}
