//! The edge: everything between the network and the APIs. It limits and accepts connections,
//! performs TLS handshakes, checks the framing of every byte that a client sends, and closes
//! connections so that clients can still read the last response. No API sees a request whose
//! framing is ambiguous.

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
