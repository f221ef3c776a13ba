//! Why a request to a backend has no complete response.

use std::io;
use std::time::Duration;

use super::address::UpstreamAddress;
use super::request_body::BoxError;

/// A request to a backend failed. No variant says anything about the status of a response: a response
/// with any status is not an error here.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The host name has no address, or no name server answered.
    #[error("failed to resolve the host of `{address}`")]
    Resolve {
        /// The backend.
        address: UpstreamAddress,
        /// The cause.
        source: io::Error,
    },
    /// No address of the host accepted a connection.
    #[error("failed to connect to `{address}`")]
    Connect {
        /// The backend.
        address: UpstreamAddress,
        /// The cause, for the last address.
        source: io::Error,
    },
    /// The connection, with its TLS handshake, was not open in time.
    #[error("failed to connect to `{address}` within {limit:?}")]
    ConnectTimeout {
        /// The backend.
        address: UpstreamAddress,
        /// The limit.
        limit: Duration,
    },
    /// The TLS handshake failed, or no certificates to verify the backend are available.
    #[error("TLS handshake with `{address}` failed")]
    Tls {
        /// The backend.
        address: UpstreamAddress,
        /// The cause.
        source: io::Error,
    },
    /// The connection ended before the head of the response was complete.
    #[error("`{address}` closed the connection before it responded")]
    ClosedBeforeResponse {
        /// The backend.
        address: UpstreamAddress,
        /// The cause.
        source: BoxError,
    },
    /// The backend sent something that is not a response.
    #[error("`{address}` sent an invalid response")]
    InvalidResponse {
        /// The backend.
        address: UpstreamAddress,
        /// The cause.
        source: BoxError,
    },
    /// The connection ended inside the body of the response.
    #[error("the response of `{address}` ended before it was complete")]
    ResetInBody {
        /// The backend.
        address: UpstreamAddress,
        /// The cause.
        source: BoxError,
    },
    /// The body of the request failed while it was sent; the backend is not the cause.
    #[error("the body of the request to `{address}` failed")]
    RequestBody {
        /// The backend.
        address: UpstreamAddress,
        /// The cause.
        source: BoxError,
    },
}

impl UpstreamError {
    /// Whether the backend has certainly seen nothing of the request.
    pub fn is_before_request(&self) -> bool {
        match self {
            Self::Resolve { .. }
            | Self::Connect { .. }
            | Self::ConnectTimeout { .. }
            | Self::Tls { .. } => true,
            Self::ClosedBeforeResponse { .. }
            | Self::InvalidResponse { .. }
            | Self::ResetInBody { .. }
            | Self::RequestBody { .. } => false,
        }
    }

    /// Classifies an error of hyper before the head of a response.
    pub(super) fn before_response(address: &UpstreamAddress, error: hyper::Error) -> Self {
        let address = address.clone();
        if error.is_user() {
            Self::RequestBody {
                address,
                source: error.into(),
            }
        } else if error.is_parse() {
            Self::InvalidResponse {
                address,
                source: error.into(),
            }
        } else {
            Self::ClosedBeforeResponse {
                address,
                source: error.into(),
            }
        }
    }

    /// Classifies an error of hyper inside the body of a response.
    pub(super) fn in_body(address: &UpstreamAddress, error: hyper::Error) -> Self {
        let address = address.clone();
        let source = error.into();
        Self::ResetInBody { address, source }
    }
}
