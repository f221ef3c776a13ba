//! Simulates a cluster in one thread: processes of the API, directors and clients, with the real logic of
//! `tidegate-service`, `tidegate-director` and the upkeep of `tidegate-queue`, on models of the store, the
//! queue, the network and the model code. Time is the paused clock of tokio, and everything random comes
//! from one seed, so that a seed reproduces a run exactly. See `docs/simulation.md`.
//!
//! [`run()`] runs a [`Scenario`]; [`checker`] checks the invariants; [`faults`] and `disturbances` are what
//! goes wrong; [`PlantedBug`] proves that the checker finds bugs.

mod api_network;
mod api_process;
pub mod checker;
mod clients;
pub mod clock;
mod director_process;
mod disturbances;
mod event_log;
pub mod faults;
pub mod link;
mod live;
mod model;
mod planted_bug;
pub mod queue;
pub mod random;
mod receiver;
mod run;
mod scenario;
pub mod store;
mod world;

pub use event_log::EventLog;
pub use planted_bug::{PlantedBug, UnknownBug};
pub use run::{RunReport, run};
pub use scenario::Scenario;
