//! Writes the output of a prediction to a file, a folder or standard output.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tidegate_net::{AllowedNetworks, Client, Config};

/// Writes the output to `to`, or to standard output: text as text, everything else as JSON.
pub(crate) async fn write(output: &Value, schema: &Value, to: Option<&Path>) -> anyhow::Result<()> {
    let joined = joined(output, schema);
    let output = joined.as_ref().unwrap_or(output);
    match (to, files(output)) {
        (None, _) => show(output),
        (Some(to), Some(files)) if files.len() == 1 => write_file(files[0], to).await,
        (Some(to), Some(files)) => {
            std::fs::create_dir_all(to)
                .with_context(|| format!("failed to create the folder `{}`", to.display()))?;
            for (i, file) in files.iter().enumerate() {
                write_file(file, &numbered(to, i, file)).await?;
            }
            Ok(())
        }
        (Some(to), None) => {
            let text = text_of(output)?;
            std::fs::write(to, text).with_context(|| format!("failed to write `{}`", to.display()))
        }
    }
}

/// Streamed text as one text.
fn joined(output: &Value, schema: &Value) -> Option<Value> {
    let display = schema.pointer("/components/schemas/Output/x-cog-array-display")?;
    let parts: Option<Vec<&str>> = output.as_array()?.iter().map(Value::as_str).collect();
    (display == "concatenate").then(|| Value::String(parts.unwrap_or_default().concat()))
}

/// The URLs, if the output is a file or a list of files.
fn files(output: &Value) -> Option<Vec<&str>> {
    let is_file = |text: &&str| {
        text.starts_with("data:") || text.starts_with("http://") || text.starts_with("https://")
    };
    match output {
        Value::String(text) => is_file(&text.as_str()).then(|| vec![text.as_str()]),
        Value::Array(items) if !items.is_empty() => items
            .iter()
            .map(|item| item.as_str().filter(is_file))
            .collect(),
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            None
        }
    }
}

fn text_of(output: &Value) -> anyhow::Result<String> {
    match output {
        Value::String(text) => Ok(text.clone()),
        other => Ok(serde_json::to_string_pretty(other)?),
    }
}

fn show(output: &Value) -> anyhow::Result<()> {
    match writeln!(std::io::stdout().lock(), "{}", text_of(output)?) {
        // The reader closed the pipe.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("failed to write to standard output"),
    }
}

fn numbered(folder: &Path, index: usize, address: &str) -> PathBuf {
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
        Some(ending) => folder.join(format!("{index}.{ending}")),
        None => folder.join(index.to_string()),
    }
}

async fn write_file(address: &str, to: &Path) -> anyhow::Result<()> {
    let Some((_, body)) = address
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once("base64,"))
    else {
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
        return client.download(&url, to).await.map_err(Into::into);
    };
    let body = STANDARD
        .decode(body)
        .context("the output is not a valid data URI")?;
    std::fs::write(to, body).with_context(|| format!("failed to write `{}`", to.display()))
}
