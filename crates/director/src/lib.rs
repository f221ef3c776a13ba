//! A director: runs the jobs of a cluster on the models of one machine.
//!
//! It takes a message from the queue, leases its job from the API, runs it with the tracker of
//! `tidegate-service` on an executor of this process, and reports the end to the API; then it acknowledges
//! the message. It has no store: [`ApiCalls`] are the calls of `tidegate_core::director_api`.
//!
//! [`Director`] owns the loops: `heartbeat` keeps the leases alive and learns of cancels, `version_loop`
//! takes the messages of one version or of the versions that were trained from it, `job_run` runs one of them,
//! `claims` keeps the messages.

mod api_calls;
mod api_client;
mod api_error;
mod api_link;
mod call_batches;
mod capacity;
mod claims;
mod cog_server;
mod director;
mod heartbeat;
mod held_leases;
mod hooks;
mod job_ports;
mod job_run;
mod live_events;
mod offers;
mod trained;
mod version_loop;

pub use api_calls::ApiCalls;
pub use api_client::{ApiClient, InvalidToken};
pub use api_error::ApiError;
pub use cog_server::CogServer;
pub use director::{Config, Director, DirectorDeps, DirectorError, LoadTiming, OnIsolated};
pub use hooks::{Hook, Hooks, OnHookFailure};
pub use trained::{ApiWeights, TrainedModels};
