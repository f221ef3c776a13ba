//! Renders answers and streams of the Workers AI API.

use bytes::Bytes;
use tidegate_core::inference::{GeneratedText, InferenceAnswer};
use tidegate_core::text_generation::TextEvent;

use super::error::WorkersAiError;
use super::wire::{EmbeddingResult, Envelope, TextResult};

/// The last event of a stream.
const DONE: &str = "data: [DONE]\n\n";

/// The answer in its envelope.
pub(crate) fn render_answer(answer: &InferenceAnswer) -> Bytes {
    match answer {
        InferenceAnswer::Text(text) => Envelope::of(TextResult {
            response: &text.text,
            usage: text.usage,
        }),
        InferenceAnswer::Embeddings(embeddings) => {
            Envelope::of(embedding_result(&embeddings.vectors))
        }
        InferenceAnswer::Output(value) => Envelope::of(value),
    }
}

/// The answer without its envelope, for an item of a batch.
pub(crate) fn answer_result(answer: &InferenceAnswer) -> serde_json::Value {
    let result = match answer {
        InferenceAnswer::Text(text) => serde_json::to_value(TextResult {
            response: &text.text,
            usage: text.usage,
        }),
        InferenceAnswer::Embeddings(embeddings) => {
            serde_json::to_value(embedding_result(&embeddings.vectors))
        }
        InferenceAnswer::Output(value) => Ok(value.clone()),
    };
    result.expect("answers have string keys")
}

fn embedding_result(vectors: &[Vec<f32>]) -> EmbeddingResult<'_> {
    EmbeddingResult {
        shape: [vectors.len(), vectors.first().map_or(0, Vec::len)],
        data: vectors,
    }
}

/// The events of a stream for one event of the text: the last has the number of tokens. After an error there
/// is no `[DONE]`.
pub(crate) fn stream_event(event: &TextEvent) -> String {
    match event {
        TextEvent::Text(text) if text.is_empty() => String::new(),
        TextEvent::Text(text) => data(&TextResult {
            response: text,
            usage: None,
        }),
        TextEvent::Ended { usage, .. } => {
            data(&TextResult {
                response: "",
                usage: *usage,
            }) + DONE
        }
        TextEvent::Failed(error) => error_event(&WorkersAiError::from(error.clone())),
    }
}

/// The stream of a text that is complete.
pub(super) fn whole_stream(text: GeneratedText) -> String {
    let ended = TextEvent::Ended {
        finish_reason: text.finish_reason,
        usage: text.usage,
    };
    stream_event(&TextEvent::Text(text.text)) + &stream_event(&ended)
}

/// The event that tells a client of a stream that its text is not complete.
pub(crate) fn error_event(error: &WorkersAiError) -> String {
    format!("data: {}\n\n", error.to_json())
}

fn data(result: &TextResult<'_>) -> String {
    let json = serde_json::to_string(result).expect("events have string keys");
    format!("data: {json}\n\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate_core::inference::Embeddings;
    use tidegate_core::text_generation::{FinishReason, TextError, TextErrorKind, Usage};

    use super::*;

    #[test]
    fn answers_are_in_an_envelope() {
        let text = InferenceAnswer::Text(GeneratedText {
            text: "hi".to_owned(),
            finish_reason: FinishReason::Stop,
            usage: Some(Usage::new(1, 2)),
        });
        let embeddings = InferenceAnswer::Embeddings(Embeddings {
            vectors: vec![vec![0.5, 1.0]],
            usage: None,
        });
        let output = InferenceAnswer::Output(json!([{"label": "cat"}]));
        let all = [text, embeddings, output]
            .map(|answer| String::from_utf8(render_answer(&answer).to_vec()).unwrap());
        insta::assert_snapshot!(all.join("\n"));
    }

    #[test]
    fn a_stream_ends_with_usage_and_done() {
        let ended = TextEvent::Ended {
            finish_reason: FinishReason::Stop,
            usage: Some(Usage::new(1, 2)),
        };
        let events = [TextEvent::Text("a\n".to_owned()), ended];
        let text: String = events.iter().map(stream_event).collect();
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_failure_is_the_last_event() {
        let failed = TextEvent::Failed(TextError {
            kind: TextErrorKind::Failed,
            message: "no".to_owned(),
        });
        let text = stream_event(&failed);
        assert!(
            text.contains("\"code\":3043") && !text.contains("DONE"),
            "{text}"
        );
    }
}
