//! The edge: everything between the network and the faces. It accepts connections as long as there is
//! room for them, opens TLS, follows the framing of every byte that comes, and closes so that the last
//! answer is read. No face is asked before a request's head is beyond doubt.

mod chunks;
mod connection;
pub mod descriptors;
mod framing;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod guard;
mod head;
mod listener;
mod presence;
mod refusal;
mod stream;
mod tls;
mod turn;
mod unread;

pub use listener::{Edge, serve};
pub use tls::{Tls, TlsError};
