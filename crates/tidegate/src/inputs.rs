//! Parses inputs from the command line, `name=value`, with the model's schema.

use std::path::Path;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::usage_error::UsageError;

/// The input from `--json` and `-i`; `-i` takes precedence.
pub(crate) fn read(
    json: Option<&str>,
    pairs: &[String],
    schema: &Value,
) -> anyhow::Result<Map<String, Value>> {
    let mut input = match json {
        Some(json) => object(json)?,
        None => Map::new(),
    };
    for pair in pairs {
        let (name, text) = pair.split_once('=').ok_or_else(|| {
            UsageError::new(format!("`-i {pair}` has no `=`"))
                .hint("write -i name=value, or -i name=@file")
        })?;
        check_name(name, schema)?;
        input.insert(name.to_owned(), value(name, text, schema)?);
    }
    Ok(input)
}

/// The input of a Runpod test job, `{"input": {…}}`.
pub(crate) fn from_test_job(text: &str, source: &str) -> Result<Map<String, Value>, UsageError> {
    let hint = "write {\"input\": {\"name\": \"value\"}}";
    let job: Value = serde_json::from_str(text)
        .map_err(|error| UsageError::new(format!("{source} is not JSON: {error}")).hint(hint))?;
    match job.get("input").cloned() {
        Some(Value::Object(input)) => Ok(input),
        Some(_) | None => {
            Err(UsageError::new(format!("{source} has no object `input`")).hint(hint))
        }
    }
}

/// An example input: the required fields with example values.
pub(crate) fn example(document: &Value) -> Value {
    let schema = document
        .pointer("/components/schemas/Input")
        .cloned()
        .unwrap_or_default();
    let required = schema
        .get("required")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let one = |name: &Value| {
        Some((
            name.as_str()?.to_owned(),
            example_value(property(document, "Input", name.as_str()?)?),
        ))
    };
    Value::Object(required.iter().filter_map(one).collect())
}

fn object(json: &str) -> anyhow::Result<Map<String, Value>> {
    let text = match json.strip_prefix('@') {
        Some("-") => {
            std::io::read_to_string(std::io::stdin()).context("failed to read standard input")?
        }
        Some(file) => std::fs::read_to_string(file).map_err(|error| {
            UsageError::new(format!("failed to read `{file}`: {error}"))
                .hint("write the path of a file after `@`, or `-` for standard input")
        })?,
        None => json.to_owned(),
    };
    match serde_json::from_str(&text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(UsageError::new("--json is not an object")
            .hint("write --json '{\"name\": \"value\"}'")
            .into()),
        Err(error) => Err(UsageError::new(format!("--json is not JSON: {error}"))
            .hint("write --json '{\"name\": \"value\"}'")
            .into()),
    }
}

/// An unknown input is an error here, although a server ignores it: the user has mistyped it.
fn check_name(name: &str, schema: &Value) -> Result<(), UsageError> {
    let known: Vec<&str> = ["Input", "TrainingInput"]
        .into_iter()
        .filter_map(|component| {
            schema
                .pointer(&format!("/components/schemas/{component}/properties"))?
                .as_object()
        })
        .flat_map(|properties| properties.keys().map(String::as_str))
        .collect();
    let anything = schema.pointer("/components/schemas/Input/additionalProperties")
        == Some(&Value::Bool(true));
    if schema.is_null() || anything || known.contains(&name) {
        return Ok(());
    }
    let hint = if known.is_empty() {
        "the model has no inputs".to_owned()
    } else {
        format!("the inputs are {}", known.join(", "))
    };
    Err(UsageError::new(format!("the model has no input `{name}`")).hint(hint))
}

fn value(name: &str, text: &str, schema: &Value) -> anyhow::Result<Value> {
    if let Some(file) = text.strip_prefix('@') {
        return Ok(Value::String(data_uri(Path::new(file))?));
    }
    let property =
        property(schema, "Input", name).or_else(|| property(schema, "TrainingInput", name));
    match property
        .and_then(|property| property.get("type"))
        .and_then(Value::as_str)
    {
        Some("string") => Ok(text.into()),
        Some(other) => serde_json::from_str(text).map_err(|error| {
            let hint = format!("`{name}` has the type {other}; write the value as JSON");
            UsageError::new(format!("invalid value in `-i {name}={text}`: {error}"))
                .hint(hint)
                .into()
        }),
        // Not in the schema, or with several types: JSON if it parses, otherwise text.
        None => Ok(serde_json::from_str(text).unwrap_or_else(|_| text.into())),
    }
}

/// A property of the schema, with its reference resolved.
fn property<'a>(document: &'a Value, component: &str, name: &str) -> Option<&'a Value> {
    let property = document
        .pointer(&format!("/components/schemas/{component}/properties"))?
        .get(name)?;
    let reference = property
        .pointer("/allOf/0/$ref")
        .and_then(Value::as_str)
        .and_then(|text| text.strip_prefix('#'));
    reference.map_or(Some(property), |pointer| document.pointer(pointer))
}

fn example_value(property: &Value) -> Value {
    if let Some(first) = property.pointer("/enum/0") {
        return first.clone();
    }
    if let Some(one) = property.pointer("/anyOf/0") {
        return example_value(one);
    }
    let minimum = property.get("minimum").cloned();
    match (
        property.get("type").and_then(Value::as_str),
        property.get("format").and_then(Value::as_str),
    ) {
        (Some("string"), Some("uri")) => "data:text/plain,hello".into(),
        (Some("integer"), _) => minimum.unwrap_or_else(|| 1.into()),
        (Some("number"), _) => minimum.unwrap_or_else(|| 1.0.into()),
        (Some("boolean"), _) => true.into(),
        (Some("array"), _) => Value::Array(
            property
                .get("items")
                .map(example_value)
                .into_iter()
                .collect(),
        ),
        (Some("object"), _) => Value::Object(Map::new()),
        _ => "world".into(),
    }
}

fn data_uri(file: &Path) -> anyhow::Result<String> {
    let body = std::fs::read(file).map_err(|error| {
        UsageError::new(format!("failed to read `{}`: {error}", file.display()))
            .hint("write the path of a file after `@`")
    })?;
    let mime = mime_guess::from_path(file)
        .first_raw()
        .unwrap_or("application/octet-stream");
    Ok(format!("data:{mime};base64,{}", STANDARD.encode(body)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({"components": {"schemas": {
        "style": {"type": "string", "enum": ["1", "2"]},
        "Input": {"required": ["text", "n", "style"], "properties": {
            "text": {"type": "string"}, "n": {"type": "integer", "minimum": 3}, "any": {}, "tags": {"type": "array", "items": {"type": "string"}},
            "style": {"allOf": [{"$ref": "#/components/schemas/style"}]},
        }}}}})
    }

    #[test]
    fn the_schema_decides_between_text_and_json() {
        let pairs = ["text=x=y", "n=5", "style=1", "tags=[\"a\"]", "any=true"].map(str::to_owned);
        let input = read(Some("{\"n\": 1, \"kept\": null}"), &pairs, &schema()).unwrap();
        assert_eq!(
            Value::Object(input),
            json!({"text": "x=y", "n": 5, "style": "1", "tags": ["a"], "any": true, "kept": null})
        );
    }

    #[test]
    fn mistakes_are_usage_errors() {
        for (json, pair) in [
            (None, "novalue"),
            (None, "n=many"),
            (Some("[1]"), "n=1"),
            (Some("{"), "n=1"),
            (None, "text=@/does/not/exist"),
            (None, "nope=1"),
            (Some("@/does/not/exist"), "n=1"),
        ] {
            let error = read(json, &[pair.to_owned()], &schema()).unwrap_err();
            assert!(
                error.downcast_ref::<UsageError>().is_some(),
                "{json:?} {pair}: {error}"
            );
        }
    }

    #[test]
    fn examples_match_the_schema() {
        assert_eq!(
            example(&schema()),
            json!({"text": "world", "n": 3, "style": "1"})
        );
    }
}
