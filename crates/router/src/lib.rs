//! Routes synchronous requests to a fleet of backends.
//!
//! A request gets a permit of an endpoint, waits for one in the queue of its model, or is refused at
//! once. It is then forwarded to the endpoint, and to another one if that fails before the first byte
//! of the response. No job record exists for such a request.

pub mod accounts;
pub mod backend;
pub mod body_scan;
pub mod choose;
pub mod control;
mod discovery;
pub mod endpoint;
pub mod fleet;
pub mod forward;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod group;
pub mod health;
pub mod join;
mod learn;
pub mod loopback;
mod model_schemas;
mod outbound;
pub mod permits;
mod probe;
pub mod queue;
pub mod sites;
pub mod statistics;
pub mod table;
mod timers;

pub use endpoint::{EndpointKey, LiveEndpoint, ResolvedEndpoint};
pub use group::{AdmitOutcome, Ask, EndpointGroup, Full, FullReason};
pub use health::{FailureKind, HealthState, Verdict};
pub use permits::{DetachedPermit, EndpointPermit, RequestId};
pub use queue::PermitWaiter;
pub use table::{FleetRegistry, RoutingTable};
