//! The port of the metadata of stored files. Callers do not depend on the implementation (memory and
//! documents, a table that several processes share).
//!
//! An entry names the blob with the content of its file. The index decides when a blob may be removed: an
//! entry is reserved before its blob is written, and completed afterwards, so that a blob that is being
//! written is not removed, and a file is visible only when it is complete.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Account;
use crate::blobs::Blobs;
use crate::store::{Store, StoreError};

/// The metadata of a stored file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoredFile {
    /// The id of the file.
    pub id: String,
    /// The file name that the client gave: any text.
    pub name: String,
    /// The media type that the client gave: any text.
    pub content_type: String,
    /// The size in bytes.
    pub size: u64,
    /// The SHA-256 of the content, in hexadecimal digits.
    pub sha256: String,
    /// The MD5 of the content, in hexadecimal digits.
    pub md5: String,
    /// Metadata that the client gave: a JSON object.
    pub metadata: Box<RawValue>,
    /// When the file was stored.
    pub created_at: Timestamp,
    /// When the file expires; absent for output files and weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The job that produced the file. The file is removed with the job or the job's data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The trained version whose weights this file is. The file is removed with the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights_of: Option<String>,
}

impl StoredFile {
    /// Whether a client uploaded the file.
    pub fn is_upload(&self) -> bool {
        self.job.is_none() && self.weights_of.is_none()
    }

    /// Whether the file has not expired at this time.
    pub fn is_unexpired(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|at| at > now)
    }
}

/// Why an entry was not reserved.
#[derive(Debug, thiserror::Error)]
pub enum ReserveError {
    /// The account would exceed its quota.
    #[error("the files of the account use {used} of the {max} bytes of its quota")]
    Quota {
        /// The bytes that the account uses.
        used: u64,
        /// The quota in bytes.
        max: u64,
    },
    /// The index failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The metadata of all files.
#[async_trait]
pub trait FileIndex: Send + Sync {
    /// Reserves the entry of a new file: from now on its blob is not removed, and its size counts towards
    /// the quota of the account. Fails if the account would have more than `quota` bytes.
    async fn reserve(
        &self,
        account: &Account,
        file: &Arc<StoredFile>,
        quota: Option<u64>,
    ) -> Result<Box<dyn FileReservation>, ReserveError>;

    /// Adds an entry with the content of another file of the account. Returns `false` if that file does not
    /// exist any more.
    async fn add_copy(
        &self,
        account: &Account,
        from: &str,
        file: &Arc<StoredFile>,
    ) -> Result<bool, StoreError>;

    /// Removes an entry; returns whether it existed.
    async fn remove(&self, account: &Account, id: &str) -> Result<bool, StoreError>;

    /// One file, unless it has expired.
    async fn find(
        &self,
        account: &Account,
        id: &str,
    ) -> Result<Option<Arc<StoredFile>>, StoreError>;

    /// The same without waiting. Always `None` if the index is not in memory.
    fn find_in_memory(&self, account: &Account, id: &str) -> Option<Arc<StoredFile>>;

    /// The unexpired uploads of an account, newest first.
    async fn uploads(&self, account: &Account) -> Result<Vec<Arc<StoredFile>>, StoreError>;

    /// The bytes that count towards the quota of an account: its uploads and its weights.
    async fn used_bytes(&self, account: &Account) -> Result<u64, StoreError>;

    /// The weights of all trained versions, with their accounts.
    async fn weights(&self) -> Result<Vec<(Account, Arc<StoredFile>)>, StoreError>;

    /// Removes expired entries, and the entries of output files that were stored before `outputs_before` and
    /// whose job or its data was removed. An index beside the jobs need not ask `jobs`.
    async fn remove_expired(
        &self,
        now: Timestamp,
        outputs_before: Timestamp,
        jobs: &dyn Store,
    ) -> Result<(), StoreError>;

    /// Removes the blobs whose last entry was removed, if no other process uses the blobs. Failed removals
    /// are logged and tried again by the next call.
    async fn remove_released(&self, blobs: &dyn Blobs);

    /// Removes all blobs that no entry names. If several processes use the blobs, only those that are older
    /// than a day: a blob may be new because its entry is new. Failed removals are logged and tried again
    /// by the next call.
    async fn collect(&self, blobs: &dyn Blobs) -> Result<(), StoreError>;
}

/// A reserved entry. If it is dropped, the entry does not become visible.
#[async_trait]
pub trait FileReservation: Send {
    /// Makes the file visible. Its blob exists.
    async fn complete(self: Box<Self>) -> Result<(), StoreError>;

    /// Removes the entry, because the blob could not be written.
    async fn abandon(self: Box<Self>);
}
