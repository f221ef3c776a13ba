//! Sends a request to the router of another site, which admits it there. No permit of this router is used.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::attempt::{FirstByteLimit, exchange, upstream_request};
use super::attempt_span::AttemptSpan;
use super::body::ForwardedBody;
use super::error::{ForwardFailure, RoutingError};
use super::retry_state::AttemptLog;
use super::{ForwardRequest, Forwarded, PlannedCall, RequestForwarder};
use crate::endpoint::EndpointKey;
use crate::fleet::{BackendUrl, HttpVersion};

impl RequestForwarder {
    /// Sends a request to a router and waits for the first byte. A response with any status is an answer.
    pub async fn send_to_router(
        &self,
        url: &BackendUrl,
        mut call: PlannedCall,
        request: &ForwardRequest,
    ) -> Result<Forwarded, Box<ForwardFailure>> {
        let model = &request.model.name;
        let mut span = AttemptSpan::start(request.trace, model, url, &mut call);
        let log = AttemptLog {
            attempts: 1,
            endpoint: Some(EndpointKey::of(url)),
            ..AttemptLog::default()
        };
        let failed = |error| {
            Box::new(ForwardFailure {
                error,
                log: log.clone(),
            })
        };
        let message = upstream_request(call, &url.prefix, hyper::HeaderMap::new())
            .map_err(|error| failed(RoutingError::InvalidCall(error)))?;
        let sent = Instant::now();
        let limit = FirstByteLimit::of(request, sent);
        let address = url.upstream_address(HttpVersion::Http1);
        let exchange = exchange(self.pool.clone(), address, message);
        let response = match timeout_at(limit.at, exchange).await {
            Ok(result) => result.map_err(|error| {
                span.failed("upstream");
                failed(RoutingError::Upstream(error))
            })?,
            Err(_) => {
                span.failed("first_byte_timeout");
                return Err(failed(limit.error().into()));
            }
        };
        span.answered(response.head.status);
        let first_byte: Duration = sent.elapsed();
        let idle = request.model.timeout.idle;
        Ok(Forwarded {
            body: ForwardedBody::new(response.first, response.rest, idle, request.deadline)
                .with_span(span),
            head: response.head,
            answer: None,
            log: AttemptLog {
                first_byte: Some(first_byte),
                ..log
            },
        })
    }
}
