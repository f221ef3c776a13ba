//! Decides after each attempt of a request whether there is another one, and on which endpoints.

use std::time::Duration;

use tidegate_net::upstream::UpstreamError;
use tokio::time::Instant;

use super::attempt::{Answered, AttemptError};
use super::error::{ForwardFailure, RoutingError};
use super::retry_budget::RetryBudget;
use super::{ForwardRequest, RepeatPolicy};
use crate::backend::ResponseClass;
use crate::endpoint::EndpointKey;
use crate::fleet::{BackendKind, RetryConfig};
use crate::group::{Full, FullReason};
use crate::permits::{EndpointPermit, RequestId};

/// Bodies up to this size count as small.
const SMALL_BODY: usize = 256 * 1024;
/// The pause before an endpoint is tried again; doubled with each attempt.
const PAUSE: Duration = Duration::from_millis(20);
/// How often a request waits for a slot that Cog frees a moment after its response: 20 ms to 640 ms.
const SLOT_DELAYS: u32 = 6;
/// When to try again if a busy endpoint did not say so.
const BUSY_RETRY: Duration = Duration::from_secs(1);

/// What happened to a request on its way to an answer.
#[derive(Debug, Clone, Default)]
pub struct AttemptLog {
    /// The number of attempts.
    pub attempts: u32,
    /// How long the request waited in queues.
    pub waited: Duration,
    /// From sending the last attempt to its first byte.
    pub first_byte: Option<Duration>,
    /// The identity of the last attempt, which backends see.
    pub request_id: Option<RequestId>,
    /// The endpoint of the last attempt.
    pub endpoint: Option<EndpointKey>,
    /// The kind of that endpoint.
    pub kind: Option<BackendKind>,
    /// The health of that endpoint when it was chosen.
    pub health: Option<&'static str>,
    /// Whether the site of this router has that endpoint.
    pub is_local: bool,
}

/// What to do after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextStep {
    /// The result is final.
    Stop,
    /// Another attempt, after a pause.
    Retry {
        /// How long.
        pause: Duration,
    },
}

/// The state of a request between its attempts.
#[derive(Debug)]
pub(super) struct RetryState {
    errors_left: u32,
    capacity_left: u32,
    /// How often a backend may still be about to free the slot of its last request.
    slot_delays_left: u32,
    budget: f64,
    excluded: Vec<EndpointKey>,
    /// Whether the last failure may be repeated on the endpoints that were tried.
    may_repeat_same: bool,
    last_error: Option<RoutingError>,
    log: AttemptLog,
}

impl RetryState {
    pub(super) fn new(request: &ForwardRequest) -> Self {
        let RetryConfig {
            errors,
            capacity,
            budget,
            ..
        } = request.model.retry;
        let capacity = match request.ask.body_bytes {
            ..=SMALL_BODY => capacity.small,
            _ => capacity.large,
        };
        let (errors_left, capacity_left) = match request.repeat {
            RepeatPolicy::Allowed => (errors, capacity),
            RepeatPolicy::Never => (0, 0),
        };
        Self {
            errors_left,
            capacity_left,
            slot_delays_left: match request.repeat {
                RepeatPolicy::Allowed => SLOT_DELAYS,
                RepeatPolicy::Never => 0,
            },
            budget,
            excluded: Vec::new(),
            may_repeat_same: false,
            last_error: None,
            log: AttemptLog::default(),
        }
    }

    pub(super) fn excluded(&self) -> &[EndpointKey] {
        &self.excluded
    }

    /// Lets the next attempt use endpoints that were tried, if that makes sense.
    pub(super) fn try_same_endpoints_again(&mut self) -> bool {
        let again = self.may_repeat_same && !self.excluded.is_empty();
        self.excluded.clear();
        again
    }

    /// Adds the time in the queue of a request that got no permit.
    pub(super) fn add_wait(&mut self, waited: Duration) {
        // A refusal at once is no wait.
        if waited >= Duration::from_millis(1) {
            self.log.waited += waited;
        }
    }

    pub(super) fn begin_attempt(&mut self, permit: &EndpointPermit) {
        let endpoint = permit.endpoint();
        self.log.attempts += 1;
        self.log.waited += permit.waited();
        self.log.request_id = Some(permit.request_id());
        self.log.endpoint = Some(endpoint.key().clone());
        self.log.kind = Some(permit.config().kind);
        self.log.health = Some(endpoint.state(Instant::now()).name());
        self.log.is_local = permit.is_local();
    }

    /// A backend has answered.
    pub(super) fn after_answer(
        &mut self,
        answered: &Answered,
        request: &ForwardRequest,
        budget: &RetryBudget,
    ) -> NextStep {
        match answered.class {
            ResponseClass::Success | ResponseClass::ClientError => NextStep::Stop,
            ResponseClass::Backpressure { retry_after } => {
                let retry_after = retry_after.unwrap_or(BUSY_RETRY);
                self.last_error = Some(RoutingError::Busy { retry_after });
                if answered.is_slot_delay() && self.slot_delays_left > 0 {
                    self.slot_delays_left -= 1;
                    self.may_repeat_same = true;
                    let doubled = SLOT_DELAYS - 1 - self.slot_delays_left;
                    self.excluded.extend(self.log.endpoint.clone());
                    return NextStep::Retry {
                        pause: PAUSE * 2_u32.saturating_pow(doubled),
                    };
                }
                self.may_repeat_same = false;
                let left = self.capacity_left;
                self.capacity_left = left.saturating_sub(1);
                self.retry_if(left > 0, Duration::ZERO, budget)
            }
            ResponseClass::ServerError => {
                // Without another endpoint the client gets this answer.
                self.may_repeat_same = false;
                let left = self.errors_left;
                self.errors_left = left.saturating_sub(1);
                match answered.has_alternative(request, &self.excluded) {
                    true => self.retry_if(left > 0, Duration::ZERO, budget),
                    false => NextStep::Stop,
                }
            }
        }
    }

    /// An attempt failed.
    pub(super) fn after_error(&mut self, error: AttemptError, budget: &RetryBudget) -> NextStep {
        let may_repeat = match &error {
            AttemptError::Upstream(error) => !matches!(error, UpstreamError::RequestBody { .. }),
            AttemptError::FirstByteTimeout { .. } => true,
            AttemptError::DeadlineExceeded | AttemptError::InvalidCall(_) => false,
        };
        // An endpoint that was silent once is not tried again by the same request.
        self.may_repeat_same = matches!(error, AttemptError::Upstream(_));
        self.last_error = Some(error.into());
        let left = self.errors_left;
        self.errors_left = left.saturating_sub(1);
        let pause = PAUSE * 2_u32.saturating_pow(self.log.attempts.min(6) - 1);
        self.retry_if(may_repeat && left > 0, pause, budget)
    }

    fn retry_if(&mut self, wanted: bool, pause: Duration, budget: &RetryBudget) -> NextStep {
        if !wanted || !budget.allow_retry(self.budget) {
            return NextStep::Stop;
        }
        self.excluded.extend(self.log.endpoint.clone());
        NextStep::Retry { pause }
    }

    /// The request ends with this error, or with the one of its last attempt if it only could not be
    /// repeated.
    pub(super) fn fail(mut self, error: RoutingError) -> Box<ForwardFailure> {
        let only_repeat_failed = matches!(
            error,
            RoutingError::Full(Full {
                reason: FullReason::NoEndpoint,
                ..
            })
        );
        let error = match self.last_error.take() {
            Some(last) if only_repeat_failed => last,
            Some(_) | None => error,
        };
        Box::new(ForwardFailure {
            error,
            log: self.log,
        })
    }

    pub(super) fn into_failure(self) -> Box<ForwardFailure> {
        let Self {
            last_error, log, ..
        } = self;
        Box::new(ForwardFailure {
            error: last_error.expect("an attempt that is not repeated has an error"),
            log,
        })
    }

    pub(super) fn into_log(self, first_byte: Duration) -> AttemptLog {
        AttemptLog {
            first_byte: Some(first_byte),
            ..self.log
        }
    }
}
