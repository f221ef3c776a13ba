//! The simulated queue: the rules of `tidegate_queue::redis` in memory. All processes share one
//! [`QueueServer`]; each has a [`QueueClient`] under its own consumer name, whose calls take time and fail.

mod port;
mod server;
mod shard;
mod upkeep;

pub use port::QueueClient;
pub use server::QueueServer;
