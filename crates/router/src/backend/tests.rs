//! The adapters with answers as the servers send them.

mod answers;
mod calls;
mod streams;

use serde_json::{Map, Value, json};
use tidegate_core::inference::{EmbeddingRequest, InferenceRequest};
use tidegate_core::text_generation::{
    ChatMessage, ChatRole, FinishReason, MessageContent, TextEvent, TextParameters, TextPrompt,
    TextRequest, Usage,
};

use super::*;

/// Whether a client reads the text while it is generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Whole,
    Stream,
}

const ID: &str = "00112233445566778899aabbccddeeff";

fn context() -> CallContext<'static> {
    CallContext {
        upstream_model: "org/model 1",
        request_id: RequestId::parse(ID).unwrap(),
    }
}

fn message(role: ChatRole, text: &str) -> ChatMessage {
    ChatMessage {
        role,
        content: MessageContent::Text(text.to_owned()),
        name: None,
    }
}

fn text_request(prompt: TextPrompt, mode: Mode) -> TextRequest {
    TextRequest {
        prompt,
        parameters: TextParameters::default(),
        stop: Vec::new(),
        stream: mode == Mode::Stream,
        extra: Map::new(),
    }
}

fn prompt(mode: Mode) -> InferenceRequest {
    InferenceRequest::Text(text_request(TextPrompt::Text("Say hello".to_owned()), mode))
}

fn conversation(mode: Mode) -> InferenceRequest {
    let messages = vec![
        message(ChatRole::System, "Be brief."),
        message(ChatRole::User, "Say hello"),
    ];
    InferenceRequest::Text(text_request(TextPrompt::Messages(messages), mode))
}

fn embeddings() -> InferenceRequest {
    InferenceRequest::Embeddings(EmbeddingRequest {
        texts: vec!["a".to_owned(), "b".to_owned()],
        dimensions: Some(2),
    })
}

fn inputs(value: Value) -> InferenceRequest {
    InferenceRequest::Inputs(value.as_object().unwrap().clone())
}

fn call(kind: BackendKind, request: &InferenceRequest) -> BackendCall {
    encode(kind, request, &context()).unwrap()
}

fn body_of(call: &BackendCall) -> Value {
    serde_json::from_slice(&call.body).unwrap()
}

/// The text that all fixtures contain, and its tokens.
const GOLDEN: &str = "Hello, wörld!";

fn golden_usage() -> Usage {
    Usage::new(7, 3)
}

fn ended(finish_reason: FinishReason, usage: Option<Usage>) -> TextEvent {
    TextEvent::Ended {
        finish_reason,
        usage,
    }
}
