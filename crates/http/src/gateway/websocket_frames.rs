//! Follows the frames of a WebSocket connection (RFC 6455) as far as a relay needs it: where one ends, and
//! whether the connection was closed.

/// The opcode of a close frame.
const CLOSE: u8 = 0x8;

/// Why the router closes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloseCode {
    /// The connection has lasted for its maximum duration.
    MaxDuration,
    /// The router shuts down.
    ShuttingDown,
    /// The backend went away.
    BackendLost,
}

impl CloseCode {
    const fn number(self) -> u16 {
        match self {
            Self::MaxDuration | Self::ShuttingDown => 1001,
            Self::BackendLost => 1014,
        }
    }

    const fn reason(self) -> &'static str {
        match self {
            Self::MaxDuration => "maximum duration reached",
            Self::ShuttingDown => "the router shuts down",
            Self::BackendLost => "the backend closed the connection",
        }
    }
}

/// Who sends a frame: those of clients are masked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    Client,
    Server,
}

/// A close frame.
pub(super) fn close_frame(code: CloseCode, sender: Sender) -> Vec<u8> {
    let payload = [&code.number().to_be_bytes()[..], code.reason().as_bytes()].concat();
    let len = u8::try_from(payload.len()).unwrap_or(0);
    let mut frame = vec![0x80 | CLOSE];
    match sender {
        Sender::Server => frame.push(len),
        // A mask of zeros leaves the payload as it is.
        Sender::Client => frame.extend([0x80 | len, 0, 0, 0, 0]),
    }
    frame.extend(payload);
    frame
}

/// The position in the frames of one direction.
#[derive(Debug, Default)]
pub(super) struct FrameTracker {
    /// The bytes of a header that is not complete.
    header: Vec<u8>,
    /// The bytes of the payload that are missing.
    payload_left: u64,
    has_closed: bool,
}

impl FrameTracker {
    /// Follows the next bytes.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.payload_left > 0 {
                let len = bytes.len() as u64;
                let skipped = len.min(self.payload_left);
                self.payload_left -= skipped;
                bytes = &bytes[usize::try_from(skipped).unwrap_or(bytes.len())..];
                continue;
            }
            self.header.push(bytes[0]);
            bytes = &bytes[1..];
            if let Some(payload) = payload_len(&self.header) {
                self.has_closed |= self.header[0] & 0x0f == CLOSE;
                self.payload_left = payload;
                self.header.clear();
            }
        }
    }

    /// Whether another frame could begin here.
    pub(super) fn is_between_frames(&self) -> bool {
        self.header.is_empty() && self.payload_left == 0
    }

    /// Whether a close frame was sent.
    pub(super) fn has_closed(&self) -> bool {
        self.has_closed
    }
}

/// The length of the payload, if the header is complete.
fn payload_len(header: &[u8]) -> Option<u64> {
    let second = *header.get(1)?;
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    let (extended, len) = match second & 0x7f {
        126 => (2, 0),
        127 => (8, 0),
        len => (0, u64::from(len)),
    };
    if header.len() < 2 + extended + mask {
        return None;
    }
    if extended == 0 {
        return Some(len);
    }
    let bytes = &header[2..2 + extended];
    Some(
        bytes
            .iter()
            .fold(0, |len, byte| len << 8 | u64::from(*byte)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(opcode: u8, len: usize, masked: bool) -> Vec<u8> {
        let mask = if masked { 0x80 } else { 0 };
        let mut frame = vec![0x80 | opcode];
        match len {
            0..126 => frame.push(mask | len as u8),
            126..65536 => {
                frame.push(mask | 126);
                frame.extend((len as u16).to_be_bytes());
            }
            _ => {
                frame.push(mask | 127);
                frame.extend((len as u64).to_be_bytes());
            }
        }
        frame.extend(std::iter::repeat_n(7, len + if masked { 4 } else { 0 }));
        frame
    }

    #[test]
    fn the_end_of_each_frame_is_found_however_it_is_split() {
        for masked in [false, true] {
            let frames = [0, 1, 125, 126, 1000, 70_000].map(|len| frame(1, len, masked));
            let bytes = frames.concat();
            let mut ends = Vec::new();
            let mut end = 0;
            for frame in &frames {
                end += frame.len();
                ends.push(end);
            }
            let mut tracker = FrameTracker::default();
            for (index, byte) in bytes.iter().enumerate() {
                tracker.follow(&[*byte]);
                assert_eq!(tracker.is_between_frames(), ends.contains(&(index + 1)));
            }
            let mut whole = FrameTracker::default();
            whole.follow(&bytes);
            assert!(whole.is_between_frames() && !whole.has_closed());
        }
    }

    #[test]
    fn close_frames_are_seen() {
        for sender in [Sender::Client, Sender::Server] {
            let mut tracker = FrameTracker::default();
            tracker.follow(&close_frame(CloseCode::BackendLost, sender));
            assert!(tracker.has_closed() && tracker.is_between_frames());
        }
    }
}
