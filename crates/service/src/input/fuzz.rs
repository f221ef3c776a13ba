//! Fuzz targets for inputs.

use std::sync::LazyLock;

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_core::Account;

use super::InputValidator;
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
    InputValidator::compile(&schema, &document).expect("the schema is fine")
});

/// An input that fits reaches the model as the caller sent it, without what the model does not know; the
/// files that were found are in it. What does not fit has reasons of bounded length.
pub fn input(input: &[u8]) {
    let checked = match VALIDATOR.check(&Bytes::copy_from_slice(input), &FILES, &Account::ANONYMOUS)
    {
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
    let before: Value = serde_json::from_slice(input)
        .expect("an input that fits is JSON, and not too deep to be read");
    let after: Value =
        serde_json::from_slice(&checked.json).expect("what reaches the model is JSON");
    for (name, value) in after
        .as_object()
        .expect("what reaches the model is an object")
    {
        match before.get(name) {
            Some(given) => assert_eq!(value, given, "{name} was changed"),
            None => assert_eq!(
                (name.as_str(), value),
                ("o", &Value::Null),
                "it came from nowhere"
            ),
        }
    }
    for (pointer, address) in &checked.files {
        assert_eq!(
            after.pointer(pointer).and_then(Value::as_str),
            Some(address.as_str()),
            "{pointer} leads to another value"
        );
    }
    for name in &checked.secrets {
        assert!(
            after.get(name).is_some_and(Value::is_string),
            "{name} is no secret"
        );
    }
}
