//! Fuzz targets for inputs.

use std::sync::LazyLock;

use bytes::Bytes;
use serde_json::{Value, json};

use super::InputValidator;
use crate::files::StoredInputs;
use crate::files::fuzz::FILES;

static VALIDATOR: LazyLock<InputValidator> = LazyLock::new(|| {
    let document = json!({"choice": {"type": "string", "enum": ["x", "y"]}});
    let schema = json!({"type": "object", "properties": {
        "n": {"type": "integer", "minimum": 1},
        "s": {"type": "string", "maxLength": 5, "pattern": "^[a-z]+$"},
        "choice": {"allOf": [{"$ref": "#/choice"}], "default": "x"},
        "o": {"type": "string", "nullable": true},
        "any": {},
        "key": {"type": "string", "format": "password", "x-cog-secret": true},
        "image": {"type": "string", "format": "uri"},
        "a~/b": {"type": "array", "items": {"type": "string", "format": "uri"}},
    }});
    InputValidator::compile(&schema, &document, &[]).expect("the schema is valid")
});

/// A valid input reaches the model unchanged, without unknown fields, and contains every file that
/// was found. An invalid input is refused with messages of limited length.
pub fn input(input: &[u8]) {
    let checked = match VALIDATOR.check(
        &Bytes::copy_from_slice(input),
        &FILES,
        &StoredInputs::default(),
    ) {
        Ok(checked) => checked,
        Err(errors) => {
            assert!(!errors.is_empty(), "refused without a reason");
            for error in errors {
                assert!(
                    !error.field.is_empty() && (1..3000).contains(&error.message.chars().count()),
                    "{error:?}"
                );
            }
            return;
        }
    };
    let before: Value =
        serde_json::from_slice(input).expect("a valid input is JSON and not nested too deeply");
    let after: Value = serde_json::from_slice(&checked.json).expect("the model's input is JSON");
    for (name, value) in after.as_object().expect("the model's input is an object") {
        match before.get(name) {
            Some(sent) => assert_eq!(value, sent, "{name} was changed"),
            None => assert_eq!(
                (name.as_str(), value),
                ("o", &Value::Null),
                "an unexpected field was added"
            ),
        }
    }
    for (pointer, address) in &checked.files {
        assert_eq!(
            after.pointer(pointer).and_then(Value::as_str),
            Some(address.as_str()),
            "{pointer} points to another value"
        );
    }
    for name in &checked.secrets {
        assert!(
            after.get(name).is_some_and(Value::is_string),
            "{name} is not a string"
        );
    }
}
