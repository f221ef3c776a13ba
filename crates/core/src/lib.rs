//! Domain types, rules and ports. Everything here is plain data and pure functions: no sockets,
//! files, environment or async runtime; [`clock`] and [`random`] are what is read from the machine. The
//! other crates work together through the traits in [`port`], [`queue`], [`store`], [`leases`], [`live`],
//! [`blobs`], [`file_index`], [`rate_counter`], [`read_cursors`] and [`gpu`].

pub mod account;
pub mod blobs;
pub mod chain;
pub mod clock;
pub mod counters;
pub mod director_api;
pub mod director_metrics;
pub mod event;
pub mod ewma;
pub mod fair_queue;
pub mod file_index;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod gpu;
pub mod health;
pub mod id;
pub mod inference;
pub mod job;
pub mod job_attempt;
pub mod latency_histogram;
pub mod lease;
pub mod leases;
pub mod lenient;
pub mod live;
pub mod metrics;
pub mod model_interface;
pub mod outbox;
pub mod planted;
pub mod policy;
pub mod pool_status;
pub mod port;
pub mod queue;
pub mod random;
pub mod rate_counter;
pub mod read_cursors;
pub mod record;
pub mod refusal;
pub mod remote;
pub mod retry_after;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod status;
pub mod store;
pub mod text_generation;
pub mod trace;
pub mod trained_version;
pub mod units;
pub mod wire;

pub use account::Account;
pub use chain::chain;
pub use event::{
    Event, LogSource, Metric, MetricMode, Outcome, OutputFile, OutputFileKind, OutputValue,
};
pub use id::JobId;
pub use job::{JobKind, Work};
pub use refusal::Refusal;
pub use status::{Status, Step};
