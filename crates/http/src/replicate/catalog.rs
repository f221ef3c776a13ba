//! What a platform has besides models. Clients ask; there is little to say.

use axum::response::Response;

use super::{reply, wire};

/// What there is to run models on.
pub(super) const HARDWARE: [wire::Hardware; 1] = [wire::Hardware { sku: "local", name: "This machine" }];

/// `GET /v1/hardware`: a bare list, not a page.
pub(super) async fn hardware() -> Response {
    reply::ok(&HARDWARE)
}

/// `GET /v1/collections`
pub(super) async fn collections() -> Response {
    reply::ok(&wire::Page::<()>::only(Vec::new()))
}
