//! The file store: uploads of clients, output files of jobs, and weights of trained versions.
//!
//! The metadata of a file is an entry of the [`FileIndex`], its content is a blob. The index of one process
//! is in memory ([`MemoryFileIndex`]); the processes of a cluster share an index in their database.
//!
//! Limits: `upload.rs` limits the size of one file and checks the free disk space, the index limits the
//! bytes of an account.

mod blobs;
mod memory_index;
mod output_urls;
mod placeholder_key;
mod refcount;
mod transfer;
mod upload;
mod weights;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::value::RawValue;
use tidegate_core::blobs::{BlobError, BlobReader, Blobs};
use tidegate_core::file_index::{FileIndex, StoredFile};
use tidegate_core::store::{Store, StoreError};
use tidegate_core::{Account, JobId, chain};
use tidegate_net::Url;

use crate::random;
use blobs::BlobStore;
use placeholder_key::PlaceholderKey;

pub use blobs::Spool;
pub use memory_index::MemoryFileIndex;
pub use output_urls::PublishedFile;
pub use transfer::ContentCopyError;
pub use upload::{FileStoreError, FileWriter};

/// The longest interval between two sweeps.
const MAX_SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// The interval between two collections of blobs, which list all of them.
const COLLECT_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The properties of a new file that its creator provides.
pub struct FileMetadata {
    /// The file name.
    pub name: String,
    /// The media type.
    pub content_type: String,
    /// Additional metadata: a JSON object.
    pub metadata: Box<RawValue>,
}

impl FileMetadata {
    /// The metadata of an output file.
    pub(crate) fn of_output(name: String, content_type: String) -> Self {
        Self {
            name,
            content_type,
            metadata: RawValue::from_string("{}".to_owned()).expect("`{}` is JSON"),
        }
    }
}

/// How long files are stored, and how many bytes.
#[derive(Debug, Clone, Copy)]
pub struct FileLimits {
    /// How long uploads are stored.
    pub upload_retention: Duration,
    /// How long output files are stored after their job has ended: as long as the job's data.
    pub output_retention: Duration,
    /// The quota of one account in bytes: its uploads and the weights that it trained.
    pub max_bytes_per_account: Option<u64>,
}

/// The store of all files.
pub struct FileStore {
    blobs: BlobStore,
    index: Arc<dyn FileIndex>,
    limits: FileLimits,
    /// Seals placeholders, if the index is not in memory.
    placeholder_key: Option<PlaceholderKey>,
}

impl FileStore {
    /// Opens the store. Incoming files are written in the spool folder.
    pub fn open(
        blobs: Arc<dyn Blobs>,
        spool: Spool,
        index: Arc<dyn FileIndex>,
        limits: FileLimits,
    ) -> Result<Self, FileStoreError> {
        Ok(Self {
            blobs: BlobStore::open(blobs, spool)?,
            index,
            limits,
            placeholder_key: None,
        })
    }

    /// The same store, for an index that is not in memory: placeholders contain what is needed to render
    /// them, sealed with a secret that all processes have.
    pub fn with_sealed_placeholders(self, secret: &[u8]) -> Self {
        Self {
            placeholder_key: Some(PlaceholderKey::new(secret)),
            ..self
        }
    }

    /// Removes expired files periodically; never returns.
    pub async fn upkeep(&self, jobs: &dyn Store) {
        let pause = MAX_SWEEP_INTERVAL
            .min(self.limits.upload_retention)
            .min(self.limits.output_retention)
            .max(Duration::from_millis(100));
        let sweeps = async {
            loop {
                self.sweep(Timestamp::now(), jobs).await;
                tokio::time::sleep(pause).await;
            }
        };
        let collections = async {
            loop {
                self.collect().await;
                tokio::time::sleep(COLLECT_INTERVAL).await;
            }
        };
        tokio::join!(sweeps, collections);
    }

    /// Starts to write a file of at most `limit` bytes. Fails if the disk has no space for
    /// `expected` bytes.
    pub async fn create_writer(
        &self,
        expected: u64,
        limit: u64,
    ) -> Result<FileWriter, FileStoreError> {
        self.blobs.create_writer(expected, limit).await
    }

    /// Stores a file that a client uploaded, within the quota of its account.
    pub async fn store_upload(
        &self,
        account: &Account,
        writer: FileWriter,
        metadata: FileMetadata,
    ) -> Result<Arc<StoredFile>, FileStoreError> {
        let expires_at = Timestamp::now()
            .checked_add(self.limits.upload_retention)
            .unwrap_or(Timestamp::MAX);
        self.store(
            account,
            writer,
            metadata,
            FileRetention::UntilTime(expires_at),
        )
        .await
    }

    /// Stores an output file of a job.
    pub(crate) async fn store_output(
        &self,
        account: &Account,
        job: &JobId,
        writer: FileWriter,
        metadata: FileMetadata,
    ) -> Result<Arc<StoredFile>, FileStoreError> {
        self.store(account, writer, metadata, FileRetention::WithJob(job))
            .await
    }

    /// Fails if `bytes` more would exceed the quota of the account.
    pub async fn check_quota(&self, account: &Account, bytes: u64) -> Result<(), FileStoreError> {
        if let Some(max) = self.limits.max_bytes_per_account {
            let used = self.index.used_bytes(account).await?;
            if used.saturating_add(bytes) > max {
                return Err(FileStoreError::Quota { used, max });
            }
        }
        Ok(())
    }

    /// The upload with this id.
    pub async fn find_upload(
        &self,
        account: &Account,
        id: &str,
    ) -> Result<Option<Arc<StoredFile>>, StoreError> {
        let found = self.find(account, id).await?;
        Ok(found.filter(|file| file.is_upload()))
    }

    /// The file with this id: an upload, an output file or weights.
    pub async fn find(
        &self,
        account: &Account,
        id: &str,
    ) -> Result<Option<Arc<StoredFile>>, StoreError> {
        self.index.find(account, id).await
    }

    /// The uploads of an account, newest first.
    pub async fn list_uploads(
        &self,
        account: &Account,
    ) -> Result<Vec<Arc<StoredFile>>, StoreError> {
        self.index.uploads(account).await
    }

    /// Removes an upload; returns whether it existed.
    pub async fn remove_upload(&self, account: &Account, id: &str) -> Result<bool, StoreError> {
        if self.find_upload(account, id).await?.is_none() {
            return Ok(false);
        }
        let removed = self.index.remove(account, id).await;
        self.index.remove_released(&*self.blobs.blobs).await;
        removed
    }

    /// Opens a byte range of the content with this digest.
    pub async fn read(
        &self,
        sha256: &str,
        range: Range<u64>,
    ) -> Result<Box<dyn BlobReader>, BlobError> {
        self.blobs.read(sha256, range).await
    }

    /// Copies a file to a new file at `to`.
    pub(crate) async fn copy(&self, file: &StoredFile, to: &Path) -> Result<(), FileStoreError> {
        self.blobs.copy(&file.sha256, file.size, to).await
    }

    async fn store(
        &self,
        account: &Account,
        writer: FileWriter,
        metadata: FileMetadata,
        retention: FileRetention<'_>,
    ) -> Result<Arc<StoredFile>, FileStoreError> {
        let written = writer.finish().await?;
        let (expires_at, job) = match retention {
            FileRetention::UntilTime(at) => (Some(at), None),
            FileRetention::WithJob(job) => (None, Some(job.to_string())),
        };
        // Output files do not count.
        let quota = self.limits.max_bytes_per_account.filter(|_| job.is_none());
        let FileMetadata {
            name,
            content_type,
            metadata,
        } = metadata;
        let file = Arc::new(StoredFile {
            id: JobId::from_random(random::bits()).to_string(),
            name,
            content_type,
            size: written.size,
            sha256: written.sha256.clone(),
            md5: written.md5.clone(),
            metadata,
            created_at: Timestamp::now(),
            expires_at,
            job,
            weights_of: None,
        });
        let reservation = self.index.reserve(account, &file, quota).await?;
        match self.blobs.put(&written).await {
            Ok(()) => reservation.complete().await?,
            Err(error) => {
                reservation.abandon().await;
                return Err(error);
            }
        }
        Ok(file)
    }

    /// Removes the files that have expired, and the files of jobs that were removed or whose data
    /// was removed.
    async fn sweep(&self, now: Timestamp, jobs: &dyn Store) {
        let outputs_before = now
            .checked_sub(self.limits.output_retention)
            .unwrap_or(Timestamp::MIN);
        if let Err(error) = self.index.remove_expired(now, outputs_before, jobs).await {
            tracing::warn!(error = %chain(&error), "failed to remove expired files");
        }
        self.index.remove_released(&*self.blobs.blobs).await;
    }

    /// Removes the content that no file has, and the remains of uploads that were interrupted.
    async fn collect(&self) {
        if let Err(error) = self.index.collect(&*self.blobs.blobs).await {
            tracing::warn!(error = %chain(&error), "failed to remove the content of removed files");
        }
        self.blobs.remove_old_parts();
    }
}

/// How long a file is stored.
enum FileRetention<'a> {
    UntilTime(Timestamp),
    WithJob(&'a JobId),
}

/// The id in `…/v1/files/{id}` or `…/v1/files/{id}/{name}`. Proxies may add any prefix.
pub(crate) fn file_id_in(url: &Url) -> Option<&str> {
    let (_, rest) = url.path().rsplit_once("/v1/files/")?;
    match rest.split_once('/') {
        Some((id, name)) if !name.contains('/') => Some(id),
        Some(_) => None,
        None => Some(rest),
    }
}

#[cfg(test)]
mod tests;
