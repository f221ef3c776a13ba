//! Finds where one request ends and the next begins, in a stream that arrives in arbitrary pieces.
//!
//! ```text
//! Head ──▶ Length(n) ──▶ Head     Head ──▶ rejected: nothing more is read
//! Head ──▶ Chunked   ──▶ Head     Chunked ──▶ malformed: error to the handler, nothing more is read
//! ```

use super::chunked_body::{ChunkedBody, ChunkedProgress};
use super::rejection::Rejection;
use super::request_head::{self, BodyFraming, RequestHead};

/// Follows the requests of one connection.
#[derive(Debug)]
pub(super) struct Framing {
    state: FramingState,
}

#[derive(Debug)]
enum FramingState {
    /// In a head, of which this many bytes have been searched for its end.
    Head {
        searched: usize,
    },
    /// In a body of which this many bytes are missing.
    Length(u64),
    Chunked(ChunkedBody),
    /// The stream cannot be read any further.
    Failed,
}

/// The result for one piece of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FramingStep {
    /// How many bytes may be passed on.
    pub(super) accepted: usize,
    /// What follows the accepted bytes.
    pub(super) status: FramingStatus,
}

/// What the bytes after the accepted ones are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FramingStatus {
    /// Nothing, or the beginning of a head: to be passed in again together with the next bytes.
    NeedMore,
    /// A head that is rejected.
    Rejected(Rejection),
    /// A body that is malformed from here on.
    Malformed,
}

impl Framing {
    pub(super) fn new() -> Self {
        Self {
            state: FramingState::Head { searched: 0 },
        }
    }

    /// Whether a request has begun and not ended, or the stream has failed.
    pub(super) fn is_mid_request(&self) -> bool {
        !matches!(self.state, FramingState::Head { searched: 0 })
    }

    /// Whether the beginning of a head has arrived, and not its end.
    pub(super) fn is_mid_head(&self) -> bool {
        matches!(self.state, FramingState::Head { searched: 1.. })
    }

    /// Follows the next bytes. They begin with those that were not accepted before.
    pub(super) fn follow(&mut self, bytes: &[u8]) -> FramingStep {
        let mut accepted = 0;
        while accepted < bytes.len() {
            let here = &bytes[accepted..];
            match &mut self.state {
                FramingState::Head { searched } => match next_head(here, searched) {
                    Ok(RequestHead::Partial) => break,
                    Ok(RequestHead::Complete { len, body }) => {
                        accepted += len;
                        self.state = FramingState::after_head(body);
                    }
                    Err(rejection) => {
                        return self.fail(accepted, FramingStatus::Rejected(rejection));
                    }
                },
                FramingState::Length(remaining) => {
                    let take = here
                        .len()
                        .min(usize::try_from(*remaining).unwrap_or(usize::MAX));
                    accepted += take;
                    self.state =
                        FramingState::after_head(BodyFraming::Length(*remaining - take as u64));
                }
                FramingState::Chunked(chunks) => match chunks.follow(here) {
                    ChunkedProgress::Incomplete => accepted = bytes.len(),
                    ChunkedProgress::Complete(len) => {
                        accepted += len;
                        self.state = FramingState::Head { searched: 0 };
                    }
                    ChunkedProgress::Malformed(len) => {
                        return self.fail(accepted + len, FramingStatus::Malformed);
                    }
                },
                FramingState::Failed => {
                    return FramingStep {
                        accepted,
                        status: FramingStatus::Malformed,
                    };
                }
            }
        }
        FramingStep {
            accepted,
            status: FramingStatus::NeedMore,
        }
    }

    fn fail(&mut self, accepted: usize, status: FramingStatus) -> FramingStep {
        self.state = FramingState::Failed;
        FramingStep { accepted, status }
    }
}

impl FramingState {
    fn after_head(body: BodyFraming) -> Self {
        match body {
            BodyFraming::Length(0) => Self::Head { searched: 0 },
            BodyFraming::Length(remaining) => Self::Length(remaining),
            BodyFraming::Chunked => Self::Chunked(ChunkedBody::new()),
        }
    }
}

fn next_head(bytes: &[u8], searched: &mut usize) -> Result<RequestHead, Rejection> {
    // Nearly all heads arrive in one piece and are parsed once.
    let before = std::mem::replace(searched, bytes.len());
    let worth_parsing =
        before == 0 || request_head::may_end(bytes, before) || request_head::may_be_too_long(bytes);
    if worth_parsing {
        request_head::parse(bytes)
    } else {
        Ok(RequestHead::Partial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the reader of a connection passes on, and how it ends.
    fn run(stream: &[u8], cuts: &[usize]) -> (Vec<u8>, FramingStatus) {
        let mut framing = Framing::new();
        let (mut accepted, mut buffered) = (Vec::new(), Vec::new());
        let mut from = 0;
        for to in cuts
            .iter()
            .map(|cut| cut % (stream.len() + 1))
            .chain([stream.len()])
        {
            if to <= from {
                continue;
            }
            buffered.extend_from_slice(&stream[from..to]);
            from = to;
            let step = framing.follow(&buffered);
            accepted.extend(buffered.drain(..step.accepted));
            if step.status != FramingStatus::NeedMore {
                return (accepted, step.status);
            }
        }
        (accepted, FramingStatus::NeedMore)
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
            prop_assert_eq!(run(&stream, &cuts), (stream, FramingStatus::NeedMore));
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
            let (accepted, status) = run(&stream, &cuts);
            let (accepted_at_once, status_at_once) = run(&stream, &[]);
            prop_assert_ne!(status, FramingStatus::NeedMore);
            prop_assert_eq!(status, status_at_once);
            prop_assert_eq!(&accepted, &accepted_at_once);
            prop_assert!(accepted.starts_with(&good));
            prop_assert!(!String::from_utf8_lossy(&accepted).contains("evil"));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(stream in proptest::collection::vec(any::<u8>(), 0..300), cut in any::<usize>()) {
            let (accepted, _) = run(&stream, &[cut]);
            prop_assert!(stream.starts_with(&accepted));
        }
    }

    #[test]
    fn a_head_that_arrives_byte_by_byte_is_bounded() {
        let cuts: Vec<usize> = (0..100_000).collect();
        let endless = [&b"GET / HTTP/1.1\r\na: "[..], &vec![b'x'; 100_000]].concat();
        assert_eq!(
            run(&endless, &cuts),
            (vec![], FramingStatus::Rejected(Rejection::HeadTooLarge))
        );
        let target = [&b"GET /"[..], &vec![b'x'; 100_000]].concat();
        assert_eq!(
            run(&target, &cuts),
            (vec![], FramingStatus::Rejected(Rejection::TargetTooLong))
        );
        let lines = vec![b'\n'; 100_000];
        assert!(
            matches!(run(&lines, &cuts), (accepted, FramingStatus::Rejected(Rejection::Malformed(_))) if accepted.is_empty())
        );
    }

    #[test]
    fn nothing_is_read_after_a_failure() {
        let mut framing = Framing::new();
        assert!(matches!(
            framing.follow(b"\0").status,
            FramingStatus::Rejected(_)
        ));
        assert_eq!(
            framing.follow(b"GET / HTTP/1.1\r\n\r\n"),
            FramingStep {
                accepted: 0,
                status: FramingStatus::Malformed
            }
        );
    }
}
