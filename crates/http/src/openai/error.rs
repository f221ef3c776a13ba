//! Errors in the format of OpenAI's API: every status code and error of this API is here.

use axum::http::StatusCode;
use axum::http::header::{HeaderValue, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tidegate_core::model_interface::UnsupportedRequest;
use tidegate_core::text_generation::{TextError, TextErrorKind};

use crate::inference::{RefusalKind, RefusedRequest};
use crate::request_metrics::RejectReason;
use crate::shared::body_limit::BodyError;
use crate::shared::parse_body::BodyParseError;
use crate::shared::response::json;

/// An error of OpenAI's API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenAiError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// The `type` in the error.
    pub(crate) kind: &'static str,
    /// The parameter of the request that is wrong.
    pub(crate) param: Option<String>,
    /// A code that programs compare.
    pub(crate) code: Option<&'static str>,
    /// After how many seconds the request may succeed.
    pub(crate) retry_after: Option<u64>,
    /// Why the request was rejected before it reached a model, for the metrics.
    pub(crate) reject_reason: Option<RejectReason>,
}

const INVALID_REQUEST: &str = "invalid_request_error";
const SERVER_ERROR: &str = "server_error";
const RATE_LIMIT: &str = "rate_limit_error";
const RATE_LIMIT_EXCEEDED: &str = "rate_limit_exceeded";

impl OpenAiError {
    /// An error with this status.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let kind = if status.is_client_error() {
            INVALID_REQUEST
        } else {
            SERVER_ERROR
        };
        Self {
            status,
            message: message.into(),
            kind,
            param: None,
            code: None,
            retry_after: None,
            reject_reason: None,
        }
    }

    /// 400: a parameter has a wrong value.
    pub(crate) fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            param: Some(param.into()),
            ..Self::new(StatusCode::BAD_REQUEST, message)
        }
    }

    /// 400: a parameter that this API has and that no model here supports.
    pub(crate) fn unsupported(param: &str, message: impl Into<String>) -> Self {
        Self {
            code: Some("unsupported_parameter"),
            ..Self::invalid(param, message)
        }
    }

    /// 400: a parameter is missing.
    pub(crate) fn missing(param: &str) -> Self {
        Self {
            code: Some("missing_required_parameter"),
            ..Self::invalid(param, format!("the request has no `{param}`"))
        }
    }

    /// 404: there is no such model. `served` are the names of models that exist.
    pub(crate) fn model_not_found(name: &str, served: &[&str]) -> Self {
        let name: String = name.chars().take(200).collect();
        let hint = match served {
            [] => "no model is served".to_owned(),
            names => format!("the models of this server are {}", quoted(names)),
        };
        Self {
            param: Some("model".to_owned()),
            code: Some("model_not_found"),
            ..Self::new(
                StatusCode::NOT_FOUND,
                format!("the model `{name}` does not exist; {hint}"),
            )
        }
    }

    /// 401.
    pub(crate) fn unauthenticated(reason: &str) -> Self {
        Self {
            code: Some("invalid_api_key"),
            ..Self::new(StatusCode::UNAUTHORIZED, reason)
        }
    }

    /// 429: the account has sent too many requests.
    pub(crate) fn rate_limited(message: impl Into<String>, retry_after: u64) -> Self {
        Self {
            kind: RATE_LIMIT,
            code: Some(RATE_LIMIT_EXCEEDED),
            retry_after: Some(retry_after),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, message)
        }
    }

    /// The error as the JSON of a body or of an event in a stream.
    pub(crate) fn to_json(&self) -> String {
        let error = self.object();
        serde_json::to_string(&ErrorDocument { error }).expect("errors have string keys")
    }

    /// The value of `error` in a body.
    pub(crate) fn object(&self) -> ErrorObject<'_> {
        ErrorObject {
            message: &self.message,
            kind: self.kind,
            param: self.param.as_deref(),
            code: self.code,
        }
    }
}

fn quoted(names: &[&str]) -> String {
    let names: Vec<String> = names
        .iter()
        .take(10)
        .map(|name| format!("`{name}`"))
        .collect();
    names.join(", ")
}

#[derive(Serialize)]
struct ErrorDocument<'a> {
    error: ErrorObject<'a>,
}

/// The value of `error` in a body.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorObject<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'a str>,
    code: Option<&'static str>,
}

impl IntoResponse for OpenAiError {
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

impl From<BodyError> for OpenAiError {
    fn from(error: BodyError) -> Self {
        Self {
            reject_reason: Some(error.reason()),
            ..Self::new(error.status(), error.to_string())
        }
    }
}

impl From<BodyParseError> for OpenAiError {
    fn from(error: BodyParseError) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error.to_string())
    }
}

impl From<UnsupportedRequest> for OpenAiError {
    fn from(error: UnsupportedRequest) -> Self {
        Self {
            param: Some(error.parameter.unwrap_or("model").to_owned()),
            ..Self::new(StatusCode::BAD_REQUEST, error.message)
        }
    }
}

impl From<RefusedRequest> for OpenAiError {
    fn from(refused: RefusedRequest) -> Self {
        let (kind, code) = match refused.kind {
            RefusalKind::Busy => (RATE_LIMIT, Some(RATE_LIMIT_EXCEEDED)),
            RefusalKind::Unavailable => (SERVER_ERROR, Some("service_unavailable")),
            RefusalKind::NoSpace => (SERVER_ERROR, None),
            RefusalKind::Invalid | RefusalKind::Conflict => (INVALID_REQUEST, None),
        };
        Self {
            kind,
            code,
            param: refused.param,
            retry_after: refused.retry_after,
            ..Self::new(refused.kind.status(), refused.message)
        }
    }
}

impl From<TextError> for OpenAiError {
    fn from(error: TextError) -> Self {
        let (status, code) = match error.kind {
            TextErrorKind::Failed => (StatusCode::INTERNAL_SERVER_ERROR, "model_error"),
            TextErrorKind::TimedOut => (StatusCode::GATEWAY_TIMEOUT, "timeout"),
            TextErrorKind::Canceled => (StatusCode::INTERNAL_SERVER_ERROR, "canceled"),
        };
        Self {
            code: Some(code),
            ..Self::new(status, error.message)
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::Refusal;
    use tidegate_core::refusal::{FieldError, Rule};

    use super::*;

    #[test]
    fn errors_have_the_shape_that_clients_read() {
        assert_eq!(
            OpenAiError::unsupported("tools", "no tools").to_json(),
            r#"{"error":{"message":"no tools","type":"invalid_request_error","param":"tools","code":"unsupported_parameter"}}"#
        );
        assert_eq!(
            OpenAiError::new(StatusCode::INTERNAL_SERVER_ERROR, "no").to_json(),
            r#"{"error":{"message":"no","type":"server_error","param":null,"code":null}}"#
        );
    }

    #[test]
    fn a_refusal_has_a_status_and_a_parameter() {
        let error = OpenAiError::from(RefusedRequest::from(Refusal::AtCapacity));
        assert_eq!((error.status.as_u16(), error.retry_after), (429, Some(1)));
        assert_eq!(error.into_response().headers()["retry-after"], "1");
        let invalid = FieldError {
            field: "temperature".to_owned(),
            message: "too high".to_owned(),
            rule: Rule::Maximum,
        };
        let refused = RefusedRequest::from(Refusal::InvalidInput(vec![invalid]));
        let error = OpenAiError::from(refused);
        assert_eq!(
            (error.status.as_u16(), error.param.as_deref()),
            (400, Some("temperature"))
        );
    }
}
