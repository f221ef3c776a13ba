//! The edge: everything between the network and the faces. It accepts connections as long as there is
//! room for them, opens TLS, follows the framing of every byte that comes, and closes so that the last
//! answer is read. No face is asked before a request's head is beyond doubt.

mod chunked_body;
mod connection;
mod drain_body;
mod exchange;
pub mod fd_limit;
mod framing;
mod framing_guard;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod keepalive;
mod listener;
mod rejection;
mod request_head;
mod stream;
mod tls;

pub use listener::{EdgeConfig, serve};
pub use tls::{Tls, TlsError};
