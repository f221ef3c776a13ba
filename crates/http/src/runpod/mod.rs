//! The Runpod faces.

pub mod local;
