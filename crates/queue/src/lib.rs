//! The queues that jobs wait in, and the loops that keep them consistent.
//!
//! The port is `tidegate_core::queue::Queue`; [`MemoryQueue`] implements it for one process, and `redis`
//! for any number of them.
//! [`upkeep`] uses only the port, and asks an `UpkeepHandler` for the state of the jobs. Other crates
//! decide what a job is and how it runs.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod memory;
mod memory_live;
#[cfg(feature = "redis")]
pub mod redis;
pub mod upkeep;

pub use memory::MemoryQueue;
pub use memory_live::MemoryLive;
