//! Bytes that came in, until they are a frame.
//!
//! Shared by the control channel and the slots; it does not know which messages are inside.

use std::io;

use tidegate_ipc::frame;

const FIRST: usize = 16 * 1024;
/// A buffer that one large input has made larger than this is given back.
const KEEP: usize = 1024 * 1024;

/// What reading has brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// `frame()` holds a whole message.
    Frame,
    /// Nothing complete yet, and waiting was not allowed.
    Nothing,
    /// The other side has closed.
    End,
}

/// A buffer that grows to the size of the frame it waits for.
#[derive(Default)]
pub(crate) struct Inbox {
    data: Vec<u8>,
    filled: usize,
    /// Length of the complete frame at the front, header not counted.
    ready: Option<usize>,
}

impl Inbox {
    /// Reads until a frame is complete. `read` is one system call.
    pub(crate) fn fill(
        &mut self,
        mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Progress> {
        loop {
            self.ready = frame::complete(&self.data[..self.filled])
                .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            if self.ready.is_some() {
                return Ok(Progress::Frame);
            }
            self.make_room();
            match read(&mut self.data[self.filled..]) {
                Ok(0) => return Ok(Progress::End),
                Ok(n) => self.filled += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Progress::Nothing),
                Err(e) => return Err(e),
            }
        }
    }

    /// The message that `fill` has found; empty before.
    pub(crate) fn frame(&self) -> &[u8] {
        self.ready.map_or(&[], |length| {
            &self.data[frame::HEADER..frame::HEADER + length]
        })
    }

    /// Makes room for the next message.
    pub(crate) fn consume(&mut self) {
        let Some(length) = self.ready.take() else {
            return;
        };
        let used = frame::HEADER + length;
        self.data.copy_within(used..self.filled, 0);
        self.filled -= used;
        if self.data.len() > KEEP && self.filled < FIRST {
            self.data.truncate(FIRST);
            self.data.shrink_to_fit();
        }
    }

    fn make_room(&mut self) {
        let wanted = match self.data[..self.filled].first_chunk::<{ frame::HEADER }>() {
            Some(header) => frame::HEADER + u32::from_le_bytes(*header) as usize,
            None => FIRST,
        };
        let wanted = wanted.max(FIRST);
        if self.data.len() < wanted {
            self.data.resize(wanted, 0);
        }
    }
}
