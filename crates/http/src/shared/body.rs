//! Reading a request's body: bounded, and never silently ignored.

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};

/// The body cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the body is larger than the {limit} bytes that are allowed")]
    TooLarge { limit: usize },
    #[error("the body did not come to its end: {0}")]
    Broken(String),
    #[error("the content type is `{0}`; send `content-type: application/json`")]
    NotJson(String),
    #[error("the body has no content type; send `content-type: application/json`")]
    NoContentType,
}

/// The body of a request that should be JSON; empty when there is none.
pub(crate) async fn json_body(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, BodyError> {
    let content_type = headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    if let Some(other) = content_type.as_ref().filter(|value| !is_json(value)) {
        return Err(BodyError::NotJson(other.clone()));
    }
    let bytes = match Limited::new(body, limit).collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Err(BodyError::TooLarge { limit }),
        Err(error) => return Err(BodyError::Broken(error.to_string())),
    };
    if content_type.is_none() && !bytes.is_empty() {
        return Err(BodyError::NoContentType);
    }
    Ok(bytes)
}

fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_several_names() {
        for yes in ["application/json", "Application/JSON; charset=utf-8", "application/problem+json"] {
            assert!(is_json(yes), "{yes}");
        }
        for no in ["", "text/plain", "application/jsonp", "application/x-www-form-urlencoded", "image/+json"] {
            assert!(!is_json(no), "{no}");
        }
    }
}
