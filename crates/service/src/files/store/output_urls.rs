//! Files in what a job gave. It is kept with a name for each file that says nothing about how the server is
//! reached, which may change; an address takes its place whenever the job is told.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::{Account, JobId};

use super::{FileStore, StoredFile};

/// Begins the name of a file; then comes its id. A model may print the same, but it does not know the ids of
/// the files that its job will have given.
const PREFIX: &str = "tidegate-file:";

/// What stands for a file in an output.
pub(crate) fn placeholder_for(file: &StoredFile) -> String {
    format!("{PREFIX}{}", file.id)
}

/// The id in what stands for a file.
pub(super) fn id_in_placeholder(text: &str) -> Option<&str> {
    text.strip_prefix(PREFIX)
}

impl FileStore {
    /// An output with an address in the place of each file that this job gave.
    pub fn replace_placeholders(
        &self,
        account: &Account,
        job: &JobId,
        json: &Bytes,
        address: impl Fn(&StoredFile) -> String,
    ) -> Bytes {
        let Ok(text) = std::str::from_utf8(json) else {
            return json.clone();
        };
        let (mut told, mut from) = (String::new(), 0);
        for (at, _) in text.match_indices(PREFIX) {
            let Some(id) = placeholder_id_at(text, at) else {
                continue;
            };
            let Some(file) = self.find_output(account, job, id) else {
                continue;
            };
            told.push_str(&text[from..at]);
            let written = serde_json::to_string(&address(&file)).expect("a text is JSON");
            // The quotes around it are there already.
            told.push_str(&written[1..written.len() - 1]);
            from = at + PREFIX.len() + id.len();
        }
        if from == 0 {
            return json.clone();
        }
        told.push_str(&text[from..]);
        told.into()
    }

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

/// The id in a name at this place of a JSON text, if the name is a whole text. A quote within a text has a
/// backslash before it, so the first one after the name ends it, or is not one right after it.
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
