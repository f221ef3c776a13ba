//! Follows a chunked body to its end without keeping any of it.
//!
//! hyper decodes the same bytes for the handler. The steps are as strict as hyper's or stricter, so
//! both agree on where the body ends; if they ever did not, nothing after the doubtful byte is handed on.

/// The most bytes of chunk extensions in one body.
const MAX_EXTENSIONS: u32 = 16 * 1024;
/// The most bytes of trailers.
const MAX_TRAILERS: u32 = 16 * 1024;

/// A place in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkedBody {
    step: Step,
    /// What is left of the chunk.
    left: u64,
    extensions: u32,
    trailers: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
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
    Over,
}

/// Where a walk came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkedProgress {
    /// All bytes belong to the body, and it goes on.
    Incomplete,
    /// The body ended after this many bytes.
    Complete(usize),
    /// This many bytes were right.
    Malformed(usize),
}

impl ChunkedBody {
    pub(super) fn new() -> Self {
        Self {
            step: Step::Start,
            left: 0,
            extensions: 0,
            trailers: 0,
        }
    }

    pub(super) fn walk(&mut self, bytes: &[u8]) -> ChunkedProgress {
        let mut at = 0;
        while at < bytes.len() {
            if self.step == Step::Data {
                let here = (bytes.len() - at).min(usize::try_from(self.left).unwrap_or(usize::MAX));
                at += here;
                self.left -= here as u64;
                if self.left == 0 {
                    self.step = Step::DataCr;
                }
                continue;
            }
            let Some(next) = self.after(bytes[at]) else {
                return ChunkedProgress::Malformed(at);
            };
            self.step = next;
            at += 1;
            if next == Step::Over {
                return ChunkedProgress::Complete(at);
            }
        }
        ChunkedProgress::Incomplete
    }

    fn after(&mut self, byte: u8) -> Option<Step> {
        match (self.step, byte) {
            (Step::Start | Step::Size, byte) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16)?;
                self.left = self.left.checked_mul(16)?.checked_add(digit.into())?;
                Some(Step::Size)
            }
            (Step::Size | Step::SizeSpace, b'\t' | b' ') => Some(Step::SizeSpace),
            (Step::Size | Step::SizeSpace, b';') => Some(Step::Extension),
            (Step::Size | Step::SizeSpace | Step::Extension, b'\r') => Some(Step::SizeLf),
            (Step::Extension, byte) if byte != b'\n' => {
                self.extensions += 1;
                (self.extensions < MAX_EXTENSIONS).then_some(Step::Extension)
            }
            (Step::SizeLf, b'\n') if self.left == 0 => Some(Step::LineStart),
            (Step::SizeLf, b'\n') => Some(Step::Data),
            (Step::DataCr, b'\r') => Some(Step::DataLf),
            (Step::DataLf, b'\n') => Some(Step::Start),
            (Step::LineStart, b'\r') => Some(Step::EndLf),
            (Step::Trailer, b'\r') => Some(Step::TrailerLf),
            (Step::LineStart | Step::Trailer, byte) if byte != b'\n' => {
                self.trailers += 1;
                (self.trailers < MAX_TRAILERS).then_some(Step::Trailer)
            }
            (Step::TrailerLf, b'\n') => Some(Step::LineStart),
            (Step::EndLf, b'\n') => Some(Step::Over),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(bytes: &[u8]) -> ChunkedProgress {
        ChunkedBody::new().walk(bytes)
    }

    #[test]
    fn a_body_ends_after_its_last_chunk_and_trailers() {
        assert_eq!(walk(b"0\r\n\r\nGET /"), ChunkedProgress::Complete(5));
        assert_eq!(
            walk(b"3\r\nabc\r\n0\r\n\r\n"),
            ChunkedProgress::Complete(13)
        );
        let odd = b"00a \t; name=\"v\"\r\n0\r\n\r\n01234\r\n0\r\na: b\r\nc: d\r\n\r\nrest";
        assert_eq!(walk(odd), ChunkedProgress::Complete(odd.len() - 4));
        assert_eq!(walk(b"3\r\nab"), ChunkedProgress::Incomplete);
    }

    #[test]
    fn a_doubtful_byte_is_the_last_one() {
        for (bad, right) in [
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
            let walked = walk(bad);
            if right == bad.len() {
                assert_eq!(walked, ChunkedProgress::Incomplete, "{bad:?}");
            } else {
                assert_eq!(walked, ChunkedProgress::Malformed(right), "{bad:?}");
            }
        }
        let long = [&b"3;"[..], &vec![b'x'; 20_000]].concat();
        assert_eq!(
            walk(&long),
            ChunkedProgress::Malformed(1 + MAX_EXTENSIONS as usize)
        );
    }
}
