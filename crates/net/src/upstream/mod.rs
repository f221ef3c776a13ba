//! The connection pool of the router: HTTP/1.1 and HTTP/2 to backends that the operator configured.
//!
//! No task serves an HTTP/1.1 connection while it is in use: the future of the request polls it, and
//! then the body of the response. Dropping either closes the connection at once, so that the backend
//! sees that its client has gone. HTTP/2 connections are shared by requests and have a task each.
//!
//! Redirects are not followed, informational responses are skipped, nothing is decompressed, and no
//! request is repeated, with one exception: [`UpstreamPool::send`] describes it. Addresses are not
//! checked against [`AllowedNetworks`](crate::AllowedNetworks), because no client chooses them.

mod address;
mod body;
mod dial;
mod error;
mod host;
mod http1;
mod http2;
mod idle;
mod io;
mod pool;
mod request_body;
#[cfg(test)]
mod tests;

pub use address::{UpstreamAddress, UpstreamScheme, UpstreamVersion};
pub use body::{UpstreamBody, UpstreamUpgraded};
pub use error::UpstreamError;
pub use pool::{UpstreamConfig, UpstreamPool};
pub use request_body::{BoxError, UpstreamRequestBody};
