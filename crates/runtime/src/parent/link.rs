//! One slot's socket with what has been read from it and not yet understood.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tidegate_ipc::control::SlotId;
use tidegate_ipc::frame::{self, HEADER};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::child::Child;

/// The socket of one slot.
pub(crate) struct Link {
    stream: UnixStream,
    buffer: BytesMut,
    /// How many jobs were sent on it. The child counts too: a cancel names a job by its number.
    jobs: u64,
    /// Which slot of the child this is.
    pub(crate) slot: SlotId,
    /// Whose slot it is.
    pub(crate) child: Arc<Child>,
}

/// The link is of no more use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("the child is gone")]
    Gone,
    #[error("the child wrote something that is not a message")]
    Garbage,
}

impl Link {
    pub(crate) fn new(stream: UnixStream, slot: SlotId, child: Arc<Child>) -> Self {
        Self {
            stream,
            buffer: BytesMut::with_capacity(4096),
            jobs: 0,
            slot,
            child,
        }
    }

    /// The number of the job that is sent next.
    pub(crate) fn count_job(&mut self) -> u64 {
        self.jobs += 1;
        self.jobs
    }

    /// Writes some of `bytes`, at least one. Safe to drop and call again.
    pub(crate) async fn write_some(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        tokio::select! {
            biased;
            sent = self.stream.write(bytes) => sent.ok().filter(|sent| *sent > 0).ok_or(Broken::Gone),
            // A process forked off by user code may keep the socket open after the child's death.
            () = self.child.dead() => Err(Broken::Gone),
        }
    }

    /// The JSON of the next message. Safe to drop and call again.
    pub(crate) async fn receive(&mut self) -> Result<Bytes, Broken> {
        loop {
            if let Some(message) = self.buffered()? {
                return Ok(message);
            }
            let read = tokio::select! {
                biased;
                read = self.stream.read_buf(&mut self.buffer) => read,
                () = self.child.dead() => {
                    // Death is noticed beside the socket: take what was still written into it.
                    self.stream.try_read_buf(&mut self.buffer)
                }
            };
            if !matches!(read, Ok(1..)) {
                return Err(Broken::Gone);
            }
        }
    }

    fn buffered(&mut self) -> Result<Option<Bytes>, Broken> {
        let Some(length) = frame::complete(&self.buffer).map_err(|_| Broken::Garbage)? else {
            if self.buffer.is_empty() && self.buffer.capacity() > 64 * 1024 {
                // A buffer that once held a large message would keep its size.
                self.buffer = BytesMut::with_capacity(4096);
            }
            return Ok(None);
        };
        let mut message = self.buffer.split_to(HEADER + length).freeze();
        Ok(Some(message.split_off(HEADER)))
    }
}
