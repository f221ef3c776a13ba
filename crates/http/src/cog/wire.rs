//! The requests of the Cog API, to the letter.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::shared::parse_body::{BodyParseError, WebhookEventName, parse_object};

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

impl<'a> Envelope<'a> {
    /// Reads a body; an empty one is an empty envelope.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, BodyParseError> {
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
            assert!(
                matches!(
                    Envelope::read(shape.as_bytes()),
                    Err(BodyParseError::Shape(_))
                ),
                "{shape}"
            );
        }
        for syntax in ["{", "{]", "hello", "{} x", "[1"] {
            assert!(
                matches!(
                    Envelope::read(syntax.as_bytes()),
                    Err(BodyParseError::Syntax(_))
                ),
                "{syntax}"
            );
        }
    }

    #[test]
    fn absent_and_null_are_the_same_for_what_may_be_null() {
        for body in [
            "",
            " \n",
            "{}",
            r#"{"id":null,"input":null,"webhook":null,"other":[1]}"#,
        ] {
            let envelope = Envelope::read(body.as_bytes()).unwrap();
            assert!(
                envelope.id.is_none() && envelope.input.is_none_or(|input| input.get() == "null"),
                "{body}"
            );
            assert_eq!(envelope.webhook_events_filter.len(), 4);
        }
    }
}
