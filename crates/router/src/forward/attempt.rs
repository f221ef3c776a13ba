//! One attempt: sends the request to an endpoint and waits for the first byte of the body.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::poll_fn;
use hyper::body::Body;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::http::response::Parts;
use hyper::{Request, StatusCode, Uri};
use tidegate_net::upstream::{
    UpstreamAddress, UpstreamBody, UpstreamError, UpstreamPool, UpstreamRequestBody,
};
use tokio::time::{Instant, timeout_at};

use super::attempt_span::AttemptSpan;
use super::body::ForwardedBody;
use super::cancel::{CancelCall, DetachableExchange};
use super::{ForwardRequest, PlannedCall, RepeatPolicy, RequestForwarder};
use crate::backend::{self, AnswerFormat, ResponseClass};
use crate::endpoint::EndpointKey;
use crate::fleet::{BackendKind, EndpointConfig};
use crate::health::{FailureKind, Verdict};
use crate::permits::EndpointPermit;

/// An attempt got no answer.
#[derive(Debug)]
pub(super) enum AttemptError {
    Upstream(UpstreamError),
    FirstByteTimeout { budget: Duration },
    DeadlineExceeded,
    InvalidCall(String),
}

/// The head of a response and the first bytes of its body.
pub(super) struct FirstBytes {
    pub(super) head: Parts,
    /// `None` if the body is empty.
    pub(super) first: Option<Bytes>,
    pub(super) rest: UpstreamBody,
}

/// A backend has answered, and its permit is still in use.
pub(super) struct Answered {
    pub(super) class: ResponseClass,
    /// From sending to the first byte.
    pub(super) latency: Duration,
    permit: EndpointPermit,
    cancel: Option<CancelCall>,
    response: FirstBytes,
    answer: Option<AnswerFormat>,
    span: AttemptSpan,
}

impl AttemptError {
    /// The kind of error, for traces.
    fn kind(&self) -> &'static str {
        match self {
            Self::Upstream(_) => "upstream",
            Self::FirstByteTimeout { .. } => "first_byte_timeout",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::InvalidCall(_) => "invalid_call",
        }
    }
}

impl RequestForwarder {
    /// Sends a request to the endpoint of the permit and judges the answer.
    pub(super) async fn attempt(
        &self,
        permit: EndpointPermit,
        mut call: PlannedCall,
        request: &ForwardRequest,
    ) -> Result<Answered, AttemptError> {
        let model = &request.model.name;
        let mut span = AttemptSpan::start(request.trace, model, permit.url(), &mut call);
        match self.send(permit, call, request).await {
            Ok(mut answered) => {
                span.answered(answered.status());
                answered.span = span;
                Ok(answered)
            }
            Err(error) => {
                span.failed(error.kind());
                Err(error)
            }
        }
    }

    async fn send(
        &self,
        permit: EndpointPermit,
        call: PlannedCall,
        request: &ForwardRequest,
    ) -> Result<Answered, AttemptError> {
        let mut own_headers =
            endpoint_headers(permit.config()).map_err(AttemptError::InvalidCall)?;
        add_request_id(&mut own_headers, &permit);
        let cancel = CancelCall::of(self, &permit, &own_headers, call.upstream_id.as_deref());
        let answer = call.answer.clone();
        let prefix = &permit.url().prefix;
        let message =
            upstream_request(call, prefix, own_headers).map_err(AttemptError::InvalidCall)?;
        let sent = Instant::now();
        let limit = FirstByteLimit::of(request, sent);
        let exchange = exchange(self.pool.clone(), permit.address().clone(), message);
        let (result, permit) = match &cancel {
            None => match timeout_at(limit.at, exchange).await {
                Ok(result) => (result, permit),
                Err(_) => {
                    if let Some(kind) = limit.failure_kind(request) {
                        permit.record(Verdict::Failure(kind));
                    }
                    return Err(limit.error());
                }
            },
            Some(cancel) => {
                let mut running =
                    DetachableExchange::new(Box::pin(exchange), permit, cancel.clone());
                match timeout_at(limit.at, running.result()).await {
                    Ok(result) => (result, running.into_permit()),
                    Err(_) => {
                        if let Some(kind) = limit.failure_kind(request) {
                            running.record(Verdict::Failure(kind));
                        }
                        return Err(limit.error());
                    }
                }
            }
        };
        match result {
            Ok(response) => Ok(Answered::new(
                permit,
                cancel,
                response,
                answer,
                sent.elapsed(),
            )),
            Err(error) => {
                if let Some(kind) = failure_kind(&error) {
                    permit.record(Verdict::Failure(kind));
                }
                Err(AttemptError::Upstream(error))
            }
        }
    }
}

/// When the first byte must have arrived.
pub(super) struct FirstByteLimit {
    pub(super) at: Instant,
    /// `None` if the end of the whole request comes first.
    budget: Option<Duration>,
}

impl FirstByteLimit {
    pub(super) fn of(request: &ForwardRequest, sent: Instant) -> Self {
        let budget = request.first_byte_budget();
        if sent + budget < request.deadline {
            return Self {
                at: sent + budget,
                budget: Some(budget),
            };
        }
        Self {
            at: request.deadline,
            budget: None,
        }
    }

    /// What the end of the time says about the endpoint. Nothing, if it had less than its budget, or if
    /// the client may still have been sending.
    fn failure_kind(&self, request: &ForwardRequest) -> Option<FailureKind> {
        let budget = self.budget?;
        let is_sent = request.repeat == RepeatPolicy::Allowed;
        is_sent.then_some(FailureKind::FirstByteTimeout { budget })
    }

    pub(super) fn error(&self) -> AttemptError {
        match self.budget {
            Some(budget) => AttemptError::FirstByteTimeout { budget },
            None => AttemptError::DeadlineExceeded,
        }
    }
}

/// What an error says about the endpoint; `None` if it is not the cause.
pub(super) fn failure_kind(error: &UpstreamError) -> Option<FailureKind> {
    match error {
        UpstreamError::RequestBody { .. } => None,
        UpstreamError::InvalidResponse { .. } => Some(FailureKind::InvalidResponse),
        error if error.is_before_request() => Some(FailureKind::Connect),
        _ => Some(FailureKind::Closed),
    }
}

impl Answered {
    /// Judges the response and tells the endpoint.
    fn new(
        permit: EndpointPermit,
        cancel: Option<CancelCall>,
        response: FirstBytes,
        answer: Option<AnswerFormat>,
        latency: Duration,
    ) -> Self {
        let FirstBytes { head, .. } = &response;
        let class = backend::classify(permit.config().kind, head.status, &head.headers);
        permit.record(match class {
            ResponseClass::Success | ResponseClass::ClientError => Verdict::Success { latency },
            ResponseClass::Backpressure { retry_after } => Verdict::Backpressure { retry_after },
            ResponseClass::ServerError => Verdict::Failure(FailureKind::ServerError),
        });
        if let ResponseClass::Success = class {
            permit.count_service_time();
        }
        Self {
            class,
            latency,
            permit,
            cancel,
            response,
            answer,
            span: AttemptSpan::default(),
        }
    }

    /// The kind of the backend.
    pub(super) fn kind(&self) -> BackendKind {
        self.permit.config().kind
    }

    /// Whether a Cog server has no slot although the router has a permit: it frees the slot of a request a
    /// moment after its response.
    pub(super) fn is_slot_delay(&self) -> bool {
        self.kind() == BackendKind::Cog && self.status() == StatusCode::CONFLICT
    }

    /// The status of the response.
    pub(super) fn status(&self) -> StatusCode {
        self.response.head.status
    }

    /// Whether the model has an endpoint that was not tried.
    pub(super) fn has_alternative(
        &self,
        request: &ForwardRequest,
        excluded: &[EndpointKey],
    ) -> bool {
        excluded.len() + 1 < request.group.len()
    }

    /// The head, the format and the body, which owns the permit.
    pub(super) fn into_body(
        self,
        request: &ForwardRequest,
    ) -> (Parts, Option<AnswerFormat>, ForwardedBody) {
        let FirstBytes { head, first, rest } = self.response;
        let idle = request.model.timeout.idle;
        let detaches = self.permit.config().loopback.is_some() && head.status.is_success();
        let mut body = ForwardedBody::new(first, rest, idle, request.deadline)
            .with_permit(self.permit, self.cancel)
            .with_span(self.span);
        if detaches {
            body.detach_permit();
        }
        (head, self.answer, body)
    }
}

/// The header with which a backend names the request in its loopback events.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-tidegate-request-id");

/// Adds the id of the request, for endpoints that tell when they have finished it.
fn add_request_id(headers: &mut HeaderMap, permit: &EndpointPermit) {
    if permit.config().loopback.is_some()
        && let Ok(id) = HeaderValue::from_str(&permit.request_id().to_string())
    {
        headers.insert(REQUEST_ID, id);
    }
}

/// The headers that the configuration adds to each request to an endpoint.
pub(crate) fn endpoint_headers(config: &EndpointConfig) -> Result<HeaderMap, String> {
    let parse = |header: &crate::fleet::SecretHeader| {
        let name = header.name.parse::<HeaderName>().ok()?;
        let mut value = HeaderValue::from_str(&header.value).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    };
    let mut headers = HeaderMap::new();
    for header in &config.headers {
        let (name, value) = parse(header)
            .ok_or_else(|| format!("the configured header `{}` is invalid", header.name))?;
        headers.insert(name, value);
    }
    Ok(headers)
}

/// The request with the path prefix and the headers of the endpoint.
pub(super) fn upstream_request(
    call: PlannedCall,
    prefix: &str,
    own_headers: HeaderMap,
) -> Result<Request<UpstreamRequestBody>, String> {
    let mut request = Request::new(call.body);
    *request.method_mut() = call.method;
    *request.uri_mut() = if prefix.is_empty() {
        call.target
    } else {
        let path = format!("{prefix}{}", call.target);
        path.parse::<Uri>()
            .map_err(|error| format!("the path `{path}` is invalid: {error}"))?
    };
    *request.headers_mut() = call.headers;
    for (name, value) in own_headers {
        if let Some(name) = name {
            request.headers_mut().insert(name, value);
        }
    }
    Ok(request)
}

/// Sends a request and waits until the first byte of the body has arrived, or the body is complete.
pub(super) async fn exchange(
    pool: UpstreamPool,
    address: UpstreamAddress,
    request: Request<UpstreamRequestBody>,
) -> Result<FirstBytes, UpstreamError> {
    let (head, mut rest) = pool.send(&address, request).await?.into_parts();
    let mut first = None;
    while first.is_none() && !rest.is_end_stream() {
        match poll_fn(|cx| Pin::new(&mut rest).poll_frame(cx)).await {
            Some(frame) => first = frame?.into_data().ok().filter(|data| !data.is_empty()),
            None => break,
        }
    }
    Ok(FirstBytes { head, first, rest })
}
