//! Validates an input against a schema: drops unknown fields and the `null` of optional fields, refuses
//! invalid values, sets absent optional fields to `null` and finds the files.

use std::collections::BTreeMap;

use bytes::Bytes;
use jsonschema::error::ValidationErrorKind;
use serde_json::{Map, Value};
use tidegate_core::refusal::{FieldError, Rule};

use super::long_strings::without_long_strings;
use super::tree;
use super::unknown_names::input_warnings;
use crate::files::{Files, StoredInputs};

/// For a larger input only the first error is reported: a list of a million invalid items has a
/// million errors.
const MAX_INPUT_FOR_ALL_ERRORS: usize = 1024 * 1024;
/// The most errors reported for one input.
const MAX_ERRORS: usize = 100;
/// The most files in one input.
const MAX_FILES: usize = 1000;
/// The most characters in one error message.
const MAX_MESSAGE: usize = 2000;

/// Validates inputs against a compiled schema.
#[derive(Default)]
pub(crate) struct InputValidator {
    /// Absent if the model does not declare its input: then every input is valid.
    compiled: Option<CompiledSchema>,
}

struct CompiledSchema {
    validator: jsonschema::Validator,
    fields: BTreeMap<String, InputField>,
    /// Whether any field accepts files; without one, the search for files is skipped.
    takes_files: bool,
    /// Whether all rules are those of single fields.
    is_plain: bool,
}

struct InputField {
    /// Whether its strings are addresses of files.
    is_file: bool,
    is_secret: bool,
    /// Whether it is a string of which every value is valid.
    is_opaque: bool,
    /// Whether `null` means that the field is not given.
    is_optional: bool,
    /// Whether an absent field is set to `null`, because the model's function has no default for
    /// it.
    null_when_absent: bool,
}

/// A valid input, and the object that the model gets if it is not the client's own.
type CheckedValue = (CheckedInput, Option<Map<String, Value>>);

/// Pairs of a JSON pointer and the address at it.
type Addresses = Vec<(String, String)>;

/// A valid input.
#[derive(Debug)]
pub(crate) struct CheckedInput {
    /// The JSON for the model: the client's own bytes if nothing had to be changed.
    pub(crate) json: Bytes,
    /// The addresses of its files.
    pub(crate) files: Addresses,
    /// The bytes of its files in data URIs and in the file store.
    pub(crate) file_bytes: u64,
    /// The fields whose values are secret.
    pub(crate) secrets: Vec<String>,
    /// What the client should know about it.
    pub(crate) warnings: Vec<String>,
}

impl CheckedInput {
    /// An input that is passed on without validation.
    pub(crate) fn unchanged(raw: &Bytes) -> Self {
        Self {
            json: raw.clone(),
            files: Vec::new(),
            file_bytes: 0,
            secrets: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// The approximate memory use in bytes; data URIs are held twice.
    pub(crate) fn weight(&self) -> usize {
        self.json.len()
            + self
                .files
                .iter()
                .map(|(pointer, address)| pointer.len() + address.len())
                .sum::<usize>()
    }
}

impl InputValidator {
    /// `optional` names fields that may be absent although the schema requires them.
    pub(crate) fn compile(
        schema: &Value,
        document: &Value,
        optional: &[String],
    ) -> Result<Self, String> {
        if accepts_anything(schema) {
            return Ok(Self::default());
        }
        let mut schema = schema.clone();
        let properties = schema
            .get("properties")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        let mut fields: BTreeMap<String, InputField> = properties
            .iter()
            .map(|(name, property)| (name.clone(), InputField::from_property(property)))
            .collect();
        if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|name| optional.iter().all(|optional| name != optional));
        }
        for name in optional {
            if let Some(field) = fields.get_mut(name) {
                field.is_optional = true;
            }
        }
        let is_plain = has_only(
            &schema,
            &[
                "type",
                "title",
                "description",
                "properties",
                "required",
                "additionalProperties",
            ],
        );
        let takes_files = fields.values().any(|field| field.is_file);
        inline_enums(&mut schema, document);
        let validator = jsonschema::validator_for(&schema).or_else(|error| {
            // Python's regular expressions have more features; the model still validates the value.
            tracing::warn!(%error, "cannot check the patterns of the model's inputs");
            without_patterns(&mut schema);
            jsonschema::validator_for(&schema)
        });
        let validator = validator.map_err(|error| error.to_string())?;
        Ok(Self {
            compiled: Some(CompiledSchema {
                validator,
                fields,
                takes_files,
                is_plain,
            }),
        })
    }

    /// Checks the client's input, which is one JSON text.
    pub(crate) fn check(
        &self,
        raw: &Bytes,
        files: &Files,
        stored: &StoredInputs,
    ) -> Result<CheckedInput, Vec<FieldError>> {
        let Some(compiled) = &self.compiled else {
            return Ok(CheckedInput::unchanged(raw));
        };
        let value = tree::read(raw).map_err(|error| vec![root_error(error.to_string())])?;
        let (mut checked, changed) = compiled.check(raw, value, files, stored)?;
        if let Some(object) = changed {
            let json = serde_json::to_vec(&object).expect("a JSON object serializes");
            checked.json = json.into();
        }
        Ok(checked)
    }

    /// Checks an input with long strings that the schema does not look into, without parsing them. `None`
    /// if this input needs [`Self::check`].
    pub(crate) fn check_quickly(
        &self,
        raw: &Bytes,
        files: &Files,
        stored: &StoredInputs,
    ) -> Option<CheckedInput> {
        let compiled = self.compiled.as_ref()?;
        let short = without_long_strings(raw, |name| compiled.is_opaque(name))?;
        let value = tree::read(&short).ok()?;
        match compiled.check(raw, value, files, stored) {
            Ok((checked, None)) => Some(checked),
            // The long strings are part of what the model gets, or of the messages.
            Ok((_, Some(_))) | Err(_) => None,
        }
    }
}

/// Whether a schema declares no fields and allows any.
fn accepts_anything(schema: &Value) -> bool {
    schema.get("properties").is_none()
        && schema.get("additionalProperties") == Some(&Value::Bool(true))
}

impl CompiledSchema {
    /// Whether no rule depends on the text of this field.
    fn is_opaque(&self, name: &[u8]) -> bool {
        let field = std::str::from_utf8(name)
            .ok()
            .and_then(|name| self.fields.get(name));
        self.is_plain && field.is_some_and(|field| field.is_opaque)
    }

    /// Checks the value of `raw`.
    fn check(
        &self,
        raw: &Bytes,
        value: Value,
        files: &Files,
        stored: &StoredInputs,
    ) -> Result<CheckedValue, Vec<FieldError>> {
        let (mut changed, mut warnings) = (false, Vec::new());
        let value = match value {
            Value::Object(mut object) => {
                let is_unknown = |name: &&str| !self.fields.contains_key(*name);
                let unknown = object.keys().map(String::as_str).filter(is_unknown);
                warnings = input_warnings(unknown, self.fields.keys().map(String::as_str));
                let before = object.len();
                object.retain(|name, value| {
                    let field = self.fields.get(name);
                    field.is_some_and(|field| !(field.is_optional && value.is_null()))
                });
                changed |= object.len() != before;
                Value::Object(object)
            }
            other => other,
        };
        if !self.validator.is_valid(&value) {
            if raw.len() > MAX_INPUT_FOR_ALL_ERRORS {
                return Err(self
                    .validator
                    .validate(&value)
                    .err()
                    .into_iter()
                    .map(describe)
                    .collect());
            }
            let mut errors: Vec<_> = self
                .validator
                .iter_errors(&value)
                .take(MAX_ERRORS)
                .collect();
            // By rule, then in the order found, as Cog reports them.
            errors.sort_by(|a, b| a.schema_path().as_str().cmp(b.schema_path().as_str()));
            return Err(errors.into_iter().map(describe).collect());
        }
        let Value::Object(mut object) = value else {
            return Err(vec![root_error("the input must be an object".to_owned())]);
        };
        for (name, field) in &self.fields {
            if field.null_when_absent && !object.contains_key(name) {
                object.insert(name.clone(), Value::Null);
                changed = true;
            }
        }
        let (found, file_bytes) = self.files(&object, files, stored)?;
        let secrets = self.secrets(&object);
        let checked = CheckedInput {
            json: raw.clone(),
            files: found,
            file_bytes,
            secrets,
            warnings,
        };
        Ok((checked, changed.then_some(object)))
    }

    /// The addresses in file fields, and the total size of the files whose size is already known.
    fn files(
        &self,
        input: &Map<String, Value>,
        files: &Files,
        stored: &StoredInputs,
    ) -> Result<(Addresses, u64), Vec<FieldError>> {
        let mut found = Vec::new();
        if !self.takes_files {
            return Ok((found, 0));
        }
        for (name, value) in input {
            if !self.fields.get(name).is_some_and(|field| field.is_file) {
                continue;
            }
            let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
            match value {
                Value::String(text) => found.push((pointer, text.clone())),
                Value::Array(items) => {
                    let items = items
                        .iter()
                        .enumerate()
                        .filter_map(|(i, item)| Some((i, item.as_str()?)));
                    found
                        .extend(items.map(|(i, text)| (format!("{pointer}/{i}"), text.to_owned())));
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
            }
        }
        if found.len() > MAX_FILES {
            return Err(vec![root_error(format!(
                "the input has {} files; at most {MAX_FILES} are allowed",
                found.len()
            ))]);
        }
        let (mut bytes, mut errors) = (0, Vec::new());
        for (pointer, text) in &found {
            match files.check(stored, text) {
                Ok(more) => bytes += more,
                Err(message) => errors.push(FieldError {
                    field: pointer[1..].to_owned(),
                    message,
                    rule: Rule::Other,
                }),
            }
        }
        if errors.is_empty() {
            Ok((found, bytes))
        } else {
            Err(errors)
        }
    }

    fn secrets(&self, input: &Map<String, Value>) -> Vec<String> {
        let present = self.fields.iter().filter(|(name, field)| {
            field.is_secret && input.get(*name).is_some_and(|value| !value.is_null())
        });
        present.map(|(name, _)| name.clone()).collect()
    }
}

impl InputField {
    fn from_property(property: &Value) -> Self {
        let item = property.get("items").unwrap_or(property);
        let nullable = property.get("nullable") == Some(&Value::Bool(true));
        Self {
            is_file: item.get("format").and_then(Value::as_str) == Some("uri"),
            is_secret: item.get("x-cog-secret") == Some(&Value::Bool(true)),
            is_opaque: property.get("type").and_then(Value::as_str) == Some("string")
                && has_only(
                    property,
                    &[
                        "type",
                        "title",
                        "description",
                        "default",
                        "nullable",
                        "deprecated",
                        "x-order",
                    ],
                ),
            is_optional: nullable,
            null_when_absent: nullable && property.get("default").is_none(),
        }
    }
}

/// Whether a schema has no other keywords than these.
fn has_only(schema: &Value, keywords: &[&str]) -> bool {
    let object = schema.as_object();
    object.is_some_and(|object| object.keys().all(|key| keywords.contains(&key.as_str())))
}

/// Replaces references to enum components by the components, so that error messages name the field.
fn inline_enums(schema: &mut Value, document: &Value) {
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    for property in properties.values_mut() {
        let reference = property
            .pointer("/allOf/0/$ref")
            .and_then(Value::as_str)
            .and_then(|reference| reference.strip_prefix('#'));
        if let Some(target) = reference.and_then(|pointer| document.pointer(pointer)) {
            *property = target.clone();
        }
    }
}

fn describe(error: jsonschema::ValidationError<'_>) -> FieldError {
    let path = error
        .instance_path()
        .as_str()
        .trim_start_matches('/')
        .to_owned();
    let field = |name: String, message: String, rule| FieldError {
        field: name,
        message,
        rule,
    };
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            let name = property
                .as_str()
                .map_or_else(|| property.to_string(), str::to_owned);
            field(name, "Field required".to_owned(), Rule::Required)
        }
        ValidationErrorKind::Enum { options } => {
            let choices = options
                .as_array()
                .map(|options| options.iter().map(Value::to_string).collect())
                .unwrap_or_default();
            field(
                field_name(path),
                truncated(format!("{} is not one of {options}", error.instance())),
                Rule::Choice(choices),
            )
        }
        kind => field(
            field_name(path),
            truncated(error.to_string()),
            rule_of(kind),
        ),
    }
}

fn rule_of(kind: &ValidationErrorKind) -> Rule {
    match kind {
        ValidationErrorKind::Type { .. } => Rule::Type,
        ValidationErrorKind::Minimum { .. } => Rule::Minimum,
        ValidationErrorKind::Maximum { .. } => Rule::Maximum,
        ValidationErrorKind::MinLength { .. } => Rule::MinLength,
        ValidationErrorKind::MaxLength { .. } => Rule::MaxLength,
        ValidationErrorKind::Pattern { .. } => Rule::Pattern,
        _ => Rule::Other,
    }
}

fn without_patterns(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            object.retain(|key, value| key != "pattern" || !value.is_string());
            object.values_mut().for_each(without_patterns);
        }
        Value::Array(items) => items.iter_mut().for_each(without_patterns),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Truncates a long message: messages quote the value.
fn truncated(message: String) -> String {
    match message.char_indices().nth(MAX_MESSAGE) {
        Some((cut, _)) => format!("{}… ({} more bytes)", &message[..cut], message.len() - cut),
        None => message,
    }
}

fn field_name(path: String) -> String {
    if path.is_empty() {
        "__root__".to_owned()
    } else {
        path
    }
}

fn root_error(message: String) -> FieldError {
    FieldError {
        field: "__root__".to_owned(),
        message,
        rule: Rule::Other,
    }
}

#[cfg(test)]
mod tests {
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
        let checked = check(json!({"n": 1, "o": "x", "image": "https://h/a.png", "images": ["data:,x", "HTTP://h/b"]})).unwrap();
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
        let errors = check(json!({"n": 1, "image": "/etc/passwd", "images": ["data:,x", "../y", "http://127.0.0.1/"]})).unwrap_err();
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
        assert!(check(json!({"n": 1, "o": "file:///etc/passwd", "d": "http://127.0.0.1/", "u": "/etc/passwd"})).is_ok());
    }
}
