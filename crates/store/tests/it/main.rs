//! The promises of the store, kept by SQLite.

mod blobs;
mod durability;
mod memory;
mod previous_version;
mod suite;
