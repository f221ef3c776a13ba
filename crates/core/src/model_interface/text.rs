//! Requests for text as inputs of a model.

use serde_json::{Value, json};

use super::schema::{InputKind, OutputKind};
use super::{MappedInput, ModelInterface, UnsupportedRequest};
use crate::text_generation::{
    ChatMessage, ChatRole, ConversationText, MessageContent, TextParameters, TextPrompt,
    TextRequest,
};

const PROMPT: &str = "prompt";
const MESSAGES: &str = "messages";
const SYSTEM: [&str; 3] = ["system_prompt", "system_message", "system"];
const STOP: [&str; 3] = ["stop", "stop_sequences", "stop_strings"];
const MAX_TOKENS: [&str; 6] = [
    "max_tokens",
    "max_new_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_gen_len",
    "max_length",
];
const MIN_TOKENS: [&str; 3] = ["min_tokens", "min_new_tokens", "min_length"];

/// Whether an input gets the prompt or the conversation of a request.
pub(super) fn is_text_input(name: &str) -> bool {
    name == PROMPT || name == MESSAGES
}

impl ModelInterface {
    /// Whether the model generates text.
    pub(super) fn is_text_model(&self) -> bool {
        let has_prompt = self.kind_of(PROMPT).is_some() || self.kind_of(MESSAGES).is_some();
        has_prompt && matches!(self.output, OutputKind::Text | OutputKind::Any)
    }

    /// Whether the schema says that the output is text. If not, a model with a prompt may return any value.
    pub fn declares_text(&self) -> bool {
        self.output == OutputKind::Text
    }

    /// The input of the model for a request. A parameter that the model does not have is left out, with a
    /// warning; `max_tokens` and `stop` without one, because callers enforce them as far as they can.
    pub fn text_input(&self, request: &TextRequest) -> Result<MappedInput, UnsupportedRequest> {
        if !self.is_text_model() {
            return Err(self.unsupported("does not generate text: it needs an input `prompt` or `messages` and an output of text"));
        }
        let mut mapped = MappedInput::default();
        match (&request.prompt, self.kind_of(MESSAGES)) {
            (TextPrompt::Messages(messages), Some(kind)) => {
                put_messages(&mut mapped, messages, kind);
            }
            (TextPrompt::Messages(messages), None) => {
                self.put_conversation(&mut mapped, messages)?;
            }
            (TextPrompt::Text(text), Some(kind)) if self.kind_of(PROMPT).is_none() => {
                put_messages(&mut mapped, &[user_message(text)], kind);
            }
            (TextPrompt::Text(text), _) => mapped.put(PROMPT, PROMPT, json!(text)),
        }
        self.put_parameters(&mut mapped, &request.parameters);
        self.put_stop(&mut mapped, &request.stop);
        Ok(mapped)
    }

    pub(super) fn unsupported(&self, what: &str) -> UnsupportedRequest {
        UnsupportedRequest {
            parameter: None,
            message: format!("the model {what}; {}", self.description()),
        }
    }

    /// A conversation for a model that has one prompt.
    fn put_conversation(
        &self,
        mapped: &mut MappedInput,
        messages: &[ChatMessage],
    ) -> Result<(), UnsupportedRequest> {
        let mut turns = Vec::with_capacity(messages.len());
        for (index, message) in messages.iter().enumerate() {
            let text = message.content.text().map_err(|error| UnsupportedRequest {
                parameter: Some(MESSAGES),
                message: format!(
                    "the model takes a text prompt only, and messages[{index}] has another content: {error}"
                ),
            })?;
            turns.push((message.role, text.into_owned()));
        }
        let conversation = ConversationText::from_turns(&turns);
        let system_input = self.first_of(&SYSTEM).map(|(name, _)| name);
        if let (Some(name), Some(system)) = (system_input, &conversation.system) {
            mapped.put(MESSAGES, PROMPT, json!(conversation.prompt));
            mapped.put(MESSAGES, name, json!(system));
        } else {
            mapped.put(MESSAGES, PROMPT, json!(conversation.into_text()));
        }
        Ok(())
    }

    fn put_parameters(&self, mapped: &mut MappedInput, parameters: &TextParameters) {
        if let Some((name, max_tokens)) = self
            .first_of(&MAX_TOKENS)
            .map(|(name, _)| name)
            .zip(parameters.max_tokens)
        {
            mapped.put("max_tokens", name, json!(max_tokens));
            mapped.limits_tokens = true;
        }
        let optional: [(&'static str, &[&'static str], Option<Value>); 8] = [
            (
                "min_tokens",
                &MIN_TOKENS,
                parameters.min_tokens.map(Value::from),
            ),
            (
                "temperature",
                &["temperature"],
                parameters.temperature.map(Value::from),
            ),
            ("top_p", &["top_p"], parameters.top_p.map(Value::from)),
            ("top_k", &["top_k"], parameters.top_k.map(Value::from)),
            (
                "frequency_penalty",
                &["frequency_penalty"],
                parameters.frequency_penalty.map(Value::from),
            ),
            (
                "presence_penalty",
                &["presence_penalty"],
                parameters.presence_penalty.map(Value::from),
            ),
            (
                "repetition_penalty",
                &["repetition_penalty", "repeat_penalty"],
                parameters.repetition_penalty.map(Value::from),
            ),
            (
                "seed",
                &["seed", "random_seed"],
                parameters.seed.map(Value::from),
            ),
        ];
        for (parameter, names, value) in optional {
            let Some(value) = value else { continue };
            match self.first_of(names) {
                Some((name, _)) => mapped.put(parameter, name, value),
                None => mapped.warnings.push(format!(
                    "`{parameter}` was ignored: the model has no such input"
                )),
            }
        }
    }

    fn put_stop(&self, mapped: &mut MappedInput, stop: &[String]) {
        let Some((name, kind)) = self.first_of(&STOP).filter(|_| !stop.is_empty()) else {
            return;
        };
        match kind {
            // Public models with a text here split it at commas.
            InputKind::Text if stop.iter().all(|text| !text.contains(',')) => {
                mapped.put("stop", name, json!(stop.join(",")));
            }
            InputKind::List | InputKind::Other => mapped.put("stop", name, json!(stop)),
            InputKind::Text | InputKind::File | InputKind::Number => {}
        }
    }
}

fn put_messages(mapped: &mut MappedInput, messages: &[ChatMessage], kind: InputKind) {
    let list = json!(messages);
    let value = match kind {
        InputKind::Text => json!(list.to_string()),
        InputKind::List | InputKind::Other | InputKind::File | InputKind::Number => list,
    };
    mapped.put(MESSAGES, MESSAGES, value);
}

fn user_message(text: &str) -> ChatMessage {
    ChatMessage {
        role: ChatRole::User,
        content: MessageContent::Text(text.to_owned()),
        name: None,
    }
}

/// The text of one value that a text model returned or yielded: a string, or a list of strings.
pub fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Null => Some(String::new()),
        Value::Array(parts) => parts.iter().map(Value::as_str).collect(),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::ModelTask;
    use serde_json::Map;

    use super::*;

    fn model(inputs: Value, output: Value) -> ModelInterface {
        let schemas = json!({"Input": {"properties": inputs}, "Output": output});
        ModelInterface::read(&json!({"components": {"schemas": schemas}}))
    }

    fn text_parts() -> Value {
        json!({"type": "array", "items": {"type": "string"}, "x-cog-array-type": "iterator"})
    }

    fn message(role: ChatRole, text: &str) -> ChatMessage {
        ChatMessage {
            role,
            content: MessageContent::Text(text.to_owned()),
            name: None,
        }
    }

    fn conversation(messages: Vec<ChatMessage>) -> TextRequest {
        TextRequest {
            prompt: TextPrompt::Messages(messages),
            parameters: TextParameters::default(),
            stop: Vec::new(),
            stream: false,
            extra: Map::new(),
        }
    }

    fn input(model: &ModelInterface, request: &TextRequest) -> Value {
        Value::Object(model.text_input(request).unwrap().input)
    }

    #[test]
    fn a_model_may_need_more_than_a_text() {
        let needs_only_text = |required: Value| {
            let input = json!({"properties": {"prompt": {"type": "string"}}, "required": required});
            let schemas = json!({"Input": input, "Output": {"type": "string"}});
            ModelInterface::read(&json!({"components": {"schemas": schemas}})).needs_only_text()
        };
        assert!(needs_only_text(json!(["prompt"])));
        assert!(needs_only_text(json!(null)));
        assert!(!needs_only_text(json!(["prompt", "image"])));
    }

    #[test]
    fn a_prompt_and_text_make_a_text_model() {
        let string = json!({"type": "string"});
        let file = json!({"type": "string", "format": "uri"});
        for (inputs, output, task) in [
            (
                json!({"prompt": string}),
                text_parts(),
                ModelTask::TextGeneration,
            ),
            (
                json!({"prompt": string}),
                string.clone(),
                ModelTask::TextGeneration,
            ),
            (
                json!({"messages": {}}),
                json!({}),
                ModelTask::TextGeneration,
            ),
            (json!({"prompt": string}), file.clone(), ModelTask::Other),
            (
                json!({"prompt": string}),
                json!({"type": "array", "items": file}),
                ModelTask::Other,
            ),
            (json!({"text": string}), string, ModelTask::Other),
        ] {
            assert_eq!(
                model(inputs.clone(), output.clone()).task(),
                task,
                "{inputs} {output}"
            );
        }
    }

    #[test]
    fn another_model_is_described() {
        let model = model(
            json!({"image": {"type": "string", "format": "uri"}}),
            json!({"type": "string", "format": "uri"}),
        );
        let error = model.text_input(&conversation(Vec::new())).unwrap_err();
        assert!(
            error.message.contains("the inputs `image`") && error.message.contains("files"),
            "{error}"
        );
    }

    #[test]
    fn a_conversation_becomes_one_prompt() {
        use ChatRole::{Assistant, System, User};
        let plain = model(json!({"prompt": {"type": "string"}}), text_parts());
        let with_system = model(
            json!({"prompt": {"type": "string"}, "system_prompt": {"type": "string"}}),
            text_parts(),
        );
        let one = conversation(vec![message(User, "hi")]);
        assert_eq!(input(&plain, &one), json!({"prompt": "hi"}));
        let short = conversation(vec![message(System, "be kind"), message(User, "hi")]);
        assert_eq!(input(&plain, &short), json!({"prompt": "be kind\n\nhi"}));
        assert_eq!(
            input(&with_system, &short),
            json!({"prompt": "hi", "system_prompt": "be kind"})
        );
        let long = conversation(vec![
            message(User, "hi"),
            message(Assistant, "hello"),
            message(User, "bye"),
        ]);
        assert_eq!(
            input(&plain, &long),
            json!({"prompt": "User: hi\n\nAssistant: hello\n\nUser: bye\n\nAssistant:"})
        );
    }

    #[test]
    fn messages_are_passed_to_a_model_that_takes_them() {
        let request = conversation(vec![message(ChatRole::User, "hi")]);
        let list = json!([{"role": "user", "content": "hi"}]);
        let of_list = model(json!({"messages": {"type": "array"}}), text_parts());
        assert_eq!(input(&of_list, &request), json!({"messages": list}));
        let of_text = model(
            json!({"messages": {"type": "string"}, "prompt": {"type": "string"}}),
            text_parts(),
        );
        assert_eq!(
            input(&of_text, &request),
            json!({"messages": list.to_string()})
        );
        let completion = TextRequest {
            prompt: TextPrompt::Text("hi".to_owned()),
            ..request
        };
        assert_eq!(input(&of_list, &completion), json!({"messages": list}));
        assert_eq!(input(&of_text, &completion), json!({"prompt": "hi"}));
    }

    #[test]
    fn parameters_go_to_the_inputs_that_the_model_has() {
        let model = model(
            json!({
                "prompt": {"type": "string"},
                "max_new_tokens": {"type": "integer"},
                "temperature": {"type": "number"},
                "stop_sequences": {"type": "string"},
            }),
            text_parts(),
        );
        let request = TextRequest {
            prompt: TextPrompt::Text("hi".to_owned()),
            parameters: TextParameters {
                max_tokens: Some(7),
                temperature: Some(0.5),
                top_p: Some(0.9),
                seed: Some(1),
                ..TextParameters::default()
            },
            stop: vec!["a".to_owned(), "b".to_owned()],
            stream: false,
            extra: Map::new(),
        };
        let mapped = model.text_input(&request).unwrap();
        assert_eq!(
            Value::Object(mapped.input.clone()),
            json!({"prompt": "hi", "max_new_tokens": 7, "temperature": 0.5, "stop_sequences": "a,b"})
        );
        assert_eq!(mapped.parameter_of("max_new_tokens"), "max_tokens");
        assert_eq!(mapped.parameter_of("temperature"), "temperature");
        assert!(mapped.limits_tokens);
        assert_eq!(
            mapped.warnings,
            [
                "`top_p` was ignored: the model has no such input",
                "`seed` was ignored: the model has no such input"
            ]
        );
    }

    #[test]
    fn a_stop_string_with_a_comma_is_not_passed_as_a_list_in_text() {
        let model = model(
            json!({"prompt": {"type": "string"}, "stop": {"type": "string"}}),
            text_parts(),
        );
        let mut request = conversation(vec![message(ChatRole::User, "hi")]);
        request.stop = vec!["a,b".to_owned()];
        assert_eq!(input(&model, &request), json!({"prompt": "hi"}));
    }

    #[test]
    fn an_image_for_a_prompt_model_is_refused() {
        let model = model(json!({"prompt": {"type": "string"}}), text_parts());
        let part = json!({"type": "image_url"}).as_object().unwrap().clone();
        let request = conversation(vec![ChatMessage {
            role: ChatRole::User,
            content: MessageContent::Parts(vec![part]),
            name: None,
        }]);
        let error = model.text_input(&request).unwrap_err();
        assert_eq!(error.parameter, Some("messages"));
        assert!(error.message.contains("image_url"), "{error}");
    }

    #[test]
    fn texts_are_strings_and_lists_of_strings() {
        assert_eq!(text_of(&json!("a")).as_deref(), Some("a"));
        assert_eq!(text_of(&json!(["a", "b"])).as_deref(), Some("ab"));
        assert_eq!(text_of(&json!({"a": 1})), None);
    }
}
