//! One request's head: where it ends, how its body is framed, and whether that is beyond doubt.
//!
//! hyper reads the head again for the handlers. It is read here first because hyper answers a bad one
//! without a word, and takes some that two servers in a row can read differently: a length beside a
//! coding, or the same length twice.

use std::mem::MaybeUninit;

use axum::http::Uri;

use super::rejection::Rejection;

/// The largest head, in bytes.
pub(super) const MAX_HEAD: usize = 64 * 1024;
/// The most headers of one request.
pub(super) const MAX_HEADERS: usize = 100;
/// The longest target of a request, in bytes.
pub(super) const MAX_TARGET: usize = 16 * 1024;
/// The longest method, in bytes; the longest that is registered has 17.
const MAX_METHOD: usize = 64;

/// The most line breaks before a head, in bytes. Some old clients send one after a body.
const MAX_BREAKS: usize = 16;

/// How a request's body is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFraming {
    Length(u64),
    Chunked,
}

/// What stands at the beginning of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestHead {
    /// A head that has not come to its end.
    Partial,
    /// A head of this many bytes.
    Complete { len: usize, body: BodyFraming },
}

/// Reads a head.
pub(super) fn read(bytes: &[u8]) -> Result<RequestHead, Rejection> {
    let breaks = bytes
        .iter()
        .take_while(|byte| matches!(byte, b'\r' | b'\n'))
        .count();
    if breaks > MAX_BREAKS {
        return Err(Rejection::Unreadable("it begins with empty lines"));
    }
    let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut []);
    let parsed = request.parse_with_uninit_headers(bytes, &mut headers);
    if request.path.is_some_and(|target| target.len() > MAX_TARGET) {
        return Err(Rejection::TargetTooLong);
    }
    match parsed {
        Ok(httparse::Status::Complete(len)) if len > MAX_HEAD => Err(Rejection::HeadTooLarge),
        Ok(httparse::Status::Complete(len)) => Ok(RequestHead::Complete {
            len,
            body: judge(&request)?,
        }),
        Ok(httparse::Status::Partial) if request.path.is_none() => {
            unfinished_line(&bytes[breaks..])
        }
        Ok(httparse::Status::Partial) if bytes.len() > MAX_HEAD => Err(Rejection::HeadTooLarge),
        Ok(httparse::Status::Partial) => Ok(RequestHead::Partial),
        Err(error) => Err(unreadable(bytes, error)),
    }
}

/// Whether the bytes that follow the first `searched` can end a head. Looking for that is cheaper than
/// reading the whole head again for each packet of a slow one.
pub(super) fn may_end(bytes: &[u8], searched: usize) -> bool {
    let tail = &bytes[searched.saturating_sub(3).min(bytes.len())..];
    tail.windows(2).any(|pair| pair == b"\n\n") || tail.windows(3).any(|three| three == b"\n\r\n")
}

/// Whether an unfinished head may be beyond its bounds: too long as a whole, or in its first line.
pub(super) fn may_be_too_long(bytes: &[u8]) -> bool {
    bytes.len() > MAX_HEAD || (bytes.len() > MAX_TARGET && !bytes[..MAX_TARGET].contains(&b'\n'))
}

/// A request line that has not come to its end.
fn unfinished_line(line: &[u8]) -> Result<RequestHead, Rejection> {
    let method = line
        .iter()
        .take(MAX_METHOD + 1)
        .position(|byte| *byte == b' ');
    match method {
        None if line.len() > MAX_METHOD => Err(Rejection::Unreadable("its method is too long")),
        Some(method) if line.len() > method + 1 + MAX_TARGET + b" HTTP/1.1".len() => {
            Err(Rejection::TargetTooLong)
        }
        None | Some(_) => Ok(RequestHead::Partial),
    }
}

fn judge(request: &httparse::Request<'_, '_>) -> Result<BodyFraming, Rejection> {
    if request
        .method
        .is_none_or(|method| method.len() > MAX_METHOD)
    {
        return Err(Rejection::Unreadable("its method is too long"));
    }
    if !request.path.is_some_and(is_target) {
        return Err(Rejection::Unreadable("its target is not valid"));
    }
    let (mut length, mut chunked) = (None, false);
    for header in request.headers.iter() {
        match header.name.len() {
            14 if header.name.eq_ignore_ascii_case("content-length") => {
                let value = number(header.value).ok_or(Rejection::BadLength)?;
                if length.replace(value).is_some() {
                    return Err(Rejection::TwoLengths);
                }
            }
            17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                if chunked || !header.value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Rejection::BadCoding);
                }
                chunked = true;
            }
            _ => {}
        }
    }
    match (length, chunked) {
        (Some(_), true) => Err(Rejection::LengthAndCoding),
        (None, true) if request.version == Some(0) => Err(Rejection::CodingInOldVersion),
        (None, true) => Ok(BodyFraming::Chunked),
        (length, false) => Ok(BodyFraming::Length(length.unwrap_or(0))),
    }
}

/// Whether hyper can make an address of this. Ordinary paths are seen at a glance.
fn is_target(target: &str) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-_.~%?&=+:,@".contains(byte);
    (target.starts_with('/') && target.as_bytes().iter().all(plain))
        || target.parse::<Uri>().is_ok()
}

/// Digits and nothing else. hyper has another use for the two largest numbers.
fn number(text: &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for byte in text {
        let digit = char::from(*byte).to_digit(10)?;
        value = value.checked_mul(10)?.checked_add(digit.into())?;
    }
    (!text.is_empty() && value < u64::MAX - 1).then_some(value)
}

fn unreadable(bytes: &[u8], error: httparse::Error) -> Rejection {
    // The record of a TLS handshake.
    if let [0x16, 0x03, ..] | [0x16] = bytes {
        return Rejection::TlsOnPlainPort;
    }
    Rejection::Unreadable(match error {
        httparse::Error::TooManyHeaders => return Rejection::TooManyHeaders,
        httparse::Error::HeaderName => "the name of a header is not valid",
        httparse::Error::HeaderValue => "the value of a header is not valid",
        httparse::Error::NewLine => "a line does not end as it should",
        httparse::Error::Token => "its first line is not valid",
        httparse::Error::Version => "its version is not HTTP/1.1 or HTTP/1.0",
        httparse::Error::Status => "it is an answer",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(headers: &str) -> Result<BodyFraming, Rejection> {
        let text = format!("POST /predictions HTTP/1.1\r\nhost: x\r\n{headers}\r\n\r\n");
        match read(text.as_bytes())? {
            RequestHead::Complete { len, body } => {
                assert_eq!(len, text.len());
                Ok(body)
            }
            RequestHead::Partial => panic!("{text:?} is whole"),
        }
    }

    #[test]
    fn a_body_is_framed_in_one_way() {
        assert_eq!(frame("accept: */*"), Ok(BodyFraming::Length(0)));
        assert_eq!(frame("Content-Length: 17"), Ok(BodyFraming::Length(17)));
        assert_eq!(
            frame("TRANSFER-ENCODING:  Chunked "),
            Ok(BodyFraming::Chunked)
        );
        assert_eq!(
            frame("content-length: 3\r\ntransfer-encoding: chunked"),
            Err(Rejection::LengthAndCoding)
        );
        assert_eq!(
            frame("transfer-encoding: chunked\r\ncontent-length: 3"),
            Err(Rejection::LengthAndCoding)
        );
        assert_eq!(
            frame("content-length: 3\r\ncontent-length: 4"),
            Err(Rejection::TwoLengths)
        );
        assert_eq!(
            frame("content-length: 3\r\ncontent-length: 3"),
            Err(Rejection::TwoLengths)
        );
        for length in [
            "3, 3",
            "+3",
            "-1",
            "0x3",
            "",
            "3 3",
            "99999999999999999999",
            "18446744073709551615",
        ] {
            assert_eq!(
                frame(&format!("content-length: {length}")),
                Err(Rejection::BadLength),
                "{length}"
            );
        }
        for coding in [
            "gzip",
            "gzip, chunked",
            "chunked, chunked",
            "identity",
            "xchunked",
            "",
            "chunked\r\ntransfer-encoding: chunked",
        ] {
            assert_eq!(
                frame(&format!("transfer-encoding: {coding}")),
                Err(Rejection::BadCoding),
                "{coding}"
            );
        }
        assert_eq!(
            read(b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n"),
            Err(Rejection::CodingInOldVersion)
        );
    }

    #[test]
    fn a_head_that_cannot_be_read_says_why() {
        assert_eq!(
            read(b"\x16\x03\x01\x02\x00\x01"),
            Err(Rejection::TlsOnPlainPort)
        );
        for bad in [
            &b"GET / HTTP/1.1\r\nbad header: x\r\n\r\n"[..],
            b"GET / HTTP/1.1\r\na: b\r\n c: folded\r\n\r\n",
            b"GET / HTTP/1.1\r\na: b\0c\r\n\r\n",
            b"GET / HTTP/2.0\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET  / HTTP/1.1\r\n\r\n",
            b"GET x\\y HTTP/1.1\r\n\r\n",
            b"\0\0\0\0",
        ] {
            assert!(
                matches!(read(bad), Err(Rejection::Unreadable(_))),
                "{bad:?}: {:?}",
                read(bad)
            );
        }
    }

    #[test]
    fn a_head_has_bounds() {
        let with = |count: usize, value: usize| {
            let headers: String = (0..count)
                .map(|n| format!("h{n}: {}\r\n", "v".repeat(value)))
                .collect();
            read(format!("GET / HTTP/1.1\r\n{headers}\r\n").as_bytes())
        };
        assert!(with(MAX_HEADERS, 1).is_ok());
        assert_eq!(with(MAX_HEADERS + 1, 1), Err(Rejection::TooManyHeaders));
        assert!(with(1, MAX_HEAD - 100).is_ok());
        assert_eq!(with(1, MAX_HEAD), Err(Rejection::HeadTooLarge));

        let target =
            |len: usize, end: &str| read(format!("GET /{}{end}", "x".repeat(len - 1)).as_bytes());
        assert!(matches!(
            target(MAX_TARGET, " HTTP/1.1\r\n\r\n"),
            Ok(RequestHead::Complete { .. })
        ));
        assert_eq!(target(MAX_TARGET, ""), Ok(RequestHead::Partial));
        assert_eq!(
            target(MAX_TARGET + 1, " HTTP/1.1\r\n\r\n"),
            Err(Rejection::TargetTooLong)
        );
        assert_eq!(target(MAX_TARGET + 100, ""), Err(Rejection::TargetTooLong));
        assert_eq!(
            target(MAX_HEAD, " HTTP/1.1\r\n\r\n"),
            Err(Rejection::TargetTooLong)
        );
    }
}
