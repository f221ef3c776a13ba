//! The requests of the Cog API, to the letter.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_service::WebhookEvent;

use crate::shared::depth::{MAX_DEPTH, is_too_deep};

/// The body of a create request.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object like {\"input\": {…}}")]
pub(crate) struct Envelope<'a> {
    #[serde(borrow, default)]
    pub(crate) id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) webhook: Option<Cow<'a, str>>,
    /// Absent means all; `null` is an error in Cog and so here.
    #[serde(default = "all_events")]
    pub(crate) webhook_events_filter: Vec<EventName>,
    #[serde(default)]
    pub(crate) context: Option<BTreeMap<String, String>>,
}

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

fn all_events() -> Vec<EventName> {
    vec![EventName::Start, EventName::Output, EventName::Logs, EventName::Completed]
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

impl<'a> Envelope<'a> {
    /// Reads a body; an empty one is an empty envelope.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, EnvelopeError> {
        match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
            None => return Ok(Self { webhook_events_filter: all_events(), ..Self::default() }),
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
        serde_json::from_str(body).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => EnvelopeError::Shape(error.to_string()),
            serde_json::error::Category::Syntax | serde_json::error::Category::Eof | serde_json::error::Category::Io => {
                EnvelopeError::Syntax(error)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_and_syntax_are_told_apart() {
        for shape in [
            r#"{"id":5}"#,
            "[]",
            r#"{"webhook_events_filter":null}"#,
            r#"{"webhook_events_filter":["x"]}"#,
            r#"{"context":{"a":1}}"#,
            "null",
            "3",
        ] {
            assert!(matches!(Envelope::read(shape.as_bytes()), Err(EnvelopeError::Shape(_))), "{shape}");
        }
        for syntax in ["{", "{]", "hello", "{} x", "[1"] {
            assert!(matches!(Envelope::read(syntax.as_bytes()), Err(EnvelopeError::Syntax(_))), "{syntax}");
        }
    }

    #[test]
    fn absent_and_null_are_the_same_for_what_may_be_null() {
        for body in ["", " \n", "{}", r#"{"id":null,"input":null,"webhook":null,"other":[1]}"#] {
            let envelope = Envelope::read(body.as_bytes()).unwrap();
            assert!(envelope.id.is_none() && envelope.input.is_none_or(|input| input.get() == "null"), "{body}");
            assert_eq!(envelope.webhook_events_filter.len(), 4);
        }
    }
}
