//! The requests of the Cog API.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::shared::parse_body::{BodyParseError, WebhookEventName, parse_object};

/// The body of a create request.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object like {\"input\": {…}}")]
pub(crate) struct CreateRequest<'a> {
    #[serde(borrow, default)]
    pub(crate) id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) webhook: Option<Cow<'a, str>>,
    /// Absent means all; `null` is an error, as in Cog.
    #[serde(default = "all_events")]
    pub(crate) webhook_events_filter: Vec<WebhookEventName>,
    #[serde(default)]
    pub(crate) context: Option<BTreeMap<String, String>>,
}

fn all_events() -> Vec<WebhookEventName> {
    vec![
        WebhookEventName::Start,
        WebhookEventName::Output,
        WebhookEventName::Logs,
        WebhookEventName::Completed,
    ]
}

impl<'a> CreateRequest<'a> {
    /// Parses a body; an empty one is an empty request.
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, BodyParseError> {
        Ok(parse_object(body)?.unwrap_or_else(|| Self {
            webhook_events_filter: all_events(),
            ..Self::default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_and_syntax_errors_are_distinguished() {
        for shape in [
            r#"{"id":5}"#,
            "[]",
            r#"{"webhook_events_filter":null}"#,
            r#"{"webhook_events_filter":["x"]}"#,
            r#"{"context":{"a":1}}"#,
            "null",
            "3",
        ] {
            assert!(
                matches!(
                    CreateRequest::parse(shape.as_bytes()),
                    Err(BodyParseError::Shape(_))
                ),
                "{shape}"
            );
        }
        for syntax in ["{", "{]", "hello", "{} x", "[1"] {
            assert!(
                matches!(
                    CreateRequest::parse(syntax.as_bytes()),
                    Err(BodyParseError::Syntax(_))
                ),
                "{syntax}"
            );
        }
    }

    #[test]
    fn absent_and_null_fields_are_the_same() {
        for body in [
            "",
            " \n",
            "{}",
            r#"{"id":null,"input":null,"webhook":null,"other":[1]}"#,
        ] {
            let request = CreateRequest::parse(body.as_bytes()).unwrap();
            assert!(
                request.id.is_none() && request.input.is_none_or(|input| input.get() == "null"),
                "{body}"
            );
            assert_eq!(request.webhook_events_filter.len(), 4);
        }
    }
}
