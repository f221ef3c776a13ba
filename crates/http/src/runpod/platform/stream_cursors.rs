//!
//! A part counts as read when the answer with it was written. What was read is known to the next server after
//! an orderly end; after a crash it is not, and streams are read again from their beginning: a part may be stream_cursors
//! twice, and none is lost.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tidegate_core::store::{Documents, StoreError};
use tidegate_core::{Account, JobId};

use super::confirmed_body::OnWritten;

/// Of how many jobs is known what was read of them.
const MAX_JOBS: usize = 10_000;
/// Where it is kept from one server to the next.
const NAMESPACE: &str = "runpod-streams";
const NAME: &str = "read";

/// How much of each job was read. Cloning gives another handle.
#[derive(Clone, Default)]
pub struct StreamCursors(Arc<Mutex<CursorMap>>);

#[derive(Default)]
struct CursorMap {
    parts: HashMap<CursorKey, usize>,
    order: VecDeque<CursorKey>,
}

type CursorKey = (Account, JobId);
/// As it is kept; nobody's account has no name.
type SavedCursor = (Option<String>, String, usize);

impl StreamCursors {
    fn with<R>(&self, f: impl FnOnce(&mut CursorMap) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes up what an orderly end has left. It is good for once: later reads are not in it.
    pub async fn restore(&self, documents: &dyn Documents) -> Result<(), StoreError> {
        let Some(json) = documents.fetch(NAMESPACE, NAME).await? else {
            return Ok(());
        };
        documents.remove(NAMESPACE, NAME).await?;
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

    /// Leaves what is known to the next server.
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
        documents.put(NAMESPACE, NAME, Bytes::from(json)).await
    }

    pub(super) fn position(&self, account: &Account, id: &JobId) -> usize {
        self.with(|read| {
            read.parts
                .get(&(account.clone(), id.clone()))
                .copied()
                .unwrap_or_default()
        })
    }

    /// So many parts more are about to be read, unless somebody else has read meanwhile.
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

    /// Nothing of it was read: it runs again.
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

/// Parts on their way to a reader. If they do not get there, somebody reads them again.
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
    fn a_part_is_given_once() {
        let (stream_cursors, account, id) = (StreamCursors::default(), Account::ANONYMOUS, id("a"));
        stream_cursors
            .begin_read(&account, &id, 0, 2)
            .unwrap()
            .written();
        assert!(
            stream_cursors.begin_read(&account, &id, 0, 2).is_none(),
            "another reader was faster"
        );
        assert_eq!(stream_cursors.position(&account, &id), 2);
        stream_cursors.reset(&account, &id);
        assert_eq!(stream_cursors.position(&account, &id), 0);
    }

    #[test]
    fn what_did_not_get_to_its_reader_is_given_again() {
        let (stream_cursors, account, id) = (StreamCursors::default(), Account::ANONYMOUS, id("a"));
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
            "also what another has read since: none may be missed"
        );
    }

    #[test]
    fn only_so_many_jobs_are_remembered() {
        let (stream_cursors, account) = (StreamCursors::default(), Account::ANONYMOUS);
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
