//! Triton Inference Server.
//!
//! Texts go to the generate extension, which has no messages, no stop strings, and no event at the end
//! of a stream. Inputs that are a request of the KServe v2 protocol go to `infer`.

use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_core::inference::{GeneratedText, InferenceRequest};
use tidegate_core::text_generation::{
    ConversationText, FinishReason, TextEvent, TextPrompt, TextRequest, Usage,
};
use tidegate_net::SseEvent;

use super::answer::{AnswerDocument, AnswerFormat, parse};
use super::error::{BackendError, in_band};
use super::openai::error_event;
use super::stream::failed;
use super::{BackendCall, CallContext, NotSupported, json_call, path_segment};
use crate::fleet::BackendKind;

const KIND: BackendKind = BackendKind::Triton;

pub(super) fn encode(
    request: &InferenceRequest,
    context: &CallContext<'_>,
) -> Result<BackendCall, NotSupported> {
    let model = path_segment(context.upstream_model);
    match request {
        InferenceRequest::Text(request) => encode_text(request, &model),
        InferenceRequest::Inputs(inputs) if inputs.get("inputs").is_some_and(Value::is_array) => {
            let answer = AnswerFormat::new(KIND, AnswerDocument::Json);
            let path = format!("/v2/models/{model}/infer");
            Ok(json_call(Method::POST, path, inputs, answer))
        }
        InferenceRequest::Inputs(_) => Err(not_supported(
            "takes only inputs with `inputs`, a list of tensors with `name`, `shape`, `datatype` and `data`",
        )),
        InferenceRequest::Embeddings(_) => Err(not_supported(
            "has no embeddings of texts; send the tensors of the model as `inputs`",
        )),
    }
}

fn not_supported(reason: impl Into<String>) -> NotSupported {
    NotSupported {
        kind: KIND,
        reason: reason.into(),
    }
}

fn encode_text(request: &TextRequest, model: &str) -> Result<BackendCall, NotSupported> {
    let text_input = match &request.prompt {
        TextPrompt::Text(text) => text.clone(),
        TextPrompt::Messages(messages) => ConversationText::new(messages)
            .map_err(|error| not_supported(format!("takes only texts as messages: {error}")))?
            .into_text(),
    };
    let parameters = &request.parameters;
    let body = GenerateInput {
        text_input,
        parameters: GenerateOptions {
            stream: request.stream,
            exclude_input_in_output: true,
            return_finish_reason: true,
            return_num_input_tokens: true,
            return_num_output_tokens: true,
            max_tokens: parameters.max_tokens,
            min_tokens: parameters.min_tokens,
            temperature: parameters.temperature,
            top_p: parameters.top_p,
            top_k: parameters.top_k,
            frequency_penalty: parameters.frequency_penalty,
            presence_penalty: parameters.presence_penalty,
            repetition_penalty: parameters.repetition_penalty,
            seed: parameters.seed,
        },
    };
    let path = match request.stream {
        true => format!("/v2/models/{model}/generate_stream"),
        false => format!("/v2/models/{model}/generate"),
    };
    let answer = AnswerFormat::text(KIND, AnswerDocument::TextOutput, request);
    Ok(json_call(Method::POST, path, &body, answer))
}

#[derive(Serialize)]
struct GenerateInput {
    text_input: String,
    parameters: GenerateOptions,
}

/// Triton takes only single values here, so that the stop strings are enforced on the answer instead.
/// Models ignore options that they do not have.
#[derive(Serialize)]
struct GenerateOptions {
    stream: bool,
    exclude_input_in_output: bool,
    return_finish_reason: bool,
    return_num_input_tokens: bool,
    return_num_output_tokens: bool,
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
}

/// An answer, or an event of a stream.
#[derive(Deserialize)]
struct GenerateOutput {
    text_output: Option<String>,
    finish_reason: Option<String>,
    num_input_tokens: Option<u64>,
    /// Of this event.
    num_output_tokens: Option<u64>,
    error: Option<Value>,
}

pub(super) fn decode_text(body: &[u8]) -> Result<GeneratedText, BackendError> {
    let output: GenerateOutput = parse(KIND, body)?;
    if output.error.is_some() {
        return Err(in_band(&parse(KIND, body)?));
    }
    let mut end = TextEnd::default();
    end.add(&output);
    let text = output
        .text_output
        .ok_or_else(|| BackendError::invalid(KIND, "`text_output` is absent"))?;
    Ok(GeneratedText {
        text,
        finish_reason: end.finish_reason(),
        usage: end.usage(),
    })
}

/// What the outputs say about the end of the text.
#[derive(Debug, Default)]
struct TextEnd {
    is_length: bool,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
}

impl TextEnd {
    fn add(&mut self, output: &GenerateOutput) {
        self.is_length |= output.finish_reason.as_deref() == Some("length");
        self.prompt_tokens = output.num_input_tokens.or(self.prompt_tokens);
        if let Some(tokens) = output.num_output_tokens {
            let before = self.completion_tokens.unwrap_or(0);
            self.completion_tokens = Some(before.saturating_add(tokens));
        }
    }

    fn finish_reason(&self) -> FinishReason {
        match self.is_length {
            true => FinishReason::Length,
            false => FinishReason::Stop,
        }
    }

    fn usage(&self) -> Option<Usage> {
        let completion_tokens = self.completion_tokens?;
        Some(Usage::new(
            self.prompt_tokens.unwrap_or(0),
            completion_tokens,
        ))
    }
}

/// Reads the outputs of a stream, which ends with the body.
#[derive(Debug, Default)]
pub(super) struct OutputReader {
    has_output: bool,
    end: TextEnd,
}

impl OutputReader {
    pub(super) fn read(&mut self, event: SseEvent<'_>, emit: &mut dyn FnMut(TextEvent)) {
        let output = match parse::<GenerateOutput>(KIND, event.data) {
            Ok(output) if output.error.is_none() => output,
            Ok(_) => return emit(error_event(event.data)),
            Err(error) => return emit(TextEvent::Failed(error.into())),
        };
        self.has_output = true;
        self.end.add(&output);
        if let Some(text) = output.text_output.filter(|text| !text.is_empty()) {
            emit(TextEvent::Text(text));
        }
    }

    /// The end of the body.
    pub(super) fn end(&self) -> TextEvent {
        if !self.has_output {
            return failed("the backend sent a stream without an output");
        }
        TextEvent::Ended {
            finish_reason: self.end.finish_reason(),
            usage: self.end.usage(),
        }
    }
}
