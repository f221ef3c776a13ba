//! The edge: everything between the network and the APIs. It limits and accepts connections,
//! performs TLS handshakes, checks the framing of every byte that a client sends, and closes
//! connections so that clients can still read the last response. No API sees a request whose
//! framing is ambiguous.

mod chunked_body;
mod close_watch;
mod connection;
mod control;
mod drain_body;
mod event_loops;
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
mod request_span;
mod service;
mod stream;
mod tls;
mod unix_socket;
mod websocket;

pub use control::EdgeControl;
pub use event_loops::EventLoops;
pub use listener::{EdgeConfig, EdgeListeners, serve};
pub use service::EdgeService;
pub use tls::{Tls, TlsError};
pub use unix_socket::{UnixSocket, UnixSocketError};
