//! A model behind glass: one or more Python children, their slots and permits, health and respawn.
//!
//! A job comes in through [`Runtime::admit`](tidegate_core::port::Executor::admit), which hands out a
//! permit for one [`slots`] entry. [`parent::courier`] carries the job over the slot's socket and
//! reads what comes back. [`supervisor`] keeps the children alive meanwhile. This room knows nothing
//! of HTTP, of stored jobs or of webhooks.

mod crew;
pub mod launch;
mod leftovers;
mod load_limit;
mod on_demand;
mod oom;
mod parent;
mod remains;
mod runtime;
mod schema;
mod scratch;
pub mod slots;
mod state;
mod supervisor;

pub use launch::{LaunchConfig, Observer, Phase, RunAs};
pub use load_limit::LoadLimit;
pub use on_demand::{LoadFn, OnDemand, StartedModel};
pub use runtime::Runtime;
pub use schema::{SchemaReadError, read_schema};
pub use scratch::Scratch;
pub use tidegate_ipc::control::ResourceLimits;
