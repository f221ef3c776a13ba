//! Writes the output of a prediction to a file, a folder or standard output, and saves its files.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tidegate_http::cog::resolve_reference;
use tidegate_net::{AllowedNetworks, Client, Config};

use crate::models::slug;

/// The name of an output file without its extension, if the user gives none.
const DEFAULT_NAME: &str = "output";

/// Writes the output to `to`, or to standard output: text as text, everything else as JSON. Without `to`,
/// the files of the output are saved in the working directory, and their names are printed.
pub(crate) async fn write(
    output: &RawValue,
    schema: &Value,
    to: Option<&Path>,
) -> anyhow::Result<()> {
    let Ok(mut output) = serde_json::from_str::<Value>(output.get()) else {
        // It has numbers or a depth that cannot be parsed.
        return write_text(output.get(), to);
    };
    if let Some(text) = joined(&output, schema) {
        return write_text(&text, to);
    }
    match (to, files(&output)) {
        (None, files) => {
            // A text of a model without types is not a file because it could be one.
            let are_files = files.is_some() && is_files(schema);
            save_files(&mut output, schema, Path::new(DEFAULT_NAME))?;
            match names(&output) {
                Some(names) if are_files => show(&names.join("\n")),
                Some(_) | None => show(&text_of(&output)?),
            }
        }
        (Some(to), Some(files)) if files.len() == 1 && !to.is_dir() => {
            write_file(files[0], to).await
        }
        (Some(to), Some(files)) => {
            std::fs::create_dir_all(to)
                .with_context(|| format!("failed to create the folder `{}`", to.display()))?;
            for (i, file) in files.iter().enumerate() {
                let name = if output.is_string() {
                    DEFAULT_NAME.to_owned()
                } else {
                    i.to_string()
                };
                write_file(file, &to.join(name + &extension(file))).await?;
            }
            Ok(())
        }
        (Some(to), None) => write_text(&text_of(&output)?, Some(to)),
    }
}

/// Writes a whole prediction as JSON to `to`, or to standard output. The files of its output are saved next
/// to it, and their names take their place.
pub(crate) fn write_prediction(
    fields: BTreeMap<String, Box<RawValue>>,
    schema: &Value,
    to: Option<&Path>,
) -> anyhow::Result<()> {
    let stem = to.map_or_else(|| DEFAULT_NAME.into(), |to| to.with_extension(""));
    let mut shown = BTreeMap::new();
    for (name, raw) in fields {
        let value = match serde_json::from_str::<Value>(raw.get()) {
            Ok(mut value) => {
                if name == "output" {
                    save_files(&mut value, schema, &stem)?;
                }
                ShownValue::Parsed(value)
            }
            Err(_) => ShownValue::Raw(raw),
        };
        shown.insert(name, value);
    }
    write_text(&serde_json::to_string_pretty(&shown)?, to)
}

/// A field of a prediction; raw, if it has numbers or a depth that cannot be parsed.
#[derive(Serialize)]
#[serde(untagged)]
enum ShownValue {
    Parsed(Value),
    Raw(Box<RawValue>),
}

/// Whether the output of the model is text that it produces piece by piece.
pub(crate) fn is_streamed_text(schema: &Value) -> bool {
    schema
        .pointer("/components/schemas/Output/x-cog-array-display")
        .is_some_and(|display| display == "concatenate")
}

/// Streamed text as one text.
fn joined(output: &Value, schema: &Value) -> Option<String> {
    let parts: Option<Vec<&str>> = output.as_array()?.iter().map(Value::as_str).collect();
    is_streamed_text(schema).then(|| parts.unwrap_or_default().concat())
}

/// The URLs, if the output is a file or a list of files.
fn files(output: &Value) -> Option<Vec<&str>> {
    let is_file = |text: &&str| {
        text.starts_with("data:") || text.starts_with("http://") || text.starts_with("https://")
    };
    names(output).filter(|names| names.iter().all(is_file))
}

/// The texts, if the output is one text or a list of texts.
fn names(output: &Value) -> Option<Vec<&str>> {
    match output {
        Value::String(text) => Some(vec![text.as_str()]),
        Value::Array(items) if !items.is_empty() => items.iter().map(Value::as_str).collect(),
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            None
        }
    }
}

/// Whether the model returns a file or a list of files.
fn is_files(schema: &Value) -> bool {
    let Some(output) = schema.pointer("/components/schemas/Output") else {
        return true;
    };
    let output = resolve_reference(schema, output);
    let item = output.get("items").unwrap_or(output);
    !is_text(resolve_reference(schema, item))
}

/// Whether values with this schema are text and not files.
fn is_text(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("string")
        && schema.get("format").and_then(Value::as_str) != Some("uri")
}

/// Saves the files in an output, and replaces each by the name of its file: `stem.EXT`, in a list
/// `stem.0.EXT`, in an object `stem.KEY.EXT`.
fn save_files(output: &mut Value, document: &Value, stem: &Path) -> anyhow::Result<()> {
    let schema = document
        .pointer("/components/schemas/Output")
        .unwrap_or(&Value::Null);
    save_below(output, document, schema, &stem.display().to_string())
}

fn save_below(
    value: &mut Value,
    document: &Value,
    schema: &Value,
    stem: &str,
) -> anyhow::Result<()> {
    let schema = resolve_reference(document, schema);
    let below = |name: &str| schema.get(name).unwrap_or(&Value::Null);
    match value {
        Value::String(text) => {
            if let Some(body) = data_uri_body(text).filter(|_| !is_text(schema)) {
                let name = format!("{stem}{}", extension(text));
                save(body, Path::new(&name))?;
                *text = name;
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                save_below(item, document, below("items"), &format!("{stem}.{i}"))?;
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                let schema = below("properties").get(key);
                let schema = schema.unwrap_or(below("additionalProperties"));
                save_below(field, document, schema, &format!("{stem}.{}", slug(key)))?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}

fn text_of(output: &Value) -> anyhow::Result<String> {
    match output {
        Value::String(text) => Ok(text.clone()),
        other => Ok(serde_json::to_string_pretty(other)?),
    }
}

fn write_text(text: &str, to: Option<&Path>) -> anyhow::Result<()> {
    match to {
        None => show(text),
        Some(to) => {
            std::fs::write(to, text).with_context(|| format!("failed to write `{}`", to.display()))
        }
    }
}

fn show(text: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        // The reader closed the pipe.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("failed to write to standard output"),
    }
}

/// The extension of the file at an address, with its dot; empty, if it is not known.
fn extension(address: &str) -> String {
    let mime = address
        .strip_prefix("data:")
        .and_then(|rest| rest.split([';', ',']).next());
    let name = match mime {
        Some(mime) => tidegate_service::file_name_for_mime(mime),
        None => address.rsplit('/').next().unwrap_or_default().to_owned(),
    };
    match name
        .rsplit_once('.')
        .map(|(_, ending)| ending)
        .filter(|ending| ending.len() <= 12)
    {
        Some(ending) => format!(".{ending}"),
        None => String::new(),
    }
}

/// The encoded content of a data URI.
fn data_uri_body(text: &str) -> Option<&str> {
    let (_, body) = text.strip_prefix("data:")?.split_once(";base64,")?;
    Some(body)
}

fn save(body: &str, to: &Path) -> anyhow::Result<()> {
    let body = STANDARD
        .decode(body)
        .context("the output is not a valid data URI")?;
    std::fs::write(to, body).with_context(|| {
        format!(
            "failed to write the output file `{}`; choose another place with --output PATH",
            to.display()
        )
    })
}

async fn write_file(address: &str, to: &Path) -> anyhow::Result<()> {
    if let Some(body) = data_uri_body(address) {
        return save(body, to);
    }
    // The user requested this output, and it may be in the user's own network.
    let client = Client::new(Config {
        networks: AllowedNetworks::all(),
        ..Config::default()
    });
    let url = client
        .check(address)
        .with_context(|| format!("failed to download `{address}`"))?;
    if to.exists() {
        std::fs::remove_file(to)
            .with_context(|| format!("failed to replace `{}`", to.display()))?;
    }
    client.download(&url, to).await.map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document(output: &Value) -> Value {
        json!({"components": {"schemas": {
            "Output": output,
            "File": {"type": "string", "format": "uri"},
        }}})
    }

    #[test]
    fn files_are_saved_under_numbered_names() {
        let folder = tempfile::tempdir().unwrap();
        let stem = folder.path().join("output");
        let named = |name: &str| folder.path().join(name).display().to_string();
        let uri = "data:image/png;base64,aGk=";
        let file = json!({"type": "string", "format": "uri"});
        for (schema, mut output, expected) in [
            (file.clone(), json!(uri), json!(named("output.png"))),
            (
                json!({"type": "array", "items": {"$ref": "#/components/schemas/File"}}),
                json!([uri, uri]),
                json!([named("output.0.png"), named("output.1.png")]),
            ),
            (
                json!({"type": "object", "properties": {"mask": file, "note": {"type": "string"}}}),
                json!({"mask": uri, "note": uri}),
                json!({"mask": named("output.mask.png"), "note": uri}),
            ),
            (
                json!({}),
                json!({"a": [uri]}),
                json!({"a": [named("output.a.0.png")]}),
            ),
            (json!({"type": "string"}), json!(uri), json!(uri)),
        ] {
            save_files(&mut output, &document(&schema), &stem).unwrap();
            assert_eq!(output, expected);
        }
        assert_eq!(std::fs::read(named("output.1.png")).unwrap(), b"hi");
    }
}
