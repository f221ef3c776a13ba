//! The operator's face: what an operator looks at when something did not arrive.

mod deliveries;
mod wire;

use axum::Router;
use axum::routing::get;
use tidegate_service::Jobs;

/// The face.
pub fn routes(jobs: Jobs) -> Router {
    Router::new().route("/admin/deliveries", get(deliveries::list)).with_state(jobs)
}
