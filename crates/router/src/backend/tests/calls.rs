//! The calls that requests become.

use super::*;

fn all_parameters() -> TextParameters {
    TextParameters {
        max_tokens: Some(16),
        min_tokens: Some(2),
        temperature: Some(0.5),
        top_p: Some(0.9),
        top_k: Some(40),
        frequency_penalty: Some(0.1),
        presence_penalty: Some(0.2),
        repetition_penalty: Some(1.1),
        seed: Some(7),
    }
}

fn with_parameters(request: InferenceRequest, parameters: TextParameters) -> InferenceRequest {
    let InferenceRequest::Text(request) = request else {
        panic!("not a text");
    };
    InferenceRequest::Text(TextRequest {
        parameters,
        stop: vec!["END".to_owned(), "a,b".to_owned()],
        ..request
    })
}

#[test]
fn openai_takes_conversations_and_prompts() {
    for kind in [BackendKind::OpenAi, BackendKind::Tidegate] {
        let chat = call(kind, &conversation(Mode::Stream));
        assert_eq!(
            (chat.method.clone(), &*chat.path, chat.content_type),
            (
                Method::POST,
                "/v1/chat/completions",
                Some("application/json")
            )
        );
        assert_eq!(
            body_of(&chat),
            json!({
                "model": "org/model 1",
                "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello"}],
                "stream": true,
                "stream_options": {"include_usage": true},
            })
        );
        let request = with_parameters(prompt(Mode::Whole), all_parameters());
        let completion = call(kind, &request);
        assert_eq!(completion.path, "/v1/completions");
        assert_eq!(
            body_of(&completion),
            json!({
                "model": "org/model 1", "prompt": "Say hello", "stream": false, "stop": ["END", "a,b"],
                "max_tokens": 16, "min_tokens": 2, "temperature": 0.5, "top_p": 0.9, "top_k": 40,
                "frequency_penalty": 0.1, "presence_penalty": 0.2, "repetition_penalty": 1.1, "seed": 7,
            })
        );
        let vectors = call(kind, &embeddings());
        assert_eq!(vectors.path, "/v1/embeddings");
        assert_eq!(
            body_of(&vectors),
            json!({"model": "org/model 1", "input": ["a", "b"], "encoding_format": "float", "dimensions": 2})
        );
    }
}

#[test]
fn inputs_that_are_a_completion_are_one_for_openai() {
    let chat = call(
        BackendKind::OpenAi,
        &inputs(json!({"messages": [], "model": "x", "logprobs": true})),
    );
    assert_eq!(chat.path, "/v1/chat/completions");
    assert_eq!(
        body_of(&chat),
        json!({"messages": [], "model": "org/model 1", "logprobs": true})
    );
    let completion = call(BackendKind::OpenAi, &inputs(json!({"prompt": "a"})));
    assert_eq!(completion.path, "/v1/completions");
}

#[test]
fn cog_gets_the_inputs_that_the_client_has_set() {
    let plain = call(BackendKind::Cog, &conversation(Mode::Stream));
    assert_eq!(
        (plain.method.clone(), plain.path.clone()),
        (Method::PUT, format!("/predictions/{ID}"))
    );
    assert_eq!(
        plain.headers,
        [(ACCEPT, HeaderValue::from_static("text/event-stream"))]
    );
    assert_eq!(
        body_of(&plain),
        json!({"input": {"prompt": "Say hello", "system_prompt": "Be brief."}})
    );
    let whole = call(
        BackendKind::Cog,
        &with_parameters(prompt(Mode::Whole), all_parameters()),
    );
    assert_eq!(whole.headers, []);
    assert_eq!(
        body_of(&whole)["input"],
        json!({
            "prompt": "Say hello", "stop_sequences": "END",
            "max_tokens": 16, "min_tokens": 2, "temperature": 0.5, "top_p": 0.9, "top_k": 40,
            "frequency_penalty": 0.1, "presence_penalty": 0.2, "repetition_penalty": 1.1, "seed": 7,
        })
    );
    let any = call(BackendKind::Cog, &inputs(json!({"image": "data:", "n": 2})));
    assert_eq!(body_of(&any), json!({"input": {"image": "data:", "n": 2}}));
}

#[test]
fn cog_gets_the_other_fields_of_a_request_for_text() {
    let InferenceRequest::Text(request) = conversation(Mode::Whole) else {
        panic!("not a text");
    };
    let extra = json!({"width": 64, "system_prompt": "of the field"});
    let Value::Object(extra) = extra else {
        panic!("not an object");
    };
    let draws = call(
        BackendKind::Cog,
        &InferenceRequest::Text(TextRequest { extra, ..request }),
    );
    assert_eq!(
        body_of(&draws)["input"],
        json!({"prompt": "Say hello", "system_prompt": "Be brief.", "width": 64})
    );
}

#[test]
fn only_cog_has_a_call_to_cancel() {
    for kind in BackendKind::ALL {
        let cancel = cancel_call(kind, ID).map(|call| (call.method, call.path));
        let expected =
            (kind == BackendKind::Cog).then(|| (Method::POST, format!("/predictions/{ID}/cancel")));
        assert_eq!(cancel, expected, "{kind:?}");
    }
}

#[test]
fn a_cog_model_that_cannot_stream_is_called_without_a_stream() {
    let stream = call(BackendKind::Cog, &prompt(Mode::Stream));
    let repeated = |call: &BackendCall, status| call_without_stream(BackendKind::Cog, call, status);
    let whole = repeated(&stream, StatusCode::NOT_ACCEPTABLE).unwrap();
    assert_eq!(whole, call(BackendKind::Cog, &prompt(Mode::Whole)));
    assert_eq!(repeated(&whole, StatusCode::NOT_ACCEPTABLE), None);
    assert_eq!(repeated(&stream, StatusCode::CONFLICT), None);
    let other = call_without_stream(BackendKind::Tgi, &stream, StatusCode::NOT_ACCEPTABLE);
    assert_eq!(other, None);
}

#[test]
fn tgi_gets_prompts_on_its_own_routes_and_conversations_on_openais() {
    let request = with_parameters(prompt(Mode::Whole), all_parameters());
    let whole = call(BackendKind::Tgi, &request);
    assert_eq!(whole.path, "/generate");
    assert_eq!(
        body_of(&whole),
        json!({"inputs": "Say hello", "parameters": {
            "details": true, "do_sample": true, "max_new_tokens": 16, "temperature": 0.5, "top_p": 0.9,
            "top_k": 40, "repetition_penalty": 1.1, "frequency_penalty": 0.1, "seed": 7,
            "stop": ["END", "a,b"],
        }})
    );
    assert_eq!(
        call(BackendKind::Tgi, &prompt(Mode::Stream)).path,
        "/generate_stream"
    );
    let chat = call(BackendKind::Tgi, &conversation(Mode::Whole));
    assert_eq!(chat.path, "/v1/chat/completions");
}

/// TGI refuses these values.
#[test]
fn tgi_gets_no_values_that_it_refuses() {
    let parameters = TextParameters {
        temperature: Some(0.0),
        top_p: Some(1.0),
        top_k: Some(0),
        seed: Some(-1),
        ..TextParameters::default()
    };
    let call = call(
        BackendKind::Tgi,
        &InferenceRequest::Text(TextRequest {
            parameters,
            ..text_request(TextPrompt::Text("a".to_owned()), Mode::Whole)
        }),
    );
    assert_eq!(
        body_of(&call)["parameters"],
        json!({"details": true, "do_sample": false})
    );
}

#[test]
fn tei_embeds_reranks_and_classifies() {
    let embed = call(BackendKind::Tei, &embeddings());
    assert_eq!(embed.path, "/embed");
    assert_eq!(
        body_of(&embed),
        json!({"inputs": ["a", "b"], "dimensions": 2})
    );
    for (value, path) in [
        (json!({"query": "q", "texts": ["a"]}), "/rerank"),
        (json!({"inputs": "q"}), "/predict"),
    ] {
        let call = call(BackendKind::Tei, &inputs(value.clone()));
        assert_eq!((&*call.path, body_of(&call)), (path, value));
    }
}

#[test]
fn triton_gets_one_text_or_tensors() {
    let request = with_parameters(conversation(Mode::Stream), all_parameters());
    let stream = call(BackendKind::Triton, &request);
    assert_eq!(stream.path, "/v2/models/org%2Fmodel%201/generate_stream");
    assert_eq!(
        body_of(&stream),
        json!({"text_input": "Be brief.\n\nSay hello", "parameters": {
            "stream": true, "exclude_input_in_output": true, "return_finish_reason": true,
            "return_num_input_tokens": true, "return_num_output_tokens": true,
            "max_tokens": 16, "min_tokens": 2, "temperature": 0.5, "top_p": 0.9, "top_k": 40,
            "frequency_penalty": 0.1, "presence_penalty": 0.2, "repetition_penalty": 1.1, "seed": 7,
        }})
    );
    let whole = call(BackendKind::Triton, &prompt(Mode::Whole));
    assert_eq!(whole.path, "/v2/models/org%2Fmodel%201/generate");
    let tensors =
        json!({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}]});
    let infer = call(BackendKind::Triton, &inputs(tensors.clone()));
    assert_eq!(infer.path, "/v2/models/org%2Fmodel%201/infer");
    assert_eq!(body_of(&infer), tensors);
}

#[test]
fn tidegate_takes_any_inputs() {
    let call = call(BackendKind::Tidegate, &inputs(json!({"text": "a"})));
    assert_eq!(call.path, "/ai/run/org/model%201");
    assert_eq!(body_of(&call), json!({"text": "a"}));
}

#[test]
fn what_a_kind_cannot_do_is_refused_with_a_reason() {
    use BackendKind::{Cog, OpenAi, Tei, Tgi, Triton};
    let image = json!([{"type": "image_url", "image_url": {"url": "x"}}]);
    let parts = image.as_array().unwrap()[0].as_object().unwrap().clone();
    let message = ChatMessage {
        role: ChatRole::User,
        content: MessageContent::Parts(vec![parts]),
        name: None,
    };
    let image = InferenceRequest::Text(text_request(
        TextPrompt::Messages(vec![message]),
        Mode::Whole,
    ));
    for (kind, request) in [
        (OpenAi, inputs(json!({"text": "a"}))),
        (OpenAi, inputs(json!({"messages": [], "tools": []}))),
        (Cog, embeddings()),
        (Cog, image.clone()),
        (Tgi, embeddings()),
        (Tgi, inputs(json!({"text": "a"}))),
        (Tei, prompt(Mode::Whole)),
        (Tei, inputs(json!({"texts": ["a"]}))),
        (Triton, embeddings()),
        (Triton, image.clone()),
        (Triton, inputs(json!({"inputs": "a"}))),
    ] {
        let error = encode(kind, &request, &context()).unwrap_err();
        let start = format!(
            "the backend of this model has the kind `{}`, which ",
            kind.name()
        );
        assert!(error.to_string().starts_with(&start), "{error}");
        assert_eq!(error.kind, kind);
    }
    // These have messages with images themselves.
    assert!(encode(OpenAi, &image, &context()).is_ok());
    assert!(encode(Tgi, &image, &context()).is_ok());
}

#[test]
fn each_kind_has_some_routes_of_openai() {
    use BackendKind::{Cog, OpenAi, Tei, Tgi, Tidegate, Triton};
    for (path, expected) in [
        ("/v1/chat/completions", &[OpenAi, Tgi, Tidegate][..]),
        ("/v1/completions", &[OpenAi, Tgi, Tidegate]),
        ("/v1/embeddings", &[OpenAi, Tei, Tidegate]),
        ("/v1/responses", &[OpenAi, Tidegate]),
        ("/v1/audio/speech", &[OpenAi, Tidegate]),
        ("/predictions", &[]),
    ] {
        let kinds = [OpenAi, Tgi, Tei, Tidegate, Cog, Triton];
        let taking: Vec<BackendKind> = kinds
            .into_iter()
            .filter(|kind| passes_through(*kind, path))
            .collect();
        assert_eq!(taking, expected, "{path}");
    }
}
