//! Sends the requests of the exporter with the HTTP client of the crate `net`.

use std::time::Duration;

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response, ResponseBodyTooLarge};
use tidegate_core::chain;
use tidegate_net::{PlainClient, unguarded_client};

/// The largest response that is read. A collector answers with a few bytes.
const MAX_RESPONSE: usize = 64 * 1024;

/// The connection to the collector, whose address the operator chose.
#[derive(Debug)]
pub(super) struct CollectorClient {
    client: PlainClient,
    timeout: Duration,
}

impl CollectorClient {
    pub(super) fn new(timeout: Duration) -> anyhow::Result<Self> {
        let client = unguarded_client()?;
        Ok(Self { client, timeout })
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let mut response = self
            .client
            .request(head.method, head.uri.to_string())
            .headers(head.headers)
            .timeout(self.timeout)
            .body(body)
            .send()
            .await?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_RESPONSE {
                return Err(Box::new(ResponseBodyTooLarge::new()));
            }
        }
        let mut answer = Response::new(body.into());
        *answer.status_mut() = response.status();
        *answer.headers_mut() = std::mem::take(response.headers_mut());
        Ok(answer)
    }
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let result = self.send(request).await;
        if let Err(error) = &result {
            // The exporter reports a failure without its cause.
            tracing::debug!(error = %chain(&**error), "failed to send spans");
        }
        result
    }
}
