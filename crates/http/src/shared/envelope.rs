//! What the bodies of create requests have in common: one JSON object, and the names in it.

use std::collections::HashMap;

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
    #[error("the body does not fit: {}", .0.message)]
    Shape(Misfit),
}

/// What is wrong with the shape of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// The name in the object whose value does not fit, if it is that.
    pub(crate) field: Option<String>,
    pub(crate) message: String,
}

/// Reads a body that is one object; `None` when there is no body.
pub(crate) fn read_object<'a, T: Deserialize<'a>>(
    body: &'a [u8],
) -> Result<Option<T>, EnvelopeError> {
    match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => return Ok(None),
        // serde would take an array for the fields in order.
        Some(b'[') => {
            serde_json::from_slice::<&RawValue>(body).map_err(EnvelopeError::Syntax)?;
            return Err(EnvelopeError::Shape(Misfit {
                field: None,
                message: "it is an array, an object is needed".to_owned(),
            }));
        }
        Some(_) => {}
    }
    // All of it, also what nobody asks for.
    let body = std::str::from_utf8(body).map_err(|error| EnvelopeError::Text(error.to_string()))?;
    if is_too_deep(body.as_bytes()) {
        return Err(EnvelopeError::Text(format!(
            "it is nested deeper than {MAX_DEPTH} levels"
        )));
    }
    serde_json::from_str(body)
        .map(Some)
        .map_err(|error| match error.classify() {
            serde_json::error::Category::Data => EnvelopeError::Shape(Misfit::of(body, &error)),
            // A number where a word of ours belongs is reported like broken JSON.
            _ if serde_json::from_str::<&RawValue>(body).is_ok() => {
                EnvelopeError::Shape(Misfit::of(body, &error))
            }
            serde_json::error::Category::Syntax
            | serde_json::error::Category::Eof
            | serde_json::error::Category::Io => EnvelopeError::Syntax(error),
        })
}

impl Misfit {
    fn of(body: &str, error: &serde_json::Error) -> Self {
        let message = error.to_string();
        match field_at(body, error) {
            Some(field) => {
                let place = format!(" at line {} column {}", error.line(), error.column());
                Self {
                    field: Some(field),
                    message: message.strip_suffix(&place).unwrap_or(&message).to_owned(),
                }
            }
            None => Self {
                field: None,
                message,
            },
        }
    }
}

/// The name in an object whose value was read, or about to be, when the error came.
fn field_at(body: &str, error: &serde_json::Error) -> Option<String> {
    let lines_before: usize = body
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum();
    let at = lines_before + error.column();
    let fields: HashMap<String, &RawValue> = serde_json::from_str(body).ok()?;
    let is_there = |value: &RawValue| {
        let begin = (value.get().as_ptr() as usize).saturating_sub(body.as_ptr() as usize);
        (begin..=begin + value.get().len()).contains(&at)
    };
    fields
        .into_iter()
        .find(|(_, value)| is_there(value))
        .map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(expecting = "an object")]
    struct Body {
        #[serde(default)]
        _number: Option<u8>,
        #[serde(default)]
        _events: Option<Vec<EventName>>,
    }

    #[test]
    fn the_value_that_does_not_fit_is_named() {
        for (body, want) in [
            (r#"{"_number":"x"}"#, Some("_number")),
            (r#"{"_number": -1 }"#, Some("_number")),
            (
                r#"{"é":[1, 2],"_number":256,"_events":[]}"#,
                Some("_number"),
            ),
            (
                "{\"_number\":\n1,\n\"_events\":[\n\"start\",\n\"bogus\"]}",
                Some("_events"),
            ),
            (r#"{"_events":{"a":1}}"#, Some("_events")),
            (r#"{"_number": 1, "_events": [7]}"#, Some("_events")),
            ("5", None),
            ("[]", None),
        ] {
            let Err(EnvelopeError::Shape(misfit)) = read_object::<Body>(body.as_bytes()) else {
                panic!("{body}")
            };
            assert_eq!(misfit.field.as_deref(), want, "{body}: {}", misfit.message);
        }
    }
}
