//! Text Generation Inference.
//!
//! Prompts go to its own routes. Conversations go to its OpenAI route, which applies the chat template
//! of the model.

use hyper::Method;
use hyper::header::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_core::inference::{GeneratedText, InferenceRequest};
use tidegate_core::text_generation::{FinishReason, TextEvent, TextPrompt, TextRequest, Usage};
use tidegate_net::SseEvent;

use super::answer::{AnswerDocument, AnswerFormat, parse};
use super::error::{BackendError, in_band};
use super::openai::{self, error_event};
use super::{BackendCall, CallContext, NotSupported, json_call};
use crate::fleet::BackendKind;

const KIND: BackendKind = BackendKind::Tgi;
/// The header with the number of tokens of the prompt.
const PROMPT_TOKENS: &str = "x-prompt-tokens";

pub(super) fn encode(
    request: &InferenceRequest,
    context: &CallContext<'_>,
) -> Result<BackendCall, NotSupported> {
    match request {
        InferenceRequest::Text(request) => match &request.prompt {
            TextPrompt::Messages(_) => Ok(openai::encode_text(KIND, request, context)),
            TextPrompt::Text(prompt) => Ok(encode_prompt(prompt, request)),
        },
        InferenceRequest::Embeddings(_) => Err(not_supported("has no embeddings")),
        InferenceRequest::Inputs(inputs) if inputs.contains_key("inputs") => {
            let answer = AnswerFormat::new(KIND, AnswerDocument::Json);
            Ok(json_call(Method::POST, "/generate", inputs, answer))
        }
        InferenceRequest::Inputs(inputs) if inputs.contains_key("messages") => {
            openai::encode(KIND, &InferenceRequest::Inputs(inputs.clone()), context)
        }
        InferenceRequest::Inputs(_) => Err(not_supported(
            "takes only inputs with `inputs` or `messages`",
        )),
    }
}

fn not_supported(reason: &str) -> NotSupported {
    NotSupported {
        kind: KIND,
        reason: reason.to_owned(),
    }
}

fn encode_prompt(prompt: &str, request: &TextRequest) -> BackendCall {
    let parameters = &request.parameters;
    // TGI samples only if it is asked to, and accepts neither a temperature of 0 nor a `top_p` of 1.
    let body = GenerateBody {
        inputs: prompt,
        parameters: GenerateParameters {
            details: true,
            do_sample: parameters.temperature.map(|temperature| temperature > 0.0),
            max_new_tokens: parameters.max_tokens,
            temperature: parameters.temperature.filter(|value| *value > 0.0),
            top_p: parameters.top_p.filter(|value| *value < 1.0),
            top_k: parameters.top_k.filter(|value| *value > 0),
            repetition_penalty: parameters.repetition_penalty,
            frequency_penalty: parameters.frequency_penalty,
            seed: parameters.seed.and_then(|seed| u64::try_from(seed).ok()),
            stop: &request.stop,
        },
    };
    let path = match request.stream {
        true => "/generate_stream",
        false => "/generate",
    };
    let answer = AnswerFormat::text(KIND, AnswerDocument::GeneratedText, request);
    json_call(Method::POST, path, &body, answer)
}

#[derive(Serialize)]
struct GenerateBody<'a> {
    inputs: &'a str,
    parameters: GenerateParameters<'a>,
}

#[derive(Serialize)]
struct GenerateParameters<'a> {
    /// Asks for the number of tokens and the reason of the end.
    details: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    do_sample: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_new_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repetition_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop: &'a [String],
}

#[derive(Deserialize)]
struct Generation {
    generated_text: Option<String>,
    details: Option<Details>,
    /// Of an event of a stream.
    token: Option<Token>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Token {
    text: String,
    /// A token such as the end of the text, which is not part of it.
    #[serde(default)]
    special: bool,
}

#[derive(Deserialize)]
struct Details {
    finish_reason: Option<String>,
    generated_tokens: Option<u64>,
    /// The tokens of the prompt, in streams of newer versions.
    input_length: Option<u64>,
}

impl Details {
    /// `eos_token` and `stop_sequence` are the other reasons.
    fn finish_reason(&self) -> FinishReason {
        match self.finish_reason.as_deref() {
            Some("length") => FinishReason::Length,
            _ => FinishReason::Stop,
        }
    }

    fn usage(&self, prompt_tokens: Option<u64>) -> Option<Usage> {
        let prompt = prompt_tokens.or(self.input_length).unwrap_or(0);
        Some(Usage::new(prompt, self.generated_tokens?))
    }
}

pub(super) fn decode_text(headers: &HeaderMap, body: &[u8]) -> Result<GeneratedText, BackendError> {
    let generation: Generation = parse(KIND, body)?;
    if generation.error.is_some() {
        return Err(in_band(&parse(KIND, body)?));
    }
    let text = generation
        .generated_text
        .ok_or_else(|| BackendError::invalid(KIND, "`generated_text` is absent"))?;
    let details = generation.details;
    let reason = details.as_ref().map(Details::finish_reason);
    let prompt_tokens = header_number(headers, PROMPT_TOKENS);
    Ok(GeneratedText {
        text,
        finish_reason: reason.unwrap_or(FinishReason::Stop),
        usage: details.and_then(|details| details.usage(prompt_tokens)),
    })
}

/// The number in a header.
pub(super) fn header_number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// Reads the tokens of a stream, of which the last has `generated_text`.
#[derive(Debug)]
pub(super) struct TokenReader;

impl TokenReader {
    pub(super) fn read(&mut self, event: SseEvent<'_>, emit: &mut dyn FnMut(TextEvent)) {
        let generation = match parse::<Generation>(KIND, event.data) {
            Ok(generation) if generation.error.is_none() => generation,
            Ok(_) => return emit(error_event(event.data)),
            Err(error) => return emit(TextEvent::Failed(error.into())),
        };
        let token = generation.token.filter(|token| !token.special);
        if let Some(token) = token.filter(|token| !token.text.is_empty()) {
            emit(TextEvent::Text(token.text));
        }
        if generation.generated_text.is_some() {
            let details = generation.details;
            let reason = details.as_ref().map(Details::finish_reason);
            emit(TextEvent::Ended {
                finish_reason: reason.unwrap_or(FinishReason::Stop),
                usage: details.and_then(|details| details.usage(None)),
            });
        }
    }
}
