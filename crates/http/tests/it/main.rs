//! The edge from outside: raw bytes on a socket, in front of a small router.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod framing;
mod limits;
mod server;
mod shutdown;
mod unread_body;
