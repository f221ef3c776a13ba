use std::sync::Arc;

use serde_json::json;
use tidegate_net::{Client, Config};

use super::*;

#[test]
fn long_texts_are_checked_like_short_ones() {
    let schema = json!({"title": "Input", "type": "object", "required": ["text"], "properties": {
        "text": {"title": "Text", "type": "string", "description": "a text", "x-order": 0},
        "limited": {"type": "string", "maxLength": 100_000},
        "file": {"type": "string", "format": "uri"},
        "n": {"type": "integer", "maximum": 3},
        "maybe": {"type": "string", "nullable": true, "default": "x"},
    }});
    let validator = InputValidator::compile(&schema, &json!({}), &[]).unwrap();
    let files = Files {
        net: Arc::new(Client::new(Config::default())),
        upload_url: None,
        owner: None,
        file_store: None,
    };
    let (long, longer) = ("é".repeat(50_000), "x".repeat(200_000));
    let quick = |input: Value| {
        let raw = Bytes::from(input.to_string());
        let quick = validator.check_quickly(&raw, &files, &StoredInputs::default());
        let checked = validator.check(&raw, &files, &StoredInputs::default());
        if let Some(quick) = &quick {
            let checked = checked.expect("it is valid");
            assert_eq!((&quick.json, &quick.files), (&checked.json, &checked.files));
            assert_eq!(quick.secrets, checked.secrets);
            assert_eq!(quick.warnings, checked.warnings);
        }
        quick.is_some()
    };
    assert!(quick(json!({"text": long})));
    assert!(quick(
        json!({"text": long, "maybe": longer, "n": 3, "limited": "short"})
    ));
    for full in [
        // A rule looks at the long text.
        json!({"text": "short", "limited": long}),
        json!({"text": long, "limited": longer}),
        json!({"text": "short", "file": format!("data:text/plain,{long}")}),
        // Other values are invalid, or the model gets another input.
        json!({"text": long, "n": 4}),
        json!({"maybe": long}),
        json!({"text": long, "unknown": 1}),
        json!({"text": long, "maybe": null}),
    ] {
        assert!(!quick(full));
    }
    let twice = Bytes::from(format!(r#"{{"text":"{long}","text":"{long}"}}"#));
    let stored = StoredInputs::default();
    assert!(validator.check_quickly(&twice, &files, &stored).is_none());
}

fn check(input: Value) -> Result<Value, Vec<String>> {
    let document = json!({"components": {"schemas": {
    "style": {"title": "style", "type": "string", "enum": ["x", "y"], "description": "An enumeration."},
    "Input": {"type": "object", "title": "Input", "required": ["n", "i"], "properties": {
        "i": {"type": "integer"},
        "n": {"type": "integer", "minimum": 1, "maximum": 10},
        "s": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$"},
        "style": {"allOf": [{"$ref": "#/components/schemas/style"}], "default": "x"},
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "o": {"type": "string", "nullable": true},
        "d": {"type": "string", "nullable": true, "default": null},
        "five": {"type": "integer", "nullable": true, "default": 5},
        "u": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "image": {"type": "string", "format": "uri"},
        "images": {"type": "array", "items": {"type": "string", "format": "uri"}},
    }}}}});
    let check = InputValidator::compile(
        document.pointer("/components/schemas/Input").unwrap(),
        &document,
        &["i".to_owned()],
    )
    .unwrap();
    let files = Files {
        net: Arc::new(Client::new(Config::default())),
        upload_url: None,
        owner: None,
        file_store: None,
    };
    match check.check(
        &Bytes::from(input.to_string()),
        &files,
        &StoredInputs::default(),
    ) {
        Ok(checked) => Ok(
            json!({"json": serde_json::from_slice::<Value>(&checked.json).unwrap(), "files": checked.files, "warnings": checked.warnings}),
        ),
        Err(errors) => Err(errors
            .into_iter()
            .map(|error| format!("{}: {}", error.field, error.message))
            .collect()),
    }
}

#[test]
fn messages_match_cog() {
    let cases = [
        (json!({}), "n: Field required"),
        (json!({"n": "3"}), "n: \"3\" is not of type \"integer\""),
        (json!({"n": 0}), "n: 0 is less than the minimum of 1"),
        (json!({"n": 11}), "n: 11 is greater than the maximum of 10"),
        (json!({"n": true}), "n: true is not of type \"integer\""),
        (
            json!({"n": 1, "s": "a"}),
            "s: \"a\" is shorter than 2 characters",
        ),
        (
            json!({"n": 1, "s": "abcdefg"}),
            "s: \"abcdefg\" is longer than 5 characters",
        ),
        (
            json!({"n": 1, "s": "AB"}),
            "s: \"AB\" does not match \"^[a-z]+$\"",
        ),
        (
            json!({"n": 1, "style": "z"}),
            "style: \"z\" is not one of [\"x\",\"y\"]",
        ),
        (
            json!({"n": 1, "numbers": [1, "b"]}),
            "numbers/1: \"b\" is not of type \"integer\"",
        ),
        (
            json!({"n": 1, "u": true}),
            "u: true is not valid under any of the schemas listed in the 'anyOf' keyword",
        ),
        (
            json!({"n": 1, "s": null}),
            "s: null is not of type \"string\"",
        ),
        (json!([1]), "__root__: [1] is not of type \"object\""),
    ];
    for (input, expected) in cases {
        assert_eq!(check(input.clone()).unwrap_err(), [expected], "{input}");
    }
}

#[test]
fn every_error_is_reported() {
    assert_eq!(check(json!({"s": "A"})).unwrap_err().len(), 3);
}

#[test]
fn unknown_keys_are_dropped_and_absent_optionals_become_null() {
    let checked = check(json!({"n": 3, "what": 1, "stile": "y"})).unwrap();
    assert_eq!(checked["json"], json!({"n": 3, "o": null}));
    assert_eq!(
        checked["warnings"],
        json!([
            "unknown input `stile` was ignored; did you mean `style`?",
            "unknown input `what` was ignored"
        ])
    );
}

#[test]
fn null_for_an_optional_field_means_not_given() {
    let input = json!({"n": 3, "o": null, "d": null, "five": null, "i": null});
    assert_eq!(check(input).unwrap()["json"], json!({"n": 3, "o": null}));
}

#[test]
fn file_addresses_are_found_by_pointer() {
    let checked = check(
        json!({"n": 1, "o": "x", "image": "https://h/a.png", "images": ["data:,x", "HTTP://h/b"]}),
    )
    .unwrap();
    assert_eq!(
        checked["files"],
        json!([
            ["/image", "https://h/a.png"],
            ["/images/0", "data:,x"],
            ["/images/1", "HTTP://h/b"]
        ])
    );
}

#[test]
fn invalid_file_addresses_are_reported_by_field() {
    let errors = check(
        json!({"n": 1, "image": "/etc/passwd", "images": ["data:,x", "../y", "http://127.0.0.1/"]}),
    )
    .unwrap_err();
    let fields: Vec<_> = errors
        .iter()
        .map(|error| error.split(':').next().unwrap())
        .collect();
    assert_eq!(fields, ["image", "images/1", "images/2"]);
}

#[test]
fn a_model_that_accepts_anything_gets_the_input_unchanged() {
    let schema = json!({"title": "Input", "type": "object", "additionalProperties": true});
    let files = Files {
        net: Arc::new(Client::new(Config::default())),
        upload_url: None,
        owner: None,
        file_store: None,
    };
    for raw in ["{\"a\" : [1, \"http://127.0.0.1/\"]}", "[1]", "\"x\""] {
        let check = InputValidator::compile(&schema, &json!({}), &[]).unwrap();
        assert_eq!(
            check
                .check(&Bytes::from(raw), &files, &StoredInputs::default())
                .unwrap()
                .json,
            raw
        );
    }
}

#[test]
fn strings_of_other_fields_are_not_checked_as_files() {
    assert!(
        check(
            json!({"n": 1, "o": "file:///etc/passwd", "d": "http://127.0.0.1/", "u": "/etc/passwd"})
        )
        .is_ok()
    );
}
