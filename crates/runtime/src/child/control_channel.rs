//! Reads and writes the control channel of a child.

use bytes::BytesMut;
use tidegate_ipc::control::{ControlRequest, ControlResponse};
use tidegate_ipc::frame::{self, HEADER};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};

/// Reads the messages of the child.
pub(crate) struct ControlReader {
    from: ChildStdout,
    buffer: BytesMut,
}

/// The control channel can no longer be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlReadError {
    #[error("the child closed its control channel")]
    Closed,
    #[error("could not read the control channel")]
    Io(#[source] std::io::Error),
    #[error("the control channel received bytes that are not a message")]
    Oversized(#[source] frame::Oversized),
    #[error("the control channel received a malformed message")]
    Malformed(#[source] serde_json::Error),
}

impl ControlReader {
    pub(crate) fn new(from: ChildStdout) -> Self {
        Self {
            from,
            buffer: BytesMut::new(),
        }
    }

    /// Reads the next message. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<ControlResponse, ControlReadError> {
        loop {
            if let Some(length) =
                frame::complete(&self.buffer).map_err(ControlReadError::Oversized)?
            {
                let message = self.buffer.split_to(HEADER + length);
                return serde_json::from_slice(&message[HEADER..])
                    .map_err(ControlReadError::Malformed);
            }
            match self.from.read_buf(&mut self.buffer).await {
                Ok(0) => return Err(ControlReadError::Closed),
                Ok(_) => {}
                Err(error) => return Err(ControlReadError::Io(error)),
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
