//! Forwards a request to an endpoint of its model: permit, send, first byte, verdict, and another endpoint
//! if that failed.
//!
//! An attempt ends before the next one begins: its connection is closed and its permit given back. Nothing
//! is sent to the client before the first byte of a body has arrived, so until then a failure costs the
//! client only time. After that the response belongs to the client, and its body owns the permit.

mod attempt;
mod attempt_span;
mod body;
mod cancel;
mod error;
mod headers;
mod retry_budget;
mod retry_state;
mod site_call;

use std::sync::Arc;
use std::time::Duration;

use hyper::http::response::Parts;
use hyper::{HeaderMap, Method, StatusCode, Uri};
use tidegate_core::trace::{Span, SpanContext, SpanKind};
use tidegate_net::upstream::{UpstreamPool, UpstreamRequestBody};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

pub(crate) use attempt::endpoint_headers;
pub use body::{ForwardedBody, ForwardedBodyError};
pub use error::{ForwardFailure, RoutingError};
pub use headers::{strip_request_headers, strip_response_headers};
pub use retry_budget::RetryBudget;
pub use retry_state::AttemptLog;

use self::attempt::{Answered, AttemptError};
use self::retry_state::{NextStep, RetryState};
use crate::backend::{AnswerFormat, NotSupported, ResponseClass};
use crate::fleet::{BackendKind, EndpointConfig, FleetModel};
use crate::group::{AdmitOutcome, Ask, EndpointGroup, FullReason};
use crate::permits::{EndpointPermit, RequestId};

/// The budget for the first byte of a stream that sets none.
const STREAM_FIRST_BYTE: Duration = Duration::from_secs(30);

/// Sends requests to endpoints.
#[derive(Debug, Clone)]
pub struct RequestForwarder {
    pool: UpstreamPool,
    budget: Arc<RetryBudget>,
    /// The tasks that stop the work of backends whose clients have gone.
    tasks: TaskTracker,
}

/// A request that is to be forwarded.
#[derive(Debug, Clone)]
pub struct ForwardRequest {
    /// The model.
    pub model: Arc<FleetModel>,
    /// The endpoints and the queue of the model.
    pub group: Arc<EndpointGroup>,
    /// What the request asks for.
    pub ask: Ask,
    /// Whether the client reads the answer while it is produced.
    pub is_stream: bool,
    /// When the request must have ended.
    pub deadline: Instant,
    /// Whether it may be sent again.
    pub repeat: RepeatPolicy,
    /// The parent of its spans, if traces are exported.
    pub trace: Option<SpanContext>,
}

/// Whether a request may be sent again after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepeatPolicy {
    /// All of its body is kept: it may be repeated as the model allows.
    Allowed,
    /// It is sent once: its body is not kept, or it is an upgrade.
    Never,
}

/// Makes the request for the endpoint that was chosen, once for each attempt.
pub trait CallPlanner: Send {
    /// The request for this endpoint.
    fn plan(&mut self, endpoint: &EndpointConfig, id: RequestId) -> Result<PlannedCall, PlanError>;

    /// Whether the next call to the same endpoint asks for a whole answer, because a backend of this kind
    /// has answered with this status that it cannot stream.
    fn plan_without_stream(&mut self, kind: BackendKind, status: StatusCode) -> bool {
        let _ = (kind, status);
        false
    }
}

/// The client's request cannot be made for the chosen endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PlanError {
    /// What is wrong, for the client.
    pub message: String,
    /// The parameter that is wrong.
    pub param: Option<String>,
}

impl From<NotSupported> for PlanError {
    fn from(error: NotSupported) -> Self {
        Self {
            message: error.to_string(),
            param: None,
        }
    }
}

/// A request as it is sent to a backend.
#[derive(Debug)]
pub struct PlannedCall {
    /// The method.
    pub method: Method,
    /// The path with its query, without the prefix of the backend's URL.
    pub target: Uri,
    /// The headers; those of the endpoint are added.
    pub headers: HeaderMap,
    /// The body.
    pub body: UpstreamRequestBody,
    /// How the answer is read; `None` passes it to the client unchanged.
    pub answer: Option<AnswerFormat>,
    /// What the backend calls the request; `None` for the id of the attempt.
    pub upstream_id: Option<String>,
}

/// A response whose first byte has arrived.
#[derive(Debug)]
pub struct Forwarded {
    /// Status and headers.
    pub head: Parts,
    /// The body, which owns the permit.
    pub body: ForwardedBody,
    /// How it is read; `None` passes it to the client unchanged.
    pub answer: Option<AnswerFormat>,
    /// What happened on the way.
    pub log: AttemptLog,
}

impl RequestForwarder {
    /// Forwards over the connections of this pool.
    pub fn new(pool: UpstreamPool, tasks: TaskTracker) -> Self {
        Self {
            pool,
            budget: Arc::default(),
            tasks,
        }
    }

    /// The connections.
    pub fn pool(&self) -> &UpstreamPool {
        &self.pool
    }

    /// Forwards a request until an endpoint has answered, or the budgets are used up. A response with any
    /// status counts as an answer, except backpressure.
    pub async fn forward(
        &self,
        request: ForwardRequest,
        planner: &mut impl CallPlanner,
    ) -> Result<Forwarded, Box<ForwardFailure>> {
        self.budget.count_request();
        let mut state = RetryState::new(&request);
        loop {
            let asked = Instant::now();
            let permit = match admit(&request, &mut state).await {
                Ok(permit) => permit,
                Err(error) => {
                    state.add_wait(asked.elapsed());
                    return Err(state.fail(error));
                }
            };
            let call = match planner.plan(permit.config(), permit.request_id()) {
                Ok(call) => call,
                Err(error) => return Err(state.fail(error.into())),
            };
            state.begin_attempt(&permit);
            let step = match self.attempt(permit, call, &request).await {
                Ok(answered) if planner.plan_without_stream(answered.kind(), answered.status()) => {
                    NextStep::Retry {
                        pause: Duration::ZERO,
                    }
                }
                Ok(answered) => match state.after_answer(&answered, &request, &self.budget) {
                    NextStep::Stop => return finish(answered, &request, state),
                    retry @ NextStep::Retry { .. } => retry,
                },
                Err(error) => state.after_error(error, &self.budget),
            };
            match step {
                NextStep::Stop => return Err(state.into_failure()),
                NextStep::Retry { pause } => tokio::time::sleep(pause).await,
            }
        }
    }
}

fn finish(
    answered: Answered,
    request: &ForwardRequest,
    state: RetryState,
) -> Result<Forwarded, Box<ForwardFailure>> {
    if let ResponseClass::Backpressure { .. } = answered.class {
        return Err(state.into_failure());
    }
    let log = state.into_log(answered.latency);
    let (head, answer, body) = answered.into_body(request);
    Ok(Forwarded {
        head,
        body,
        answer,
        log,
    })
}

/// Waits for a permit of an endpoint that was not tried yet. If all were, and a failure may be repeated on
/// the same endpoint, they may be tried again.
async fn admit(
    request: &ForwardRequest,
    state: &mut RetryState,
) -> Result<EndpointPermit, RoutingError> {
    loop {
        let mut ask = request.ask.clone();
        ask.excluded.extend_from_slice(state.excluded());
        let refused = match request.group.admit(ask) {
            AdmitOutcome::Leased(permit) => return Ok(permit),
            AdmitOutcome::Full(full) => full,
            AdmitOutcome::Queued(waiter) => {
                let _span = queue_span(request);
                match tokio::time::timeout_at(request.deadline, waiter).await {
                    Ok(Ok(permit)) => return Ok(permit),
                    Ok(Err(full)) => full,
                    Err(_) => return Err(RoutingError::DeadlineExceeded),
                }
            }
        };
        if refused.reason != FullReason::NoEndpoint || !state.try_same_endpoints_again() {
            return Err(RoutingError::Full(refused));
        }
    }
}

/// The span of the time in the queue, which ends when it is dropped.
fn queue_span(request: &ForwardRequest) -> Option<Span> {
    let mut span = Span::start("queue", SpanKind::Internal, Some(request.trace?))?;
    span.attribute("tidegate.model", request.model.name.as_str());
    Some(span)
}

impl ForwardRequest {
    /// The time that an endpoint has for the first byte of its answer, from now on.
    fn first_byte_budget(&self) -> Duration {
        let timeout = &self.model.timeout;
        let usual = if self.is_stream {
            STREAM_FIRST_BYTE.min(timeout.total)
        } else {
            timeout.total
        };
        timeout.first_byte.unwrap_or(usual)
    }
}

impl From<AttemptError> for RoutingError {
    fn from(error: AttemptError) -> Self {
        match error {
            AttemptError::Upstream(error) => Self::Upstream(error),
            AttemptError::FirstByteTimeout { budget } => Self::FirstByteTimeout { budget },
            AttemptError::DeadlineExceeded => Self::DeadlineExceeded,
            AttemptError::InvalidCall(error) => Self::InvalidCall(error),
        }
    }
}
