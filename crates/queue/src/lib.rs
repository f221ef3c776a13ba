//! Who works on what next: the lines that jobs wait in, and the loops that keep them in order.
//!
//! The port is `tidegate_core::queue::Queue`; [`MemoryQueue`] stands behind it on one machine. [`upkeep`] knows the
//! port only, and asks a `UpkeepHandler` what became of the jobs. What a job is, and how it is run, is decided elsewhere.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod memory;
pub mod upkeep;

pub use memory::MemoryQueue;
