//! The head of a request: where it ends, how the body is framed, and whether that is unambiguous.
//!
//! hyper parses the head again for the handlers. It is parsed here first because hyper rejects a
//! bad head without a message, and accepts some heads that two servers in a row can read
//! differently: a length together with a transfer encoding, or the same length twice.

use std::mem::MaybeUninit;

use axum::http::Uri;

use super::rejection::Rejection;

/// The largest head, in bytes.
pub(super) const MAX_HEAD: usize = 64 * 1024;
/// The most headers in one request.
pub(super) const MAX_HEADERS: usize = 100;
/// The longest request target, in bytes.
pub(super) const MAX_TARGET: usize = 16 * 1024;
/// The longest method, in bytes; the longest registered one has 17.
const MAX_METHOD: usize = 64;

/// The most line-break bytes before a head. Some old clients send a line break after a body.
const MAX_LEADING_BREAKS: usize = 16;

/// How a request's body is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFraming {
    Length(u64),
    Chunked,
}

/// The head at the beginning of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestHead {
    /// The end of the head has not arrived.
    Partial,
    /// A complete head of `len` bytes.
    Complete { len: usize, body: BodyFraming },
}

/// Parses a head.
pub(super) fn parse(bytes: &[u8]) -> Result<RequestHead, Rejection> {
    let breaks = bytes
        .iter()
        .take_while(|byte| matches!(byte, b'\r' | b'\n'))
        .count();
    if breaks > MAX_LEADING_BREAKS {
        return Err(Rejection::Malformed("it starts with empty lines"));
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
            body: body_framing(&request)?,
        }),
        Ok(httparse::Status::Partial) if request.path.is_none() => partial_line(&bytes[breaks..]),
        Ok(httparse::Status::Partial) if bytes.len() > MAX_HEAD => Err(Rejection::HeadTooLarge),
        Ok(httparse::Status::Partial) => Ok(RequestHead::Partial),
        Err(error) => Err(parse_rejection(bytes, error)),
    }
}

/// Whether the bytes after the first `searched` can end a head. This check is cheaper than parsing
/// the whole head again for each packet of a slow client.
pub(super) fn may_end(bytes: &[u8], searched: usize) -> bool {
    let tail = &bytes[searched.saturating_sub(3).min(bytes.len())..];
    tail.windows(2).any(|pair| pair == b"\n\n") || tail.windows(3).any(|three| three == b"\n\r\n")
}

/// Whether an incomplete head may be too long, as a whole or in its first line.
pub(super) fn may_be_too_long(bytes: &[u8]) -> bool {
    bytes.len() > MAX_HEAD || (bytes.len() > MAX_TARGET && !bytes[..MAX_TARGET].contains(&b'\n'))
}

/// Checks a request line whose end has not arrived.
fn partial_line(line: &[u8]) -> Result<RequestHead, Rejection> {
    let method = line
        .iter()
        .take(MAX_METHOD + 1)
        .position(|byte| *byte == b' ');
    match method {
        None if line.len() > MAX_METHOD => Err(Rejection::Malformed("its method is too long")),
        Some(method) if line.len() > method + 1 + MAX_TARGET + b" HTTP/1.1".len() => {
            Err(Rejection::TargetTooLong)
        }
        None | Some(_) => Ok(RequestHead::Partial),
    }
}

fn body_framing(request: &httparse::Request<'_, '_>) -> Result<BodyFraming, Rejection> {
    if request
        .method
        .is_none_or(|method| method.len() > MAX_METHOD)
    {
        return Err(Rejection::Malformed("its method is too long"));
    }
    if !request.path.is_some_and(is_target) {
        return Err(Rejection::Malformed("its target is not a valid URI"));
    }
    let (mut length, mut chunked) = (None, false);
    for header in request.headers.iter() {
        match header.name.len() {
            14 if header.name.eq_ignore_ascii_case("content-length") => {
                let value = content_length(header.value).ok_or(Rejection::InvalidContentLength)?;
                if length.replace(value).is_some() {
                    return Err(Rejection::DuplicateContentLength);
                }
            }
            17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                if chunked || !header.value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Rejection::UnsupportedTransferEncoding);
                }
                chunked = true;
            }
            _ => {}
        }
    }
    match (length, chunked) {
        (Some(_), true) => Err(Rejection::LengthAndTransferEncoding),
        (None, true) if request.version == Some(0) => Err(Rejection::TransferEncodingInHttp10),
        (None, true) => Ok(BodyFraming::Chunked),
        (length, false) => Ok(BodyFraming::Length(length.unwrap_or(0))),
    }
}

/// Whether hyper can parse this target. Ordinary paths need no full parse.
fn is_target(target: &str) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-_.~%?&=+:,@".contains(byte);
    (target.starts_with('/') && target.as_bytes().iter().all(plain))
        || target.parse::<Uri>().is_ok()
}

/// Parses decimal digits and nothing else. hyper reserves the two largest numbers.
fn content_length(digits: &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for byte in digits {
        let digit = char::from(*byte).to_digit(10)?;
        value = value.checked_mul(10)?.checked_add(digit.into())?;
    }
    (!digits.is_empty() && value < u64::MAX - 1).then_some(value)
}

fn parse_rejection(bytes: &[u8], error: httparse::Error) -> Rejection {
    // The first bytes of a TLS handshake.
    if let [0x16, 0x03, ..] | [0x16] = bytes {
        return Rejection::TlsOnPlainPort;
    }
    Rejection::Malformed(match error {
        httparse::Error::TooManyHeaders => return Rejection::TooManyHeaders,
        httparse::Error::HeaderName => "a header name is not valid",
        httparse::Error::HeaderValue => "a header value is not valid",
        httparse::Error::NewLine => "a line does not end with CRLF",
        httparse::Error::Token => "its request line is not valid",
        httparse::Error::Version => "its version is not HTTP/1.1 or HTTP/1.0",
        httparse::Error::Status => "it starts with a status line",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(headers: &str) -> Result<BodyFraming, Rejection> {
        let text = format!("POST /predictions HTTP/1.1\r\nhost: x\r\n{headers}\r\n\r\n");
        match parse(text.as_bytes())? {
            RequestHead::Complete { len, body } => {
                assert_eq!(len, text.len());
                Ok(body)
            }
            RequestHead::Partial => panic!("{text:?} is complete"),
        }
    }

    #[test]
    fn ambiguous_framing_is_rejected() {
        assert_eq!(frame("accept: */*"), Ok(BodyFraming::Length(0)));
        assert_eq!(frame("Content-Length: 17"), Ok(BodyFraming::Length(17)));
        assert_eq!(
            frame("TRANSFER-ENCODING:  Chunked "),
            Ok(BodyFraming::Chunked)
        );
        assert_eq!(
            frame("content-length: 3\r\ntransfer-encoding: chunked"),
            Err(Rejection::LengthAndTransferEncoding)
        );
        assert_eq!(
            frame("transfer-encoding: chunked\r\ncontent-length: 3"),
            Err(Rejection::LengthAndTransferEncoding)
        );
        assert_eq!(
            frame("content-length: 3\r\ncontent-length: 4"),
            Err(Rejection::DuplicateContentLength)
        );
        assert_eq!(
            frame("content-length: 3\r\ncontent-length: 3"),
            Err(Rejection::DuplicateContentLength)
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
                Err(Rejection::InvalidContentLength),
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
                Err(Rejection::UnsupportedTransferEncoding),
                "{coding}"
            );
        }
        assert_eq!(
            parse(b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n"),
            Err(Rejection::TransferEncodingInHttp10)
        );
    }

    #[test]
    fn a_malformed_head_is_rejected_with_the_reason() {
        assert_eq!(
            parse(b"\x16\x03\x01\x02\x00\x01"),
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
                matches!(parse(bad), Err(Rejection::Malformed(_))),
                "{bad:?}: {:?}",
                parse(bad)
            );
        }
    }

    #[test]
    fn a_head_is_limited_in_size() {
        let with = |count: usize, value: usize| {
            let headers: String = (0..count)
                .map(|n| format!("h{n}: {}\r\n", "v".repeat(value)))
                .collect();
            parse(format!("GET / HTTP/1.1\r\n{headers}\r\n").as_bytes())
        };
        assert!(with(MAX_HEADERS, 1).is_ok());
        assert_eq!(with(MAX_HEADERS + 1, 1), Err(Rejection::TooManyHeaders));
        assert!(with(1, MAX_HEAD - 100).is_ok());
        assert_eq!(with(1, MAX_HEAD), Err(Rejection::HeadTooLarge));

        let target =
            |len: usize, end: &str| parse(format!("GET /{}{end}", "x".repeat(len - 1)).as_bytes());
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
