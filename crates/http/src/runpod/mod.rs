//! The Runpod faces.

pub mod platform;
