//! The promises of the store, kept by SQLite.

mod durability;
mod memory;
mod suite;
