//! One queued request: forwards it, and waits while the fleet has no capacity.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use axum::http::{Method, Request, StatusCode, Uri};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_core::Account;
use tidegate_core::text_generation::Usage;

use crate::gateway::GatewayState;
use crate::gateway::inference::{InferenceClient, NoBackendAnswered};
use crate::gateway::reply::ErrorNumber;
use crate::gateway::route::InferenceRoute;

/// The largest result of a queued request.
const MAX_RESULT: usize = 32 * 1024 * 1024;
/// The shortest and the longest pause before a request without capacity is sent again.
const PAUSE: std::ops::Range<Duration> = Duration::from_millis(200)..Duration::from_secs(5);
/// The characters of a model's name that a path has as they are.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'@')
    .remove(b'.')
    .remove(b'-')
    .remove(b'_');
/// The numbers of errors after which a request is sent again: the router has no capacity now, or it does not
/// have the model any more or not yet.
const NO_CAPACITY: [u32; 3] = [3036, 3040, 5007];
/// How often a request is sent again after it reached no backend. The request itself may be the reason.
const MAX_FAILURES: u32 = 5;

/// The answer to a queued request.
pub(super) type QueuedAnswer = Result<QueuedResult, QueuedError>;

/// The result of a queued request.
pub(super) struct QueuedResult {
    /// `result` of the answer.
    pub(super) json: Bytes,
    pub(super) usage: Option<Usage>,
}

/// Why a queued request has no result. Its text is what the record of the job has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueuedError {
    /// The number of Workers AI.
    pub(crate) number: u32,
    pub(crate) message: String,
}

impl fmt::Display for QueuedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.number, self.message)
    }
}

impl QueuedError {
    /// The number of an error that no backend has reported.
    const INTERNAL: u32 = 3050;

    fn internal(message: impl Into<String>) -> Self {
        Self {
            number: Self::INTERNAL,
            message: message.into(),
        }
    }

    /// Reads the error of a job.
    pub(crate) fn parse(text: &str) -> Self {
        let parsed = text
            .split_once(": ")
            .and_then(|(number, message)| Some((number.parse().ok()?, message)));
        match parsed {
            Some((number, message)) => Self {
                number,
                message: message.to_owned(),
            },
            None => Self::internal(text),
        }
    }
}

/// The answer of `/ai/run`.
#[derive(Deserialize)]
struct RunAnswer<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    errors: Vec<RunError>,
}

#[derive(Deserialize)]
struct RunError {
    code: u32,
    message: String,
}

#[derive(Deserialize)]
struct WithUsage {
    usage: Option<Usage>,
}

impl GatewayState {
    /// Forwards a queued request until it has an answer.
    pub(super) async fn call_queued(
        self: &Arc<Self>,
        model: &str,
        account: Account,
        body: Bytes,
    ) -> QueuedAnswer {
        let mut failures = 0;
        loop {
            let response = self
                .run_queued(model, account.clone(), body.clone())
                .await?;
            match pause(&response, &mut failures) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return read_answer(response).await,
            }
        }
    }

    async fn run_queued(
        self: &Arc<Self>,
        model: &str,
        account: Account,
        body: Bytes,
    ) -> Result<Response, QueuedError> {
        let path = format!("/ai/run/{}", utf8_percent_encode(model, IN_PATH));
        let uri: Uri = path
            .parse()
            .map_err(|_| QueuedError::internal(format!("`{model}` cannot be part of a path")))?;
        let route = InferenceRoute::of(&Method::POST, &uri)
            .ok_or_else(|| QueuedError::internal(format!("`{model}` cannot be part of a path")))?;
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(CONTENT_TYPE, json);
        let (parts, ()) = request.into_parts();
        let client = InferenceClient::queued(account);
        Ok(self.infer_for(client, route, parts, Body::from(body)).await)
    }
}

/// How long to wait before the request is sent again; `None` if the answer is final.
fn pause(response: &Response, failures: &mut u32) -> Option<Duration> {
    let retry_after = || {
        let text = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
        text.parse::<u32>().ok()
    };
    // The answer of a backend has no number.
    let ErrorNumber(number_of_error) = *response.extensions().get::<ErrorNumber>()?;
    let seconds = if NO_CAPACITY.contains(&number_of_error) {
        retry_after().unwrap_or(u32::MAX)
    } else if response.extensions().get::<NoBackendAnswered>().is_some() && *failures < MAX_FAILURES
    {
        *failures += 1;
        *failures
    } else {
        return None;
    };
    let pause = Duration::from_secs(seconds.into()).clamp(PAUSE.start, PAUSE.end);
    // Requests of one batch do not come back at the same moment.
    Some(pause.mul_f64(0.5 + 0.5 * tidegate_core::random::fraction()))
}

/// The result or the error of an answer.
async fn read_answer(response: Response) -> QueuedAnswer {
    let (head, body) = response.into_parts();
    let body = axum::body::to_bytes(body, MAX_RESULT)
        .await
        .map_err(|_| QueuedError::internal("the answer of the backend was cut or is too large"))?;
    if head.status.is_success() && !is_json(&head.headers) {
        return Ok(file_result(&head.headers, &body));
    }
    let answer: Option<RunAnswer<'_>> = serde_json::from_slice(&body).ok();
    match answer {
        Some(RunAnswer { result, errors }) if head.status.is_success() && errors.is_empty() => {
            let json = result.map_or("null", RawValue::get);
            let with_usage: Option<WithUsage> = serde_json::from_str(json).ok();
            Ok(QueuedResult {
                json: Bytes::copy_from_slice(json.as_bytes()),
                usage: with_usage.and_then(|result| result.usage),
            })
        }
        Some(RunAnswer { errors, .. }) => {
            let first = errors.into_iter().next();
            Err(first.map_or_else(
                || unexpected(head.status),
                |error| QueuedError {
                    number: error.code,
                    message: error.message,
                },
            ))
        }
        None => Err(unexpected(head.status)),
    }
}

fn unexpected(status: StatusCode) -> QueuedError {
    QueuedError::internal(format!("the backend answered {status} without a result"))
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    content_type.is_some_and(|value| value.starts_with(b"application/json"))
}

/// A file, such as an image, as a data URI.
fn file_result(headers: &HeaderMap, body: &[u8]) -> QueuedResult {
    let media_type = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("application/octet-stream");
    let uri = format!("data:{media_type};base64,{}", STANDARD.encode(body));
    QueuedResult {
        json: serde_json::to_vec(&uri).expect("a text").into(),
        usage: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_read_back_from_the_record_of_a_job() {
        let error = QueuedError {
            number: 5004,
            message: "`prompt` is missing: send it".to_owned(),
        };
        assert_eq!(QueuedError::parse(&error.to_string()), error);
        let other = QueuedError::parse("the deadline has passed");
        assert_eq!(
            (other.number, &*other.message),
            (3050, "the deadline has passed")
        );
    }
}
