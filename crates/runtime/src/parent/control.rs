//! Reading and writing the control channel.

use bytes::BytesMut;
use tidegate_ipc::control::{ControlRequest, ControlResponse};
use tidegate_ipc::frame::{self, HEADER};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};

/// What the child says, message by message.
pub(crate) struct Reader {
    from: ChildStdout,
    buffer: BytesMut,
}

/// Why nothing more can be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("the child closed its control channel")]
    Closed,
    #[error("could not read the control channel")]
    Io(#[source] std::io::Error),
    #[error("something that is not a message came on the control channel")]
    Oversized(#[source] frame::Oversized),
    #[error("a message on the control channel makes no sense")]
    Malformed(#[source] serde_json::Error),
}

impl Reader {
    pub(crate) fn new(from: ChildStdout) -> Self {
        Self {
            from,
            buffer: BytesMut::new(),
        }
    }

    /// The next message. Safe to drop and call again.
    pub(crate) async fn next(&mut self) -> Result<ControlResponse, ReadError> {
        loop {
            if let Some(length) = frame::complete(&self.buffer).map_err(ReadError::Oversized)? {
                let message = self.buffer.split_to(HEADER + length);
                return serde_json::from_slice(&message[HEADER..]).map_err(ReadError::Malformed);
            }
            match self.from.read_buf(&mut self.buffer).await {
                Ok(0) => return Err(ReadError::Closed),
                Ok(_) => {}
                Err(error) => return Err(ReadError::Io(error)),
            }
        }
    }
}

/// Writes one message.
pub(crate) async fn send(to: &mut ChildStdin, request: &ControlRequest) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    frame::append_json(&mut buffer, request);
    to.write_all(&buffer).await?;
    to.flush().await
}
