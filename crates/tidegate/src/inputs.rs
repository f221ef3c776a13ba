//! Parses inputs from the command line, `name=value`, with the model's schema.

use std::path::Path;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use tidegate_core::JobKind;
use tidegate_http::cog::resolve_reference;

use crate::usage_error::UsageError;

/// The input from `--json` and `-i`; `-i` takes precedence. `kind` is the function that gets it.
pub(crate) fn read(
    json: Option<&str>,
    pairs: &[String],
    schema: &Value,
    kind: JobKind,
) -> anyhow::Result<Map<String, Value>> {
    let component = component(schema, kind);
    let mut input = match json {
        Some(json) => with_files(object(json)?, schema, component)?,
        None => Map::new(),
    };
    for name in input.keys() {
        check_name(name, schema, component)?;
    }
    for (name, texts) in grouped(pairs)? {
        check_name(name, schema, component)?;
        input.insert(name.to_owned(), value_of(name, &texts, schema, component)?);
    }
    Ok(input)
}

/// The values of each name, in the order of the command line.
fn grouped(pairs: &[String]) -> Result<Vec<(&str, Vec<&str>)>, UsageError> {
    let mut grouped: Vec<(&str, Vec<&str>)> = Vec::new();
    for pair in pairs {
        let (name, text) = pair.split_once('=').ok_or_else(|| {
            UsageError::new(format!("`-i {pair}` has no `=`"))
                .hint("write -i name=value, or -i name=@file")
        })?;
        match grouped.iter_mut().find(|(known, _)| *known == name) {
            Some((_, texts)) => texts.push(text),
            None => grouped.push((name, vec![text])),
        }
    }
    Ok(grouped)
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

/// The input with the content of files for texts such as `@file` in file inputs, as with `-i`.
fn with_files(
    mut input: Map<String, Value>,
    schema: &Value,
    component: &str,
) -> anyhow::Result<Map<String, Value>> {
    for (name, value) in &mut input {
        let Some(property) = property(schema, component, name) else {
            continue;
        };
        let texts = match value {
            Value::Array(items) => items.iter_mut().collect(),
            other => vec![other],
        };
        let is_file = [Some(property), property.get("items")]
            .into_iter()
            .flatten()
            .any(|schema| schema.get("format").and_then(Value::as_str) == Some("uri"));
        for text in texts {
            let file = text.as_str().and_then(|text| text.strip_prefix('@'));
            if let Some(file) = file.filter(|_| is_file) {
                *text = data_uri(Path::new(file))?.into();
            }
        }
    }
    Ok(input)
}

fn object(json: &str) -> anyhow::Result<Map<String, Value>> {
    let text = match json.strip_prefix('@') {
        Some("-") => standard_input()?,
        None if json == "-" => standard_input()?,
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

fn standard_input() -> anyhow::Result<String> {
    std::io::read_to_string(std::io::stdin()).context("failed to read standard input")
}

/// The component of the schema that describes the input. A model without a training function runs
/// trainings as predictions.
fn component(schema: &Value, kind: JobKind) -> &'static str {
    match kind {
        JobKind::Training
            if schema
                .pointer("/components/schemas/TrainingInput")
                .is_some() =>
        {
            "TrainingInput"
        }
        JobKind::Training | JobKind::Prediction => "Input",
    }
}

/// An unknown input is an error here, although a server ignores it: the user has mistyped it.
fn check_name(name: &str, schema: &Value, component: &str) -> Result<(), UsageError> {
    let component = schema.pointer(&format!("/components/schemas/{component}"));
    let known: Vec<&str> = component
        .and_then(|component| component.get("properties")?.as_object())
        .into_iter()
        .flat_map(|properties| properties.keys().map(String::as_str))
        .collect();
    let anything = component.and_then(|component| component.get("additionalProperties"))
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

/// The value of an input that is given once or, if it is a list, several times.
fn value_of(name: &str, texts: &[&str], schema: &Value, component: &str) -> anyhow::Result<Value> {
    let property = property(schema, component, name);
    let items = property
        .filter(|property| property.get("type").and_then(Value::as_str) == Some("array"))
        .map(|property| resolve_reference(schema, property.get("items").unwrap_or(&Value::Null)));
    match (items, texts) {
        (None, [text]) => value(name, text, property),
        (None, _) => Err(UsageError::new(format!(
            "`-i {name}=…` is given {} times, and `{name}` is not a list",
            texts.len()
        ))
        .hint(format!("give one value for `{name}`"))
        .into()),
        (Some(items), [text]) => match serde_json::from_str::<Value>(text) {
            Ok(list @ Value::Array(_)) => Ok(list),
            Ok(_) | Err(_) => Ok(Value::Array(vec![value(name, text, Some(items))?])),
        },
        (Some(items), texts) => {
            let values = texts.iter().map(|text| value(name, text, Some(items)));
            Ok(Value::Array(values.collect::<Result<_, _>>()?))
        }
    }
}

/// The value of one text, for a property or an item with this schema.
fn value(name: &str, text: &str, schema: Option<&Value>) -> anyhow::Result<Value> {
    if let Some(file) = text.strip_prefix('@') {
        return Ok(Value::String(data_uri(Path::new(file))?));
    }
    match schema
        .and_then(|schema| schema.get("type"))
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
    Some(resolve_reference(document, property))
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
            "text": {"type": "string"}, "n": {"type": "integer", "minimum": 3}, "any": {}, "kept": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}},
            "style": {"allOf": [{"$ref": "#/components/schemas/style"}]},
        }},
        "TrainingInput": {"properties": {"data": {"type": "string"}}},
        }}})
    }

    #[test]
    fn the_schema_decides_between_text_and_json() {
        let pairs = ["text=x=y", "n=5", "style=1", "tags=[\"a\"]", "any=true"].map(str::to_owned);
        let json = "{\"n\": 1, \"kept\": null}";
        let input = read(Some(json), &pairs, &schema(), JobKind::Prediction).unwrap();
        assert_eq!(
            Value::Object(input),
            json!({"text": "x=y", "n": 5, "style": "1", "tags": ["a"], "any": true, "kept": null})
        );
    }

    #[test]
    fn a_list_is_json_or_a_repeated_option() {
        let file = tempfile::NamedTempFile::with_suffix(".txt").unwrap();
        std::fs::write(file.path(), "hi").unwrap();
        let uri = "data:text/plain;base64,aGk=";
        let at = format!("tags=@{}", file.path().display());
        for (pairs, expected) in [
            (vec!["tags=[\"a\", \"b\"]"], json!(["a", "b"])),
            (vec!["tags=a", "tags=b"], json!(["a", "b"])),
            (vec!["tags=a"], json!(["a"])),
            (vec!["tags=5"], json!(["5"])),
            (vec![&at], json!([uri])),
            (vec![&at, "tags=b"], json!([uri, "b"])),
        ] {
            let pairs: Vec<String> = pairs.into_iter().map(str::to_owned).collect();
            let input = read(None, &pairs, &schema(), JobKind::Prediction).unwrap();
            assert_eq!(input["tags"], expected);
        }
    }

    #[test]
    fn a_repeated_scalar_is_an_error() {
        for name in ["n", "text", "any"] {
            let pairs = [format!("{name}=1"), format!("{name}=2")];
            let error = read(None, &pairs, &schema(), JobKind::Prediction)
                .unwrap_err()
                .to_string();
            assert!(error.contains(name) && error.contains("2 times"), "{error}");
        }
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
            (Some("{\"nope\": 1}"), "n=1"),
            (None, "data=d"),
            (Some("{\"data\": \"d\"}"), "n=1"),
        ] {
            let pairs = [pair.to_owned()];
            let error = read(json, &pairs, &schema(), JobKind::Prediction).unwrap_err();
            assert!(
                error.downcast_ref::<UsageError>().is_some(),
                "{json:?} {pair}: {error}"
            );
        }
    }

    #[test]
    fn trainings_and_predictions_have_different_inputs() {
        let training = |pair: &str| read(None, &[pair.to_owned()], &schema(), JobKind::Training);
        assert!(training("data=d").is_ok());
        assert!(training("text=x").is_err());
    }
}
