//! Servers with OpenAI's API: vLLM, SGLang, llama.cpp and others.

use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tidegate_core::inference::{
    EmbeddingRequest, Embeddings, GeneratedText, InferenceAnswer, InferenceRequest,
};
use tidegate_core::text_generation::{
    ChatMessage, FinishReason, TextEvent, TextPrompt, TextRequest, Usage,
};
use tidegate_net::SseEvent;

use super::answer::{AnswerDocument, AnswerFormat, parse};
use super::error::{BackendError, in_band};
use super::stream::failed;
use super::{BackendCall, CallContext, NotSupported, json_call};
use crate::fleet::BackendKind;

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const EMBEDDINGS: &str = "/v1/embeddings";

pub(super) fn encode(
    kind: BackendKind,
    request: &InferenceRequest,
    context: &CallContext<'_>,
) -> Result<BackendCall, NotSupported> {
    match request {
        InferenceRequest::Text(request) => Ok(encode_text(kind, request, context)),
        InferenceRequest::Embeddings(request) => Ok(encode_embeddings(kind, request, context)),
        InferenceRequest::Inputs(inputs) => encode_inputs(kind, inputs, context),
    }
}

/// Also for TGI, which has these routes.
pub(super) fn encode_text(
    kind: BackendKind,
    request: &TextRequest,
    context: &CallContext<'_>,
) -> BackendCall {
    let (path, messages, prompt) = match &request.prompt {
        TextPrompt::Messages(messages) => (CHAT, Some(messages.as_slice()), None),
        TextPrompt::Text(text) => (COMPLETIONS, None, Some(text.as_str())),
    };
    let parameters = &request.parameters;
    let body = CompletionBody {
        model: context.upstream_model,
        messages,
        prompt,
        max_tokens: parameters.max_tokens,
        min_tokens: parameters.min_tokens,
        temperature: parameters.temperature,
        top_p: parameters.top_p,
        top_k: parameters.top_k,
        frequency_penalty: parameters.frequency_penalty,
        presence_penalty: parameters.presence_penalty,
        repetition_penalty: parameters.repetition_penalty,
        seed: parameters.seed,
        stop: &request.stop,
        stream: request.stream,
        stream_options: request.stream.then_some(StreamOptions {
            include_usage: true,
        }),
    };
    let answer = AnswerFormat::new(kind, AnswerDocument::Completion);
    json_call(Method::POST, path, &body, answer)
}

fn encode_embeddings(
    kind: BackendKind,
    request: &EmbeddingRequest,
    context: &CallContext<'_>,
) -> BackendCall {
    let body = EmbeddingBody {
        model: context.upstream_model,
        input: &request.texts,
        encoding_format: "float",
        dimensions: request.dimensions,
    };
    let answer = AnswerFormat::new(kind, AnswerDocument::EmbeddingList);
    json_call(Method::POST, EMBEDDINGS, &body, answer)
}

/// Inputs with `messages` or `prompt` are the body of a completion as they are.
fn encode_inputs(
    kind: BackendKind,
    inputs: &Map<String, Value>,
    context: &CallContext<'_>,
) -> Result<BackendCall, NotSupported> {
    let not_supported = |reason: &str| NotSupported {
        kind,
        reason: reason.to_owned(),
    };
    let path = match (
        inputs.contains_key("messages"),
        inputs.contains_key("prompt"),
    ) {
        (true, _) => CHAT,
        (false, true) => COMPLETIONS,
        (false, false) => {
            return Err(not_supported(
                "takes inputs only with `messages` or `prompt`",
            ));
        }
    };
    // The answer is read as a text, so that calls of tools would be lost.
    if inputs.contains_key("tools") {
        return Err(not_supported(
            "takes `tools` only through the API of OpenAI",
        ));
    }
    let mut body = inputs.clone();
    body.insert("model".to_owned(), context.upstream_model.into());
    let answer = AnswerFormat::new(kind, AnswerDocument::Completion);
    Ok(json_call(Method::POST, path, &body, answer))
}

#[derive(Serialize)]
struct CompletionBody<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<&'a [ChatMessage]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    presence_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repetition_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<i64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop: &'a [String],
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct EmbeddingBody<'a> {
    model: &'a str,
    input: &'a [String],
    encoding_format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<u32>,
}

/// A completion, a chat completion, or a chunk of either.
#[derive(Deserialize)]
struct Completion {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<UsageObject>,
    error: Option<Value>,
    /// `error` in the error objects of older versions of vLLM.
    object: Option<String>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: u64,
    /// Of a completion.
    text: Option<String>,
    /// Of a chat completion.
    message: Option<ChoiceMessage>,
    /// Of a chunk of a chat completion.
    delta: Option<ChoiceMessage>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct ChoiceMessage {
    content: Option<String>,
}

#[derive(Deserialize)]
struct UsageObject {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
}

impl Completion {
    fn is_error(&self) -> bool {
        self.error.as_ref().is_some_and(|error| !error.is_null())
            || self.object.as_deref() == Some("error")
    }

    fn usage(&self) -> Option<Usage> {
        let usage = self.usage.as_ref()?;
        Some(Usage::new(
            usage.prompt_tokens.unwrap_or(0),
            usage.completion_tokens.unwrap_or(0),
        ))
    }

    fn into_first_choice(self) -> Option<Choice> {
        self.choices.into_iter().find(|choice| choice.index == 0)
    }
}

impl Choice {
    fn into_text(self) -> String {
        let message = self.message.or(self.delta);
        let content = message.and_then(|message| message.content);
        content.or(self.text).unwrap_or_default()
    }
}

/// A reason that is not known is the one of a model that was done.
fn finish_reason(name: &str) -> FinishReason {
    match name {
        "length" => FinishReason::Length,
        "content_filter" => FinishReason::ContentFilter,
        _ => FinishReason::Stop,
    }
}

pub(super) fn decode_text(body: &[u8]) -> Result<GeneratedText, BackendError> {
    let completion: Completion = parse(BackendKind::OpenAi, body)?;
    if completion.is_error() {
        return Err(in_band(&parse(BackendKind::OpenAi, body)?));
    }
    let usage = completion.usage();
    let choice = completion
        .into_first_choice()
        .ok_or_else(|| BackendError::invalid(BackendKind::OpenAi, "`choices` is empty"))?;
    let reason = choice.finish_reason.as_deref().unwrap_or("stop");
    Ok(GeneratedText {
        finish_reason: finish_reason(reason),
        text: choice.into_text(),
        usage,
    })
}

#[derive(Deserialize)]
struct EmbeddingList {
    data: Vec<EmbeddingItem>,
    usage: Option<UsageObject>,
}

#[derive(Deserialize)]
struct EmbeddingItem {
    embedding: Vec<f32>,
    #[serde(default)]
    index: usize,
}

pub(super) fn decode_embeddings(body: &[u8]) -> Result<InferenceAnswer, BackendError> {
    let mut list: EmbeddingList = parse(BackendKind::OpenAi, body)?;
    list.data.sort_by_key(|item| item.index);
    let tokens = list.usage.and_then(|usage| usage.prompt_tokens);
    Ok(InferenceAnswer::Embeddings(Embeddings {
        vectors: list.data.into_iter().map(|item| item.embedding).collect(),
        usage: tokens.map(|tokens| Usage::new(tokens, 0)),
    }))
}

/// Reads the chunks of a stream, which ends with `[DONE]`.
#[derive(Debug, Default)]
pub(super) struct CompletionReader {
    finish_reason: Option<FinishReason>,
    usage: Option<Usage>,
}

impl CompletionReader {
    pub(super) fn read(&mut self, event: SseEvent<'_>, emit: &mut dyn FnMut(TextEvent)) {
        if event.data.trim_ascii() == b"[DONE]" {
            emit(TextEvent::Ended {
                finish_reason: self.finish_reason.unwrap_or(FinishReason::Stop),
                usage: self.usage,
            });
            return;
        }
        match parse::<Completion>(BackendKind::OpenAi, event.data) {
            Err(error) => emit(TextEvent::Failed(error.into())),
            Ok(chunk) if chunk.is_error() || event.name == b"error" => {
                emit(error_event(event.data));
            }
            Ok(chunk) => self.read_chunk(chunk, emit),
        }
    }

    fn read_chunk(&mut self, chunk: Completion, emit: &mut dyn FnMut(TextEvent)) {
        self.usage = chunk.usage().or(self.usage);
        let Some(choice) = chunk.into_first_choice() else {
            return;
        };
        let reason = choice.finish_reason.as_deref().map(finish_reason);
        self.finish_reason = reason.or(self.finish_reason);
        let text = choice.into_text();
        if !text.is_empty() {
            emit(TextEvent::Text(text));
        }
    }
}

/// The error that an event contains.
pub(super) fn error_event(data: &[u8]) -> TextEvent {
    match serde_json::from_slice(data) {
        Ok(value) => TextEvent::Failed(in_band(&value).into()),
        Err(_) => failed("the backend reported an error that is not JSON"),
    }
}
