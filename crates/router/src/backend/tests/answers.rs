//! Whole answers.

use hyper::header::HeaderMap;
use tidegate_core::inference::{Embeddings, GeneratedText, InferenceAnswer};

use super::*;

fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
    let pairs = list.iter().map(|(name, value)| {
        (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        )
    });
    pairs.collect()
}

fn decode(
    kind: BackendKind,
    request: &InferenceRequest,
    body: &str,
) -> Result<InferenceAnswer, BackendError> {
    let headers = headers(&[("x-prompt-tokens", "7"), ("x-compute-tokens", "2")]);
    let call = call(kind, request);
    decode_answer(&call.answer, StatusCode::OK, &headers, body.as_bytes())
}

const CHAT: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hello, wörld!","tool_calls":[],"reasoning_content":null},"logprobs":null,"finish_reason":"length","stop_reason":null}],"usage":{"prompt_tokens":7,"total_tokens":10,"completion_tokens":3,"prompt_tokens_details":null}}"#;
const COMPLETION: &str = r#"{"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":"Hello, wörld!","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":7,"total_tokens":10,"completion_tokens":3}}"#;
const TGI: &str = r#"{"generated_text":"Hello, wörld!","details":{"finish_reason":"length","generated_tokens":3,"seed":null,"prefill":[],"tokens":[{"id":1,"text":"Hello","logprob":-0.1,"special":false}]}}"#;
const TRITON: &str = r#"{"model_name":"m","model_version":"1","text_output":"Hello, wörld!","finish_reason":"length","num_input_tokens":7,"num_output_tokens":3}"#;
const COG: &str = r#"{"id":"x","output":["Hello",", ","wörld!"],"logs":"","status":"succeeded","metrics":{"predict_time":0.1,"input_token_count":7,"output_token_count":3,"finish_reason":"length"}}"#;

#[test]
fn the_golden_prompt_has_the_same_answer_from_every_kind() {
    use BackendKind::{Cog, OpenAi, Tgi, Tidegate, Triton};
    let whole = Mode::Whole;
    for (kind, request, body) in [
        (OpenAi, conversation(whole), CHAT),
        (OpenAi, prompt(whole), COMPLETION),
        (Tidegate, conversation(whole), CHAT),
        (Tidegate, prompt(whole), COMPLETION),
        (Tgi, conversation(whole), CHAT),
        (Tgi, prompt(whole), TGI),
        (Triton, conversation(whole), TRITON),
        (Triton, prompt(whole), TRITON),
        (Cog, conversation(whole), COG),
        (Cog, prompt(whole), COG),
    ] {
        let expected = GeneratedText {
            text: GOLDEN.to_owned(),
            finish_reason: FinishReason::Length,
            usage: Some(golden_usage()),
        };
        let answer = decode(kind, &request, body).unwrap();
        assert_eq!(answer, InferenceAnswer::Text(expected), "{kind:?}");
        let events = answer_events(answer).unwrap();
        assert_eq!(
            events,
            [
                TextEvent::Text(GOLDEN.to_owned()),
                ended(FinishReason::Length, Some(golden_usage()))
            ]
        );
    }
}

#[test]
fn embeddings_are_in_the_order_of_the_texts() {
    let openai = r#"{"object":"list","data":[{"object":"embedding","index":1,"embedding":[3.0,4]},{"object":"embedding","index":0,"embedding":[1.0,2.0]}],"model":"m","usage":{"prompt_tokens":2,"total_tokens":2}}"#;
    let tei = "[[1.0,2.0],[3.0,4.0]]";
    for (kind, body) in [
        (BackendKind::OpenAi, openai),
        (BackendKind::Tidegate, openai),
        (BackendKind::Tei, tei),
    ] {
        assert_eq!(
            decode(kind, &embeddings(), body).unwrap(),
            InferenceAnswer::Embeddings(Embeddings {
                vectors: vec![vec![1.0, 2.0], vec![3.0, 4.0]],
                usage: Some(Usage::new(2, 0)),
            }),
            "{kind:?}"
        );
    }
}

#[test]
fn other_outputs_are_passed_on() {
    for (kind, request, body, expected) in [
        (
            BackendKind::Cog,
            inputs(json!({"n": 1})),
            r#"{"id":"x","output":{"a":1},"logs":"","status":"succeeded","metrics":{}}"#,
            json!({"a": 1}),
        ),
        (
            BackendKind::Tidegate,
            inputs(json!({"n": 1})),
            r#"{"result":{"a":1},"success":true,"errors":[],"messages":[]}"#,
            json!({"a": 1}),
        ),
        (
            BackendKind::Tei,
            inputs(json!({"query": "q", "texts": ["a"]})),
            r#"[{"index":0,"score":0.5}]"#,
            json!([{"index": 0, "score": 0.5}]),
        ),
        (
            BackendKind::Triton,
            inputs(json!({"inputs": []})),
            r#"{"model_name":"m","model_version":"1","outputs":[]}"#,
            json!({"model_name": "m", "model_version": "1", "outputs": []}),
        ),
    ] {
        let answer = decode(kind, &request, body).unwrap();
        assert_eq!(answer, InferenceAnswer::Output(expected), "{kind:?}");
        assert_eq!(answer_events(answer), None);
    }
}

#[test]
fn an_error_with_status_200_is_the_models() {
    use BackendErrorKind::{Canceled, InvalidAnswer, ModelFailed};
    use BackendKind::{Cog, OpenAi, Tgi, Tidegate, Triton};
    let any = inputs(json!({"n": 1}));
    let text = prompt(Mode::Whole);
    for (kind, request, body, expected, message) in [
        (
            Cog,
            &any,
            r#"{"id":"x","error":"Prediction failed: ValueError: no","logs":"","status":"failed","metrics":{}}"#,
            ModelFailed,
            "Prediction failed: ValueError: no",
        ),
        (
            Cog,
            &text,
            r#"{"id":"x","logs":"","status":"canceled","metrics":{}}"#,
            Canceled,
            "the prediction was canceled",
        ),
        (
            Cog,
            &text,
            r#"{"id":"x","status":"processing","logs":"","metrics":{},"input":{}}"#,
            InvalidAnswer,
            "the backend of kind `cog` sent an invalid answer: the prediction is still running",
        ),
        (
            Cog,
            &text,
            r#"{"id":"x","status":"succeeded","output":{"a":1},"logs":"","metrics":{}}"#,
            InvalidAnswer,
            "the backend of kind `cog` sent an invalid answer: the output of the model is not a text",
        ),
        (
            OpenAi,
            &text,
            r#"{"object":"error","message":"CUDA error","type":"InternalServerError","code":500}"#,
            ModelFailed,
            "CUDA error",
        ),
        (
            OpenAi,
            &text,
            r#"{"choices":[]}"#,
            InvalidAnswer,
            "the backend of kind `openai` sent an invalid answer: `choices` is empty",
        ),
        (
            OpenAi,
            &text,
            "",
            InvalidAnswer,
            "the backend of kind `openai` sent an invalid answer: EOF while parsing a value at line 1 column 0",
        ),
        (
            Tgi,
            &text,
            r#"{"error":"Request failed during generation","error_type":"generation"}"#,
            ModelFailed,
            "Request failed during generation",
        ),
        (
            Triton,
            &text,
            r#"{"error":"failed"}"#,
            ModelFailed,
            "failed",
        ),
        (
            Tidegate,
            &any,
            r#"{"result":null,"success":false,"errors":[{"code":3043,"message":"boom"}],"messages":[]}"#,
            ModelFailed,
            "boom",
        ),
    ] {
        let error = decode(kind, request, body).unwrap_err();
        assert_eq!((error.kind, &*error.message), (expected, message), "{body}");
        assert_eq!(error.status, StatusCode::OK);
    }
}

#[test]
fn an_error_status_is_an_error_whatever_the_body_is() {
    for kind in BackendKind::ALL {
        let request = match kind {
            BackendKind::Tei => embeddings(),
            _ => prompt(Mode::Whole),
        };
        let call = call(kind, &request);
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let error =
            decode_answer(&call.answer, status, &HeaderMap::new(), COG.as_bytes()).unwrap_err();
        assert_eq!(
            (error.status, error.kind),
            (status, BackendErrorKind::Status)
        );
    }
}

#[test]
fn stop_strings_are_enforced_where_the_backend_does_not() {
    let request = InferenceRequest::Text(TextRequest {
        stop: vec!["wör".to_owned()],
        ..text_request(TextPrompt::Text("a".to_owned()), Mode::Whole)
    });
    for (kind, body) in [
        (BackendKind::Tgi, TGI),
        (BackendKind::Triton, TRITON),
        (BackendKind::Cog, COG),
    ] {
        let expected = GeneratedText {
            text: "Hello, ".to_owned(),
            finish_reason: FinishReason::Stop,
            usage: Some(golden_usage()),
        };
        assert_eq!(
            decode(kind, &request, body).unwrap(),
            InferenceAnswer::Text(expected),
            "{kind:?}"
        );
    }
}

#[test]
fn the_length_is_the_reason_if_all_tokens_were_used() {
    let body = r#"{"output":"ab","status":"succeeded","metrics":{"output_token_count":4}}"#;
    for (max_tokens, expected) in [(4, FinishReason::Length), (5, FinishReason::Stop)] {
        let mut request = text_request(TextPrompt::Text("a".to_owned()), Mode::Whole);
        request.parameters.max_tokens = Some(max_tokens);
        let answer = decode(BackendKind::Cog, &InferenceRequest::Text(request), body).unwrap();
        let InferenceAnswer::Text(text) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(
            (text.finish_reason, text.usage),
            (expected, Some(Usage::new(0, 4)))
        );
    }
}

#[test]
fn a_stream_is_known_by_its_type() {
    let format = call(BackendKind::OpenAi, &prompt(Mode::Stream)).answer;
    for (content_type, expected) in [
        ("text/event-stream", true),
        ("Text/Event-Stream; charset=utf-8", true),
        ("application/json", false),
        ("text/event-stream-x", false),
    ] {
        let headers = headers(&[("content-type", content_type)]);
        assert_eq!(format.is_stream(&headers), expected, "{content_type}");
    }
    assert!(!format.is_stream(&HeaderMap::new()));
}
