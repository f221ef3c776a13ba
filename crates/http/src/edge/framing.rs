//! Where one request ends and the next begins, in a stream that comes in any pieces.
//!
//! ```text
//! Head ──▶ Length(n) ──▶ Head     Head ──▶ refused: nothing more is read
//! Head ──▶ Chunked   ──▶ Head     Chunked ──▶ broken: the handler is told, nothing more is read
//! ```

use super::chunked_body::{ChunkedBody, ChunkedProgress};
use super::rejection::Rejection;
use super::request_head::{self, BodyFraming, RequestHead};

/// Follows the requests of one connection.
#[derive(Debug)]
pub(super) struct Framing {
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// In a head, of which this many bytes have been searched for its end.
    Head {
        searched: usize,
    },
    /// In a body with this many bytes to come.
    Length(u64),
    Chunked(ChunkedBody),
    /// Nothing that comes now can be understood.
    Lost,
}

/// What is to be done with bytes that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Followed {
    /// This many may be handed on.
    pub(super) passed: usize,
    /// And the rest.
    pub(super) rest: Rest,
}

/// What the bytes that may not be handed on are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// Nothing, or the beginning of a head: to be given again with what follows it.
    Unfinished,
    /// A head that is refused.
    Refused(Rejection),
    /// A body that goes wrong here.
    Broken,
}

impl Framing {
    pub(super) fn new() -> Self {
        Self {
            place: Place::Head { searched: 0 },
        }
    }

    /// Whether a request has begun and not come to its end, or cannot be understood.
    pub(super) fn is_mid_request(&self) -> bool {
        !matches!(self.place, Place::Head { searched: 0 })
    }

    /// Whether the beginning of a head has come, and not its end.
    pub(super) fn is_mid_head(&self) -> bool {
        matches!(self.place, Place::Head { searched: 1.. })
    }

    /// Follows the next bytes. They begin with those that were left unfinished before.
    pub(super) fn follow(&mut self, bytes: &[u8]) -> Followed {
        let mut passed = 0;
        while passed < bytes.len() {
            let here = &bytes[passed..];
            match &mut self.place {
                Place::Head { searched } => match next_head(here, searched) {
                    Ok(RequestHead::Partial) => break,
                    Ok(RequestHead::Complete { len, body }) => {
                        passed += len;
                        self.place = Place::after_head(body);
                    }
                    Err(rejection) => return self.lost(passed, Rest::Refused(rejection)),
                },
                Place::Length(left) => {
                    let take = here.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    passed += take;
                    self.place = Place::after_head(BodyFraming::Length(*left - take as u64));
                }
                Place::Chunked(chunks) => match chunks.walk(here) {
                    ChunkedProgress::Incomplete => passed = bytes.len(),
                    ChunkedProgress::Complete(len) => {
                        passed += len;
                        self.place = Place::Head { searched: 0 };
                    }
                    ChunkedProgress::Malformed(len) => {
                        return self.lost(passed + len, Rest::Broken);
                    }
                },
                Place::Lost => {
                    return Followed {
                        passed,
                        rest: Rest::Broken,
                    };
                }
            }
        }
        Followed {
            passed,
            rest: Rest::Unfinished,
        }
    }

    fn lost(&mut self, passed: usize, rest: Rest) -> Followed {
        self.place = Place::Lost;
        Followed { passed, rest }
    }
}

impl Place {
    fn after_head(body: BodyFraming) -> Self {
        match body {
            BodyFraming::Length(0) => Self::Head { searched: 0 },
            BodyFraming::Length(left) => Self::Length(left),
            BodyFraming::Chunked => Self::Chunked(ChunkedBody::new()),
        }
    }
}

fn next_head(bytes: &[u8], searched: &mut usize) -> Result<RequestHead, Rejection> {
    // A head in one piece, which is what nearly all are, is read once.
    let known = std::mem::replace(searched, bytes.len());
    let worth_reading =
        known == 0 || request_head::may_end(bytes, known) || request_head::may_be_too_long(bytes);
    if worth_reading {
        request_head::read(bytes)
    } else {
        Ok(RequestHead::Partial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a connection's reader hands on, and how it ends.
    fn run(stream: &[u8], cuts: &[usize]) -> (Vec<u8>, Rest) {
        let mut framing = Framing::new();
        let (mut passed, mut held) = (Vec::new(), Vec::new());
        let mut from = 0;
        for to in cuts
            .iter()
            .map(|cut| cut % (stream.len() + 1))
            .chain([stream.len()])
        {
            if to <= from {
                continue;
            }
            held.extend_from_slice(&stream[from..to]);
            from = to;
            let followed = framing.follow(&held);
            passed.extend(held.drain(..followed.passed));
            if followed.rest != Rest::Unfinished {
                return (passed, followed.rest);
            }
        }
        (passed, Rest::Unfinished)
    }

    fn message() -> impl Strategy<Value = Vec<u8>> {
        let body = proptest::collection::vec(any::<u8>(), 0..40);
        let pieces = proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..20), 0..4);
        prop_oneof![
            Just(b"GET /health-check HTTP/1.1\r\nhost: x\r\n\r\n".to_vec()),
            Just(b"\r\n\nGET /a?b=%20c HTTP/1.0\nhost: x\n\n".to_vec()),
            body.prop_map(|body| {
                [
                    format!(
                        "POST /predictions HTTP/1.1\r\nContent-Length: {}\r\n\r\n",
                        body.len()
                    )
                    .as_bytes(),
                    &body,
                ]
                .concat()
            }),
            pieces.prop_map(|pieces| {
                let mut out =
                    b"PUT /predictions/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
                for piece in pieces {
                    out.extend_from_slice(format!("{:x};e=1\r\n", piece.len()).as_bytes());
                    out.extend_from_slice(&piece);
                    out.extend_from_slice(b"\r\n");
                }
                out.extend_from_slice(b"0\r\nt: 1\r\n\r\n");
                out
            }),
        ]
    }

    fn bad() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            Just(&b"POST / HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\n\r\n"[..]),
            Just(&b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\n\r\n"[..]),
            Just(&b"POST / HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcdefGET /evil HTTP/1.1\r\n\r\n"[..]),
            Just(&b"POST / HTTP/1.1\r\nfolded: a\r\n b\r\n\r\nGET /evil HTTP/1.1\r\n\r\n"[..]),
            Just(&b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\nGET /evil HTTP/1.1\r\n\r\n"[..]),
            Just(&b"\x16\x03\x01\n\n"[..]),
        ]
        .prop_map(<[u8]>::to_vec)
    }

    proptest! {
        #[test]
        fn good_requests_pass_whole_however_they_come(
            messages in proptest::collection::vec(message(), 1..5),
            mut cuts in proptest::collection::vec(any::<usize>(), 0..30),
        ) {
            let stream = messages.concat();
            cuts.iter_mut().for_each(|cut| *cut %= stream.len());
            cuts.sort_unstable();
            prop_assert_eq!(run(&stream, &cuts), (stream, Rest::Unfinished));
        }

        #[test]
        fn a_bad_request_ends_the_stream_at_the_same_byte_however_it_comes(
            messages in proptest::collection::vec(message(), 0..4),
            bad in bad(),
            mut cuts in proptest::collection::vec(any::<usize>(), 0..30),
        ) {
            let good = messages.concat();
            let stream = [good.clone(), bad].concat();
            cuts.iter_mut().for_each(|cut| *cut %= stream.len());
            cuts.sort_unstable();
            let (passed, rest) = run(&stream, &cuts);
            let (passed_at_once, rest_at_once) = run(&stream, &[]);
            prop_assert_ne!(rest, Rest::Unfinished);
            prop_assert_eq!(rest, rest_at_once);
            prop_assert_eq!(&passed, &passed_at_once);
            prop_assert!(passed.starts_with(&good));
            prop_assert!(!String::from_utf8_lossy(&passed).contains("evil"));
        }

        #[test]
        fn no_bytes_break_it(stream in proptest::collection::vec(any::<u8>(), 0..300), cut in any::<usize>()) {
            let (passed, _) = run(&stream, &[cut]);
            prop_assert!(stream.starts_with(&passed));
        }
    }

    #[test]
    fn a_head_that_comes_byte_by_byte_is_bounded() {
        let cuts: Vec<usize> = (0..100_000).collect();
        let endless = [&b"GET / HTTP/1.1\r\na: "[..], &vec![b'x'; 100_000]].concat();
        assert_eq!(
            run(&endless, &cuts),
            (vec![], Rest::Refused(Rejection::HeadTooLarge))
        );
        let target = [&b"GET /"[..], &vec![b'x'; 100_000]].concat();
        assert_eq!(
            run(&target, &cuts),
            (vec![], Rest::Refused(Rejection::TargetTooLong))
        );
        let lines = vec![b'\n'; 100_000];
        assert!(
            matches!(run(&lines, &cuts), (passed, Rest::Refused(Rejection::Unreadable(_))) if passed.is_empty())
        );
    }

    #[test]
    fn nothing_is_read_after_doubt() {
        let mut framing = Framing::new();
        assert!(matches!(framing.follow(b"\0").rest, Rest::Refused(_)));
        assert_eq!(
            framing.follow(b"GET / HTTP/1.1\r\n\r\n"),
            Followed {
                passed: 0,
                rest: Rest::Broken
            }
        );
    }
}
