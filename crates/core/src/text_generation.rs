//! Text generation in the terms that all APIs and backends share: a request, the events of its answer,
//! and the rules that do not depend on who generates the text.
//!
//! Each API parses its requests to a [`TextRequest`] and renders [`TextEvent`]s; each model and backend
//! is called with a [`TextRequest`] and produces [`TextEvent`]s.

mod conversation;
mod stop_sequences;
mod usage;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use conversation::ConversationText;
pub use stop_sequences::{StopScan, StopSequences};
pub use usage::{FinishReason, Usage};

/// A request to generate text.
#[derive(Debug, Clone, PartialEq)]
pub struct TextRequest {
    /// What the text continues or answers.
    pub prompt: TextPrompt,
    /// How the text is generated.
    pub parameters: TextParameters,
    /// The text ends before the first of these strings.
    pub stop: Vec<String>,
    /// Whether the client reads the text while it is generated.
    pub stream: bool,
    /// The fields of the request that are no parameters. A model takes those that are its inputs.
    pub extra: Map<String, Value>,
}

/// What a generated text continues or answers.
#[derive(Debug, Clone, PartialEq)]
pub enum TextPrompt {
    /// A conversation; the text is its next message.
    Messages(Vec<ChatMessage>),
    /// A text that is continued.
    Text(String),
}

/// The parameters of a generation. An absent one has the default of the model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TextParameters {
    /// The most tokens of the text.
    pub max_tokens: Option<u64>,
    /// The least tokens of the text.
    pub min_tokens: Option<u64>,
    /// How random the choice of tokens is; 0 is deterministic.
    pub temperature: Option<f64>,
    /// Tokens are chosen among the most likely ones with this total probability.
    pub top_p: Option<f64>,
    /// Tokens are chosen among this many of the most likely ones.
    pub top_k: Option<u64>,
    /// Makes tokens less likely with each use.
    pub frequency_penalty: Option<f64>,
    /// Makes tokens less likely after the first use.
    pub presence_penalty: Option<f64>,
    /// Divides the likelihood of used tokens.
    pub repetition_penalty: Option<f64>,
    /// Makes the choice of tokens reproducible.
    pub seed: Option<i64>,
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChatRole {
    /// Instructions for the model. APIs call it `system` or `developer`.
    #[serde(alias = "developer")]
    System,
    /// The user of the model.
    User,
    /// The model.
    Assistant,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatMessage {
    /// The author.
    pub role: ChatRole,
    /// What it says.
    pub content: MessageContent,
    /// The name of the author, if there are several with one role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The content of a message.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum MessageContent {
    /// A text.
    Text(String),
    /// Texts, images and other parts, each an object with a `type`.
    Parts(Vec<Map<String, Value>>),
}

/// A part of a message is not a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a part of type `{kind}` is not a text")]
pub struct NotAText {
    /// The type of the part.
    pub kind: String,
}

impl MessageContent {
    /// The text of the message: its text parts, one after the other.
    pub fn text(&self) -> Result<Cow<'_, str>, NotAText> {
        let parts = match self {
            Self::Text(text) => return Ok(Cow::Borrowed(text)),
            Self::Parts(parts) => parts,
        };
        let mut whole = String::new();
        for part in parts {
            let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
            match (kind, part.get("text").and_then(Value::as_str)) {
                ("text", Some(text)) => whole.push_str(text),
                _ => {
                    return Err(NotAText {
                        kind: kind.chars().take(100).collect(),
                    });
                }
            }
        }
        Ok(Cow::Owned(whole))
    }
}

/// One event of a text that is being generated. [`TextEvent::Ended`] and [`TextEvent::Failed`] are the
/// last.
#[derive(Debug, Clone, PartialEq)]
pub enum TextEvent {
    /// The next part of the text.
    Text(String),
    /// The text is complete.
    Ended {
        /// Why it ends here.
        finish_reason: FinishReason,
        /// The number of tokens, if it is known.
        usage: Option<Usage>,
    },
    /// The generation failed; the text so far is not complete.
    Failed(TextError),
}

/// Why a text is not complete.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TextError {
    /// What happened.
    pub kind: TextErrorKind,
    /// The message for the client.
    pub message: String,
}

/// The kinds of errors of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextErrorKind {
    /// The model failed.
    Failed,
    /// The generation took too long and was stopped.
    TimedOut,
    /// The generation was stopped on request.
    Canceled,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parts(value: Value) -> MessageContent {
        let parts = value.as_array().unwrap();
        let parts = parts.iter().map(|part| part.as_object().unwrap().clone());
        MessageContent::Parts(parts.collect())
    }

    #[test]
    fn text_parts_are_joined_and_others_are_named() {
        let text = json!({"type": "text", "text": "a"});
        let image = json!({"type": "image_url", "image_url": {"url": "x"}});
        assert_eq!(parts(json!([text, text])).text().unwrap(), "aa");
        assert_eq!(
            parts(json!([text, image])).text().unwrap_err().kind,
            "image_url"
        );
        assert!(parts(json!([{"type": "text"}])).text().is_err());
    }

    #[test]
    fn a_message_is_serialized_as_clients_send_it() {
        let message = |content| ChatMessage {
            role: ChatRole::User,
            content,
            name: None,
        };
        let text = message(MessageContent::Text("hi".to_owned()));
        assert_eq!(
            serde_json::to_value(&text).unwrap(),
            json!({"role": "user", "content": "hi"})
        );
        let list = json!([{"type": "text", "text": "a"}]);
        assert_eq!(
            serde_json::to_value(message(parts(list.clone()))).unwrap()["content"],
            list
        );
        assert_eq!(
            serde_json::from_value::<ChatRole>(json!("developer")).unwrap(),
            ChatRole::System
        );
    }
}
