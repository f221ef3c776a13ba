//! The promises of the store, kept by SQLite.

mod durability;
mod suite;
