//! The contract of the store on its backends.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod blobs;
mod durability;
mod memory;
mod postgres;
mod postgres_durability;
mod postgres_endpoints;
mod postgres_files;
mod postgres_migration;
mod postgres_open;
mod postgres_pooler;
mod previous_version;
mod suite;
mod transaction_pooler;
