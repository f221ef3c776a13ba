//! Why a request got no answer of a backend.

use std::time::Duration;

use tidegate_net::upstream::UpstreamError;

use super::PlanError;
use super::retry_state::AttemptLog;
use crate::group::Full;

/// A request that was not answered, with what was tried.
#[derive(Debug)]
pub struct ForwardFailure {
    /// The last error.
    pub error: RoutingError,
    /// What happened before.
    pub log: AttemptLog,
}

/// Why a request got no answer of a backend.
#[derive(Debug, thiserror::Error)]
pub enum RoutingError {
    /// It got no permit.
    #[error(transparent)]
    Full(#[from] Full),
    /// Every endpoint that was tried is busy.
    #[error("all endpoints of the model are busy")]
    Busy {
        /// When to try again.
        retry_after: Duration,
    },
    /// This site has no capacity for a request of another router, which has to send it to one of these
    /// sites itself.
    #[error("this site has no capacity for the model; try {}", sites.join(", "))]
    SitesToTry {
        /// The sites, the best one first.
        sites: Vec<String>,
        /// When to try again here.
        retry_after: Duration,
    },
    /// The chosen backend cannot do what the client asks for.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// No connection, or the connection failed before the first byte of the body.
    #[error(transparent)]
    Upstream(UpstreamError),
    /// The first byte did not come in time.
    #[error("the backend sent nothing within {budget:?}")]
    FirstByteTimeout {
        /// The time that it had.
        budget: Duration,
    },
    /// The time of the whole request is over.
    #[error("the request did not end within the time limit of the model")]
    DeadlineExceeded,
    /// No site can be asked.
    #[error("no site that may serve the request can be reached")]
    NoSite,
    /// The path or a header cannot be sent.
    #[error("the request cannot be sent to the backend: {0}")]
    InvalidCall(String),
}

impl RoutingError {
    /// Whether there is no capacity here.
    pub fn is_capacity(&self) -> bool {
        match self {
            Self::Full(_) | Self::Busy { .. } | Self::SitesToTry { .. } => true,
            Self::Plan(_)
            | Self::Upstream(_)
            | Self::FirstByteTimeout { .. }
            | Self::DeadlineExceeded
            | Self::NoSite
            | Self::InvalidCall(_) => false,
        }
    }

    /// When a request without capacity may be sent again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Full(full) => Some(full.retry_after),
            Self::Busy { retry_after } | Self::SitesToTry { retry_after, .. } => Some(*retry_after),
            Self::Plan(_)
            | Self::Upstream(_)
            | Self::FirstByteTimeout { .. }
            | Self::DeadlineExceeded
            | Self::NoSite
            | Self::InvalidCall(_) => None,
        }
    }

    /// Whether another site may have capacity or a working endpoint for the request.
    pub fn may_succeed_elsewhere(&self) -> bool {
        match self {
            Self::Full(_)
            | Self::Busy { .. }
            | Self::SitesToTry { .. }
            | Self::FirstByteTimeout { .. }
            | Self::NoSite => true,
            Self::Upstream(error) => !matches!(error, UpstreamError::RequestBody { .. }),
            Self::Plan(_) | Self::DeadlineExceeded | Self::InvalidCall(_) => false,
        }
    }
}
