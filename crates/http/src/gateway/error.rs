//! Why the router does not forward a request, or has no answer for it, and how each API reports that.

use std::time::Duration;

use axum::http::StatusCode;
use tidegate_net::upstream::UpstreamError;
use tidegate_router::FullReason;
use tidegate_router::accounts::OverLimit;
use tidegate_router::body_scan::InvalidBody;
use tidegate_router::forward::{PlanError, RoutingError};

use super::request_body::RefusedRest;

/// The message of a router without capacity, as clients of Workers AI know it.
const NO_CAPACITY: &str = "Capacity temporarily exceeded, please try again.";

/// Why a request has no answer of a backend.
#[derive(Debug, thiserror::Error)]
pub(super) enum GatewayError {
    #[error("no token: send `Authorization: Bearer TOKEN` with the token of an account")]
    NoToken,
    #[error("unknown token: it belongs to no account of this router")]
    UnknownToken,
    #[error("the token belongs to another account than `{0}`, which the path names")]
    OtherAccount(String),
    #[error(
        "no model: set `model` in the body to one of the names in `GET /v1/models`, or send the header `x-tidegate-model`"
    )]
    NoModel,
    #[error("the model `{0}` does not exist; `GET /v1/models` lists the models of this router")]
    UnknownModel(String),
    #[error("{0}")]
    InvalidBody(String),
    #[error(
        "`model` is not among the first {limit} bytes of the body: send it first, or in the header `x-tidegate-model`"
    )]
    ModelTooLate { limit: usize },
    #[error("a compressed body cannot be read: send it without `Content-Encoding`")]
    CompressedBody,
    #[error("no byte of the body arrived for {0:?}")]
    SlowBody(Duration),
    #[error("the body of the request is not complete: {0}")]
    BrokenBody(String),
    #[error(transparent)]
    OverLimit(#[from] OverLimit),
    #[error(transparent)]
    Forward(#[from] RoutingError),
    #[error(
        "this router has no durable queue for `queueRequest`: start it with --data-dir or --postgres, or send the request without it"
    )]
    NoQueue,
    #[error("`queueRequest` is an option of `/ai/run/{{model}}` only")]
    QueueElsewhere,
    #[error("the connection cannot be upgraded to WebSocket")]
    NoUpgrade,
    #[error("the header x-tidegate-site-key is not the key of a site of this router")]
    UnknownSiteKey,
    #[error("the request has passed this site or too many sites: {0}")]
    Loop(String),
}

/// An error as an API renders it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ErrorReply {
    pub(super) status: StatusCode,
    /// The number of Workers AI.
    pub(super) number: u32,
    /// The type of OpenAI's errors.
    pub(super) kind: &'static str,
    /// The code of OpenAI's errors.
    pub(super) code: Option<&'static str>,
    /// The name of the parameter that is wrong.
    pub(super) param: Option<String>,
    pub(super) message: String,
    pub(super) retry_after: Option<Duration>,
    /// The sites that another router should try.
    pub(super) sites: Vec<String>,
}

impl GatewayError {
    /// An error of the scanner of bodies.
    pub(super) fn from_scan(error: InvalidBody) -> Self {
        Self::InvalidBody(error.to_string())
    }

    /// How clients see the error.
    pub(super) fn reply(&self) -> ErrorReply {
        let invalid = |status, number| ErrorReply::new(status, number, "invalid_request_error");
        let reply = match self {
            Self::NoToken | Self::UnknownToken => {
                invalid(StatusCode::UNAUTHORIZED, 10000).code("invalid_api_key")
            }
            Self::OtherAccount(_) | Self::UnknownSiteKey => invalid(StatusCode::FORBIDDEN, 10000),
            Self::NoModel => invalid(StatusCode::BAD_REQUEST, 5004).param("model"),
            Self::UnknownModel(_) => invalid(StatusCode::NOT_FOUND, 5007)
                .code("model_not_found")
                .param("model"),
            Self::InvalidBody(_) | Self::ModelTooLate { .. } | Self::BrokenBody(_) => {
                invalid(StatusCode::BAD_REQUEST, 5004)
            }
            Self::CompressedBody => invalid(StatusCode::UNSUPPORTED_MEDIA_TYPE, 5004),
            Self::SlowBody(_) => invalid(StatusCode::REQUEST_TIMEOUT, 3007),
            Self::OverLimit(over) => {
                ErrorReply::new(StatusCode::TOO_MANY_REQUESTS, 3036, "rate_limit_error")
                    .code("rate_limit_exceeded")
                    .retry_after(over.retry_after)
            }
            Self::NoUpgrade | Self::QueueElsewhere => invalid(StatusCode::BAD_REQUEST, 5004),
            Self::NoQueue => invalid(StatusCode::NOT_IMPLEMENTED, 5004).code("not_implemented"),
            Self::Loop(_) => ErrorReply::new(StatusCode::LOOP_DETECTED, 3048, "server_error"),
            Self::Forward(error) => return forward_reply(error),
        };
        reply.message(self.to_string())
    }
}

fn forward_reply(error: &RoutingError) -> ErrorReply {
    let server = |status, number| ErrorReply::new(status, number, "server_error");
    let no_capacity = |retry_after| {
        let status = StatusCode::TOO_MANY_REQUESTS;
        ErrorReply::new(status, 3040, "rate_limit_error")
            .code("capacity_exceeded")
            .message(NO_CAPACITY.to_owned())
            .retry_after(retry_after)
    };
    match error {
        RoutingError::Busy { retry_after } => no_capacity(*retry_after),
        RoutingError::SitesToTry { sites, retry_after } => ErrorReply {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            sites: sites.clone(),
            ..no_capacity(*retry_after)
        },
        RoutingError::Full(full) => match full.reason {
            FullReason::NoEndpoint => server(StatusCode::SERVICE_UNAVAILABLE, 3040)
                .code("no_healthy_endpoint")
                .message(full.reason.to_string())
                .retry_after(full.retry_after),
            FullReason::QueueFull
            | FullReason::WaitTimeout
            | FullReason::Memory
            | FullReason::Cleared => no_capacity(full.retry_after),
        },
        RoutingError::Plan(PlanError { message, param }) => {
            let reply = ErrorReply::new(StatusCode::BAD_REQUEST, 5004, "invalid_request_error");
            let reply = reply.message(message.clone());
            match param {
                Some(param) => reply.param(param),
                None => reply,
            }
        }
        RoutingError::Upstream(UpstreamError::RequestBody { source, .. }) => {
            let message = match RefusedRest::find(source.as_ref()) {
                Some(refused) => refused.to_string(),
                None => "the body of the request is not complete".to_owned(),
            };
            ErrorReply::new(StatusCode::BAD_REQUEST, 5004, "invalid_request_error").message(message)
        }
        RoutingError::Upstream(error) => server(StatusCode::BAD_GATEWAY, 3050)
            .code("upstream_error")
            .message(upstream_message(error).to_owned()),
        RoutingError::NoSite => server(StatusCode::SERVICE_UNAVAILABLE, 3040)
            .code("no_site")
            .message(error.to_string()),
        RoutingError::FirstByteTimeout { .. } => server(StatusCode::GATEWAY_TIMEOUT, 3007)
            .code("upstream_timeout")
            .message(error.to_string()),
        RoutingError::DeadlineExceeded => server(StatusCode::GATEWAY_TIMEOUT, 3007)
            .code("timeout")
            .message(error.to_string()),
        RoutingError::InvalidCall(_) => {
            server(StatusCode::INTERNAL_SERVER_ERROR, 3050).message(error.to_string())
        }
    }
}

/// What clients read about a backend that failed. Its address is for operators.
fn upstream_message(error: &UpstreamError) -> &'static str {
    match error {
        UpstreamError::Resolve { .. }
        | UpstreamError::Connect { .. }
        | UpstreamError::ConnectTimeout { .. }
        | UpstreamError::Tls { .. } => "no backend of the model could be reached",
        UpstreamError::ClosedBeforeResponse { .. } | UpstreamError::ResetInBody { .. } => {
            "the backend closed the connection before it answered"
        }
        UpstreamError::InvalidResponse { .. } => "the backend sent an invalid response",
        UpstreamError::RequestBody { .. } => "the body of the request is not complete",
    }
}

impl ErrorReply {
    fn new(status: StatusCode, number: u32, kind: &'static str) -> Self {
        Self {
            status,
            number,
            kind,
            code: None,
            param: None,
            message: String::new(),
            retry_after: None,
            sites: Vec::new(),
        }
    }

    /// The reply to a stream that was cut after its first byte.
    pub(super) fn cut(message: String) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, 3050, "server_error")
            .code("upstream_error")
            .message(message)
    }

    fn code(self, code: &'static str) -> Self {
        let code = Some(code);
        Self { code, ..self }
    }

    fn param(self, param: &str) -> Self {
        let param = Some(param.to_owned());
        Self { param, ..self }
    }

    fn message(self, message: String) -> Self {
        Self { message, ..self }
    }

    fn retry_after(self, wait: Duration) -> Self {
        let retry_after = Some(wait);
        Self {
            retry_after,
            ..self
        }
    }
}
