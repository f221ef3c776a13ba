//! Cog servers.
//!
//! Predictions are always created with `PUT /predictions/{id}`, so that they can be cancelled.

use hyper::Method;
use hyper::header::{ACCEPT, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tidegate_core::inference::{GeneratedText, InferenceAnswer, InferenceRequest};
use tidegate_core::text_generation::{
    ConversationText, FinishReason, NotAText, TextEvent, TextPrompt, TextRequest, Usage,
};
use tidegate_net::SseEvent;

use super::answer::{AnswerDocument, AnswerFormat, parse};
use super::error::{BackendError, BackendErrorKind};
use super::openai::error_event;
use super::{BackendCall, CallContext, NotSupported, json_call, path_segment};
use crate::fleet::BackendKind;

const KIND: BackendKind = BackendKind::Cog;

pub(super) fn encode(
    request: &InferenceRequest,
    context: &CallContext<'_>,
) -> Result<BackendCall, NotSupported> {
    let path = format!("/predictions/{}", context.request_id);
    match request {
        InferenceRequest::Text(request) => {
            let input = text_input(request).map_err(|error| NotSupported {
                kind: KIND,
                reason: format!("takes only texts as messages: {error}"),
            })?;
            let input = with_extra(&input, &request.extra);
            let answer = AnswerFormat::text(KIND, AnswerDocument::TextPrediction, request);
            let mut call = json_call(Method::PUT, path, &CreateBody { input }, answer);
            if request.stream {
                let events = HeaderValue::from_static("text/event-stream");
                call.headers.push((ACCEPT, events));
            }
            Ok(call)
        }
        InferenceRequest::Inputs(input) => {
            let answer = AnswerFormat::new(KIND, AnswerDocument::Prediction);
            Ok(json_call(Method::PUT, path, &CreateBody { input }, answer))
        }
        InferenceRequest::Embeddings(_) => Err(NotSupported {
            kind: KIND,
            reason: "has no common input for embeddings; send the inputs of the model".to_owned(),
        }),
    }
}

pub(super) fn cancel(id: &str) -> BackendCall {
    BackendCall {
        method: Method::POST,
        path: format!("/predictions/{}/cancel", path_segment(id)),
        content_type: None,
        headers: Vec::new(),
        body: bytes::Bytes::new(),
        answer: AnswerFormat::new(KIND, AnswerDocument::Json),
    }
}

#[derive(Serialize)]
struct CreateBody<T> {
    input: T,
}

/// The inputs that language models of Cog usually have. The input of a model is validated against its
/// schema, so that only those are sent that the client has set.
#[derive(Serialize)]
struct TextInput {
    prompt: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_prompt: Option<String>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_sequences: Option<String>,
}

fn text_input(request: &TextRequest) -> Result<TextInput, NotAText> {
    let conversation = match &request.prompt {
        TextPrompt::Messages(messages) => ConversationText::new(messages)?,
        TextPrompt::Text(text) => ConversationText {
            system: None,
            prompt: text.clone(),
        },
    };
    let parameters = &request.parameters;
    Ok(TextInput {
        prompt: conversation.prompt,
        system_prompt: conversation.system,
        max_tokens: parameters.max_tokens,
        min_tokens: parameters.min_tokens,
        temperature: parameters.temperature,
        top_p: parameters.top_p,
        top_k: parameters.top_k,
        frequency_penalty: parameters.frequency_penalty,
        presence_penalty: parameters.presence_penalty,
        repetition_penalty: parameters.repetition_penalty,
        seed: parameters.seed,
        stop_sequences: stop_sequences(&request.stop),
    })
}

/// The input with the other fields of the request, as a prompt may ask for an image, for example. A Cog server
/// ignores those that are no inputs of its model.
fn with_extra(input: &TextInput, extra: &Map<String, Value>) -> Map<String, Value> {
    let mut all = match serde_json::to_value(input) {
        Ok(Value::Object(members)) => members,
        other => unreachable!("an input with named fields is an object: {other:?}"),
    };
    for (name, value) in extra {
        all.entry(name).or_insert_with(|| value.clone());
    }
    all
}

/// Models take a list separated by commas. A stop string with a comma cannot be in it; all of them are
/// enforced on the answer too.
fn stop_sequences(stop: &[String]) -> Option<String> {
    let without_comma: Vec<&str> = stop
        .iter()
        .map(String::as_str)
        .filter(|text| !text.is_empty() && !text.contains(','))
        .collect();
    (!without_comma.is_empty()).then(|| without_comma.join(","))
}

/// The answer to a prediction, and the data of the event `completed`.
#[derive(Deserialize)]
struct Prediction {
    status: PredictionStatus,
    #[serde(default)]
    output: Value,
    error: Option<String>,
    #[serde(default)]
    metrics: Map<String, Value>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum PredictionStatus {
    Starting,
    Processing,
    Succeeded,
    Failed,
    #[serde(alias = "aborted")]
    Canceled,
}

impl Prediction {
    /// The prediction if it has succeeded.
    fn succeeded(self) -> Result<Self, BackendError> {
        match self.status {
            PredictionStatus::Succeeded => Ok(self),
            PredictionStatus::Failed => {
                let message = self.error.unwrap_or_else(|| "the model failed".to_owned());
                Err(BackendError::new(BackendErrorKind::ModelFailed, message))
            }
            PredictionStatus::Canceled => Err(BackendError::new(
                BackendErrorKind::Canceled,
                "the prediction was canceled",
            )),
            PredictionStatus::Starting | PredictionStatus::Processing => Err(
                BackendError::invalid(KIND, "the prediction is still running"),
            ),
        }
    }

    fn end(&self, max_tokens: Option<u64>) -> (FinishReason, Option<Usage>) {
        (
            FinishReason::from_metrics(&self.metrics, max_tokens),
            Usage::from_metrics(&self.metrics),
        )
    }

    fn text(self, max_tokens: Option<u64>) -> Result<GeneratedText, BackendError> {
        let (finish_reason, usage) = self.end(max_tokens);
        Ok(GeneratedText {
            text: output_text(self.output)?,
            finish_reason,
            usage,
        })
    }
}

pub(super) fn decode_text(
    body: &[u8],
    max_tokens: Option<u64>,
) -> Result<GeneratedText, BackendError> {
    parse::<Prediction>(KIND, body)?
        .succeeded()?
        .text(max_tokens)
}

/// Reads the answer to a prompt: a text, or an output of another kind, such as a file.
pub(super) fn decode_any(
    body: &[u8],
    max_tokens: Option<u64>,
) -> Result<InferenceAnswer, BackendError> {
    let prediction = parse::<Prediction>(KIND, body)?.succeeded()?;
    if !is_text(&prediction.output) {
        return Ok(InferenceAnswer::Output(prediction.output));
    }
    prediction.text(max_tokens).map(InferenceAnswer::Text)
}

/// Whether an output is a text or a list of its parts, and no file.
fn is_text(output: &Value) -> bool {
    match output {
        Value::Null => true,
        Value::String(text) => !text.starts_with("data:"),
        Value::Array(parts) => parts.iter().all(|part| part.is_string() && is_text(part)),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

pub(super) fn decode_output(body: &[u8]) -> Result<InferenceAnswer, BackendError> {
    let prediction = parse::<Prediction>(KIND, body)?.succeeded()?;
    Ok(InferenceAnswer::Output(prediction.output))
}

/// The output of a language model: a text, or a list of its parts.
fn output_text(output: Value) -> Result<String, BackendError> {
    match output {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text),
        Value::Array(parts) if parts.iter().all(Value::is_string) => {
            Ok(parts.iter().filter_map(Value::as_str).collect())
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => Err(
            BackendError::invalid(KIND, "the output of the model is not a text"),
        ),
    }
}

/// Reads the events of a prediction, of which `completed` is the last.
#[derive(Debug)]
pub(super) struct PredictionReader {
    max_tokens: Option<u64>,
    /// A part of the output has arrived; the output in `completed` only repeats it then.
    has_text: bool,
}

#[derive(Deserialize)]
struct OutputEvent {
    chunk: Value,
}

impl PredictionReader {
    pub(super) fn new(max_tokens: Option<u64>) -> Self {
        Self {
            max_tokens,
            has_text: false,
        }
    }

    pub(super) fn read(&mut self, event: SseEvent<'_>, emit: &mut dyn FnMut(TextEvent)) {
        let result = match event.name {
            b"output" => self.read_output(event.data, emit),
            b"completed" => self.read_completed(event.data, emit),
            b"error" => {
                emit(error_event(event.data));
                Ok(())
            }
            // `start`, `log` and `metric`; the metrics are in `completed` too.
            _ => Ok(()),
        };
        if let Err(error) = result {
            emit(TextEvent::Failed(error.into()));
        }
    }

    fn read_output(
        &mut self,
        data: &[u8],
        emit: &mut dyn FnMut(TextEvent),
    ) -> Result<(), BackendError> {
        let text = output_text(parse::<OutputEvent>(KIND, data)?.chunk)?;
        self.has_text = true;
        if !text.is_empty() {
            emit(TextEvent::Text(text));
        }
        Ok(())
    }

    fn read_completed(
        &mut self,
        data: &[u8],
        emit: &mut dyn FnMut(TextEvent),
    ) -> Result<(), BackendError> {
        let prediction = parse::<Prediction>(KIND, data)?.succeeded()?;
        let (finish_reason, usage) = prediction.end(self.max_tokens);
        if !self.has_text {
            let text = output_text(prediction.output)?;
            emit(TextEvent::Text(text));
        }
        emit(TextEvent::Ended {
            finish_reason,
            usage,
        });
        Ok(())
    }
}
