//! Parses the body of `POST …/ai/run/{model}`.
//!
//! The body has the inputs of the model. What they ask for depends on the model: a `prompt` is a text to
//! continue for one model and the description of an image for another.

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tidegate_core::inference::{EmbeddingRequest, InferenceRequest};
use tidegate_core::model_interface::{ModelInterface, ModelTask};
use tidegate_core::text_generation::{TextPrompt, TextRequest};

use super::error::WorkersAiError;
use crate::openai::error::OpenAiError;
use crate::openai::parse_embeddings::MAX_TEXTS;
use crate::openai::parse_text::{extra_fields, field, fields_except, messages, parameters, stop};
use crate::shared::json_fields::JsonFields;
use crate::shared::parse_body::parse_object;

/// Fields that only models with an input of that name support. A value that asks for nothing is accepted.
const UNSUPPORTED: [&str; 6] = [
    "tools",
    "functions",
    "response_format",
    "guided_json",
    "lora",
    "image",
];

/// Parses a body for a model of which nothing is known: `messages` or `prompt` ask for text, `text` for
/// embeddings, and everything else is the inputs of the model. `takes_inputs` tells whether the backend of
/// the model takes inputs of any name beside a prompt.
pub(crate) fn parse_run(
    body: &[u8],
    takes_inputs: bool,
) -> Result<InferenceRequest, WorkersAiError> {
    let fields = fields(body)?;
    let task = if fields.raw("messages").is_some() || fields.raw("prompt").is_some() {
        ModelTask::TextGeneration
    } else if fields.raw("text").is_some() {
        ModelTask::TextEmbeddings
    } else {
        ModelTask::Other
    };
    request_for(task, &fields, |_| takes_inputs)
}

/// Parses a body for a model with this interface.
pub(crate) fn parse_run_for(
    interface: &ModelInterface,
    body: &[u8],
) -> Result<InferenceRequest, WorkersAiError> {
    let has_input = |name: &str| interface.has_input(name);
    request_for(interface.task(), &fields(body)?, has_input)
}

/// The fields of a request for embeddings that are no parameters: a model may have inputs with their names.
pub(super) fn extra_embedding_inputs(body: &[u8]) -> Result<Map<String, Value>, WorkersAiError> {
    Ok(fields_except(&["text", "stream"], &fields(body)?))
}

fn fields(body: &[u8]) -> Result<JsonFields<'_>, WorkersAiError> {
    Ok(parse_object(body)?.unwrap_or_default())
}

fn request_for(
    task: ModelTask,
    fields: &JsonFields<'_>,
    has_input: impl Fn(&str) -> bool,
) -> Result<InferenceRequest, WorkersAiError> {
    let request = match task {
        ModelTask::TextGeneration => text(fields, has_input)?.map(InferenceRequest::Text),
        ModelTask::TextEmbeddings => texts(fields)?.map(InferenceRequest::Embeddings),
        ModelTask::Other => None,
    };
    match request {
        Some(request) => Ok(request),
        None => Ok(InferenceRequest::Inputs(inputs(fields)?)),
    }
}

/// The request for text; `None` without `messages` and `prompt`.
fn text(
    fields: &JsonFields<'_>,
    has_input: impl Fn(&str) -> bool,
) -> Result<Option<TextRequest>, WorkersAiError> {
    let prompt = if fields.raw("messages").is_some() {
        TextPrompt::Messages(messages(fields)?)
    } else if let Some(text) = field(fields, "prompt")? {
        TextPrompt::Text(text)
    } else {
        return Ok(None);
    };
    let is_unsupported = |name: &&&str| fields.is_set(name) && !has_input(name);
    if let Some(name) = UNSUPPORTED.iter().find(is_unsupported) {
        return Err(WorkersAiError::invalid(format!(
            "`{name}` is not supported by the models of this server; send the request without it"
        )));
    }
    Ok(Some(TextRequest {
        prompt,
        parameters: parameters(fields)?,
        stop: stop(fields)?,
        stream: field(fields, "stream")?.unwrap_or(false),
        extra: extra_fields(fields),
    }))
}

/// The request for embeddings; `None` without `text`.
fn texts(fields: &JsonFields<'_>) -> Result<Option<EmbeddingRequest>, WorkersAiError> {
    let text: Option<Value> = field(fields, "text")?;
    let invalid = || WorkersAiError::invalid("`text` must be a text or a list of texts");
    let texts = match text {
        None => return Ok(None),
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(list)) => {
            let text = |value: Value| match value {
                Value::String(text) => Ok(text),
                _ => Err(invalid()),
            };
            list.into_iter().map(text).collect::<Result<Vec<_>, _>>()?
        }
        Some(_) => return Err(invalid()),
    };
    if texts.is_empty() || texts.len() > MAX_TEXTS {
        let message = format!("`text` must have 1 to {MAX_TEXTS} texts");
        return Err(WorkersAiError::invalid(message));
    }
    Ok(Some(EmbeddingRequest {
        texts,
        dimensions: None,
    }))
}

/// The inputs by name. `stream` is an option of this API.
fn inputs(fields: &JsonFields<'_>) -> Result<Map<String, Value>, OpenAiError> {
    let value = |name: &str, raw: &RawValue| {
        let value = serde_json::from_str(raw.get());
        value.map_err(|error| OpenAiError::invalid(name, format!("invalid `{name}`: {error}")))
    };
    fields
        .iter()
        .filter(|(name, _)| *name != "stream")
        .map(|(name, raw)| Ok((name.to_owned(), value(name, raw)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(body: Value) -> Result<InferenceRequest, WorkersAiError> {
        parse_run(body.to_string().as_bytes(), false)
    }

    fn parsed_for(task: ModelTask, body: &[u8]) -> Result<InferenceRequest, WorkersAiError> {
        request_for(task, &fields(body)?, |_| false)
    }

    #[test]
    fn the_fields_say_what_is_asked_for() {
        let Ok(InferenceRequest::Text(text)) =
            parse(json!({"prompt": "hi", "stream": true, "max_tokens": 3, "stop": ["x"]}))
        else {
            panic!("not a request for text");
        };
        assert_eq!(text.prompt, TextPrompt::Text("hi".to_owned()));
        assert!(text.stream);
        assert_eq!(text.parameters.max_tokens, Some(3));
        let conversation =
            json!({"messages": [{"role": "user", "content": "hi"}], "prompt": "ignored"});
        let Ok(InferenceRequest::Text(text)) = parse(conversation) else {
            panic!("not a request for text");
        };
        assert!(matches!(text.prompt, TextPrompt::Messages(_)));
        let Ok(InferenceRequest::Embeddings(request)) = parse(json!({"text": ["a", "b"]})) else {
            panic!("not a request for embeddings");
        };
        assert_eq!(request.texts, ["a", "b"]);
        let Ok(InferenceRequest::Inputs(inputs)) = parse(json!({"n": 1, "stream": true})) else {
            panic!("not inputs");
        };
        assert_eq!(Value::Object(inputs), json!({"n": 1}));
        assert_eq!(
            parse_run(b"", false).unwrap(),
            InferenceRequest::Inputs(Map::new())
        );
    }

    #[test]
    fn the_task_of_the_model_decides() {
        let body = br#"{"prompt": "a cat", "text": "b"}"#;
        assert!(matches!(
            parsed_for(ModelTask::Other, body),
            Ok(InferenceRequest::Inputs(_))
        ));
        assert!(matches!(
            parsed_for(ModelTask::TextEmbeddings, body),
            Ok(InferenceRequest::Embeddings(_))
        ));
        assert!(matches!(
            parsed_for(ModelTask::TextGeneration, b"{}"),
            Ok(InferenceRequest::Inputs(_))
        ));
    }

    #[test]
    fn invalid_data_is_5004() {
        for body in [
            json!({"prompt": "a", "tools": [{}]}),
            json!({"prompt": 1}),
            json!({"prompt": "a", "max_tokens": "x"}),
            json!({"messages": []}),
            json!({"messages": [{"role": "user"}]}),
            json!({"text": [1]}),
            json!({"text": []}),
        ] {
            let error = parse(body.clone()).unwrap_err();
            assert_eq!((error.status.as_u16(), error.code), (400, 5004), "{body}");
        }
        assert_eq!(parse_run(b"[1]", false).unwrap_err().code, 5004);
    }
}
