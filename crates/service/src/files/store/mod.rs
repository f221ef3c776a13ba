//! The file store: uploads of clients, output files of jobs, and weights of trained versions.
//!
//! The metadata of a file is a document, its content is a blob. All documents are also in memory,
//! so that inputs are checked without waiting. A blob is written before its document and removed
//! after it: a crash in between leaves an unreferenced blob, which the next start removes. Only one
//! process may use the documents and the blobs.
//!
//! Limits: `upload.rs` limits the size of one file and checks the free disk space, `quota.rs`
//! limits the bytes of an account.

mod blobs;
mod output_urls;
mod quota;
mod refcount;
mod upload;
mod weights;

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_core::blobs::{BlobError, BlobReader, Blobs};
use tidegate_core::store::{Documents, Store, StoreError};
use tidegate_core::{Account, JobId, chain};
use tidegate_net::Url;

use crate::random;
use blobs::BlobStore;
use quota::InFlightUploads;
use refcount::BlobGuard;

pub(crate) use output_urls::placeholder_for;
pub use upload::{FileStoreError, FileWriter};

/// The namespace of the documents.
const NAMESPACE: &str = "files";
/// The longest interval between two sweeps.
const MAX_SWEEP_INTERVAL: Duration = Duration::from_secs(60);

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
    fn is_upload(&self) -> bool {
        self.job.is_none() && self.weights_of.is_none()
    }
}

/// The properties of a new file that its creator provides.
pub struct FileMetadata {
    /// The file name.
    pub name: String,
    /// The media type.
    pub content_type: String,
    /// Additional metadata: a JSON object.
    pub metadata: Box<RawValue>,
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
    documents: Arc<dyn Documents>,
    limits: FileLimits,
    /// Keyed by the names of their documents.
    entries: Mutex<BTreeMap<String, FileEntry>>,
    /// Uploads that count towards the quota and are not yet stored.
    in_flight: InFlightUploads,
}

struct FileEntry {
    account: Account,
    file: Arc<StoredFile>,
    /// Keeps the blob from being removed.
    _blob: BlobGuard,
}

impl FileStore {
    /// Opens the store. Unreferenced blobs are removed by the first [`upkeep`](Self::upkeep).
    /// Incoming files are written in `spool`.
    pub async fn open(
        blobs: Arc<dyn Blobs>,
        spool: PathBuf,
        documents: Arc<dyn Documents>,
        limits: FileLimits,
    ) -> Result<Arc<Self>, FileStoreError> {
        let blobs = BlobStore::open(blobs, spool)?;
        let mut entries = BTreeMap::new();
        for (name, json) in documents.all(NAMESPACE, "").await? {
            match (
                serde_json::from_slice::<StoredFile>(&json),
                account_in(&name),
            ) {
                (Ok(file), Some(account)) => {
                    let blob = blobs.acquire(&file.sha256).await;
                    entries.insert(
                        name,
                        FileEntry {
                            account,
                            file: Arc::new(file),
                            _blob: blob,
                        },
                    );
                }
                (Err(error), _) => {
                    tracing::error!(name, %error, "failed to read the document of a file")
                }
                (Ok(_), None) => {
                    tracing::error!(name, "invalid account in the document of a file")
                }
            }
        }
        blobs.register_existing().await?;
        Ok(Arc::new(Self {
            blobs,
            documents,
            limits,
            entries: Mutex::new(entries),
            in_flight: InFlightUploads::default(),
        }))
    }

    /// Removes expired files periodically; never returns.
    pub async fn upkeep(&self, jobs: &dyn Store) {
        let pause = MAX_SWEEP_INTERVAL
            .min(self.limits.upload_retention)
            .min(self.limits.output_retention)
            .max(Duration::from_millis(100));
        loop {
            self.sweep(Timestamp::now(), jobs).await;
            tokio::time::sleep(pause).await;
        }
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
        let _reservation = self.reserve(account, writer.size())?;
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

    /// The upload with this id.
    pub fn find_upload(&self, account: &Account, id: &str) -> Option<Arc<StoredFile>> {
        self.find(account, id).filter(|file| file.is_upload())
    }

    /// The file with this id: an upload, an output file or weights.
    pub fn find(&self, account: &Account, id: &str) -> Option<Arc<StoredFile>> {
        let entries = self.entries();
        let file = &entries.get(&key(account, id))?.file;
        is_unexpired(file, Timestamp::now()).then(|| Arc::clone(file))
    }

    /// The file of the account that this URL names.
    pub(crate) fn find_by_url(&self, account: &Account, url: &Url) -> Option<Arc<StoredFile>> {
        self.find(account, file_id_in(url)?)
    }

    /// The uploads of an account, newest first.
    pub fn list_uploads(&self, account: &Account) -> Vec<Arc<StoredFile>> {
        let (prefix, now) = (key(account, ""), Timestamp::now());
        let entries = self.entries();
        let all = entries
            .range(prefix.clone()..)
            .take_while(|(key, _)| key.starts_with(&prefix))
            .map(|(_, entry)| &entry.file);
        let mut files: Vec<_> = all
            .filter(|file| file.is_upload() && is_unexpired(file, now))
            .cloned()
            .collect();
        files.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        files
    }

    /// Removes an upload; returns whether it existed.
    pub async fn remove_upload(&self, account: &Account, id: &str) -> Result<bool, StoreError> {
        if self.find_upload(account, id).is_none() {
            return Ok(false);
        }
        let removed = self.remove_entry(&key(account, id)).await;
        self.blobs.remove_unreferenced().await;
        removed
    }

    /// Opens a byte range of a file.
    pub async fn read(
        &self,
        file: &StoredFile,
        range: Range<u64>,
    ) -> Result<Box<dyn BlobReader>, BlobError> {
        self.blobs.read(&file.sha256, range).await
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
        let FileMetadata {
            name,
            content_type,
            metadata,
        } = metadata;
        let blob = self.blobs.put(&written).await?;
        let file = Arc::new(StoredFile {
            id: JobId::from_random(random::bits()).to_string(),
            name,
            content_type,
            size: written.size,
            sha256: written.sha256,
            md5: written.md5,
            metadata,
            created_at: Timestamp::now(),
            expires_at,
            job,
            weights_of: None,
        });
        self.insert(account, Arc::clone(&file), blob).await?;
        Ok(file)
    }

    /// Stores the document of a file whose blob exists.
    async fn insert(
        &self,
        account: &Account,
        file: Arc<StoredFile>,
        blob: BlobGuard,
    ) -> Result<(), StoreError> {
        let key = key(account, &file.id);
        let json = serde_json::to_vec(&*file)
            .expect("the keys of a document are strings")
            .into();
        self.documents.put(NAMESPACE, &key, json).await?;
        self.entries().insert(
            key,
            FileEntry {
                account: account.clone(),
                file,
                _blob: blob,
            },
        );
        Ok(())
    }

    /// Removes the files that have expired, and the files of jobs that were removed or whose data
    /// was removed.
    async fn sweep(&self, now: Timestamp, jobs: &dyn Store) {
        let mut expired =
            self.keys_where(|entry| entry.file.expires_at.is_some_and(|at| at <= now));
        for (account, job) in self.jobs_past_retention(now) {
            match JobId::parse(&job).map(|id| (jobs, id)) {
                Ok((jobs, id)) => match jobs.get(&account, &id).await {
                    Ok(Some(record)) if !record.data_removed => continue,
                    Ok(Some(_) | None) => {}
                    Err(error) => {
                        tracing::warn!(error = %chain(&error), "failed to look up the jobs of old files");
                        break;
                    }
                },
                Err(error) => {
                    tracing::error!(job, %error, "invalid job id in the document of a file")
                }
            }
            expired.extend(self.keys_where(|entry| {
                entry.account == account && entry.file.job.as_deref() == Some(&job)
            }));
        }
        for key in expired {
            if let Err(error) = self.remove_entry(&key).await {
                tracing::warn!(error = %chain(&error), "failed to remove expired file");
            }
        }
        self.blobs.remove_unreferenced().await;
    }

    /// The jobs with files older than the retention, which may have been removed. A job stores no
    /// files after its end.
    fn jobs_past_retention(&self, now: Timestamp) -> HashSet<(Account, String)> {
        let Ok(before) = now.checked_sub(self.limits.output_retention) else {
            return HashSet::new();
        };
        let entries = self.entries();
        let old = entries
            .values()
            .filter(|entry| entry.file.created_at <= before);
        old.filter_map(|entry| Some((entry.account.clone(), entry.file.job.clone()?)))
            .collect()
    }

    fn keys_where(&self, filter: impl Fn(&FileEntry) -> bool) -> Vec<String> {
        self.entries()
            .iter()
            .filter(|(_, entry)| filter(entry))
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Removes the entry of a file. Its blob is removed by the next `remove_unreferenced`.
    async fn remove_entry(&self, key: &str) -> Result<bool, StoreError> {
        self.documents.remove(NAMESPACE, key).await?;
        Ok(self.entries().remove(key).is_some())
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, FileEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a file is stored.
enum FileRetention<'a> {
    UntilTime(Timestamp),
    WithJob(&'a JobId),
}

fn is_unexpired(file: &StoredFile, now: Timestamp) -> bool {
    file.expires_at.is_none_or(|at| at > now)
}

/// The id in `…/v1/files/{id}` or `…/v1/files/{id}/{name}`. Proxies may add any prefix.
fn file_id_in(url: &Url) -> Option<&str> {
    let (_, rest) = url.path().rsplit_once("/v1/files/")?;
    match rest.split_once('/') {
        Some((id, name)) if !name.contains('/') => Some(id),
        Some(_) => None,
        None => Some(rest),
    }
}

/// The name of a document. The anonymous account has an empty name, which no other account has.
fn key(account: &Account, id: &str) -> String {
    format!(
        "{}/{id}",
        if account.is_anonymous() {
            ""
        } else {
            account.as_str()
        }
    )
}

fn account_in(key: &str) -> Option<Account> {
    match key.split_once('/')? {
        ("", _) => Some(Account::ANONYMOUS),
        (name, _) => Account::parse(name).ok(),
    }
}

#[cfg(test)]
mod tests;
