//! The faces: HTTP dialects side by side on one port. Each folder is one dialect with the same rooms:
//! `mod.rs` is its route table, `wire.rs` its types, `reply.rs` how the desk's answers are said in it.
//! `edge` is what stands before all of them.

pub mod access;
pub mod admin;
pub mod cog;
pub mod edge;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod metrics;
pub mod replicate;
mod request_metrics;
pub mod runpod;
mod shared;

pub use request_metrics::RequestMetrics;

use std::sync::Arc;

use tidegate_core::record::Api;
use tidegate_service::{RendererFactory, WebhookRenderer};

/// How the faces tell a job to the receiver of a webhook; a server has one of the two faces of Runpod.
pub fn renderer(
    replicate: replicate::PredictionRenderer,
    runpod: fn() -> WebhookRenderer,
) -> RendererFactory {
    Arc::new(move |api, hook| match api {
        Api::Replicate => replicate.renderer(hook),
        Api::Runpod => runpod(),
        Api::Cog => WebhookRenderer::new(cog::reply::result_body),
    })
}
