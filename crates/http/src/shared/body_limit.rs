//! Limits the size and the time of a request body while it is read. Every API reads its bodies
//! here; a body that is too large, too slow or of the wrong type is an error.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::request_metrics::RejectReason;

/// The most memory that is reserved for a body before it has arrived.
const MAX_RESERVED: usize = 16 * 1024 * 1024;

/// The limits of a request body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyLimit {
    /// The largest body, in bytes.
    pub(crate) max_bytes: usize,
    /// The flag that sets it, if there is one.
    pub(crate) max_bytes_flag: Option<&'static str>,
    /// How long the body may make no progress.
    pub(crate) stall_timeout: Duration,
    /// The flag that sets it, if there is one.
    pub(crate) stall_flag: Option<&'static str>,
}

impl BodyLimit {
    /// The limits of `--max-body` and `--body-timeout`.
    pub(crate) fn of_flags(max_body: usize, body_timeout: Duration) -> Self {
        Self {
            max_bytes: max_body,
            max_bytes_flag: Some("--max-body"),
            stall_timeout: body_timeout,
            stall_flag: Some("--body-timeout"),
        }
    }

    fn too_large(self) -> BodyError {
        BodyError::TooLarge {
            limit: self.max_bytes,
            flag: self.max_bytes_flag,
        }
    }
}

/// Why a request body was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the body is larger than the limit of {limit} bytes{}", raised_by(*.flag))]
    TooLarge {
        limit: usize,
        /// The flag that sets the limit.
        flag: Option<&'static str>,
    },
    #[error("the part `{part}` of the form is larger than the limit of {limit} bytes")]
    PartTooLarge { part: &'static str, limit: usize },
    #[error("no data of the body arrived for {after:?}{}", raised_by(*.flag))]
    Stalled {
        after: Duration,
        /// The flag that sets the limit.
        flag: Option<&'static str>,
    },
    #[error("the body is incomplete: {0}")]
    Broken(String),
    #[error("unsupported content type `{0}`; send `content-type: application/json`")]
    NotJson(String),
    #[error("unsupported content encoding `{0}`; send the body without `content-encoding`")]
    Encoded(String),
    #[error("the request has no content type; send `content-type: application/json`")]
    NoContentType,
}

/// The end of a message about a limit.
fn raised_by(flag: Option<&'static str>) -> String {
    flag.map(|flag| format!("; the operator can raise it with `{flag}`"))
        .unwrap_or_default()
}

impl BodyError {
    /// The response status and the reason under which the rejection is counted.
    fn status_and_reason(&self) -> (StatusCode, RejectReason) {
        match self {
            Self::TooLarge { .. } | Self::PartTooLarge { .. } => {
                (StatusCode::PAYLOAD_TOO_LARGE, RejectReason::BodyTooLarge)
            }
            Self::Stalled { .. } => (StatusCode::REQUEST_TIMEOUT, RejectReason::BodyTooSlow),
            Self::Broken(_) => (StatusCode::BAD_REQUEST, RejectReason::BodyBroken),
            Self::NotJson(_) | Self::Encoded(_) | Self::NoContentType => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                RejectReason::UnsupportedMediaType,
            ),
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status_and_reason().0
    }

    pub(crate) fn reason(&self) -> RejectReason {
        self.status_and_reason().1
    }
}

/// Reads the body of a request that must be JSON; empty when the request has none.
pub(crate) async fn read_json_body(
    headers: &HeaderMap,
    body: Body,
    limits: BodyLimit,
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
        return Err(BodyError::Encoded(
            String::from_utf8_lossy(coding.as_bytes()).into_owned(),
        ));
    }
    // A body with a declared length is rejected before any of it is read.
    if body.size_hint().lower() > limits.max_bytes as u64 {
        return Err(limits.too_large());
    }
    let bytes = read_body(body, limits).await?;
    if content_type.is_none() && !bytes.is_empty() {
        return Err(BodyError::NoContentType);
    }
    Ok(bytes)
}

/// Reads a whole body. A client cannot hold a connection by sending nothing for long.
pub(crate) async fn read_body(body: Body, limits: BodyLimit) -> Result<Bytes, BodyError> {
    // Memory that is reserved and not used costs nothing; a buffer that grows is copied again and again.
    let declared = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let reserved = declared.min(limits.max_bytes).min(MAX_RESERVED);
    let mut body = Limited::new(body, limits.max_bytes);
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    loop {
        let frame = tokio::time::timeout(limits.stall_timeout, body.frame())
            .await
            .map_err(|_| BodyError::Stalled {
                after: limits.stall_timeout,
                flag: limits.stall_flag,
            })?;
        let data = match frame {
            None if joined.is_empty() => return Ok(first),
            None => return Ok(joined.freeze()),
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            Some(Err(error)) if error.is::<LengthLimitError>() => {
                return Err(limits.too_large());
            }
            Some(Err(error)) => return Err(BodyError::Broken(error.to_string())),
        };
        // A small body arrives in one piece, which is used without copying.
        if first.is_empty() && joined.is_empty() {
            first = data;
            continue;
        }
        if joined.is_empty() {
            joined.reserve(reserved);
            joined.extend_from_slice(&std::mem::take(&mut first));
        }
        joined.extend_from_slice(&data);
    }
}

/// A part of a body, without copying it unless it would keep much more memory alive than it needs.
pub(crate) fn slice_or_copy(body: &Bytes, part: &str) -> Bytes {
    const SMALL: usize = 16 * 1024;
    if part.len() < SMALL.max(body.len() / 2) {
        Bytes::copy_from_slice(part.as_bytes())
    } else {
        body.slice_ref(part.as_bytes())
    }
}

pub(crate) fn is_json(content_type: &[u8]) -> bool {
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
    async fn the_pieces_of_a_body_are_joined() {
        let read = |parts, size| {
            read_body(
                Body::from_stream(pieces(parts)),
                BodyLimit::of_flags(size, Duration::from_secs(60)),
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
            Err(BodyError::TooLarge {
                limit: 5,
                flag: Some("--max-body")
            })
        );
    }

    #[tokio::test]
    async fn a_stalled_body_is_an_error() {
        use futures_util::StreamExt;
        let stall = Duration::from_millis(20);
        let body = Body::from_stream(pieces(&["one"]).chain(futures_util::stream::pending()));
        assert_eq!(
            read_body(body, BodyLimit::of_flags(9, stall)).await,
            Err(BodyError::Stalled {
                after: stall,
                flag: Some("--body-timeout")
            })
        );
    }

    #[test]
    fn errors_name_the_flag_that_raises_the_limit() {
        let limit = |flag| BodyError::TooLarge { limit: 5, flag }.to_string();
        assert_eq!(
            limit(Some("--max-body")),
            "the body is larger than the limit of 5 bytes; the operator can raise it with `--max-body`"
        );
        assert_eq!(limit(None), "the body is larger than the limit of 5 bytes");
    }

    #[test]
    fn json_content_types_are_recognized() {
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
