//! The scanner against a parser, and the rules that a parser does not have.

use proptest::prelude::*;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use super::*;

/// Scans a body that arrives in these parts.
fn scan_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Result<ScannedBody, InvalidBody> {
    let mut scanner = BodyScanner::default();
    for part in parts {
        scanner.push(part)?;
    }
    scanner.finish()
}

fn scan(body: &str) -> Result<ScannedBody, InvalidBody> {
    scan_parts([body.as_bytes()])
}

fn problem(body: &str) -> (BodyProblem, usize) {
    let error = scan(body).unwrap_err();
    (error.problem, error.position)
}

const CHAT: &str = r#"{"messages": [{"role": "user", "content": "model: \"x\" {"}], "model": "@cf/meta/llama", "stream": true, "user": "u1", "prompt_cache_key": "k1"}"#;

#[test]
fn the_keys_of_a_chat_request_are_found() {
    let found = scan(CHAT).unwrap();
    let model = found.model.unwrap();
    assert_eq!(model.name(), "@cf/meta/llama");
    let range = model.range;
    assert_eq!(&CHAT[range], "\"@cf/meta/llama\"");
    assert_eq!(found.stream, Some(true));
    assert_eq!(found.user_hash, Some(affinity_hash(b"u1")));
    assert_eq!(found.cache_key_hash, Some(affinity_hash(b"k1")));
    let messages = r#"[{"role": "user", "content": "model: \"x\" {"}]"#;
    assert_eq!(found.prefix_hash, Some(affinity_hash(messages.as_bytes())));
}

#[test]
fn another_name_of_the_model_replaces_only_the_model() {
    let model = scan(CHAT).unwrap().model.unwrap();
    let body = model.replace_in(CHAT.as_bytes(), "a\"b\\é");
    let replaced: Value = serde_json::from_slice(&body).unwrap();
    let mut expected: Value = serde_json::from_str(CHAT).unwrap();
    expected["model"] = json!("a\"b\\é");
    assert_eq!(replaced, expected);
    let end = &CHAT.as_bytes()[model.range.end..];
    assert!(body.starts_with(&CHAT.as_bytes()[..model.range.start]) && body.ends_with(end));
}

#[test]
fn escapes_in_keys_and_names_are_decoded() {
    for (body, name) in [
        (r#"{"\u006dodel":"a\u00e9\/\n"}"#, "aé/\n"),
        (r#"{"mod\u0065l":"\ud83d\ude00"}"#, "😀"),
        (r#"{"model":""}"#, ""),
        (" \t\r\n{ \"model\" : \"x\" } \n", "x"),
    ] {
        assert_eq!(scan(body).unwrap().model.unwrap().name(), name, "{body}");
    }
    let model = scan(r#"{"Model":"a","model ":"b","a":{"model":"c"},"b":["model"]}"#);
    assert_eq!(model.unwrap().model, None);
}

#[test]
fn a_model_is_one_text() {
    use BodyProblem::{DuplicateModel, InvalidModel};
    assert_eq!(
        problem(r#"{"model":"a","model":"a"}"#),
        (DuplicateModel, 21)
    );
    assert_eq!(
        problem(r#"{"model":"a","\u006dodel":"a"}"#).0,
        DuplicateModel
    );
    for value in [
        "null",
        "1",
        "[\"a\"]",
        "{}",
        r#""\ud83d""#,
        r#""\ude00x""#,
        r#""\ud83dx""#,
    ] {
        assert_eq!(
            problem(&format!(r#"{{"model":{value}}}"#)).0,
            InvalidModel,
            "{value}"
        );
    }
    let name = |length| format!(r#"{{"model":"{}"}}"#, "x".repeat(length));
    assert!(scan(&name(captured_text::MAX_LENGTH)).is_ok());
    assert_eq!(
        problem(&name(captured_text::MAX_LENGTH + 1)).0,
        InvalidModel
    );
    let not_unicode = b"{\"model\":\"\xFF\"}";
    assert_eq!(
        scan_parts([&not_unicode[..]]).unwrap_err().problem,
        InvalidModel
    );
}

#[test]
fn errors_have_a_position() {
    use BodyProblem::{Incomplete, NotAnObject, Syntax, TooDeep};
    for (body, expected) in [
        ("", (Incomplete, 0)),
        (" [", (NotAnObject, 1)),
        ("\"a\"", (NotAnObject, 0)),
        ("{\"a\":1", (Incomplete, 6)),
        ("{\"a\":01}", (Syntax, 6)),
        ("{\"a\":tru}", (Syntax, 8)),
        ("{\"a\" 1}", (Syntax, 5)),
        ("{\"a\":1,}", (Syntax, 7)),
        ("{,}", (Syntax, 1)),
        ("{\"a\":[1}", (Syntax, 7)),
        ("{\"a\":\"b\u{1}\"}", (Syntax, 7)),
        ("{\"a\":\"\\x\"}", (Syntax, 7)),
        ("{\"a\":\"\\u12g4\"}", (Syntax, 10)),
        ("{}{", (Syntax, 2)),
        ("\u{feff}{}", (NotAnObject, 0)),
    ] {
        assert_eq!(problem(body), expected, "{body}");
        assert_eq!(
            scan_parts(body.as_bytes().chunks(1)).unwrap_err(),
            scan(body).unwrap_err()
        );
    }
    let depth = json_syntax::MAX_DEPTH as usize;
    let nested = |n: usize| format!("{{\"a\":{}{}}}", "[".repeat(n), "]".repeat(n));
    assert!(scan(&nested(depth - 1)).is_ok());
    assert_eq!(problem(&nested(depth)), (TooDeep, 5 + depth - 1));
}

#[test]
fn an_error_stays() {
    let mut scanner = BodyScanner::default();
    let error = scanner.push(b"{]").unwrap_err();
    assert_eq!(scanner.push(b"}"), Err(error));
    assert_eq!(scanner.finish(), Err(error));
    assert_eq!(error.to_string(), "invalid JSON at byte 1 of the body");
}

#[test]
fn the_model_is_known_before_the_body_is_complete() {
    let mut scanner = BodyScanner::default();
    scanner.push(b"{\"model\":\"a").unwrap();
    assert_eq!(scanner.found().model, None);
    scanner.push(b"b\"").unwrap();
    assert_eq!(scanner.found().model.as_ref().unwrap().name(), "ab");
}

#[test]
fn only_the_beginning_of_the_prompt_counts() {
    let hash = |body: &str| scan(body).unwrap().prefix_hash.unwrap();
    let start = "x".repeat(PROMPT_PREFIX);
    let prompt = |end: &str| format!(r#"{{"prompt":"{start}{end}"}}"#);
    assert_eq!(hash(&prompt("a")), hash(&prompt("b, and more")));
    assert_ne!(hash(r#"{"prompt":"a"}"#), hash(r#"{"prompt":"b"}"#));
    assert_eq!(
        hash(r#"{"prompt":"a","messages":[]}"#),
        hash(r#"{"input":"a"}"#)
    );
    assert_eq!(scan(r#"{"a":{"prompt":"a"}}"#).unwrap().prefix_hash, None);
}

#[test]
fn values_of_other_types_are_not_judged() {
    for (body, stream, user) in [
        (
            r#"{"stream":false,"user":"a"}"#,
            Some(false),
            Some(affinity_hash(b"a")),
        ),
        (r#"{"stream":null,"user":null}"#, None, None),
        (r#"{"stream":"true","user":1}"#, None, None),
        (r#"{"stream":true,"stream":false}"#, Some(false), None),
        (r#"{"stream":[true],"user":["a"]}"#, None, None),
    ] {
        let found = scan(body).unwrap();
        assert_eq!((found.stream, found.user_hash), (stream, user), "{body}");
    }
}

/// Any JSON, with the keys that matter more often than others.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e300..1e300f64).prop_map(Value::from),
        "[a\\\\\"/\u{1}\n\u{e9}\u{1F600}{}\\[\\],:]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            object(inner).prop_map(Value::from),
        ]
    })
}

fn object(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    let key = prop_oneof![
        "(model|stream|user|prompt|messages|prompt_cache_key)",
        "[a\\\\\"\u{e9}]{0,3}"
    ];
    prop::collection::vec((key, value), 0..6).prop_map(|pairs| pairs.into_iter().collect())
}

/// The same JSON with some characters of texts as escapes.
fn escaped(json: &str) -> String {
    json.replace('a', "\\u0061")
        .replace('o', "\\u006F")
        .replace('\u{1F600}', "\\uD83D\\uDE00")
}

/// Divides bytes at these places.
fn divide<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let cuts = cuts.iter().map(|cut| cut % (bytes.len() + 1));
    let mut cuts: Vec<usize> = cuts.chain([0, bytes.len()]).collect();
    cuts.sort_unstable();
    cuts.windows(2)
        .map(|pair| &bytes[pair[0]..pair[1]])
        .collect()
}

proptest! {
    #[test]
    fn what_is_found_is_what_a_parser_finds(
        body in object(any_json()),
        cuts in prop::collection::vec(0usize..1000, 0..5),
    ) {
        let text = serde_json::to_string(&body).unwrap();
        let pretty = serde_json::to_string_pretty(&body).unwrap();
        let codes = text.replace("true", "t&").replace("false", "f&").replace("null", "n&");
        let codes = escaped(&codes).replace("t&", "true").replace("f&", "false").replace("n&", "null");
        for text in [&text, &pretty, &codes] {
            let found = scan_parts(divide(text.as_bytes(), &cuts));
            match body.get("model") {
                Some(Value::String(model)) => {
                    let found = found.clone().unwrap().model.unwrap();
                    prop_assert_eq!(found.name(), model);
                    let value: Value = serde_json::from_str(&text[found.range]).unwrap();
                    prop_assert_eq!(&value, model);
                }
                Some(_) => {
                    prop_assert_eq!(found.unwrap_err().problem, BodyProblem::InvalidModel);
                    continue;
                }
                None => prop_assert_eq!(&found.as_ref().unwrap().model, &None),
            }
            let found = found.unwrap();
            prop_assert_eq!(found.stream, body.get("stream").and_then(Value::as_bool));
            let hash = |key: &str| body.get(key)?.as_str().map(|text| affinity_hash(text.as_bytes()));
            prop_assert_eq!(found.user_hash, hash("user"));
            prop_assert_eq!(found.cache_key_hash, hash("prompt_cache_key"));
            let has_prompt = body.contains_key("prompt") || body.contains_key("messages");
            prop_assert_eq!(found.prefix_hash.is_some(), has_prompt);
        }
    }

    /// Texts that are nearly JSON are accepted exactly if a parser accepts them.
    #[test]
    fn the_syntax_is_that_of_a_parser(
        body in object(any_json()),
        changes in prop::collection::vec((0usize..1000, prop::sample::select(b"{}[]:,\"\\ue0-+.1 tn\n\x01\xff".to_vec())), 0..3),
        inserts in any::<bool>(),
        cuts in prop::collection::vec(0usize..1000, 0..5),
    ) {
        let mut text = serde_json::to_string(&body).unwrap().into_bytes();
        for (at, byte) in changes {
            let at = at % text.len();
            if inserts { text.insert(at, byte) } else { text[at] = byte }
        }
        let found = scan_parts([&text[..]]);
        prop_assert_eq!(&scan_parts(divide(&text, &cuts)), &found);
        let is_json = serde_json::from_slice::<IgnoredAny>(&text).is_ok();
        match found {
            Ok(_) => prop_assert!(is_json),
            Err(InvalidBody { problem: BodyProblem::Syntax | BodyProblem::Incomplete, position }) => {
                prop_assert!(!is_json);
                prop_assert!(position <= text.len());
            }
            Err(InvalidBody { problem: BodyProblem::NotAnObject, .. }) => {
                prop_assert_ne!(text.trim_ascii_start().first(), Some(&b'{'));
            }
            Err(_) => {}
        }
    }
}
