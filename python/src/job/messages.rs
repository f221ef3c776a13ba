//! The messages that a job sends before its end: frames, log lines, files.

use std::sync::atomic::Ordering;

use pyo3::prelude::*;
use tidegate_ipc::MAX_LOG_BYTES_SENT;
use tidegate_ipc::frame;
use tidegate_ipc::slot::{FileOutput, FileOutputKind, SlotResponse, WireLogSource};

use super::{ChildJob, MAX_ERROR_BYTES, SPILL_ABOVE};
use crate::control::lock;
use crate::encode::{Encoded, append};
use crate::slot::AfterSend;
use crate::spare_buffers::LARGE;

impl ChildJob {
    /// Appends a frame with a message of this job.
    pub(super) fn append_frame(&self, frames: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        frame::append(frames, |out| match self.item {
            None => write(out),
            Some(n) => {
                out.extend_from_slice(b"{\"item\":{\"n\":");
                append(out, &n);
                out.extend_from_slice(b",\"message\":");
                write(out);
                out.extend_from_slice(b"}}");
            }
        });
    }

    /// Appends a frame whose message is `head`, `value` and `tail`. A large value is not copied: it
    /// belongs to the returned position.
    pub(super) fn append_frame_around(
        &self,
        frames: &mut Vec<u8>,
        value: &[u8],
        head: impl FnOnce(&mut Vec<u8>),
        tail: impl FnOnce(&mut Vec<u8>),
    ) -> Option<usize> {
        let start = frames.len();
        let mut position = None;
        self.append_frame(frames, |out| {
            head(out);
            if value.len() < LARGE {
                out.extend_from_slice(value);
            } else {
                position = Some(out.len());
            }
            tail(out);
        });
        if position.is_some() {
            frame::add_to_length(&mut frames[start..], value.len());
        }
        position
    }

    pub(super) fn append_response(&self, frames: &mut Vec<u8>, response: &SlotResponse<'_>) {
        self.append_frame(frames, |out| append(out, response));
    }

    pub(super) fn send(&self, py: Python<'_>, frames: &[u8], after: AfterSend) -> bool {
        self.send_around(py, frames, (None, b""), after)
    }

    /// Sends frames, with a value at a position that `append_frame_around` has returned.
    pub(super) fn send_around(
        &self,
        py: Python<'_>,
        frames: &[u8],
        (position, value): (Option<usize>, &[u8]),
        after: AfterSend,
    ) -> bool {
        if crate::control::is_fork() || self.is_batch_call() {
            return false;
        }
        let sent = match position.map(|position| frames.split_at(position)) {
            None => self.slot.send(py, self.serial, frames, after),
            Some((before, behind)) => {
                let parts = [before, value, behind];
                self.slot.send_large(py, self.serial, &parts, after)
            }
        };
        // A socket error means that the server is gone; the reader of the slot detects that as well.
        sent.unwrap_or(true)
    }

    /// Appends frames for the files of an output. Returns whether the output itself is sent as a file.
    pub(super) fn append_file_frames(
        &self,
        frames: &mut Vec<u8>,
        encoded: &Encoded,
    ) -> PyResult<bool> {
        for place in &encoded.files {
            let file = FileOutput {
                filename: place.path.as_str().into(),
                kind: FileOutputKind::FileType,
                mime_type: Some(place.mime_type.as_str().into()),
                offset: place.offset,
            };
            self.append_response(frames, &SlotResponse::FileOutput(file));
        }
        if encoded.json.len() <= SPILL_ABOVE {
            return Ok(false);
        }
        let path = self.new_file("output.json")?;
        std::fs::write(&path, &encoded.json)?;
        let file = FileOutput {
            filename: path.to_string_lossy(),
            kind: FileOutputKind::Oversized,
            mime_type: Some("application/json".into()),
            offset: 0,
        };
        self.append_response(frames, &SlotResponse::FileOutput(file));
        Ok(true)
    }

    /// Appends a traceback as lines of stderr. An unfinished line, which is sent before it, gets its
    /// line break here.
    pub(super) fn append_traceback(&self, frames: &mut Vec<u8>, traceback: &str) {
        let traceback = &traceback[..traceback.floor_char_boundary(MAX_ERROR_BYTES)];
        let mut data = String::with_capacity(traceback.len() + 2);
        if lock(&self.line_buffers)
            .iter()
            .any(|buffer| !buffer.is_empty())
        {
            data.push('\n');
        }
        data.push_str(traceback);
        if !data.ends_with('\n') {
            data.push('\n');
        }
        let source = WireLogSource::Stderr;
        let data = data.into();
        self.append_response(frames, &SlotResponse::Log { source, data });
    }

    pub(super) fn take_unfinished_lines(&self, frames: &mut Vec<u8>) {
        let mut line_buffers = lock(&self.line_buffers);
        for source in [WireLogSource::Stdout, WireLogSource::Stderr] {
            line_buffers[source as usize]
                .flush(|data| self.append_response(frames, &SlotResponse::Log { source, data }));
        }
    }

    /// Sends printed bytes. Returns `false` if the job has ended and the output is not the job's.
    pub(crate) fn log(&self, py: Python<'_>, source: WireLogSource, bytes: &[u8]) -> bool {
        if self.ended.load(Ordering::Relaxed) || self.is_batch_call() {
            return false;
        }
        if self.log_bytes.fetch_add(bytes.len(), Ordering::Relaxed) > MAX_LOG_BYTES_SENT {
            return true;
        }
        let mut frames = Vec::new();
        lock(&self.line_buffers)[source as usize].push(bytes, |data| {
            self.append_response(&mut frames, &SlotResponse::Log { source, data })
        });
        frames.is_empty() || self.send(py, &frames, AfterSend::KeepOpen)
    }

    /// Sends an unfinished line. Returns `false` if the job has ended.
    pub(crate) fn flush(&self, py: Python<'_>, source: WireLogSource) -> bool {
        if self.ended.load(Ordering::Relaxed) || self.is_batch_call() {
            return false;
        }
        let mut frames = Vec::new();
        lock(&self.line_buffers)[source as usize]
            .flush(|data| self.append_response(&mut frames, &SlotResponse::Log { source, data }));
        frames.is_empty() || self.send(py, &frames, AfterSend::KeepOpen)
    }
}
