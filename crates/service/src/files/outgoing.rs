//! Files in an output become data URIs, or addresses where they were uploaded to.

use std::path::{Component, Path};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use tidegate_core::{JobId, OutputFile, OutputFileKind, OutputValue, chain};
use tidegate_net::Url;
use tidegate_net::header::{CONTENT_TYPE, HeaderMap, HeaderValue};

use super::Files;
use crate::heavy::heavy;

/// How many files of one output are uploaded at once.
const AT_ONCE: usize = 8;

impl Files {
    /// The JSON of an output with an address in the place of each file.
    /// The files of the job itself are in `scratch`.
    pub(crate) async fn settle(&self, value: OutputValue, job: &JobId, scratch: &Path) -> Result<Bytes, String> {
        let OutputValue { mut json, files } = value;
        let (whole, files): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.kind == OutputFileKind::WholeOutput);
        if let Some(whole) = whole.first() {
            json = read_whole(&whole.path, scratch).await.map_err(|error| format!("could not read the output: {error}"))?;
        }
        if files.is_empty() {
            return Ok(json);
        }
        let mut publishing = Vec::new();
        for file in &files {
            publishing.push(self.publish(file, job).boxed());
        }
        let addresses: Vec<String> = stream::iter(publishing).buffered(AT_ONCE).try_collect().await?;
        splice(&json, &files, &addresses).ok_or_else(|| "the output does not match its files".to_owned())
    }

    async fn publish(&self, file: &OutputFile, job: &JobId) -> Result<String, String> {
        // Pipes and devices would be read for ever.
        let kind = tokio::fs::metadata(&file.path).await.map_err(|error| unreadable(&file.path, &error))?;
        if !kind.is_file() {
            return Err(format!("output file `{}` is not a regular file", file.path.display()));
        }
        let mime = file.mime_type.as_deref().unwrap_or("application/octet-stream");
        match &self.upload_to {
            Some(base) => self.upload(base, file, mime, job).await,
            None => inline(&file.path, mime).await,
        }
    }

    async fn upload(&self, base: &Url, file: &OutputFile, mime: &str, job: &JobId) -> Result<String, String> {
        let name = file.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut url = base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push(&name);
        }
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_str(mime).unwrap_or(HeaderValue::from_static("application/octet-stream")));
        if let Ok(id) = HeaderValue::from_str(job.as_str()) {
            headers.insert("x-prediction-id", id);
        }
        self.net.upload(&url, headers, &file.path).await.map_err(|error| match error {
            tidegate_net::Error::Status { status, .. } => format!("Failed to upload output: upload returned status {status}"),
            other => format!("Failed to upload output: {}", chain(&other)),
        })
    }
}

/// Our own child writes this file, and user code in it could name another.
async fn read_whole(path: &Path, scratch: &Path) -> std::io::Result<Bytes> {
    let kind = tokio::fs::symlink_metadata(path).await?;
    if !kind.is_file() || !path.starts_with(scratch) || path.components().any(|part| part == Component::ParentDir) {
        return Err(std::io::Error::other("it is not a file of the job"));
    }
    tokio::fs::read(path).await.map(Bytes::from)
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    format!("output file `{}` cannot be read: {error}", path.display())
}

async fn inline(path: &Path, mime: &str) -> Result<String, String> {
    let body = tokio::fs::read(path).await.map_err(|error| unreadable(path, &error))?;
    let mut uri = format!("data:{mime};base64,");
    heavy(body.len(), || STANDARD.encode_string(&body, &mut uri));
    Ok(uri)
}

/// Puts each address where an empty string stands for its file.
pub(super) fn splice(json: &Bytes, files: &[OutputFile], addresses: &[String]) -> Option<Bytes> {
    let mut spliced = Vec::with_capacity(json.len() + addresses.iter().map(String::len).sum::<usize>());
    let mut from = 0;
    for (file, address) in files.iter().zip(addresses) {
        spliced.extend_from_slice(json.get(from..file.offset)?);
        let end = file.offset.checked_add(2)?;
        if json.get(file.offset..end)? != b"\"\"" {
            return None;
        }
        serde_json::to_writer(&mut spliced, address).ok()?;
        from = end;
    }
    spliced.extend_from_slice(json.get(from..)?);
    Some(spliced.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(offset: usize) -> OutputFile {
        OutputFile { path: "/x".into(), mime_type: None, offset, kind: OutputFileKind::User }
    }

    #[test]
    fn addresses_take_the_place_of_empty_strings() {
        let json = Bytes::from_static(br#"{"a":"","b":["",""]}"#);
        let spliced = splice(&json, &[file(5), file(13)], &["A".into(), "\"B".into()]).unwrap();
        assert_eq!(spliced, &br#"{"a":"A","b":["\"B",""]}"#[..]);
    }

    #[test]
    fn wrong_offsets_are_noticed() {
        let json = Bytes::from_static(br#"["","x"]"#);
        for offset in [0, 2, 4, 7, 8, 100, usize::MAX] {
            assert_eq!(splice(&json, &[file(offset)], &["A".into()]), None, "{offset}");
        }
    }
}
