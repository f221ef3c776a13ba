//! Renders generated texts and embeddings as the documents and events of OpenAI's API.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Serialize;
use tidegate_core::inference::{Embeddings, GeneratedText};
use tidegate_core::text_generation::{FinishReason, TextEvent, Usage};

use super::error::OpenAiError;
use super::parse_embeddings::VectorEncoding;

/// The last event of a stream.
pub(crate) const DONE: &str = "data: [DONE]\n\n";

/// Which of both APIs for text a client uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextEndpoint {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completion,
}

/// Renders the answer to one request for text.
#[derive(Debug, Clone)]
pub(crate) struct OpenAiTextRenderer {
    pub(crate) endpoint: TextEndpoint,
    /// The id of the answer without its prefix.
    pub(crate) id: String,
    /// The time of the answer, in seconds since 1970.
    pub(crate) created: i64,
    /// The model, as the client named it.
    pub(crate) model: String,
    /// Whether a stream ends with the number of tokens.
    pub(crate) include_usage: bool,
}

impl OpenAiTextRenderer {
    /// The whole answer.
    pub(crate) fn whole(&self, answer: &GeneratedText) -> Bytes {
        let reason = Some(answer.finish_reason);
        let choice = match self.endpoint {
            TextEndpoint::Chat => Choice {
                message: Some(Message {
                    role: "assistant",
                    content: &answer.text,
                    refusal: None,
                }),
                ..Choice::new(reason)
            },
            TextEndpoint::Completion => Choice {
                text: Some(&answer.text),
                ..Choice::new(reason)
            },
        };
        let object = match self.endpoint {
            TextEndpoint::Chat => "chat.completion",
            TextEndpoint::Completion => "text_completion",
        };
        self.document(object, &[choice], Some(answer.usage)).into()
    }

    /// The first event of a stream: in a chat it has the role of the message, which clients expect before
    /// its text. Empty for completions.
    pub(crate) fn stream_start(&self) -> String {
        match self.endpoint {
            TextEndpoint::Chat => {
                let delta = Delta {
                    role: Some("assistant"),
                    content: Some(""),
                };
                self.event(&[Choice {
                    delta: Some(delta),
                    ..Choice::new(None)
                }])
            }
            TextEndpoint::Completion => String::new(),
        }
    }

    /// The events of a stream for one event of the text. An error is an event of its own, after which there
    /// is no `[DONE]`.
    pub(crate) fn stream_event(&self, event: &TextEvent) -> String {
        match event {
            TextEvent::Text(text) if text.is_empty() => String::new(),
            TextEvent::Text(text) => self.part(Some(text), None),
            TextEvent::Ended {
                finish_reason,
                usage,
            } => {
                let mut out = self.part(None, Some(*finish_reason));
                if self.include_usage {
                    out.push_str(&data(&self.document(
                        self.chunk_object(),
                        &[],
                        Some(*usage),
                    )));
                }
                out.push_str(DONE);
                out
            }
            TextEvent::Failed(error) => error_event(&OpenAiError::from(error.clone())),
        }
    }

    fn part(&self, text: Option<&str>, reason: Option<FinishReason>) -> String {
        let choice = match self.endpoint {
            TextEndpoint::Chat => Choice {
                delta: Some(Delta {
                    role: None,
                    content: text,
                }),
                ..Choice::new(reason)
            },
            TextEndpoint::Completion => Choice {
                text: Some(text.unwrap_or_default()),
                ..Choice::new(reason)
            },
        };
        self.event(&[choice])
    }

    /// One event. With `include_usage` every event has `usage`, which is `null` before the last.
    fn event(&self, choices: &[Choice<'_>]) -> String {
        let usage = self.include_usage.then_some(None);
        data(&self.document(self.chunk_object(), choices, usage))
    }

    fn chunk_object(&self) -> &'static str {
        match self.endpoint {
            TextEndpoint::Chat => "chat.completion.chunk",
            TextEndpoint::Completion => "text_completion",
        }
    }

    fn document(
        &self,
        object: &'static str,
        choices: &[Choice<'_>],
        usage: Option<Option<Usage>>,
    ) -> String {
        let prefix = match self.endpoint {
            TextEndpoint::Chat => "chatcmpl",
            TextEndpoint::Completion => "cmpl",
        };
        let document = TextDocument {
            id: format!("{prefix}-{}", self.id),
            object,
            created: self.created,
            model: &self.model,
            choices,
            usage,
        };
        serde_json::to_string(&document).expect("answers have string keys")
    }
}

/// The event that tells a client of a stream that its text is not complete.
pub(crate) fn error_event(error: &OpenAiError) -> String {
    data(&error.to_json())
}

fn data(json: &str) -> String {
    format!("data: {json}\n\n")
}

#[derive(Serialize)]
struct TextDocument<'a> {
    id: String,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: &'a [Choice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Message<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<Delta<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    logprobs: Option<()>,
    finish_reason: Option<FinishReason>,
}

impl Choice<'_> {
    fn new(finish_reason: Option<FinishReason>) -> Self {
        Self {
            index: 0,
            message: None,
            delta: None,
            text: None,
            logprobs: None,
            finish_reason,
        }
    }
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
    refusal: Option<()>,
}

#[derive(Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
}

/// Renders embeddings.
pub(crate) fn embeddings(model: &str, answer: &Embeddings, encoding: VectorEncoding) -> Bytes {
    let data = answer.vectors.iter().enumerate();
    let data = data
        .map(|(index, vector)| EmbeddingItem {
            object: "embedding",
            index,
            embedding: match encoding {
                VectorEncoding::Float => Vector::Float(vector),
                VectorEncoding::Base64 => Vector::Base64(base64(vector)),
            },
        })
        .collect();
    let document = EmbeddingList {
        object: "list",
        data,
        model,
        usage: answer.usage.map(|usage| EmbeddingUsage {
            prompt_tokens: usage.prompt_tokens,
            total_tokens: usage.total_tokens,
        }),
    };
    serde_json::to_vec(&document)
        .expect("answers have string keys")
        .into()
}

fn base64(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    STANDARD.encode(bytes)
}

#[derive(Serialize)]
struct EmbeddingList<'a> {
    object: &'static str,
    data: Vec<EmbeddingItem<'a>>,
    model: &'a str,
    usage: Option<EmbeddingUsage>,
}

#[derive(Serialize)]
struct EmbeddingItem<'a> {
    object: &'static str,
    index: usize,
    embedding: Vector<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Vector<'a> {
    Float(&'a [f32]),
    Base64(String),
}

#[derive(Serialize)]
struct EmbeddingUsage {
    prompt_tokens: u64,
    total_tokens: u64,
}

#[cfg(test)]
mod tests {
    use tidegate_core::text_generation::{TextError, TextErrorKind};

    use super::*;

    fn renderer(endpoint: TextEndpoint, include_usage: bool) -> OpenAiTextRenderer {
        OpenAiTextRenderer {
            endpoint,
            id: "1".to_owned(),
            created: 5,
            model: "a/m".to_owned(),
            include_usage,
        }
    }

    fn ended() -> TextEvent {
        TextEvent::Ended {
            finish_reason: FinishReason::Length,
            usage: Some(Usage::new(1, 2)),
        }
    }

    fn stream(renderer: &OpenAiTextRenderer) -> String {
        let events = [
            TextEvent::Text("a\n".to_owned()),
            TextEvent::Text(String::new()),
            ended(),
        ];
        let rest: String = events
            .iter()
            .map(|event| renderer.stream_event(event))
            .collect();
        renderer.stream_start() + &rest
    }

    #[test]
    fn a_chat_stream() {
        insta::assert_snapshot!(stream(&renderer(TextEndpoint::Chat, true)));
    }

    #[test]
    fn a_chat_stream_without_usage() {
        let text = stream(&renderer(TextEndpoint::Chat, false));
        assert!(!text.contains("usage"), "{text}");
    }

    #[test]
    fn a_completion_stream() {
        insta::assert_snapshot!(stream(&renderer(TextEndpoint::Completion, true)));
    }

    #[test]
    fn whole_answers() {
        let answer = GeneratedText {
            text: "hi".to_owned(),
            finish_reason: FinishReason::Stop,
            usage: None,
        };
        let both = [TextEndpoint::Chat, TextEndpoint::Completion].map(|endpoint| {
            let bytes = renderer(endpoint, false).whole(&answer);
            String::from_utf8(bytes.to_vec()).unwrap()
        });
        insta::assert_snapshot!(both.join("\n"));
    }

    #[test]
    fn a_failure_is_the_last_event() {
        let failed = TextEvent::Failed(TextError {
            kind: TextErrorKind::Failed,
            message: "no".to_owned(),
        });
        assert_eq!(
            renderer(TextEndpoint::Chat, true).stream_event(&failed),
            "data: {\"error\":{\"message\":\"no\",\"type\":\"server_error\",\"param\":null,\"code\":\"model_error\"}}\n\n"
        );
    }

    #[test]
    fn vectors_are_numbers_or_bytes() {
        let answer = Embeddings {
            vectors: vec![vec![0.5, -1.0]],
            usage: Some(Usage::new(3, 0)),
        };
        assert_eq!(
            embeddings("m", &answer, VectorEncoding::Float),
            r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,-1.0]}],"model":"m","usage":{"prompt_tokens":3,"total_tokens":3}}"#
        );
        let text =
            String::from_utf8(embeddings("m", &answer, VectorEncoding::Base64).to_vec()).unwrap();
        assert!(text.contains(r#""embedding":"AAAAPwAAgL8=""#), "{text}");
    }
}
