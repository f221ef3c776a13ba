//! The socket of one slot, with the bytes that were read and not yet parsed.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tidegate_ipc::control::SlotId;
use tidegate_ipc::frame::{self, HEADER};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::process::ChildProcess;

/// The socket of one slot.
pub(crate) struct SlotSocket {
    stream: UnixStream,
    buffer: BytesMut,
    /// The number of jobs sent on this socket. The child counts too: a cancel request names a job by
    /// its number.
    jobs: u64,
    /// The number of the slot within its child.
    pub(crate) slot: SlotId,
    /// The child that the slot belongs to.
    pub(crate) child: Arc<ChildProcess>,
}

/// The socket is unusable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SlotSocketError {
    #[error("the child closed the socket")]
    Closed,
    #[error("the child wrote bytes that are not a message")]
    Malformed,
}

impl SlotSocket {
    pub(crate) fn new(stream: UnixStream, slot: SlotId, child: Arc<ChildProcess>) -> Self {
        Self {
            stream,
            buffer: BytesMut::with_capacity(4096),
            jobs: 0,
            slot,
            child,
        }
    }

    /// The number that the next job will have.
    pub(crate) fn peek_job_number(&self) -> u64 {
        self.jobs + 1
    }

    /// Returns the number of the next job.
    pub(crate) fn next_job_number(&mut self) -> u64 {
        self.jobs += 1;
        self.jobs
    }

    /// Writes a part of the bytes, at least one. Cancel-safe.
    pub(crate) async fn write_some_parts(
        &mut self,
        parts: &[IoSlice<'_>],
    ) -> Result<usize, SlotSocketError> {
        tokio::select! {
            biased;
            sent = self.stream.write_vectored(parts) => sent.ok().filter(|sent| *sent > 0).ok_or(SlotSocketError::Closed),
            // A process that user code forked may keep the socket open after the child's death.
            () = self.child.dead() => Err(SlotSocketError::Closed),
        }
    }

    /// Reads the JSON of the next message. Cancel-safe.
    pub(crate) async fn receive(&mut self) -> Result<Bytes, SlotSocketError> {
        self.receive_while_sending(&[], &mut 0).await
    }

    /// Writes what is left of `bytes` after `sent` of them, and reads the JSON of the next message.
    /// Cancel-safe.
    ///
    /// Both at the same time: the child may read the bytes only when it has written what the server does
    /// not read yet.
    pub(crate) async fn receive_while_sending(
        &mut self,
        bytes: &[u8],
        sent: &mut usize,
    ) -> Result<Bytes, SlotSocketError> {
        let mut is_writable = true;
        loop {
            if let Some(message) = self.buffered()? {
                return Ok(message);
            }
            // A large message is read into one buffer of its size: a buffer that grows is copied again
            // and again.
            if let Ok(Some(missing)) = frame::missing(&self.buffer) {
                self.buffer.reserve(missing);
            }
            let (mut reader, mut writer) = self.stream.split();
            let read = tokio::select! {
                biased;
                written = writer.write(&bytes[*sent..]), if is_writable && *sent < bytes.len() => {
                    match written {
                        Ok(n @ 1..) => *sent += n,
                        // The child reads no more, but what it has written is still to be read.
                        _ => is_writable = false,
                    }
                    continue;
                }
                read = reader.read_buf(&mut self.buffer) => read,
                () = self.child.dead() => {
                    // The supervisor notices the death before the socket is read to its end: read
                    // the bytes that the child wrote before it died.
                    reader.try_read_buf(&mut self.buffer)
                }
            };
            if !matches!(read, Ok(1..)) {
                return Err(SlotSocketError::Closed);
            }
        }
    }

    fn buffered(&mut self) -> Result<Option<Bytes>, SlotSocketError> {
        let Some(length) = frame::complete(&self.buffer).map_err(|_| SlotSocketError::Malformed)?
        else {
            if self.buffer.is_empty() && self.buffer.capacity() > 64 * 1024 {
                // A buffer that held a large message would keep its size.
                self.buffer = BytesMut::with_capacity(4096);
            }
            return Ok(None);
        };
        let mut message = self.buffer.split_to(HEADER + length).freeze();
        Ok(Some(message.split_off(HEADER)))
    }
}
