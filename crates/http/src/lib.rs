//! The HTTP APIs, side by side on one port. Each folder is one API with the same files: `mod.rs` is
//! its route table, `wire.rs` its types, `reply.rs` maps results and errors of the job service to
//! responses. `edge` is the HTTP server in front of them, `access` checks tokens.

pub mod access;
pub mod admin;
pub mod cog;
pub mod director;
pub mod director_health;
pub mod edge;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod gateway;
mod gpus;
mod inference;
pub mod metrics;
pub mod openai;
mod rate_limits;
pub mod replicate;
mod request_metrics;
pub mod runpod;
mod shared;
pub mod ui;
pub mod workers_ai;

pub use rate_limits::RateLimits;
pub use request_metrics::RequestMetrics;

use std::sync::Arc;

use tidegate_core::record::Api;
use tidegate_service::{RendererFactory, WebhookRenderer};

/// Renders the webhooks of each API.
pub fn renderer(replicate: replicate::PredictionRenderer) -> RendererFactory {
    Arc::new(move |api, target, hook| match api {
        Api::Replicate => replicate.webhook_renderer(hook),
        Api::Runpod if target.is_endpoint() => runpod::platform::renderer(),
        Api::Runpod => runpod::local::renderer(),
        // Clients of OpenAI's and the Workers AI API cannot ask for webhooks.
        Api::Cog | Api::OpenAi | Api::WorkersAi => WebhookRenderer::new(cog::reply::result_body),
    })
}
