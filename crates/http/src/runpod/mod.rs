//! The Runpod faces.

pub mod local;
pub mod platform;
mod status;
