//! Parses the bodies of `/v1/chat/completions` and `/v1/completions`.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tidegate_core::text_generation::{
    ChatMessage, ChatRole, MessageContent, TextParameters, TextPrompt, TextRequest,
};

use super::error::OpenAiError;
use crate::shared::json_fields::{JsonFields, without_position};
use crate::shared::parse_body::parse_object;

/// The most stop strings of a request, and the longest of them in bytes: each part of a text is compared
/// with all of them.
const MAX_STOPS: usize = 16;
const MAX_STOP_LENGTH: usize = 1024;

/// A request for text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OpenAiTextRequest {
    /// The model as the client names it.
    pub(crate) model: String,
    pub(crate) request: TextRequest,
    /// Whether the stream ends with an event that has the number of tokens.
    pub(crate) include_usage: bool,
}

/// Parses the body of `/v1/chat/completions`.
pub(crate) fn parse_chat(body: &[u8]) -> Result<OpenAiTextRequest, OpenAiError> {
    let fields = parse_fields(body)?;
    reject_unsupported(&fields, &UNSUPPORTED_IN_CHAT)?;
    reject_audio(&fields)?;
    text_request(&fields, TextPrompt::Messages(messages(&fields)?))
}

/// Parses the body of `/v1/completions`.
pub(crate) fn parse_completion(body: &[u8]) -> Result<OpenAiTextRequest, OpenAiError> {
    let fields = parse_fields(body)?;
    reject_unsupported(&fields, &UNSUPPORTED_IN_COMPLETIONS)?;
    if field::<u64>(&fields, "best_of")?.is_some_and(|count| count > 1) {
        return Err(unsupported("best_of"));
    }
    let prompt: PromptField =
        field(&fields, "prompt")?.ok_or_else(|| OpenAiError::missing("prompt"))?;
    let text = match prompt {
        PromptField::Text(text) => text,
        PromptField::List(list) => only_text(list)?,
    };
    text_request(&fields, TextPrompt::Text(text))
}

/// The conversation in `messages`.
pub(crate) fn messages(fields: &JsonFields<'_>) -> Result<Vec<ChatMessage>, OpenAiError> {
    let messages: Vec<&RawValue> =
        field(fields, "messages")?.ok_or_else(|| OpenAiError::missing("messages"))?;
    if messages.is_empty() {
        return Err(OpenAiError::invalid("messages", "`messages` is empty"));
    }
    let messages = messages.iter().enumerate();
    messages.map(|(index, raw)| message(index, raw)).collect()
}

/// The fields of a body that must not be empty.
pub(super) fn parse_fields(body: &[u8]) -> Result<JsonFields<'_>, OpenAiError> {
    parse_object(body)?.ok_or_else(|| OpenAiError::missing("model"))
}

/// A field; an error names it.
pub(crate) fn field<'a, T: Deserialize<'a>>(
    fields: &JsonFields<'a>,
    name: &str,
) -> Result<Option<T>, OpenAiError> {
    fields
        .get(name)
        .map_err(|reason| OpenAiError::invalid(name, format!("invalid `{name}`: {reason}")))
}

/// The name of the model.
pub(super) fn model(fields: &JsonFields<'_>) -> Result<String, OpenAiError> {
    field(fields, "model")?.ok_or_else(|| OpenAiError::missing("model"))
}

/// Parameters that no model here supports. A value that asks for nothing is accepted.
const UNSUPPORTED_IN_CHAT: [&str; 10] = [
    "tools",
    "functions",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "audio",
    "web_search_options",
    "moderation",
    "guided_json",
    "structured_outputs",
];
const UNSUPPORTED_IN_COMPLETIONS: [&str; 4] = ["echo", "logprobs", "logit_bias", "suffix"];

fn reject_unsupported(fields: &JsonFields<'_>, names: &[&str]) -> Result<(), OpenAiError> {
    if let Some(name) = names.iter().find(|name| {
        let is_empty_text = fields.raw(name).is_some_and(|raw| raw.get() == "\"\"");
        fields.is_set(name) && !is_empty_text
    }) {
        return Err(unsupported(name));
    }
    if field::<u64>(fields, "n")?.is_some_and(|n| n != 1) {
        return Err(OpenAiError::unsupported(
            "n",
            "`n` must be 1: the models of this server generate one text for each request",
        ));
    }
    let is_text = |format: &ResponseFormat| format.kind == "text";
    match field(fields, "response_format")? {
        Some(format) if !is_text(&format) => Err(OpenAiError::unsupported(
            "response_format",
            "`response_format` must be `{\"type\": \"text\"}`: the models of this server generate plain text",
        )),
        Some(_) | None => Ok(()),
    }
}

fn unsupported(name: &str) -> OpenAiError {
    OpenAiError::unsupported(
        name,
        format!(
            "`{name}` is not supported by the models of this server; send the request without it"
        ),
    )
}

fn reject_audio(fields: &JsonFields<'_>) -> Result<(), OpenAiError> {
    let modalities: Option<Vec<String>> = field(fields, "modalities")?;
    match modalities {
        Some(list) if list.iter().any(|modality| modality != "text") => {
            Err(unsupported("modalities"))
        }
        Some(_) | None => Ok(()),
    }
}

#[derive(Deserialize)]
struct ResponseFormat {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string or a list with one string")]
enum PromptField {
    Text(String),
    List(Vec<Value>),
}

/// The text of a list of prompts. Lists of tokens cannot be read without the model's tokenizer.
fn only_text(list: Vec<Value>) -> Result<String, OpenAiError> {
    let [Value::String(text)] = list.as_slice() else {
        let message = if list.iter().all(Value::is_string) {
            "`prompt` must be one text; send a request for each prompt"
        } else {
            "`prompt` must be a text, not a list of tokens"
        };
        return Err(OpenAiError::invalid("prompt", message));
    };
    Ok(text.clone())
}

fn text_request(
    fields: &JsonFields<'_>,
    prompt: TextPrompt,
) -> Result<OpenAiTextRequest, OpenAiError> {
    let stream = field(fields, "stream")?.unwrap_or(false);
    let options: Option<StreamOptions> = field(fields, "stream_options")?;
    if options.is_some() && !stream {
        return Err(OpenAiError::invalid(
            "stream_options",
            "`stream_options` needs `stream: true`",
        ));
    }
    Ok(OpenAiTextRequest {
        model: model(fields)?,
        request: TextRequest {
            prompt,
            parameters: parameters(fields)?,
            stop: stop(fields)?,
            stream,
            extra: extra_fields(fields),
        },
        include_usage: options.is_some_and(|options| options.include_usage == Some(true)),
    })
}

/// The parameters that are read here; other fields may be inputs of a model.
const PARAMETERS: [&str; 19] = [
    "model",
    "messages",
    "prompt",
    "stream",
    "stream_options",
    "n",
    "best_of",
    "stop",
    "max_tokens",
    "max_completion_tokens",
    "min_tokens",
    "temperature",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "seed",
    "response_format",
];

/// The fields that are no parameters of a request for text.
pub(crate) fn extra_fields(fields: &JsonFields<'_>) -> Map<String, Value> {
    fields_except(&PARAMETERS, fields)
}

/// The fields with other names than these.
pub(crate) fn fields_except(names: &[&str], fields: &JsonFields<'_>) -> Map<String, Value> {
    fields
        .iter()
        .filter(|(name, _)| !names.contains(name))
        .filter_map(|(name, raw)| Some((name.to_owned(), serde_json::from_str(raw.get()).ok()?)))
        .collect()
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

/// Clients of vLLM write -1 for no limit.
fn top_k(fields: &JsonFields<'_>) -> Result<Option<u64>, OpenAiError> {
    let top_k: Option<i64> = field(fields, "top_k")?;
    Ok(top_k.and_then(|top_k| u64::try_from(top_k).ok()))
}

/// How the text is generated.
pub(crate) fn parameters(fields: &JsonFields<'_>) -> Result<TextParameters, OpenAiError> {
    let mut max_tokens = None;
    for name in ["max_completion_tokens", "max_tokens"] {
        let tokens: Option<u64> = field(fields, name)?;
        if tokens == Some(0) {
            return Err(OpenAiError::invalid(
                name,
                format!("`{name}` must be at least 1"),
            ));
        }
        max_tokens = max_tokens.or(tokens);
    }
    Ok(TextParameters {
        max_tokens,
        min_tokens: field(fields, "min_tokens")?,
        temperature: field(fields, "temperature")?,
        top_p: field(fields, "top_p")?,
        top_k: top_k(fields)?,
        frequency_penalty: field(fields, "frequency_penalty")?,
        presence_penalty: field(fields, "presence_penalty")?,
        repetition_penalty: field(fields, "repetition_penalty")?,
        seed: field(fields, "seed")?,
    })
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
enum StopField {
    Text(String),
    List(Vec<String>),
}

/// The strings before which the text ends.
pub(crate) fn stop(fields: &JsonFields<'_>) -> Result<Vec<String>, OpenAiError> {
    let stops = match field(fields, "stop")? {
        None => Vec::new(),
        Some(StopField::Text(text)) => vec![text],
        Some(StopField::List(list)) => list,
    };
    if stops.len() > MAX_STOPS {
        let message = format!("`stop` has more than {MAX_STOPS} strings");
        return Err(OpenAiError::invalid("stop", message));
    }
    if stops.iter().any(|stop| stop.len() > MAX_STOP_LENGTH) {
        let message = format!("a string of `stop` is longer than {MAX_STOP_LENGTH} bytes");
        return Err(OpenAiError::invalid("stop", message));
    }
    Ok(stops.into_iter().filter(|stop| !stop.is_empty()).collect())
}

#[derive(Deserialize)]
struct MessageFields<'a> {
    role: ChatRole,
    #[serde(default)]
    content: Option<ContentField>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default, borrow)]
    tool_calls: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "`content` must be a string or a list of parts that are objects"
)]
enum ContentField {
    Text(String),
    Parts(Vec<Map<String, Value>>),
}

fn message(index: usize, raw: &RawValue) -> Result<ChatMessage, OpenAiError> {
    let param = format!("messages[{index}]");
    let invalid =
        |reason: &str| OpenAiError::invalid(&param, format!("invalid `{param}`: {reason}"));
    let fields: MessageFields<'_> =
        serde_json::from_str(raw.get()).map_err(|error| invalid(&without_position(&error)))?;
    if fields
        .tool_calls
        .is_some_and(|calls| !matches!(calls.get(), "null" | "[]"))
    {
        return Err(invalid("`tool_calls` are not supported"));
    }
    let content = match (fields.content, fields.role) {
        (Some(ContentField::Text(text)), _) => MessageContent::Text(text),
        (Some(ContentField::Parts(parts)), _) => {
            if let Some(at) = parts.iter().position(|part| !is_typed(part)) {
                return Err(invalid(&format!(
                    "content[{at}] has no `type`; write it like {{\"type\": \"text\", \"text\": \"…\"}}"
                )));
            }
            MessageContent::Parts(parts)
        }
        (None, ChatRole::Assistant) => MessageContent::Text(String::new()),
        (None, ChatRole::System | ChatRole::User) => return Err(invalid("it has no `content`")),
    };
    Ok(ChatMessage {
        role: fields.role,
        content,
        name: fields.name,
    })
}

fn is_typed(part: &Map<String, Value>) -> bool {
    part.get("type").is_some_and(Value::is_string)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chat(extra: Value) -> Result<OpenAiTextRequest, OpenAiError> {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
        let extra = extra.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(extra);
        parse_chat(body.to_string().as_bytes())
    }

    fn param(result: Result<OpenAiTextRequest, OpenAiError>) -> String {
        let error = result.unwrap_err();
        assert_eq!(error.status.as_u16(), 400, "{error:?}");
        error.param.unwrap_or_default()
    }

    #[test]
    fn a_chat_request_is_read() {
        let parsed = chat(json!({
            "stream": true, "stream_options": {"include_usage": true}, "max_completion_tokens": 5,
            "max_tokens": 9, "temperature": 0, "top_p": 0.5, "seed": -1, "stop": "x", "user": "u", "n": 1,
            "tools": [], "logprobs": false, "response_format": {"type": "text"}, "unknown": 1,
            "metadata": null,
        }))
        .unwrap();
        let parameters = &parsed.request.parameters;
        assert_eq!(parsed.model, "m");
        assert!(parsed.include_usage && parsed.request.stream);
        assert_eq!(
            (
                parameters.max_tokens,
                parameters.temperature,
                parameters.seed
            ),
            (Some(5), Some(0.0), Some(-1))
        );
        assert_eq!(parsed.request.stop, ["x"]);
        assert_eq!(parsed.request.extra["unknown"], 1);
        assert!(!parsed.request.extra.contains_key("model"));
    }

    #[test]
    fn unsupported_parameters_are_named() {
        for (name, value) in [
            ("tools", json!([{"type": "function"}])),
            ("functions", json!([{}])),
            ("n", json!(2)),
            ("logprobs", json!(true)),
            ("top_logprobs", json!(3)),
            ("response_format", json!({"type": "json_object"})),
            ("logit_bias", json!({"1": 2})),
            ("modalities", json!(["text", "audio"])),
            ("audio", json!({"voice": "x"})),
        ] {
            let error = chat(json!({name: value})).unwrap_err();
            assert_eq!(error.code, Some("unsupported_parameter"), "{name}");
            assert_eq!(error.param.as_deref(), Some(name));
        }
    }

    #[test]
    fn wrong_values_are_named() {
        for (name, value) in [
            ("temperature", json!("hot")),
            ("max_tokens", json!(0)),
            ("max_tokens", json!(-1)),
            ("stop", json!([1])),
            ("stop", json!(vec!["a"; 17])),
            ("stop", json!("a".repeat(1025))),
            ("stream", json!("yes")),
            ("stream_options", json!({"include_usage": true})),
            ("messages", json!([])),
            ("messages", json!("hi")),
            ("model", json!(1)),
        ] {
            assert_eq!(param(chat(json!({name: value}))), name, "{value}");
        }
        assert_eq!(
            param(parse_chat(
                br#"{"messages": [{"role": "user", "content": ""}]}"#
            )),
            "model"
        );
        assert_eq!(param(parse_chat(br#"{"model": "m"}"#)), "messages");
    }

    #[test]
    fn wrong_messages_are_named() {
        for message in [
            json!({"role": "tool", "content": "x"}),
            json!({"role": "user"}),
            json!({"role": "user", "content": 1}),
            json!({"role": "user", "content": [{"text": "x"}]}),
            json!({"content": "x"}),
            json!("x"),
            json!({"role": "assistant", "tool_calls": [{}]}),
        ] {
            let messages = json!([{"role": "system", "content": "s"}, message]);
            assert_eq!(param(chat(json!({"messages": messages}))), "messages[1]");
        }
        chat(json!({"messages": [{"role": "developer", "content": [{"type": "text", "text": "x"}]}]})).unwrap();
    }

    #[test]
    fn a_completion_has_one_text() {
        let parse = |prompt: Value| {
            parse_completion(
                json!({"model": "m", "prompt": prompt})
                    .to_string()
                    .as_bytes(),
            )
        };
        for fine in [json!("hi"), json!(["hi"])] {
            let parsed = parse(fine).unwrap();
            assert_eq!(parsed.request.prompt, TextPrompt::Text("hi".to_owned()));
        }
        for wrong in [
            json!(["a", "b"]),
            json!([1, 2]),
            json!([[1]]),
            json!(1),
            json!(null),
        ] {
            assert_eq!(param(parse(wrong.clone())), "prompt", "{wrong}");
        }
        for name in ["echo", "logprobs", "best_of", "suffix"] {
            let value = if name == "suffix" {
                json!("x")
            } else {
                json!(2)
            };
            let body = json!({"model": "m", "prompt": "a", name: value});
            assert_eq!(param(parse_completion(body.to_string().as_bytes())), name);
        }
    }

    #[test]
    fn bodies_that_are_no_object_are_refused() {
        for body in ["", "[]", "{", "1", "{\"model\": 1, \"model\": 2}"] {
            assert_eq!(
                parse_chat(body.as_bytes()).unwrap_err().status.as_u16(),
                400,
                "{body}"
            );
        }
    }
}
