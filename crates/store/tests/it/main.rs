//! The contract of the store on its backends.

mod blobs;
mod durability;
mod memory;
mod previous_version;
mod suite;
