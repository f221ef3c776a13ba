//! Why a call of a director to the API failed.

use tidegate_core::director_api::{CallErrorBody, CallErrorCode};
use tidegate_net::{Url, host_of};

/// How much of an error message is shown.
const MAX_MESSAGE: usize = 300;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// There was no reply.
    #[error("the API cannot be reached")]
    Unreachable(#[source] tidegate_net::Error),
    /// The process cannot handle the call now.
    #[error("the API at `{host}` responded with status {status}: {message}")]
    Unavailable {
        /// The process.
        host: String,
        /// The status of its response.
        status: u16,
        /// The beginning of its response.
        message: String,
    },
    /// The process can be reached, and its store does not answer.
    #[error("the API at `{host}` cannot use its store: {message}")]
    StoreUnavailable {
        /// The process.
        host: String,
        /// What it says about the store.
        message: String,
    },
    /// The directors' token is wrong.
    #[error(
        "the API at `{host}` does not accept the directors' token; give the same token to `tidegate api` and `tidegate director`"
    )]
    Unauthorized {
        /// The process.
        host: String,
    },
    /// The URL is not that of an API process.
    #[error("`{host}` does not accept directors; check that --api is the URL of `tidegate api`")]
    NotAnApi {
        /// The host of the URL.
        host: String,
    },
    /// The API stores no output files.
    #[error("the API at `{host}` stores no files")]
    NoFileStore {
        /// The process.
        host: String,
    },
    /// The call is not accepted, now or later.
    #[error("the API at `{host}` refused the call with status {status}: {message}")]
    Refused {
        /// The process.
        host: String,
        /// The status of its response.
        status: u16,
        /// The beginning of its response.
        message: String,
    },
    /// The response is not the expected JSON.
    #[error("the response of the API at `{host}` cannot be read")]
    Malformed {
        /// The process.
        host: String,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// A file cannot be read from or written to the disk of this machine, or is larger than its limit.
    #[error("the file cannot be transferred")]
    Unstorable(#[source] tidegate_net::Error),
    /// The call cannot be written as JSON.
    #[error("the call cannot be written as JSON")]
    Unserializable(#[source] serde_json::Error),
}

impl ApiError {
    /// Whether a retry cannot succeed.
    pub fn is_permanent(&self) -> bool {
        matches!(
            self,
            Self::Refused { .. }
                | Self::NoFileStore { .. }
                | Self::Unstorable(_)
                | Self::Unserializable(_)
        )
    }
}

/// Whether a status means that there is no such file, or that the API stores no files.
pub(crate) fn is_unknown(status: u16) -> bool {
    matches!(status, 404 | 405)
}

/// The error of a file that could not be transferred.
pub(crate) fn transfer_error(base: &Url, error: tidegate_net::Error) -> ApiError {
    let refused = |status: u16, message: &str| ApiError::Refused {
        host: host_of(base),
        status,
        message: message.to_owned(),
    };
    match error {
        tidegate_net::Error::Status { status, .. } => match status.as_u16() {
            status if is_unknown(status) => ApiError::NoFileStore {
                host: host_of(base),
            },
            413 => refused(413, "the file is larger than its --max-file"),
            507 => refused(507, "it has no space left for files"),
            status => status_error(base, status, b""),
        },
        error @ (tidegate_net::Error::File { .. } | tidegate_net::Error::TooLarge { .. }) => {
            ApiError::Unstorable(error)
        }
        error => ApiError::Unreachable(error),
    }
}

/// The error that a response with this status stands for.
pub(crate) fn status_error(base: &Url, status: u16, body: &[u8]) -> ApiError {
    let host = host_of(base);
    // A proxy in front of the API sends other bodies.
    if let Ok(CallErrorBody {
        detail,
        code: Some(CallErrorCode::StoreUnavailable),
    }) = serde_json::from_slice(body)
    {
        let message = detail.chars().take(MAX_MESSAGE).collect();
        return ApiError::StoreUnavailable { host, message };
    }
    let message = String::from_utf8_lossy(body);
    let message = message.trim().chars().take(MAX_MESSAGE).collect();
    match status {
        401 => ApiError::Unauthorized { host },
        404 | 405 => ApiError::NotAnApi { host },
        408 | 425 | 429 | 500.. => ApiError::Unavailable {
            host,
            status,
            message,
        },
        _ => ApiError::Refused {
            host,
            status,
            message,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refused_calls_are_not_retried() {
        let base = Url::parse("http://api:5000").unwrap();
        let permanent: Vec<u16> = [400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 503]
            .into_iter()
            .filter(|status| status_error(&base, *status, b"").is_permanent())
            .collect();
        assert_eq!(permanent, [400, 403, 409, 413, 422]);
    }

    #[test]
    fn only_the_api_itself_reports_an_outage_of_its_store() {
        let base = Url::parse("http://api:5000").unwrap();
        let is_outage = |body: &[u8]| {
            let error = status_error(&base, 503, body);
            assert!(!error.is_permanent());
            matches!(error, ApiError::StoreUnavailable { .. })
        };
        assert!(is_outage(
            br#"{"detail": "x", "code": "store_unavailable"}"#
        ));
        for other in [
            &b""[..],
            b"<h1>503 Service Unavailable</h1>",
            br#"{"detail": "no server is available"}"#,
            br#"{"detail": "x", "code": "another_code"}"#,
        ] {
            assert!(!is_outage(other), "{}", String::from_utf8_lossy(other));
        }
    }
}
