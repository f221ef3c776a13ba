//! Refusals: why a request got no permit, and when to try again.

use std::time::Duration;

use tidegate_core::retry_after::{ModelLoad, retry_after};
use tokio::time::Instant;

use super::EndpointGroup;
use crate::health::HealthState;

/// A request got no permit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}; retry after {} s", retry_after.as_secs_f64().ceil())]
pub struct Full {
    /// The reason.
    pub reason: FullReason,
    /// When a permit is likely to be free: computed from the service time of the model and its queue.
    pub retry_after: Duration,
}

/// Why a request got no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FullReason {
    /// No endpoint is usable: none is configured, healthy and not tried yet.
    #[error("the model has no healthy endpoint")]
    NoEndpoint,
    /// All permits are in use and the queue is full.
    #[error("all permits of the model are in use and its queue is full")]
    QueueFull,
    /// The request has waited for the longest time that the model allows.
    #[error("no permit of the model was free within the maximum wait")]
    WaitTimeout,
    /// The bodies of waiting requests occupy all memory that is set aside for them.
    #[error("the memory for waiting requests is used up")]
    Memory,
    /// The request lost its place: the queue became smaller, or a request of another class needed the place.
    #[error("the queue of the model has no place for the request any more")]
    Cleared,
}

impl FullReason {
    /// The name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoEndpoint => "no-endpoint",
            Self::QueueFull => "queue-full",
            Self::WaitTimeout => "wait-timeout",
            Self::Memory => "memory",
            Self::Cleared => "cleared",
        }
    }
}

/// When to try again if the endpoints are unhealthy or draining, for an unknown time.
const UNHEALTHY_RETRY: Duration = Duration::from_secs(5);

impl EndpointGroup {
    /// A refusal of a request that would be served after this many waiters.
    pub(crate) fn full_behind(&self, reason: FullReason, ahead: usize) -> Full {
        let load = ModelLoad {
            service_time: self.service_time.get(),
            ahead,
            permits: self.total_permits(),
        };
        Full {
            reason,
            retry_after: retry_after(load),
        }
    }

    /// A refusal because no endpoint is usable: until the first breaker lets a request try.
    pub(super) fn no_endpoint(&self) -> Full {
        let now = Instant::now();
        let opens = |state| match state {
            HealthState::Open { until } => Some(until.saturating_duration_since(now)),
            _ => None,
        };
        let members = self.members.load();
        let states = members.iter().map(|member| member.live().state(now));
        let first = states.filter_map(opens).min();
        Full {
            reason: FullReason::NoEndpoint,
            retry_after: first.unwrap_or(UNHEALTHY_RETRY).max(Duration::from_secs(1)),
        }
    }
}
