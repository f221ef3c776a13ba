//! Stored files in the input of a Cog server. The server cannot download them, because it has no token of
//! the API, so the input contains them as data URIs.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::Value;
use tidegate_core::Work;

/// The path in the URL of a stored file.
const STORED: &str = "/v1/files/";

/// The input, with the content of each stored file in place of its URL.
pub(super) async fn inlined(work: &Work) -> Result<Bytes, String> {
    if work.files.is_empty() {
        return Ok(work.input.clone());
    }
    let unreadable = |error: serde_json::Error| format!("the input is not JSON: {error}");
    let mut input: Value = serde_json::from_slice(&work.input).map_err(unreadable)?;
    let mut is_changed = false;
    for (pointer, path) in &work.files {
        let Some(value) = input.pointer_mut(pointer) else {
            continue;
        };
        if value.as_str().is_some_and(is_stored) {
            *value = Value::String(data_uri(path).await?);
            is_changed = true;
        }
    }
    if !is_changed {
        return Ok(work.input.clone());
    }
    serde_json::to_vec(&input)
        .map(Bytes::from)
        .map_err(unreadable)
}

fn is_stored(address: &str) -> bool {
    address.starts_with("http") && address.contains(STORED)
}

async fn data_uri(path: &Path) -> Result<String, String> {
    let content = tokio::fs::read(path).await;
    let content = content.map_err(|error| format!("cannot read an input file: {error}"))?;
    let mime = mime_guess::from_path(path).first_or_octet_stream();
    Ok(format!("data:{mime};base64,{}", STANDARD.encode(content)))
}
