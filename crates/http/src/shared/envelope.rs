//! What the bodies of create requests have in common: one JSON object, and the names in it.

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_service::WebhookEvent;

use super::depth::{MAX_DEPTH, is_too_deep};

/// A kind of webhook as requests name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EventName {
    Start,
    Output,
    Logs,
    Completed,
}

impl From<EventName> for WebhookEvent {
    fn from(name: EventName) -> Self {
        match name {
            EventName::Start => Self::Start,
            EventName::Output => Self::Output,
            EventName::Logs => Self::Logs,
            EventName::Completed => Self::Completed,
        }
    }
}

/// The body is not a create request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnvelopeError {
    /// Not JSON at all.
    #[error("the body is not JSON: {0}")]
    Syntax(serde_json::Error),
    /// Not a text that we read.
    #[error("the body cannot be read: {0}")]
    Text(String),
    /// JSON of another shape.
    #[error("the body does not fit: {0}")]
    Shape(String),
}

/// Reads a body that is one object; `None` when there is no body.
pub(crate) fn read_object<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<Option<T>, EnvelopeError> {
    match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => return Ok(None),
        // serde would take an array for the fields in order.
        Some(b'[') => {
            serde_json::from_slice::<&RawValue>(body).map_err(EnvelopeError::Syntax)?;
            return Err(EnvelopeError::Shape("it is an array, an object is needed".to_owned()));
        }
        Some(_) => {}
    }
    // All of it, also what nobody asks for.
    let body = std::str::from_utf8(body).map_err(|error| EnvelopeError::Text(error.to_string()))?;
    if is_too_deep(body.as_bytes()) {
        return Err(EnvelopeError::Text(format!("it is nested deeper than {MAX_DEPTH} levels")));
    }
    serde_json::from_str(body).map(Some).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => EnvelopeError::Shape(error.to_string()),
        serde_json::error::Category::Syntax | serde_json::error::Category::Eof | serde_json::error::Category::Io => {
            EnvelopeError::Syntax(error)
        }
    })
}
