//! URLs of files in outputs. A stored output contains a placeholder for each file, because the URL
//! of the server may change; the placeholder is replaced by a URL whenever the job is rendered.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::{Account, JobId};

use super::{FileStore, StoredFile};

/// The start of a placeholder, followed by the id of the file. A model may print the same text, but
/// it does not know the ids of its output files.
const PREFIX: &str = "tidegate-file:";

/// The placeholder for a file in an output.
pub(crate) fn placeholder_for(file: &StoredFile) -> String {
    format!("{PREFIX}{}", file.id)
}

/// The id in a placeholder.
pub(super) fn id_in_placeholder(text: &str) -> Option<&str> {
    text.strip_prefix(PREFIX)
}

impl FileStore {
    /// The JSON of an output with a URL in place of each placeholder for a file of this job.
    pub fn replace_placeholders(
        &self,
        account: &Account,
        job: &JobId,
        json: &Bytes,
        url: impl Fn(&StoredFile) -> String,
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
    ) -> Vec<(Range<usize>, Arc<StoredFile>)> {
        let Ok(text) = std::str::from_utf8(json) else {
            return Vec::new();
        };
        let placeholder_at = |(at, _)| {
            let id = placeholder_id_at(text, at)?;
            let file = self.find_output(account, job, id)?;
            Some((at..at + PREFIX.len() + id.len(), file))
        };
        text.match_indices(PREFIX)
            .filter_map(placeholder_at)
            .collect()
    }

    /// The output file of this job with this id.
    pub(super) fn find_output(
        &self,
        account: &Account,
        job: &JobId,
        id: &str,
    ) -> Option<Arc<StoredFile>> {
        self.find(account, id)
            .filter(|file| file.job.as_deref() == Some(job.as_str()))
    }
}

/// The id of the placeholder at this offset, if the placeholder is a whole JSON string. A quote
/// within a string follows a backslash, which is not a character of an id, so the first quote after
/// an id ends the string.
fn placeholder_id_at(text: &str, at: usize) -> Option<&str> {
    if !text[..at].ends_with('"') {
        return None;
    }
    let rest = &text[at + PREFIX.len()..];
    let id = &rest[..rest.find('"')?];
    id.bytes()
        .all(|byte| byte.is_ascii_alphanumeric())
        .then_some(id)
}
