//! URLs of files in outputs. A stored output contains a placeholder for each file, because the URL
//! of the server may change; the placeholder is replaced by a URL whenever the job is rendered.
//!
//! If the index is in memory, a placeholder is the id of the file. Otherwise it contains all that is needed
//! to render it, because rendering does not wait.

use std::ops::Range;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidegate_core::file_index::StoredFile;
use tidegate_core::{Account, JobId};

use super::FileStore;
use super::placeholder_key::{PlaceholderKey, SEPARATOR};

/// The start of a placeholder. A model may print the same text, but it does not know the ids of its output
/// files.
const PREFIX: &str = "tidegate-file:";

/// What is needed to render an output file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedFile {
    /// The id of the file.
    #[serde(rename = "i")]
    pub id: String,
    /// The file name.
    #[serde(rename = "n")]
    pub name: String,
    /// The media type: any text.
    #[serde(rename = "t")]
    pub content_type: String,
    /// The size in bytes.
    #[serde(rename = "s")]
    pub size: u64,
    /// The SHA-256 of the content, in hexadecimal digits.
    #[serde(rename = "h")]
    pub sha256: String,
}

impl From<&StoredFile> for PublishedFile {
    fn from(file: &StoredFile) -> Self {
        Self {
            id: file.id.clone(),
            name: file.name.clone(),
            content_type: file.content_type.clone(),
            size: file.size,
            sha256: file.sha256.clone(),
        }
    }
}

/// The text after the prefix, if this is a placeholder.
pub(super) fn text_of_placeholder(text: &str) -> Option<&str> {
    text.strip_prefix(PREFIX)
}

/// A placeholder that contains what is needed to render a file of this job.
pub(super) fn sealed(
    key: &PlaceholderKey,
    account: &Account,
    job: &JobId,
    file: &PublishedFile,
) -> String {
    format!("{PREFIX}{}", key.seal(account, job, file))
}

impl FileStore {
    /// The placeholder for a file in the output of a job.
    pub(crate) fn placeholder_for(
        &self,
        account: &Account,
        job: &JobId,
        file: &StoredFile,
    ) -> String {
        match &self.placeholder_key {
            Some(key) => sealed(key, account, job, &file.into()),
            None => format!("{PREFIX}{}", file.id),
        }
    }

    /// The JSON of an output with a URL in place of each placeholder for a file of this job.
    pub fn replace_placeholders(
        &self,
        account: &Account,
        job: &JobId,
        json: &Bytes,
        url: impl Fn(&PublishedFile) -> String,
    ) -> Bytes {
        let found = self.find_placeholders(account, job, json);
        if found.is_empty() {
            return json.clone();
        }
        let (mut replaced, mut from) = (Vec::with_capacity(json.len()), 0);
        for (range, file) in found {
            replaced.extend_from_slice(&json[from..range.start]);
            let quoted = serde_json::to_string(&url(&file)).expect("a string serializes");
            // The placeholder is already quoted.
            replaced.extend_from_slice(&quoted.as_bytes()[1..quoted.len() - 1]);
            from = range.end;
        }
        replaced.extend_from_slice(&json[from..]);
        replaced.into()
    }

    /// The placeholders for files of this job in the JSON of an output, or in JSON that contains the
    /// output: their positions, without the quotes, and their files.
    pub fn find_placeholders(
        &self,
        account: &Account,
        job: &JobId,
        json: &Bytes,
    ) -> Vec<(Range<usize>, PublishedFile)> {
        let Ok(text) = std::str::from_utf8(json) else {
            return Vec::new();
        };
        let placeholder_at = |(at, _)| {
            let sealed = placeholder_text_at(text, at)?;
            let file = self.published(account, job, sealed)?;
            Some((at..at + PREFIX.len() + sealed.len(), file))
        };
        text.match_indices(PREFIX)
            .filter_map(placeholder_at)
            .collect()
    }

    /// The output file of this job that the text of a placeholder names.
    pub(super) fn published(
        &self,
        account: &Account,
        job: &JobId,
        text: &str,
    ) -> Option<PublishedFile> {
        match (&self.placeholder_key, text.contains(SEPARATOR)) {
            (Some(key), true) => key.open(account, job, text),
            (None, true) => None,
            (_, false) => {
                let file = self.index.find_in_memory(account, text)?;
                (file.job.as_deref() == Some(job.as_str())).then(|| (&*file).into())
            }
        }
    }
}

/// The text of the placeholder at this offset, if the placeholder is a whole JSON string. A quote
/// within a string follows a backslash, which is not a character of such a text, so the first quote after
/// it ends the string.
fn placeholder_text_at(text: &str, at: usize) -> Option<&str> {
    if !text[..at].ends_with('"') {
        return None;
    }
    let rest = &text[at + PREFIX.len()..];
    let body = &rest[..rest.find('"')?];
    body.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        .then_some(body)
}
