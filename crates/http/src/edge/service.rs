//! What the edge passes requests to: a router of handlers, or a service of its own kind.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use hyper::{Request, Response};
use tower::Service;

/// Answers the requests of all connections. The edge polls each future inside the task of its
/// connection and drops it when the client disconnects.
pub trait EdgeService: Send + Sync + 'static {
    /// Answers one request.
    fn call(&self, request: Request<Body>) -> impl Future<Output = Response<Body>> + Send;
}

impl EdgeService for Router {
    async fn call(&self, request: Request<Body>) -> Response<Body> {
        let response: Result<Response<Body>, Infallible> =
            Service::call(&mut self.clone(), request).await;
        match response {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}
