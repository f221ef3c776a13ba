//! Errors in the format of the Workers AI API: every status code and error of this API is here.

use axum::http::StatusCode;
use axum::http::header::{HeaderValue, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use tidegate_core::Refusal;
use tidegate_core::model_interface::UnsupportedRequest;
use tidegate_core::text_generation::{TextError, TextErrorKind};

use super::wire::{Envelope, ErrorItem};
use crate::inference::{RefusalKind, RefusedRequest};
use crate::openai::error::OpenAiError;
use crate::request_metrics::RejectReason;
use crate::shared::body_limit::BodyError;
use crate::shared::parse_body::BodyParseError;
use crate::shared::response::json;

/// The code of a request that is not complete.
const INCOMPLETE: u32 = 3003;
const TOO_LARGE: u32 = 3006;
const TIMED_OUT: u32 = 3007;
const ABORTED: u32 = 3008;
/// The code of an account that is over its rate limit.
const ACCOUNT_LIMITED: u32 = 3036;
/// The code of a request without capacity. Clients may repeat it.
pub(crate) const OUT_OF_CAPACITY: u32 = 3040;
/// The code of a failure of the model or the server.
const INTERNAL: u32 = 3043;
/// The code of a request with an invalid input.
const INVALID_DATA: u32 = 5004;
const NO_SUCH_MODEL: u32 = 5007;
const NO_SUCH_PATH: u32 = 7000;
const NO_SUCH_METHOD: u32 = 7001;
const NO_SUCH_OBJECT: u32 = 7003;
/// The code of an account or token that is not valid here.
const AUTHENTICATION: u32 = 10000;
const NOT_CONFIGURED: u32 = 10001;

/// The message of [`OUT_OF_CAPACITY`]; clients compare it.
const CAPACITY_MESSAGE: &str = "Capacity temporarily exceeded, please try again.";

/// An error of the Workers AI API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkersAiError {
    pub(crate) status: StatusCode,
    pub(crate) code: u32,
    pub(crate) message: String,
    /// After how many seconds the request may succeed.
    pub(crate) retry_after: Option<u64>,
    /// Why the request was rejected before it reached a model, for the metrics.
    pub(crate) reject_reason: Option<RejectReason>,
}

impl WorkersAiError {
    pub(crate) fn new(status: StatusCode, code: u32, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            retry_after: None,
            reject_reason: None,
        }
    }

    /// 400: the input is not valid.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, INVALID_DATA, message)
    }

    /// 400: there is no such model.
    pub(crate) fn model_not_found(name: &str) -> Self {
        let name: String = name.chars().take(200).collect();
        let message = format!(
            "No such model {name} or task; GET /client/v4/accounts/ACCOUNT/ai/models/search lists the models"
        );
        Self::new(StatusCode::BAD_REQUEST, NO_SUCH_MODEL, message)
    }

    /// 404: there is no batch with this id.
    pub(crate) fn batch_not_found(id: &str) -> Self {
        let id: String = id.chars().take(200).collect();
        let message =
            format!("no batch `{id}` for this model; it does not exist, or it has expired");
        Self::new(StatusCode::NOT_FOUND, NO_SUCH_OBJECT, message)
    }

    /// The result of a request of a batch is not kept any more.
    pub(crate) fn expired() -> Self {
        let message =
            "the result has expired; the operator can keep results longer with `--keep-for`";
        Self::new(StatusCode::NOT_FOUND, NO_SUCH_OBJECT, message)
    }

    /// 413.
    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, TOO_LARGE, message)
    }

    /// 429: the account has sent too many requests.
    pub(crate) fn rate_limited(message: impl Into<String>, retry_after: u64) -> Self {
        Self {
            retry_after: Some(retry_after),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, ACCOUNT_LIMITED, message)
        }
    }

    /// 401: the token is missing or unknown.
    pub(crate) fn unauthenticated(reason: &str) -> Self {
        let message = format!("Authentication error: {reason}");
        Self::new(StatusCode::UNAUTHORIZED, AUTHENTICATION, message)
    }

    /// 403: the token belongs to another account.
    pub(crate) fn foreign_account(named: &str, account: &str) -> Self {
        let named: String = named.chars().take(200).collect();
        let message = format!(
            "Authentication error: the token belongs to account `{account}`, not to `{named}`; use `/accounts/{account}/` in the path"
        );
        Self {
            reject_reason: Some(RejectReason::NotAllowed),
            ..Self::new(StatusCode::FORBIDDEN, AUTHENTICATION, message)
        }
    }

    /// 403 for another reason.
    pub(crate) fn forbidden(reason: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, AUTHENTICATION, reason)
    }

    /// 404 for a path that does not exist.
    pub(crate) fn no_such_path(path: &str) -> Self {
        let message = format!("No route for that URI: `{path}`");
        Self::new(StatusCode::NOT_FOUND, NO_SUCH_PATH, message)
    }

    /// 405.
    pub(crate) fn no_such_method(method: &str, path: &str) -> Self {
        let message = format!("Method {method} not available for that URI: `{path}`");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, NO_SUCH_METHOD, message)
    }

    /// 501: the feature needs another option of the server.
    pub(crate) fn not_configured(message: &str) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, NOT_CONFIGURED, message)
    }

    /// The error in its envelope, as the JSON of a body or of an event in a stream.
    pub(crate) fn to_json(&self) -> String {
        let errors = vec![self.item()];
        let envelope = Envelope::<()> {
            result: None,
            success: false,
            errors,
            messages: [],
        };
        serde_json::to_string(&envelope).expect("errors have string keys")
    }

    pub(crate) fn item(&self) -> ErrorItem {
        ErrorItem {
            code: self.code,
            message: self.message.clone(),
        }
    }
}

impl IntoResponse for WorkersAiError {
    fn into_response(self) -> Response {
        let mut response = json(self.status, self.to_json().into());
        if let Some(seconds) = self.retry_after {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        match self.reject_reason {
            Some(reason) => reason.tag(response),
            None => response,
        }
    }
}

impl From<BodyError> for WorkersAiError {
    fn from(error: BodyError) -> Self {
        let code = match error {
            BodyError::TooLarge { .. } | BodyError::PartTooLarge { .. } => TOO_LARGE,
            BodyError::Stalled { .. } => TIMED_OUT,
            BodyError::Broken(_) => INCOMPLETE,
            BodyError::NotJson(_) | BodyError::Encoded(_) | BodyError::NoContentType => {
                INVALID_DATA
            }
        };
        Self {
            reject_reason: Some(error.reason()),
            ..Self::new(error.status(), code, error.to_string())
        }
    }
}

impl From<BodyParseError> for WorkersAiError {
    fn from(error: BodyParseError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<UnsupportedRequest> for WorkersAiError {
    fn from(error: UnsupportedRequest) -> Self {
        Self::invalid(error.message)
    }
}

/// The parameters of both APIs have the same names, and one parser.
impl From<OpenAiError> for WorkersAiError {
    fn from(error: OpenAiError) -> Self {
        let code = match error.status {
            StatusCode::TOO_MANY_REQUESTS => OUT_OF_CAPACITY,
            status if status.is_client_error() => INVALID_DATA,
            _ => INTERNAL,
        };
        Self {
            retry_after: error.retry_after,
            reject_reason: error.reject_reason,
            ..Self::new(error.status, code, error.message)
        }
    }
}

impl From<RefusedRequest> for WorkersAiError {
    fn from(refused: RefusedRequest) -> Self {
        let (code, message) = match refused.kind {
            RefusalKind::Busy => (OUT_OF_CAPACITY, CAPACITY_MESSAGE.to_owned()),
            RefusalKind::Invalid | RefusalKind::Conflict => (INVALID_DATA, refused.message),
            RefusalKind::Unavailable | RefusalKind::NoSpace => (INTERNAL, refused.message),
        };
        Self {
            retry_after: refused.retry_after,
            ..Self::new(refused.kind.status(), code, message)
        }
    }
}

/// For a call that concerns no single model.
impl From<Refusal> for WorkersAiError {
    fn from(refusal: Refusal) -> Self {
        RefusedRequest::from(refusal).into()
    }
}

impl From<TextError> for WorkersAiError {
    fn from(error: TextError) -> Self {
        let (status, code) = match error.kind {
            TextErrorKind::Failed => (StatusCode::INTERNAL_SERVER_ERROR, INTERNAL),
            TextErrorKind::TimedOut => (StatusCode::REQUEST_TIMEOUT, TIMED_OUT),
            TextErrorKind::Canceled => (StatusCode::REQUEST_TIMEOUT, ABORTED),
        };
        Self::new(status, code, error.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_in_an_envelope() {
        assert_eq!(
            WorkersAiError::from(Refusal::AtCapacity).to_json(),
            r#"{"result":null,"success":false,"errors":[{"code":3040,"message":"Capacity temporarily exceeded, please try again."}],"messages":[]}"#
        );
    }

    #[test]
    fn refusals_have_the_documented_codes() {
        for (refusal, status, code) in [
            (Refusal::AtCapacity, 429, 3040),
            (Refusal::InvalidInput(Vec::new()), 400, 5004),
            (Refusal::Closing, 503, 3043),
        ] {
            let error = WorkersAiError::from(refusal);
            assert_eq!((error.status.as_u16(), error.code), (status, code));
        }
        let error = WorkersAiError::model_not_found("@cf/x/y");
        assert_eq!((error.status.as_u16(), error.code), (400, 5007));
    }
}
