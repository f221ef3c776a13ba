//! How many parts of each job's stream clients have read.
//!
//! A part counts as read when the response with it was written. A graceful shutdown saves the
//! positions for the next server process. After a crash, clients read streams again from the start:
//! a part may be delivered twice, and none is lost.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tidegate_core::store::{Documents, StoreError};
use tidegate_core::{Account, JobId};

use super::confirmed_body::OnWritten;

/// For how many jobs the position is remembered.
const MAX_JOBS: usize = 10_000;
/// The documents with the positions of previous server processes.
const NAMESPACE: &str = "runpod-streams";
/// The document of a server that has all endpoints.
const OF_SERVER: &str = "read";

/// The read position of each stream. Cloning gives another handle.
#[derive(Clone)]
pub struct StreamCursors {
    positions: Arc<Mutex<CursorMap>>,
    /// The name of the document.
    document: Arc<str>,
}

#[derive(Default)]
struct CursorMap {
    parts: HashMap<CursorKey, usize>,
    order: VecDeque<CursorKey>,
}

type CursorKey = (Account, JobId);
/// The stored form: account (none for the anonymous account), job id, position.
type SavedCursor = (Option<String>, String, usize);

impl StreamCursors {
    /// The positions at all endpoints of a server.
    pub fn of_server() -> Self {
        Self {
            positions: Arc::default(),
            document: OF_SERVER.into(),
        }
    }

    /// The positions at one endpoint, which processes of a cluster own in turn.
    pub fn of_endpoint(name: &str) -> Self {
        Self {
            positions: Arc::default(),
            document: format!("endpoint/{name}").into(),
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut CursorMap) -> R) -> R {
        let mut positions = self
            .positions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        f(&mut positions)
    }

    /// Loads the saved positions and removes them: they do not contain later reads.
    pub async fn restore(&self, documents: &dyn Documents) -> Result<(), StoreError> {
        let Some(json) = documents.fetch(NAMESPACE, &self.document).await? else {
            return Ok(());
        };
        documents.remove(NAMESPACE, &self.document).await?;
        let kept: Vec<SavedCursor> = serde_json::from_slice(&json)
            .map_err(|error| StoreError::Corrupt(error.to_string()))?;
        self.with(|read| {
            for (account, id, parts) in kept {
                let account =
                    account.map_or(Some(Account::ANONYMOUS), |name| Account::parse(&name).ok());
                if let Some(key) = account.zip(JobId::parse(&id).ok()) {
                    read.set(key, parts);
                }
            }
        });
        Ok(())
    }

    /// Saves the positions for the next server process.
    pub async fn save(&self, documents: &dyn Documents) -> Result<(), StoreError> {
        let kept: Vec<SavedCursor> = self.with(|read| {
            let named = |account: &Account| (!account.is_anonymous()).then(|| account.to_string());
            read.order
                .iter()
                .map(|key| (named(&key.0), key.1.to_string(), read.parts[key]))
                .collect()
        });
        let json =
            serde_json::to_vec(&kept).map_err(|error| StoreError::Invalid(error.to_string()))?;
        documents
            .put(NAMESPACE, &self.document, Bytes::from(json))
            .await
    }

    pub(super) fn position(&self, account: &Account, id: &JobId) -> usize {
        self.with(|read| {
            read.parts
                .get(&(account.clone(), id.clone()))
                .copied()
                .unwrap_or_default()
        })
    }

    /// Advances the position from `before` by `more`, unless another request has advanced it.
    pub(super) fn begin_read(
        &self,
        account: &Account,
        id: &JobId,
        before: usize,
        more: usize,
    ) -> Option<PendingRead> {
        let key = (account.clone(), id.clone());
        self.with(|read| {
            if read.parts.get(&key).copied().unwrap_or_default() != before {
                return None;
            }
            if more > 0 {
                read.set(key.clone(), before + more);
            }
            Some(PendingRead {
                stream_cursors: self.clone(),
                key,
                before,
                written: false,
            })
        })
    }

    /// Resets the position of a job that is run again.
    pub(super) fn reset(&self, account: &Account, id: &JobId) {
        self.with(|read| read.rewind(&(account.clone(), id.clone()), 0));
    }
}

impl CursorMap {
    fn set(&mut self, key: CursorKey, parts: usize) {
        if self.parts.insert(key.clone(), parts).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > MAX_JOBS {
            let oldest = self.order.pop_front();
            oldest.map(|key| self.parts.remove(&key));
        }
    }

    fn rewind(&mut self, key: &CursorKey, parts: usize) {
        match self.parts.get_mut(key) {
            Some(read) if parts > 0 => *read = parts.min(*read),
            Some(_) => {
                self.parts.remove(key);
                self.order.retain(|other| other != key);
            }
            None => {}
        }
    }
}

/// Parts on their way to a client. If the response is not written, the position is rewound.
pub(super) struct PendingRead {
    stream_cursors: StreamCursors,
    key: CursorKey,
    before: usize,
    written: bool,
}

impl OnWritten for PendingRead {
    fn written(mut self) {
        self.written = true;
    }
}

impl Drop for PendingRead {
    fn drop(&mut self) {
        if !self.written {
            self.stream_cursors
                .with(|read| read.rewind(&self.key, self.before));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> JobId {
        JobId::parse(name).unwrap()
    }

    #[test]
    fn a_part_is_read_once() {
        let (stream_cursors, account, id) =
            (StreamCursors::of_server(), Account::ANONYMOUS, id("a"));
        stream_cursors
            .begin_read(&account, &id, 0, 2)
            .unwrap()
            .written();
        assert!(
            stream_cursors.begin_read(&account, &id, 0, 2).is_none(),
            "another request was faster"
        );
        assert_eq!(stream_cursors.position(&account, &id), 2);
        stream_cursors.reset(&account, &id);
        assert_eq!(stream_cursors.position(&account, &id), 0);
    }

    #[test]
    fn parts_of_an_unwritten_response_are_read_again() {
        let (stream_cursors, account, id) =
            (StreamCursors::of_server(), Account::ANONYMOUS, id("a"));
        stream_cursors
            .begin_read(&account, &id, 0, 2)
            .unwrap()
            .written();
        let lost = stream_cursors.begin_read(&account, &id, 2, 3);
        stream_cursors
            .begin_read(&account, &id, 5, 1)
            .unwrap()
            .written();
        drop(lost);
        assert_eq!(
            stream_cursors.position(&account, &id),
            2,
            "also what another request read since: no part may be missed"
        );
    }

    #[test]
    fn the_number_of_remembered_jobs_is_limited() {
        let (stream_cursors, account) = (StreamCursors::of_server(), Account::ANONYMOUS);
        for n in 0..MAX_JOBS + 5 {
            stream_cursors
                .begin_read(&account, &id(&n.to_string()), 0, 1)
                .unwrap()
                .written();
        }
        assert_eq!(
            stream_cursors.with(|read| (read.parts.len(), read.order.len())),
            (MAX_JOBS, MAX_JOBS)
        );
    }
}
