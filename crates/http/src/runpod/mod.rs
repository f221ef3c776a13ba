//! Runpod's APIs: `local` is the API of a served handler, `platform` the API of endpoints and workers.

pub mod local;
pub mod platform;
mod status;
