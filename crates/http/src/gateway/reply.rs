//! Renders errors in the format of each API, as responses and inside streams.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use serde::Serialize;

use super::error::ErrorReply;
use super::route::ClientApi;
use super::sites::SITES_TO_TRY;
use crate::openai::error::OpenAiError;
use crate::workers_ai::error::WorkersAiError;

/// An error of Cog's API.
#[derive(Debug, Serialize)]
struct CogBody<'a> {
    detail: &'a str,
}

/// The number of the error that a response reports. Another router gets it as a header; clients do not see
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ErrorNumber(pub(super) u32);

/// The response of an error.
pub(super) fn error_response(api: ClientApi, error: &ErrorReply) -> Response {
    let mut response = Response::new(Body::from(error_body(api, error)));
    // Workers AI tells an unknown model by its number, not by the status.
    *response.status_mut() = match (api, error.number) {
        (ClientApi::WorkersAi, 5007) => StatusCode::BAD_REQUEST,
        _ => error.status,
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if !error.sites.is_empty()
        && let Ok(sites) = HeaderValue::from_str(&error.sites.join(","))
    {
        headers.insert(SITES_TO_TRY, sites);
    }
    if let Some(wait) = error.retry_after {
        let seconds = wait.as_secs_f64().ceil().max(1.0) as u64;
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if error.status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response.extensions_mut().insert(ErrorNumber(error.number));
    response
}

/// The event that tells the readers of a stream about an error.
pub(super) fn error_event(api: ClientApi, error: &ErrorReply) -> Bytes {
    format!("data: {}\n\n", error_body(api, error)).into()
}

fn error_body(api: ClientApi, error: &ErrorReply) -> String {
    match api {
        ClientApi::OpenAi => {
            let base = OpenAiError::new(error.status, error.message.clone());
            let error = OpenAiError {
                kind: error.kind,
                param: error.param.clone(),
                code: error.code,
                ..base
            };
            error.to_json()
        }
        ClientApi::WorkersAi => {
            WorkersAiError::new(error.status, error.number, error.message.clone()).to_json()
        }
        ClientApi::Cog => {
            let detail = error.message.as_str();
            serde_json::to_string(&CogBody { detail }).expect("a plain struct")
        }
    }
}
