//! Reading a request's body: bounded, and never silently ignored.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::request_metrics::RejectReason;

/// What a body may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyLimit {
    /// So many bytes.
    pub(crate) max_bytes: usize,
    /// The longest that it may make no progress.
    pub(crate) stall_timeout: Duration,
}

/// The body cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the body is larger than the {limit} bytes that are allowed")]
    TooLarge { limit: usize },
    #[error("nothing of the body came for {0:?}")]
    Stalled(Duration),
    #[error("the body did not come to its end: {0}")]
    Broken(String),
    #[error("the content type is `{0}`; send `content-type: application/json`")]
    NotJson(String),
    #[error("the body is packed as `{0}`; send it without `content-encoding`")]
    Packed(String),
    #[error("the body has no content type; send `content-type: application/json`")]
    NoContentType,
}

impl BodyError {
    /// The status that it is told with, and what it is counted as.
    fn kind(&self) -> (StatusCode, RejectReason) {
        match self {
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, RejectReason::BodyTooLarge),
            Self::Stalled(_) => (StatusCode::REQUEST_TIMEOUT, RejectReason::BodyTooSlow),
            Self::Broken(_) => (StatusCode::BAD_REQUEST, RejectReason::BodyBroken),
            Self::NotJson(_) | Self::Packed(_) | Self::NoContentType => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, RejectReason::WrongMedia)
            }
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.kind().0
    }

    pub(crate) fn reason(&self) -> RejectReason {
        self.kind().1
    }
}

/// The body of a request that should be JSON; empty when there is none.
pub(crate) async fn read_json_body(
    headers: &HeaderMap,
    body: Body,
    bounds: BodyLimit,
) -> Result<Bytes, BodyError> {
    let content_type = headers.get(CONTENT_TYPE);
    if let Some(other) = content_type.filter(|value| !is_json(value.as_bytes())) {
        return Err(BodyError::NotJson(
            String::from_utf8_lossy(other.as_bytes()).into_owned(),
        ));
    }
    if let Some(coding) = headers
        .get(CONTENT_ENCODING)
        .filter(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        return Err(BodyError::Packed(
            String::from_utf8_lossy(coding.as_bytes()).into_owned(),
        ));
    }
    // A body that says its length is refused before any of it is read.
    if body.size_hint().lower() > bounds.max_bytes as u64 {
        return Err(BodyError::TooLarge {
            limit: bounds.max_bytes,
        });
    }
    let bytes = read_body(body, bounds).await?;
    if content_type.is_none() && !bytes.is_empty() {
        return Err(BodyError::NoContentType);
    }
    Ok(bytes)
}

/// All of a body. Nobody holds a connection by sending it a byte at a time for ever.
pub(crate) async fn read_body(body: Body, bounds: BodyLimit) -> Result<Bytes, BodyError> {
    let BodyLimit {
        max_bytes: limit,
        stall_timeout: stall,
    } = bounds;
    let mut body = Limited::new(body, limit);
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    loop {
        let frame = tokio::time::timeout(stall, body.frame())
            .await
            .map_err(|_| BodyError::Stalled(stall))?;
        let data = match frame {
            None if all.is_empty() => return Ok(first),
            None => return Ok(all.freeze()),
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            Some(Err(error)) if error.is::<LengthLimitError>() => {
                return Err(BodyError::TooLarge { limit });
            }
            Some(Err(error)) => return Err(BodyError::Broken(error.to_string())),
        };
        // A small body comes in one piece, which is kept as it is.
        if first.is_empty() && all.is_empty() {
            first = data;
            continue;
        }
        if all.is_empty() {
            all.extend_from_slice(&std::mem::take(&mut first));
        }
        all.extend_from_slice(&data);
    }
}

/// A part of a body without copying it, unless it would hold on to much more than itself.
pub(crate) fn slice_or_copy(body: &Bytes, part: &str) -> Bytes {
    const SMALL: usize = 16 * 1024;
    if part.len() < SMALL.max(body.len() / 2) {
        Bytes::copy_from_slice(part.as_bytes())
    } else {
        body.slice_ref(part.as_bytes())
    }
}

fn is_json(content_type: &[u8]) -> bool {
    let essence = content_type
        .split(|byte| *byte == b';')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    let Some((kind, name)) = essence.split_at_checked(b"application/".len()) else {
        return false;
    };
    let named_json = name.eq_ignore_ascii_case(b"json")
        || name
            .len()
            .checked_sub(b"+json".len())
            .is_some_and(|rest| name[rest..].eq_ignore_ascii_case(b"+json"));
    kind.eq_ignore_ascii_case(b"application/") && named_json
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(
        pieces: &'static [&'static str],
    ) -> impl futures_util::Stream<Item = Result<&'static str, std::io::Error>> {
        futures_util::stream::iter(pieces.iter().map(|piece| Ok(*piece)))
    }

    #[tokio::test]
    async fn a_body_in_pieces_is_put_together() {
        let read = |parts, size| {
            read_body(
                Body::from_stream(pieces(parts)),
                BodyLimit {
                    max_bytes: size,
                    stall_timeout: Duration::from_secs(60),
                },
            )
        };
        assert_eq!(read(&[], 9).await, Ok(Bytes::new()));
        assert_eq!(read(&["one"], 9).await, Ok(Bytes::from("one")));
        assert_eq!(
            read(&["one", "", "two", "3"], 9).await,
            Ok(Bytes::from("onetwo3"))
        );
        assert_eq!(
            read(&["one", "two"], 5).await,
            Err(BodyError::TooLarge { limit: 5 })
        );
    }

    #[tokio::test]
    async fn a_body_that_stalls_is_given_up() {
        use futures_util::StreamExt;
        let stall = Duration::from_millis(20);
        let body = Body::from_stream(pieces(&["one"]).chain(futures_util::stream::pending()));
        assert_eq!(
            read_body(
                body,
                BodyLimit {
                    max_bytes: 9,
                    stall_timeout: stall
                }
            )
            .await,
            Err(BodyError::Stalled(stall))
        );
    }

    #[test]
    fn json_has_several_names() {
        for yes in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/problem+json",
        ] {
            assert!(is_json(yes.as_bytes()), "{yes}");
        }
        for no in [
            "",
            "text/plain",
            "application/jsonp",
            "application/x-www-form-urlencoded",
            "image/+json",
        ] {
            assert!(!is_json(no.as_bytes()), "{no}");
        }
    }
}
