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
mod tests;
