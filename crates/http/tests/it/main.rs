//! Tests of the edge from outside: raw bytes on a socket, with a small router behind the edge.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod event_loops;
mod framing;
mod limits;
mod server;
mod shutdown;
mod unix_socket;
mod unread_body;
mod websocket;
