//! Finds the end of a chunked body without keeping any of it.
//!
//! hyper decodes the same bytes for the handler. The states are as strict as hyper's or stricter,
//! so both agree on where the body ends; if they ever disagreed, nothing after the invalid byte
//! would be passed on.

/// The most bytes of chunk extensions in one body.
const MAX_EXTENSIONS: u32 = 16 * 1024;
/// The most bytes of trailers.
const MAX_TRAILERS: u32 = 16 * 1024;

/// The position in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkedBody {
    state: ChunkState,
    /// How many bytes of the current chunk are missing.
    remaining: u64,
    extensions: u32,
    trailers: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    Start,
    Size,
    SizeSpace,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    LineStart,
    Trailer,
    TrailerLf,
    EndLf,
    End,
}

/// How far the body goes in a piece of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkedProgress {
    /// All bytes belong to the body, which continues.
    Incomplete,
    /// The body ends after this many bytes.
    Complete(usize),
    /// The body is malformed after this many valid bytes.
    Malformed(usize),
}

impl ChunkedBody {
    pub(super) fn new() -> Self {
        Self {
            state: ChunkState::Start,
            remaining: 0,
            extensions: 0,
            trailers: 0,
        }
    }

    pub(super) fn follow(&mut self, bytes: &[u8]) -> ChunkedProgress {
        let mut at = 0;
        while at < bytes.len() {
            if self.state == ChunkState::Data {
                let here =
                    (bytes.len() - at).min(usize::try_from(self.remaining).unwrap_or(usize::MAX));
                at += here;
                self.remaining -= here as u64;
                if self.remaining == 0 {
                    self.state = ChunkState::DataCr;
                }
                continue;
            }
            let Some(next) = self.next_state(bytes[at]) else {
                return ChunkedProgress::Malformed(at);
            };
            self.state = next;
            at += 1;
            if next == ChunkState::End {
                return ChunkedProgress::Complete(at);
            }
        }
        ChunkedProgress::Incomplete
    }

    fn next_state(&mut self, byte: u8) -> Option<ChunkState> {
        match (self.state, byte) {
            (ChunkState::Start | ChunkState::Size, byte) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16)?;
                self.remaining = self.remaining.checked_mul(16)?.checked_add(digit.into())?;
                Some(ChunkState::Size)
            }
            (ChunkState::Size | ChunkState::SizeSpace, b'\t' | b' ') => Some(ChunkState::SizeSpace),
            (ChunkState::Size | ChunkState::SizeSpace, b';') => Some(ChunkState::Extension),
            (ChunkState::Size | ChunkState::SizeSpace | ChunkState::Extension, b'\r') => {
                Some(ChunkState::SizeLf)
            }
            (ChunkState::Extension, byte) if byte != b'\n' => {
                self.extensions += 1;
                (self.extensions < MAX_EXTENSIONS).then_some(ChunkState::Extension)
            }
            (ChunkState::SizeLf, b'\n') if self.remaining == 0 => Some(ChunkState::LineStart),
            (ChunkState::SizeLf, b'\n') => Some(ChunkState::Data),
            (ChunkState::DataCr, b'\r') => Some(ChunkState::DataLf),
            (ChunkState::DataLf, b'\n') => Some(ChunkState::Start),
            (ChunkState::LineStart, b'\r') => Some(ChunkState::EndLf),
            (ChunkState::Trailer, b'\r') => Some(ChunkState::TrailerLf),
            (ChunkState::LineStart | ChunkState::Trailer, byte) if byte != b'\n' => {
                self.trailers += 1;
                (self.trailers < MAX_TRAILERS).then_some(ChunkState::Trailer)
            }
            (ChunkState::TrailerLf, b'\n') => Some(ChunkState::LineStart),
            (ChunkState::EndLf, b'\n') => Some(ChunkState::End),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(bytes: &[u8]) -> ChunkedProgress {
        ChunkedBody::new().follow(bytes)
    }

    #[test]
    fn a_body_ends_after_its_last_chunk_and_trailers() {
        assert_eq!(follow(b"0\r\n\r\nGET /"), ChunkedProgress::Complete(5));
        assert_eq!(
            follow(b"3\r\nabc\r\n0\r\n\r\n"),
            ChunkedProgress::Complete(13)
        );
        let odd = b"00a \t; name=\"v\"\r\n0\r\n\r\n01234\r\n0\r\na: b\r\nc: d\r\n\r\nrest";
        assert_eq!(follow(odd), ChunkedProgress::Complete(odd.len() - 4));
        assert_eq!(follow(b"3\r\nab"), ChunkedProgress::Incomplete);
    }

    #[test]
    fn nothing_after_an_invalid_byte_is_accepted() {
        for (bad, valid) in [
            (&b"\r\n"[..], 0),
            (b"x", 0),
            (b"-1\r\n", 0),
            (b"0x3\r\n", 1),
            (b"3 3\r\n", 2),
            (b"3\nabc", 1),
            (b"3\r\nabcd", 6),
            (b"3\r\nabc\n", 6),
            (b"3;a\nb\r\n", 3),
            (b"0\r\nX", 4),
            (b"0\r\na: b\n\r\n", 7),
            (b"0\r\n\rX", 4),
            (b"11111111111111111\r\n", 16),
        ] {
            let progress = follow(bad);
            if valid == bad.len() {
                assert_eq!(progress, ChunkedProgress::Incomplete, "{bad:?}");
            } else {
                assert_eq!(progress, ChunkedProgress::Malformed(valid), "{bad:?}");
            }
        }
        let long = [&b"3;"[..], &vec![b'x'; 20_000]].concat();
        assert_eq!(
            follow(&long),
            ChunkedProgress::Malformed(1 + MAX_EXTENSIONS as usize)
        );
    }
}
