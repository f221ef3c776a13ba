//! The promises of the store, kept by SQLite.

mod blobs;
mod durability;
mod memory;
mod suite;
