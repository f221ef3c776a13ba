//! Collects received bytes until they form a whole frame.
//!
//! Used by the control channel and the slots; it does not know the messages inside the frames.

use std::io;

use tidegate_ipc::frame;

use crate::spare_buffers::{self, LARGE};

const MIN_CAPACITY: usize = 16 * 1024;

/// The result of reading.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FillStatus {
    /// `frame()` holds a whole message.
    Frame,
    /// No whole message yet, and reading more would block.
    Incomplete,
    /// The other end has closed the channel.
    End,
}

/// A receive buffer that grows to the size of the frame that it waits for.
#[derive(Default)]
pub(crate) struct FrameBuffer {
    data: Vec<u8>,
    filled: usize,
    /// Length of the complete frame at the front, without its header.
    ready: Option<usize>,
}

impl FrameBuffer {
    /// Reads until a frame is complete. `read` makes one system call.
    pub(crate) fn fill(
        &mut self,
        mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<FillStatus> {
        loop {
            self.ready = frame::complete(&self.data[..self.filled])
                .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            if self.ready.is_some() {
                return Ok(FillStatus::Frame);
            }
            self.reserve();
            match read(&mut self.data[self.filled..]) {
                Ok(0) => return Ok(FillStatus::End),
                Ok(n) => self.filled += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(FillStatus::Incomplete);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// The message that `fill` has completed; empty if there is none.
    pub(crate) fn frame(&self) -> &[u8] {
        self.ready.map_or(&[], |length| {
            &self.data[frame::HEADER..frame::HEADER + length]
        })
    }

    /// Removes the current message.
    pub(crate) fn consume(&mut self) {
        let Some(length) = self.ready.take() else {
            return;
        };
        let used = frame::HEADER + length;
        let rest = used..self.filled;
        self.filled -= used;
        if self.data.len() >= LARGE && self.filled < MIN_CAPACITY {
            // An idle slot does not keep the buffer of a large input.
            let mut small = vec![0; MIN_CAPACITY];
            small[..self.filled].copy_from_slice(&self.data[rest]);
            spare_buffers::give_back(std::mem::replace(&mut self.data, small));
        } else {
            self.data.copy_within(rest, 0);
        }
    }

    fn reserve(&mut self) {
        let needed = match self.data[..self.filled].first_chunk::<{ frame::HEADER }>() {
            Some(header) => frame::HEADER + u32::from_le_bytes(*header) as usize,
            None => MIN_CAPACITY,
        };
        let needed = needed.max(MIN_CAPACITY);
        if self.data.len() < needed {
            if needed >= LARGE {
                let mut large = spare_buffers::take(needed);
                // Only the part that was never used has to be cleared.
                large.resize(needed.max(large.len()), 0);
                large[..self.filled].copy_from_slice(&self.data[..self.filled]);
                self.data = large;
            } else {
                self.data.resize(needed, 0);
            }
        }
    }
}
