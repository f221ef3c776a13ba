//! Streamed answers.

use super::*;

const CHAT: &str = concat!(
    r#"data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}"#,
    "\n\n",
    r#"data: {"id":"c","choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}"#,
    "\n\n",
    r#"data: {"id":"c","choices":[{"index":0,"delta":{"content":", "},"finish_reason":null}],"usage":null}"#,
    "\n\n",
    ": keep-alive\n\n",
    r#"data: {"id":"c","choices":[{"index":1,"delta":{"content":"other"},"finish_reason":"stop"}]}"#,
    "\n\n",
    r#"data: {"id":"c","choices":[{"index":0,"delta":{"content":"wörld!"},"finish_reason":"length","stop_reason":null}]}"#,
    "\n\n",
    r#"data: {"id":"c","choices":[],"usage":{"prompt_tokens":7,"total_tokens":10,"completion_tokens":3}}"#,
    "\n\n",
    "data: [DONE]\n\n",
);
const COMPLETION: &str = concat!(
    r#"data: {"id":"c","choices":[{"index":0,"text":"Hello","finish_reason":null}]}"#,
    "\r\n\r\n",
    r#"data: {"id":"c","choices":[{"index":0,"text":", ","finish_reason":null}]}"#,
    "\r\n\r\n",
    r#"data: {"id":"c","choices":[{"index":0,"text":"wörld!","finish_reason":"length"}]}"#,
    "\r\n\r\n",
    r#"data: {"id":"c","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}"#,
    "\r\n\r\n",
    "data: [DONE]\r\n\r\n",
);
const TGI: &str = concat!(
    r#"data:{"index":1,"token":{"id":5,"text":"Hello","logprob":-0.1,"special":false},"generated_text":null,"details":null}"#,
    "\n\n",
    r#"data:{"index":2,"token":{"id":6,"text":", ","logprob":-0.1,"special":false},"generated_text":null,"details":null}"#,
    "\n\n",
    r#"data:{"index":3,"token":{"id":7,"text":"wörld!","logprob":-0.1,"special":false},"generated_text":null,"details":null}"#,
    "\n\n",
    r#"data:{"index":4,"token":{"id":2,"text":"</s>","logprob":-0.1,"special":true},"generated_text":"Hello, wörld!","details":{"finish_reason":"length","generated_tokens":3,"seed":null,"input_length":7}}"#,
    "\n\n",
);
const TRITON: &str = concat!(
    r#"data: {"model_name":"m","model_version":"1","text_output":"Hello","num_input_tokens":7,"num_output_tokens":1}"#,
    "\n\n",
    r#"data: {"model_name":"m","model_version":"1","text_output":", ","num_input_tokens":7,"num_output_tokens":1}"#,
    "\n\n",
    r#"data: {"model_name":"m","model_version":"1","text_output":"wörld!","finish_reason":"length","num_input_tokens":7,"num_output_tokens":1}"#,
    "\n\n",
);
const COG: &str = concat!(
    "event: start\n",
    r#"data: {"id":"x","status":"processing"}"#,
    "\n\n",
    "event: output\n",
    r#"data: {"chunk":"Hello","index":0}"#,
    "\n\n",
    "event: log\n",
    r#"data: {"source":"stdout","data":"line\n"}"#,
    "\n\n",
    "event: output\n",
    r#"data: {"chunk":", ","index":1}"#,
    "\n\n",
    "event: metric\n",
    r#"data: {"name":"output_token_count","value":3,"mode":"replace"}"#,
    "\n\n",
    "event: output\n",
    r#"data: {"chunk":"wörld!","index":2}"#,
    "\n\n",
    "event: completed\n",
    r#"data: {"id":"x","status":"succeeded","logs":"line\n","metrics":{"predict_time":0.1,"input_token_count":7,"output_token_count":3,"finish_reason":"length"},"output":["Hello",", ","wörld!"]}"#,
    "\n\n",
);

/// The streams of the golden prompt.
fn golden() -> [(BackendKind, InferenceRequest, &'static str); 7] {
    use BackendKind::{Cog, OpenAi, Tgi, Tidegate, Triton};
    let stream = Mode::Stream;
    [
        (OpenAi, conversation(stream), CHAT),
        (OpenAi, prompt(stream), COMPLETION),
        (Tidegate, prompt(stream), COMPLETION),
        (Tgi, conversation(stream), CHAT),
        (Tgi, prompt(stream), TGI),
        (Triton, prompt(stream), TRITON),
        (Cog, prompt(stream), COG),
    ]
}

fn decoder(kind: BackendKind, request: &InferenceRequest) -> StreamDecoder {
    StreamDecoder::new(&call(kind, request).answer)
}

/// The events of a stream that arrives in these parts and then ends.
fn read<'a>(
    mut decoder: StreamDecoder,
    parts: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<TextEvent> {
    let mut events = Vec::new();
    for part in parts {
        events.extend(decoder.push(part));
    }
    events.extend(decoder.finish());
    assert!(decoder.is_over());
    assert_eq!(decoder.push(b"data: {}\n\n"), []);
    assert_eq!(decoder.finish(), []);
    events
}

fn texts(parts: &[&str]) -> Vec<TextEvent> {
    parts
        .iter()
        .map(|part| TextEvent::Text((*part).to_owned()))
        .collect()
}

#[test]
fn the_golden_prompt_has_the_same_events_from_every_kind() {
    let mut expected = texts(&["Hello", ", ", "wörld!"]);
    expected.push(ended(FinishReason::Length, Some(golden_usage())));
    for (kind, request, stream) in golden() {
        let events = read(decoder(kind, &request), [stream.as_bytes()]);
        assert_eq!(events, expected, "{kind:?}");
    }
}

#[test]
fn streams_may_be_split_at_every_byte() {
    for (kind, request, stream) in golden() {
        let bytes = stream.as_bytes();
        let whole = read(decoder(kind, &request), [bytes]);
        assert_eq!(read(decoder(kind, &request), bytes.chunks(1)), whole);
        for at in 0..bytes.len() {
            let parts = [&bytes[..at], &bytes[at..]];
            assert_eq!(read(decoder(kind, &request), parts), whole, "{kind:?} {at}");
        }
    }
}

/// Wherever a stream is cut, the client gets the beginning of the text, and knows that it is not
/// complete. Triton's streams have no end marker: a cut between two events is not visible.
#[test]
fn a_stream_that_is_cut_has_failed() {
    for (kind, request, stream) in golden() {
        let last = stream.trim_end().len();
        for at in 0..last {
            let cut = &stream.as_bytes()[..at];
            let mut events = read(decoder(kind, &request), [cut]);
            let end = events.pop();
            let is_boundary = cut.is_empty() || cut.ends_with(b"\n") || cut.ends_with(b"}");
            if kind != BackendKind::Triton || !is_boundary {
                let partial_field = kind == BackendKind::Triton && !has_partial_data(cut);
                assert!(
                    matches!(end, Some(TextEvent::Failed(_))) || partial_field,
                    "{kind:?} {at} {end:?}"
                );
            }
            assert!(texts(&["Hello", ", ", "wörld!"]).starts_with(&events));
        }
    }
}

/// Whether a stream ends in the middle of the data of an event.
fn has_partial_data(stream: &[u8]) -> bool {
    let line = stream.rsplit(|byte| *byte == b'\n').next().unwrap();
    line.starts_with(b"data:")
}

#[test]
fn errors_within_a_stream_are_final() {
    use BackendKind::{Cog, OpenAi, Tgi, Triton};
    let request = prompt(Mode::Stream);
    for (kind, stream, message) in [
        (
            OpenAi,
            "data: {\"error\":{\"message\":\"EngineDeadError\",\"type\":\"InternalServerError\",\"code\":500}}\n\ndata: [DONE]\n\n",
            "EngineDeadError",
        ),
        (
            OpenAi,
            "event: error\ndata: {\"message\":\"context shift is disabled\",\"code\":500}\n\n",
            "context shift is disabled",
        ),
        (
            OpenAi,
            "data: {\"object\":\"error\",\"message\":\"old\"}\n\n",
            "old",
        ),
        (OpenAi, "data: {\"error\":\"plain\"}\n\n", "plain"),
        (
            Tgi,
            "data:{\"error\":\"Request failed during generation: Server error\",\"error_type\":\"generation\"}\n\n",
            "Request failed during generation: Server error",
        ),
        (
            Triton,
            "data: {\"error\":\"in ensemble 'm', failed\"}\n\n",
            "in ensemble 'm', failed",
        ),
        (
            Cog,
            "event: error\ndata: {\"error\":\"SSE stream lagged; events were dropped\",\"skipped\":3}\n\n",
            "SSE stream lagged; events were dropped",
        ),
        (
            Cog,
            "event: completed\ndata: {\"id\":\"x\",\"status\":\"failed\",\"error\":\"Prediction failed: boom\",\"logs\":\"\",\"metrics\":{},\"output\":[\"a\"]}\n\n",
            "Prediction failed: boom",
        ),
    ] {
        let events = read(decoder(kind, &request), [stream.as_bytes()]);
        let [TextEvent::Failed(error)] = events.as_slice() else {
            panic!("{stream} {events:?}");
        };
        assert_eq!(error.message, message);
    }
}

#[test]
fn a_canceled_prediction_is_canceled() {
    let stream = "event: completed\ndata: {\"id\":\"x\",\"status\":\"canceled\",\"logs\":\"\",\"metrics\":{}}\n\n";
    let events = read(
        decoder(BackendKind::Cog, &prompt(Mode::Stream)),
        [stream.as_bytes()],
    );
    let [TextEvent::Failed(error)] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!(
        error.kind,
        tidegate_core::text_generation::TextErrorKind::Canceled
    );
}

#[test]
fn an_output_without_parts_is_in_the_last_event_of_cog() {
    let stream =
        "event: completed\ndata: {\"status\":\"succeeded\",\"output\":\"all\",\"metrics\":{}}\n\n";
    let mut expected = texts(&["all"]);
    expected.push(ended(FinishReason::Stop, None));
    let decoder = decoder(BackendKind::Cog, &prompt(Mode::Stream));
    assert_eq!(read(decoder, [stream.as_bytes()]), expected);
}

#[test]
fn stop_strings_are_enforced_across_events() {
    use BackendKind::{Cog, Tgi, Triton};
    let request = InferenceRequest::Text(TextRequest {
        stop: vec!["o, w".to_owned()],
        ..text_request(TextPrompt::Text("a".to_owned()), Mode::Stream)
    });
    for (kind, stream, usage) in [
        (Tgi, TGI, Some(golden_usage())),
        (Triton, TRITON, None),
        (Cog, COG, None),
    ] {
        let mut expected = texts(&["Hell"]);
        expected.push(ended(FinishReason::Stop, usage));
        assert_eq!(
            read(decoder(kind, &request), [stream.as_bytes()]),
            expected,
            "{kind:?}"
        );
    }
}

#[test]
fn text_that_was_held_back_is_released_at_the_end() {
    let request = InferenceRequest::Text(TextRequest {
        stop: vec!["d!!".to_owned()],
        ..text_request(TextPrompt::Text("a".to_owned()), Mode::Stream)
    });
    let mut expected = texts(&["Hello", ", ", "wörl", "d!"]);
    expected.push(ended(FinishReason::Length, Some(golden_usage())));
    let decoder = decoder(BackendKind::Cog, &request);
    assert_eq!(read(decoder, [COG.as_bytes()]), expected);
}
