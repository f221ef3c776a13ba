//! Refused requests in the terms that OpenAI's and the Workers AI API share. Each API has its own codes for
//! them.

use std::time::Duration;

use axum::http::StatusCode;
use tidegate_core::Refusal;
use tidegate_core::health::Health;

use crate::shared::response::whole_seconds;

const SETUP_FAILED: &str =
    "the model could not be loaded: its setup failed; see the log of the server";
/// When to repeat a request that was refused for a reason that may pass at any time.
const SOON: Duration = Duration::from_secs(1);

/// A request that the job service did not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RefusedRequest {
    pub(crate) kind: RefusalKind,
    pub(crate) message: String,
    /// The parameter that is not valid.
    pub(crate) param: Option<String>,
    /// After how many seconds the request may succeed.
    pub(crate) retry_after: Option<u64>,
}

/// What a client can do about a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalKind {
    /// The request is not valid.
    Invalid,
    /// The request contradicts an existing job.
    Conflict,
    /// There is no capacity now.
    Busy,
    /// The model or the server cannot run jobs now.
    Unavailable,
    /// The server has no disk space.
    NoSpace,
}

impl RefusalKind {
    /// The status of the response.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Invalid => StatusCode::BAD_REQUEST,
            Self::Conflict => StatusCode::CONFLICT,
            Self::Busy => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        }
    }
}

impl RefusedRequest {
    /// A refusal; `busy_for` computes how long the model has no capacity.
    pub(crate) fn new(refusal: Refusal, busy_for: impl FnOnce() -> Duration) -> Self {
        let kind = match &refusal {
            Refusal::InvalidInput(_) | Refusal::NotStreaming | Refusal::BadWebhook { .. } => {
                RefusalKind::Invalid
            }
            Refusal::IdInUse(_) | Refusal::InputDiffers(_) => RefusalKind::Conflict,
            Refusal::AtCapacity | Refusal::QueueFull(_) => RefusalKind::Busy,
            Refusal::NotReady { .. } | Refusal::StoreUnavailable | Refusal::Closing => {
                RefusalKind::Unavailable
            }
            Refusal::NoSpace => RefusalKind::NoSpace,
        };
        let retry_after = match kind {
            RefusalKind::Busy => Some(busy_for()),
            RefusalKind::Unavailable => Some(SOON),
            RefusalKind::Invalid | RefusalKind::Conflict | RefusalKind::NoSpace => None,
        };
        let message = match &refusal {
            Refusal::NotReady {
                health: Health::SetupFailed,
            } => SETUP_FAILED.to_owned(),
            refusal => refusal.to_string(),
        };
        let param = match refusal {
            Refusal::InvalidInput(errors) => errors.into_iter().next().map(|error| error.field),
            _ => None,
        };
        Self {
            kind,
            message,
            param,
            retry_after: retry_after.map(whole_seconds),
        }
    }
}

impl From<Refusal> for RefusedRequest {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal, || SOON)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_model_says_when_to_retry() {
        let busy = || Duration::from_millis(6_100);
        let refused = RefusedRequest::new(Refusal::AtCapacity, busy);
        assert_eq!(refused.kind.status().as_u16(), 429);
        assert_eq!(refused.retry_after, Some(7));
        let invalid = RefusedRequest::new(Refusal::NotStreaming, busy);
        assert_eq!(
            (invalid.kind, invalid.retry_after),
            (RefusalKind::Invalid, None)
        );
        let closing = RefusedRequest::new(Refusal::Closing, busy);
        assert_eq!(closing.retry_after, Some(1));
    }
}
