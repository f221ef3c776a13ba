//! One HTTP/1.1 connection, which is polled by whichever future uses it.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use futures_util::future::poll_fn;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::runtime::{Handle, Id};

use super::address::UpstreamAddress;
use super::body::UpstreamUpgraded;
use super::error::UpstreamError;
use super::io::{SocketFlags, UpstreamIo};
use super::request_body::UpstreamRequestBody;

/// The largest head of a response, and the most that is read or written at once. A quiet stream uses
/// 8 KiB of it.
const MAX_BUFFER: usize = 64 * 1024;

/// A connection with at most one request at a time.
pub(super) struct Http1Connection {
    sender: SendRequest<UpstreamRequestBody>,
    connection: Connection<TokioIo<UpstreamIo>, UpstreamRequestBody>,
    socket: SocketFlags,
    /// The runtime that waits for the events of the socket.
    runtime: Id,
    /// hyper is done with the connection, which must not be polled any more.
    has_ended: bool,
}

impl Http1Connection {
    pub(super) async fn open(io: UpstreamIo) -> Result<Self, hyper::Error> {
        let socket = io.flags();
        let (sender, connection) = Builder::new()
            .max_buf_size(MAX_BUFFER)
            .handshake(TokioIo::new(io))
            .await?;
        Ok(Self {
            sender,
            connection,
            socket,
            runtime: Handle::current().id(),
            has_ended: false,
        })
    }

    /// Sends a request and waits for the head of its response.
    pub(super) async fn exchange(
        &mut self,
        address: &UpstreamAddress,
        request: Request<UpstreamRequestBody>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        self.socket.reset();
        let mut response = pin!(self.sender.send_request(request));
        poll_fn(|cx| {
            self.drive(cx);
            match response.as_mut().poll(cx) {
                Poll::Ready(result) => Poll::Ready(
                    result.map_err(|error| UpstreamError::before_response(address, error)),
                ),
                Poll::Pending if self.has_ended => {
                    Poll::Ready(Err(UpstreamError::ClosedBeforeResponse {
                        address: address.clone(),
                        source: io::Error::from(io::ErrorKind::UnexpectedEof).into(),
                    }))
                }
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Reads and writes what is possible. Errors reach the future of the response or its body.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if !self.has_ended && Pin::new(&mut self.connection).poll(cx).is_ready() {
            self.has_ended = true;
        }
    }

    /// Whether the next request can be sent: the last response was read to its end, the backend keeps
    /// the connection open, and has sent nothing unasked.
    pub(super) fn is_idle(&mut self) -> bool {
        // No task waits for an idle connection, and none is woken when it is closed.
        self.drive(&mut Context::from_waker(Waker::noop()));
        !self.has_ended && self.sender.is_ready()
    }

    /// The runtime that waits for the events of the socket.
    pub(super) fn runtime(&self) -> Id {
        self.runtime
    }

    /// Lets the runtime of the caller, which polls the connection next, wait for the events of the socket.
    pub(super) fn move_here(&mut self) {
        self.runtime = Handle::current().id();
        self.socket.move_to_next_runtime();
    }

    /// Whether the backend has sent a byte since the last request.
    pub(super) fn has_received(&self) -> bool {
        self.socket.has_received()
    }

    /// The raw connection, after the response 101.
    pub(super) fn into_upgraded(self) -> UpstreamUpgraded {
        let parts = self.connection.into_parts();
        UpstreamUpgraded::new(parts.io.into_inner(), parts.read_buf)
    }
}
