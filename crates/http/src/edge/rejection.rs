//! Responses to requests that cannot be read: they are written by the edge, before any API sees the
//! request.

use std::time::Duration;

use crate::request_metrics::RejectReason;
use crate::shared::json_object::JsonObjectWriter;

/// Why the edge reads no more requests from a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Rejection {
    #[error("the request has both `content-length` and `transfer-encoding`; send one of them")]
    LengthAndTransferEncoding,
    #[error("the request has more than one `content-length`; send one")]
    DuplicateContentLength,
    #[error("`content-length` is not a number of bytes")]
    InvalidContentLength,
    #[error("unsupported `transfer-encoding`; only `chunked` is supported")]
    UnsupportedTransferEncoding,
    #[error("HTTP/1.0 does not support `transfer-encoding`; send `content-length`")]
    TransferEncodingInHttp10,
    #[error("malformed request: {0}")]
    Malformed(&'static str),
    #[error("the request headers are larger than {} KiB in total", super::request_head::MAX_HEAD / 1024)]
    HeadTooLarge,
    #[error(
        "the request has more than {} headers",
        super::request_head::MAX_HEADERS
    )]
    TooManyHeaders,
    #[error("the request target is longer than {} KiB", super::request_head::MAX_TARGET / 1024)]
    TargetTooLong,
    #[error("the request headers did not arrive within {limit:?}{}", flag.map(|flag| format!("; the operator can raise it with `{flag}`")).unwrap_or_default())]
    HeadTimeout {
        limit: Duration,
        /// The flag that sets the limit.
        flag: Option<&'static str>,
    },
    #[error("received a TLS handshake on a plain HTTP port; use http:// instead of https://")]
    TlsOnPlainPort,
    #[error("received plain HTTP on a TLS port; use https:// instead of http://")]
    PlainOnTlsPort,
}

impl Rejection {
    /// The status line and the reason under which it is counted.
    fn status_and_reason(self) -> (&'static str, RejectReason) {
        match self {
            Self::LengthAndTransferEncoding
            | Self::DuplicateContentLength
            | Self::InvalidContentLength
            | Self::UnsupportedTransferEncoding
            | Self::TransferEncodingInHttp10
            | Self::Malformed(_) => ("400 Bad Request", RejectReason::BadFraming),
            Self::TlsOnPlainPort | Self::PlainOnTlsPort => {
                ("400 Bad Request", RejectReason::WrongProtocol)
            }
            Self::HeadTimeout { .. } => ("408 Request Timeout", RejectReason::HeadTooSlow),
            Self::TargetTooLong => ("414 URI Too Long", RejectReason::HeadTooLarge),
            Self::HeadTooLarge | Self::TooManyHeaders => (
                "431 Request Header Fields Too Large",
                RejectReason::HeadTooLarge,
            ),
        }
    }

    pub(super) fn reason(self) -> RejectReason {
        self.status_and_reason().1
    }

    /// The complete response. The connection is closed after it, because it is unknown where the
    /// next request would begin.
    pub(super) fn response(self) -> Vec<u8> {
        let error = self.to_string();
        let body = JsonObjectWriter::with_capacity(error.len())
            .field("error", &error)
            .finish();
        let head = format!(
            "HTTP/1.1 {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            self.status_and_reason().0,
            body.len()
        );
        [head.as_bytes(), &body].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_complete_and_closes_the_connection() {
        let response = String::from_utf8(Rejection::DuplicateContentLength.response()).unwrap();
        assert_eq!(
            response,
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: 68\r\nconnection: close\r\n\r\n\
             {\"error\":\"the request has more than one `content-length`; send one\"}"
        );
    }
}
