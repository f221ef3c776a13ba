//! Parses request bodies that are one JSON object, and says what is wrong with others.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_service::WebhookEvent;

use super::json_depth::{MAX_DEPTH, is_too_deep};

/// The name of a webhook event in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WebhookEventName {
    Start,
    Output,
    Logs,
    Completed,
}

impl From<WebhookEventName> for WebhookEvent {
    fn from(name: WebhookEventName) -> Self {
        match name {
            WebhookEventName::Start => Self::Start,
            WebhookEventName::Output => Self::Output,
            WebhookEventName::Logs => Self::Logs,
            WebhookEventName::Completed => Self::Completed,
        }
    }
}

/// Why a body could not be parsed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyParseError {
    /// It is not JSON.
    #[error("the body is not JSON: {0}")]
    Syntax(serde_json::Error),
    /// It is not UTF-8, or nested too deep.
    #[error("the body cannot be parsed: {0}")]
    Unreadable(String),
    /// It is JSON of the wrong shape.
    #[error("invalid body: {}", .0.message)]
    Shape(ShapeError),
}

/// The JSON has the wrong shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShapeError {
    /// The field whose value is wrong; `None` if the error concerns no single field.
    pub(crate) field: Option<String>,
    pub(crate) message: String,
}

/// Parses a body that is one object; `None` when the body is empty.
pub(crate) fn parse_object<'a, T: Deserialize<'a>>(
    body: &'a [u8],
) -> Result<Option<T>, BodyParseError> {
    match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => return Ok(None),
        // serde would accept an array as the fields in order.
        Some(b'[') => {
            serde_json::from_slice::<&RawValue>(body).map_err(BodyParseError::Syntax)?;
            return Err(BodyParseError::Shape(ShapeError {
                field: None,
                message: "expected an object, got an array".to_owned(),
            }));
        }
        Some(_) => {}
    }
    // All of it, including fields that are not parsed.
    let body =
        std::str::from_utf8(body).map_err(|error| BodyParseError::Unreadable(error.to_string()))?;
    if is_too_deep(body.as_bytes()) {
        return Err(BodyParseError::Unreadable(format!(
            "it is nested deeper than {MAX_DEPTH} levels"
        )));
    }
    serde_json::from_str(body)
        .map(Some)
        .map_err(|error| match error.classify() {
            serde_json::error::Category::Data => {
                BodyParseError::Shape(ShapeError::of(body, &error))
            }
            // serde reports a number in place of an enum variant like a syntax error.
            _ if serde_json::from_str::<&RawValue>(body).is_ok() => {
                BodyParseError::Shape(ShapeError::of(body, &error))
            }
            serde_json::error::Category::Syntax
            | serde_json::error::Category::Eof
            | serde_json::error::Category::Io => BodyParseError::Syntax(error),
        })
}

impl ShapeError {
    fn of(body: &str, error: &serde_json::Error) -> Self {
        let message = error.to_string();
        match field_at(body, error) {
            Some(field) => {
                let position = format!(" at line {} column {}", error.line(), error.column());
                Self {
                    field: Some(field),
                    message: message
                        .strip_suffix(&position)
                        .unwrap_or(&message)
                        .to_owned(),
                }
            }
            None => Self {
                field: None,
                message,
            },
        }
    }
}

/// The field whose value serde was reading when the error occurred.
fn field_at(body: &str, error: &serde_json::Error) -> Option<String> {
    let lines_before: usize = body
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum();
    let at = lines_before + error.column();
    let fields: HashMap<String, &RawValue> = serde_json::from_str(body).ok()?;
    let contains_error = |value: &RawValue| {
        let start = (value.get().as_ptr() as usize).saturating_sub(body.as_ptr() as usize);
        (start..=start + value.get().len()).contains(&at)
    };
    fields
        .into_iter()
        .find(|(_, value)| contains_error(value))
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
        _events: Option<Vec<WebhookEventName>>,
    }

    #[test]
    fn the_field_with_the_wrong_value_is_named() {
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
            let Err(BodyParseError::Shape(error)) = parse_object::<Body>(body.as_bytes()) else {
                panic!("{body}")
            };
            assert_eq!(error.field.as_deref(), want, "{body}: {}", error.message);
        }
    }
}
