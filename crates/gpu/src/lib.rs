//! The GPUs of this machine: what they are and hold, and which child of which model uses them.
//!
//! [`GpuMonitor`] asks NVIDIA's management library (NVML), which is loaded at run time: without it the
//! machine has no GPUs. Nothing else in the program knows NVML; the other crates use the ports in
//! `tidegate_core::gpu`.

mod driver;
mod ledger;
mod monitor;
mod pid_namespace;
mod pool;
mod requirements;
mod selection;
mod tracking;
mod visibility;
mod xid_watch;

pub use monitor::GpuMonitor;
pub use pid_namespace::PidTrust;
pub use pool::{GpuLedger, GpuPool, ModelGpuNeeds};
pub use selection::{GpuSelection, SelectionError};
pub use visibility::InheritedVisibility;
