//! What the databases have in common when they read jobs and messages.

use std::time::Duration;

use bytes::Bytes;
use tidegate_core::record::JobRecord;

/// The input of a job whose data was removed.
pub(crate) const NO_INPUT: &[u8] = b"{}";
/// A result with many rows ends after this many bytes, because it is held in memory.
pub(crate) const MAX_RESULT_BYTES: usize = 16 << 20;

/// Roughly how many bytes of memory a record uses.
pub(crate) fn approx_size(record: &JobRecord) -> usize {
    let completion = record.completion.as_ref().map_or(0, |completion| {
        completion.output.as_ref().map_or(0, Bytes::len) + completion.logs.len()
    });
    record.spec.input.len() + completion
}

/// The outbox messages to claim, by their numbers, and the time until others are due.
pub(crate) struct DueMessages {
    pub(crate) numbers: Vec<i64>,
    pub(crate) next_due: Option<Duration>,
}
