//! Runs a model in Python child processes: slots and permits, health, restarts, loading on demand.
//!
//! A job enters through [`Runtime::admit`](tidegate_core::port::Executor::admit), which grants a
//! permit for one of the [`slots`]. `child::courier` sends the job over the socket of the slot and
//! reads the child's messages. `supervisor` starts and restarts the children. [`OnDemand`] loads a
//! model when a job needs it and unloads it when it is idle. This crate knows nothing of HTTP, of
//! stored jobs or of webhooks.

mod batch;
mod child;
mod child_gpus;
mod child_stats;
mod launch_config;
mod load_limit;
mod model_state;
mod observer;
mod on_demand;
mod oom;
mod reaper;
mod runtime;
mod scaler;
mod schema;
mod scratch;
pub mod slots;
mod spare;
mod stale_scratch;
mod supervisor;
mod tool_process;

pub use launch_config::{Autoscaling, LaunchConfig, Respawn, RunAs};
pub use load_limit::LoadLimit;
pub use observer::{Observer, Phase, PoolEvent};
pub use on_demand::{LoadFn, OnDemand, StartedModel};
pub use runtime::Runtime;
pub use schema::{SchemaReadError, read_schema};
pub use scratch::Scratch;
pub use tool_process::ToolProcess;

pub use tidegate_ipc::control::{BatchSettings, ResourceLimits};
