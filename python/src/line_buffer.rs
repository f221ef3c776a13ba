//! Collects printed bytes until they form a line.
//!
//! One buffer per job and stream. `std_streams` decides which job a line belongs to.

use std::borrow::Cow;

/// Longer lines are truncated, so that one `print` cannot fill the server's memory.
const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;

/// The unfinished line of one stream.
#[derive(Default)]
pub(crate) struct LineBuffer {
    partial: Vec<u8>,
    /// Bytes of the current line that were dropped.
    dropped: usize,
}

impl LineBuffer {
    /// Adds printed bytes and emits every line that they complete.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut emit: impl FnMut(Cow<'_, str>)) {
        while let Some(end) = bytes.iter().position(|&b| b == b'\n') {
            let (line, rest) = bytes.split_at(end + 1);
            if self.partial.is_empty() && line.len() <= MAX_LINE_BYTES {
                emit(String::from_utf8_lossy(line));
            } else {
                self.append(&line[..end]);
                self.finish(true, &mut emit);
            }
            bytes = rest;
        }
        self.append(bytes);
    }

    /// Whether there is no unfinished line.
    pub(crate) fn is_empty(&self) -> bool {
        self.partial.is_empty()
    }

    /// Emits the unfinished line, if there is one.
    pub(crate) fn flush(&mut self, mut emit: impl FnMut(Cow<'_, str>)) {
        if !self.partial.is_empty() {
            self.finish(false, &mut emit);
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        let free = MAX_LINE_BYTES - self.partial.len();
        let kept = &bytes[..bytes.len().min(free)];
        self.partial.extend_from_slice(kept);
        self.dropped += bytes.len() - kept.len();
    }

    fn finish(&mut self, terminated: bool, emit: &mut impl FnMut(Cow<'_, str>)) {
        if self.dropped > 0 {
            let marker = format!(" [line truncated: {} more bytes]", self.dropped);
            self.partial.extend_from_slice(marker.as_bytes());
        }
        if terminated {
            self.partial.push(b'\n');
        }
        emit(String::from_utf8_lossy(&self.partial));
        self.dropped = 0;
        // Not `clear`: a truncated line leaves a large allocation behind.
        self.partial = Vec::new();
    }
}
