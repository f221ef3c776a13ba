//! What a platform has besides models. Clients ask; there is little to say.

use axum::response::Response;

use super::{reply, wire};

/// `GET /v1/hardware`: a bare list, not a page.
pub(super) async fn hardware() -> Response {
    reply::ok(&[wire::Hardware { sku: "local", name: "This machine" }])
}

/// `GET /v1/collections`
pub(super) async fn collections() -> Response {
    reply::ok(&wire::Page::<()>::only(Vec::new()))
}
