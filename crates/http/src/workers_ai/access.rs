//! The account in the path of a request must be the account of its token.

use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::error::WorkersAiError;
use crate::access::Identity;
use crate::openai::error::OpenAiError;

/// Rejects the path of another account.
pub(super) async fn check_account(request: Request, next: Next) -> Response {
    match checked(request).await {
        Ok(request) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// The same with errors in the format of OpenAI's API.
pub(super) async fn check_account_for_openai(request: Request, next: Next) -> Response {
    match checked(request).await {
        Ok(request) => next.run(request).await,
        Err(error) => OpenAiError {
            reject_reason: error.reject_reason,
            ..OpenAiError::new(error.status, error.message)
        }
        .into_response(),
    }
}

async fn checked(request: Request) -> Result<Request, WorkersAiError> {
    let (mut parts, body) = request.into_parts();
    let Ok(caller) = Identity::from_request_parts(&mut parts, &()).await;
    let params = RawPathParams::from_request_parts(&mut parts, &())
        .await
        .map_err(|_| {
            let message = "the path is not UTF-8 after decoding its `%` escapes";
            WorkersAiError::new(StatusCode::BAD_REQUEST, 7003, message)
        })?;
    let named = params
        .iter()
        .find(|(name, _)| *name == "account")
        .map_or("", |(_, value)| value);
    // Without tokens there are no accounts to tell apart.
    if !caller.account.is_anonymous() && named != caller.account.as_str() {
        let error = WorkersAiError::foreign_account(named, caller.account.as_str());
        return Err(error);
    }
    Ok(Request::from_parts(parts, body))
}
