//! The port of read positions that several processes share: how many parts of a stream the clients of an API have
//! read that delivers each part once.

use async_trait::async_trait;

/// The positions cannot be used now.
#[derive(Debug, Clone, thiserror::Error)]
#[error("read positions cannot be used: {0}")]
pub struct ReadCursorError(pub String);

/// The read positions of streams, by a key. They are forgotten some time after the last read.
#[async_trait]
pub trait ReadCursors: Send + Sync {
    /// The number of parts that were read.
    async fn position(&self, key: &str) -> Result<u64, ReadCursorError>;

    /// Advances the position to `to`, unless it is further already. Returns the position before.
    async fn advance(&self, key: &str, to: u64) -> Result<u64, ReadCursorError>;
}
