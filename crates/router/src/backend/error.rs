//! The errors of backends, in the words of their answers.

use hyper::StatusCode;
use serde_json::Value;
use tidegate_core::text_generation::{TextError, TextErrorKind};

use crate::fleet::BackendKind;

/// The most characters of a message. The rest of a longer one is cut.
const MAX_MESSAGE: usize = 2000;

/// A backend answered with an error, or with something that is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BackendError {
    /// The status of the response.
    pub status: StatusCode,
    /// What happened.
    pub kind: BackendErrorKind,
    /// The message for people.
    pub message: String,
    /// The type of the error, if the backend names one.
    pub error_type: Option<String>,
    /// The parameter that is wrong, if the backend names one.
    pub param: Option<String>,
    /// The code of the error, if the backend names one that is not only the status.
    pub code: Option<String>,
}

/// What an error of a backend is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendErrorKind {
    /// The status of the response is the error.
    Status,
    /// The backend works and ran the model, and the model failed. It is not retried.
    ModelFailed,
    /// The backend stopped the work on request.
    Canceled,
    /// The answer is not what a backend of this kind sends.
    InvalidAnswer,
}

impl BackendError {
    /// An error that a response with status 200 contains.
    pub(super) fn new(kind: BackendErrorKind, message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::OK,
            kind,
            message: bounded(&message.into()),
            error_type: None,
            param: None,
            code: None,
        }
    }

    pub(super) fn invalid(kind: BackendKind, problem: impl std::fmt::Display) -> Self {
        let message = format!(
            "the backend of kind `{}` sent an invalid answer: {problem}",
            kind.name()
        );
        Self::new(BackendErrorKind::InvalidAnswer, message)
    }
}

impl From<BackendError> for TextError {
    fn from(error: BackendError) -> Self {
        let kind = match error.kind {
            BackendErrorKind::Canceled => TextErrorKind::Canceled,
            BackendErrorKind::Status
            | BackendErrorKind::ModelFailed
            | BackendErrorKind::InvalidAnswer => TextErrorKind::Failed,
        };
        Self {
            kind,
            message: error.message,
        }
    }
}

/// The error of a response that is not 2xx. Every kind has its own form of body, and proxies in front of
/// a backend have others, so all forms are recognized for all kinds.
pub fn error_message(kind: BackendKind, status: StatusCode, body: &[u8]) -> BackendError {
    let mut error = match serde_json::from_slice(body) {
        Ok(value) => from_json(&value),
        Err(_) => from_text(body),
    }
    .unwrap_or_else(|| {
        let message = format!("the backend of kind `{}` answered {status}", kind.name());
        BackendError::new(BackendErrorKind::Status, message)
    });
    error.status = status;
    error.code = error.code.filter(|code| code != status.as_str());
    error
}

/// The error that an event of a stream or an answer with status 200 contains.
pub(super) fn in_band(value: &Value) -> BackendError {
    let mut error = from_json(value)
        .unwrap_or_else(|| BackendError::new(BackendErrorKind::ModelFailed, "the model failed"));
    error.kind = BackendErrorKind::ModelFailed;
    error
}

fn from_json(value: &Value) -> Option<BackendError> {
    if let Value::String(text) = value {
        return from_text(text.as_bytes());
    }
    let nested = value.get("error").filter(|error| error.is_object());
    // Workers AI: a list of errors, of which the first counts.
    let listed = || value.get("errors")?.get(0);
    let details = nested.or_else(listed).unwrap_or(value);
    let message = ["message", "error", "detail", "msg"]
        .iter()
        .find_map(|name| message_of(details.get(*name)?))?;
    let text = |name: &str| scalar(details.get(name)?);
    let mut error = BackendError::new(BackendErrorKind::Status, message);
    error.error_type = text("type").or_else(|| text("error_type"));
    error.param = text("param");
    error.code = text("code");
    Some(error)
}

/// A text, or the list of problems with an input that FastAPI and Cog send: `[{"loc", "msg"}]`.
fn message_of(value: &Value) -> Option<String> {
    let Some(problems) = value.as_array() else {
        return value.as_str().map(str::to_owned);
    };
    let problem = |problem: &Value| {
        let message = problem.get("msg")?.as_str()?;
        let location = problem.get("loc").and_then(Value::as_array);
        let location: Vec<String> = location.into_iter().flatten().filter_map(scalar).collect();
        Some(match location.as_slice() {
            [] => message.to_owned(),
            names => format!("{}: {message}", names.join(".")),
        })
    };
    let problems: Vec<String> = problems.iter().take(10).filter_map(problem).collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(bounded(text)),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A plain text. An HTML page of a proxy helps no client.
fn from_text(body: &[u8]) -> Option<BackendError> {
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * MAX_MESSAGE)]);
    let text = text.trim();
    let useful = !text.is_empty() && !text.starts_with('<');
    useful.then(|| BackendError::new(BackendErrorKind::Status, text))
}

fn bounded(text: &str) -> String {
    let printable = |c: char| if c.is_control() && c != '\n' { ' ' } else { c };
    text.chars().take(MAX_MESSAGE).map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn details(body: &str) -> (String, Option<String>, Option<String>, Option<String>) {
        let error = error_message(BackendKind::Tgi, StatusCode::BAD_REQUEST, body.as_bytes());
        (error.message, error.error_type, error.param, error.code)
    }

    #[test]
    fn the_error_bodies_of_all_servers_are_understood() {
        let some = |text: &str| Some(text.to_owned());
        for (body, message, error_type, param, code) in [
            // vLLM now, OpenAI
            (
                r#"{"error":{"message":"too long","type":"BadRequestError","param":"messages","code":400}}"#,
                "too long",
                some("BadRequestError"),
                some("messages"),
                None,
            ),
            (
                r#"{"error":{"message":"no","type":"t","param":null,"code":"context_length_exceeded"}}"#,
                "no",
                some("t"),
                None,
                some("context_length_exceeded"),
            ),
            // vLLM before 0.10
            (
                r#"{"object":"error","message":"gone","type":"NotFoundError","param":null,"code":404}"#,
                "gone",
                some("NotFoundError"),
                None,
                some("404"),
            ),
            // TGI, TEI
            (
                r#"{"error":"Model is overloaded","error_type":"overloaded"}"#,
                "Model is overloaded",
                some("overloaded"),
                None,
                None,
            ),
            // TEI's OpenAI route
            (
                r#"{"message":"batch too large","code":413,"type":"validation"}"#,
                "batch too large",
                some("validation"),
                None,
                some("413"),
            ),
            // Triton
            (
                r#"{"error":"Request for unknown model: 'x' is not found"}"#,
                "Request for unknown model: 'x' is not found",
                None,
                None,
                None,
            ),
            // Cog
            (
                r#"{"detail":[{"loc":["body","input","prompt"],"msg":"Field required","type":"value_error"}]}"#,
                "body.input.prompt: Field required",
                None,
                None,
                None,
            ),
            (
                r#"{"error":"At capacity - all prediction slots busy","status":"failed"}"#,
                "At capacity - all prediction slots busy",
                None,
                None,
                None,
            ),
            // FastAPI
            (r#"{"detail":"Not Found"}"#, "Not Found", None, None, None),
            // Workers AI
            (
                r#"{"result":null,"success":false,"errors":[{"code":5007,"message":"No such model"}]}"#,
                "No such model",
                None,
                None,
                some("5007"),
            ),
            ("plain\u{7} text\n", "plain  text", None, None, None),
            (
                "<html>502</html>",
                "the backend of kind `tgi` answered 400 Bad Request",
                None,
                None,
                None,
            ),
            (
                "",
                "the backend of kind `tgi` answered 400 Bad Request",
                None,
                None,
                None,
            ),
            (
                "[]",
                "the backend of kind `tgi` answered 400 Bad Request",
                None,
                None,
                None,
            ),
        ] {
            let expected = (message.to_owned(), error_type, param, code);
            assert_eq!(details(body), expected, "{body}");
        }
    }

    #[test]
    fn messages_are_bounded() {
        assert_eq!(
            details(&"é".repeat(10 * MAX_MESSAGE)).0.chars().count(),
            MAX_MESSAGE
        );
        let long = format!(r#"{{"error":"{}"}}"#, "x".repeat(10 * MAX_MESSAGE));
        assert_eq!(details(&long).0.len(), MAX_MESSAGE);
    }
}
