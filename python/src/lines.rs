//! Printed bytes, until they are a line.
//!
//! One buffer per job and stream. Who gets the lines is decided in `stream`.

use std::borrow::Cow;

/// Longer lines are cut, so that one `print` cannot fill the server's memory.
const LONGEST: usize = 4 * 1024 * 1024;

/// The unfinished line of one stream.
#[derive(Default)]
pub(crate) struct Lines {
    partial: Vec<u8>,
    /// Bytes of the current line that were thrown away.
    cut: usize,
}

impl Lines {
    /// Adds what was printed and passes on every line that it completes.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut emit: impl FnMut(Cow<'_, str>)) {
        while let Some(end) = bytes.iter().position(|&b| b == b'\n') {
            let (line, rest) = bytes.split_at(end + 1);
            if self.partial.is_empty() && line.len() <= LONGEST {
                emit(String::from_utf8_lossy(line));
            } else {
                self.keep(&line[..end]);
                self.finish(true, &mut emit);
            }
            bytes = rest;
        }
        self.keep(bytes);
    }

    /// Passes on what has no line break yet.
    pub(crate) fn flush(&mut self, mut emit: impl FnMut(Cow<'_, str>)) {
        if !self.partial.is_empty() {
            self.finish(false, &mut emit);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LONGEST - self.partial.len();
        let kept = &bytes[..bytes.len().min(room)];
        self.partial.extend_from_slice(kept);
        self.cut += bytes.len() - kept.len();
    }

    fn finish(&mut self, terminated: bool, emit: &mut impl FnMut(Cow<'_, str>)) {
        if self.cut > 0 {
            let marker = format!(" [line cut here: {} more bytes]", self.cut);
            self.partial.extend_from_slice(marker.as_bytes());
        }
        if terminated {
            self.partial.push(b'\n');
        }
        emit(String::from_utf8_lossy(&self.partial));
        self.cut = 0;
        // A cut line has left a large buffer behind.
        self.partial = Vec::new();
    }
}
