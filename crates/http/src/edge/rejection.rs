//! What a connection is told that no request can be read from: the answers that are given before any
//! face is asked, and the one way in which they are written.

use std::time::Duration;

use crate::request_metrics::RejectReason;
use crate::shared::json_object::JsonObjectWriter;

/// Why a connection cannot be read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Rejection {
    #[error("the request has both `content-length` and `transfer-encoding`; send one of them")]
    LengthAndCoding,
    #[error("the request has more than one `content-length`; send one")]
    TwoLengths,
    #[error("the `content-length` is not a number of bytes")]
    BadLength,
    #[error("the `transfer-encoding` is not exactly `chunked`, the only one that is read here")]
    BadCoding,
    #[error("HTTP/1.0 has no `transfer-encoding`; send a `content-length`")]
    CodingInOldVersion,
    #[error("the request cannot be read: {0}")]
    Unreadable(&'static str),
    #[error("the request's headers are larger than {} KiB together", super::request_head::MAX_HEAD / 1024)]
    HeadTooLarge,
    #[error(
        "the request has more than {} headers",
        super::request_head::MAX_HEADERS
    )]
    TooManyHeaders,
    #[error("the request's target is longer than {} KiB", super::request_head::MAX_TARGET / 1024)]
    TargetTooLong,
    #[error("the request's headers did not come within {0:?}")]
    TooSlow(Duration),
    #[error("this is TLS, but this port speaks plain HTTP; call http:// instead of https://")]
    TlsOnPlainPort,
    #[error("this is plain HTTP, but this port speaks TLS; call https:// instead of http://")]
    PlainOnTlsPort,
}

impl Rejection {
    /// The status that it is told with, and what it is counted as.
    fn kind(self) -> (&'static str, RejectReason) {
        match self {
            Self::LengthAndCoding
            | Self::TwoLengths
            | Self::BadLength
            | Self::BadCoding
            | Self::CodingInOldVersion
            | Self::Unreadable(_) => ("400 Bad Request", RejectReason::BadFraming),
            Self::TlsOnPlainPort | Self::PlainOnTlsPort => {
                ("400 Bad Request", RejectReason::WrongProtocol)
            }
            Self::TooSlow(_) => ("408 Request Timeout", RejectReason::HeadTooSlow),
            Self::TargetTooLong => ("414 URI Too Long", RejectReason::HeadTooLarge),
            Self::HeadTooLarge | Self::TooManyHeaders => (
                "431 Request Header Fields Too Large",
                RejectReason::HeadTooLarge,
            ),
        }
    }

    pub(super) fn reason(self) -> RejectReason {
        self.kind().1
    }

    /// The whole answer; the connection is closed after it, because nobody knows where the next
    /// request would begin.
    pub(super) fn answer(self) -> Vec<u8> {
        let error = self.to_string();
        let body = JsonObjectWriter::with_capacity(error.len())
            .field("error", &error)
            .finish();
        let head = format!(
            "HTTP/1.1 {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            self.kind().0,
            body.len()
        );
        [head.as_bytes(), &body].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_and_says_that_it_is_the_last() {
        let answer = String::from_utf8(Rejection::TwoLengths.answer()).unwrap();
        assert_eq!(
            answer,
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: 68\r\nconnection: close\r\n\r\n\
             {\"error\":\"the request has more than one `content-length`; send one\"}"
        );
    }
}
