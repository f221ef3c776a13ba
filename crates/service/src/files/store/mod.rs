//! The files that are kept here: those that callers leave to name them in inputs, and those that jobs give.
//!
//! What is said about a file is a document; all of them are also in memory, for inputs are checked without
//! waiting. Bytes are kept before the document is, and go after it: a crash in between leaves bytes that belong
//! to nothing, which the next start removes. One process has the documents and the place of the bytes.

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

/// The documents.
const NAMESPACE: &str = "files";
/// The longest pause between two looks for what is too old.
const EVERY: Duration = Duration::from_secs(60);

/// What is entries about a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoredFile {
    /// Which.
    pub id: String,
    /// How its owner calls it: any text.
    pub name: String,
    /// What its owner says that it is: any text.
    pub content_type: String,
    /// How many bytes it has.
    pub size: u64,
    /// Of its bytes, in hexadecimal digits.
    pub sha256: String,
    /// Of its bytes, in hexadecimal digits.
    pub md5: String,
    /// What its owner wants to be remembered about it: an object.
    pub metadata: Box<RawValue>,
    /// When it came.
    pub created_at: Timestamp,
    /// When it goes; absent for what a job gave, and for weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The job that gave it: it goes when the job is forgotten, or with its data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The version that was trained whose weights it is: it goes with that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights_of: Option<String>,
}

impl StoredFile {
    /// Whether a caller has left it.
    fn is_upload(&self) -> bool {
        self.job.is_none() && self.weights_of.is_none()
    }
}

/// What somebody says about a file.
pub struct FileMetadata {
    /// How it is called.
    pub name: String,
    /// What it is.
    pub content_type: String,
    /// What is to be remembered about it: an object.
    pub metadata: Box<RawValue>,
}

/// How long files are kept, and how many.
#[derive(Debug, Clone, Copy)]
pub struct FileLimits {
    /// Those that callers leave.
    pub upload_retention: Duration,
    /// Those of a job, after it is over: as long as its data is.
    pub output_retention: Duration,
    /// What the files that one account leaves and the weights that it trains may have together, in bytes.
    pub max_bytes_per_account: Option<u64>,
}

/// The files that are kept.
pub struct FileStore {
    blobs: BlobStore,
    documents: Arc<dyn Documents>,
    limits: FileLimits,
    /// By the names of their documents.
    entries: Mutex<BTreeMap<String, FileEntry>>,
    /// What is on its way in.
    in_flight: InFlightUploads,
}

struct FileEntry {
    account: Account,
    file: Arc<StoredFile>,
    /// Its bytes stay as long as this.
    _blob: BlobGuard,
}

impl FileStore {
    /// Opens it; what belongs to nothing goes with the first [`upkeep`](Self::upkeep). Files are written in `spool` while they come.
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
                    tracing::error!(name, %error, "what was kept about a file cannot be read")
                }
                (Ok(_), None) => {
                    tracing::error!(name, "a file was kept for an account that cannot be")
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

    /// Removes what is too old, now and then, for ever.
    pub async fn upkeep(&self, jobs: &dyn Store) {
        let pause = EVERY
            .min(self.limits.upload_retention)
            .min(self.limits.output_retention)
            .max(Duration::from_millis(100));
        loop {
            self.sweep(Timestamp::now(), jobs).await;
            tokio::time::sleep(pause).await;
        }
    }

    /// Begins to take a file in, of at most `limit` bytes. Refused when there is no room for what is `expected`.
    pub async fn create_writer(
        &self,
        expected: u64,
        limit: u64,
    ) -> Result<FileWriter, FileStoreError> {
        self.blobs.create_writer(expected, limit).await
    }

    /// Keeps a file that a caller leaves.
    pub async fn store_upload(
        &self,
        account: &Account,
        writer: FileWriter,
        metadata: FileMetadata,
    ) -> Result<Arc<StoredFile>, FileStoreError> {
        let _reservation = self.reserve(account, writer.size())?;
        let until = Timestamp::now()
            .checked_add(self.limits.upload_retention)
            .unwrap_or(Timestamp::MAX);
        self.store(account, writer, metadata, FileRetention::UntilTime(until))
            .await
    }

    /// Keeps a file that a job gives.
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

    /// One file that a caller has left.
    pub fn find_upload(&self, account: &Account, id: &str) -> Option<Arc<StoredFile>> {
        self.find(account, id).filter(|file| file.is_upload())
    }

    /// One file, whoever made it.
    pub fn find(&self, account: &Account, id: &str) -> Option<Arc<StoredFile>> {
        let entries = self.entries();
        let file = &entries.get(&key(account, id))?.file;
        is_unexpired(file, Timestamp::now()).then(|| Arc::clone(file))
    }

    /// The file that an address names, if the account has it.
    pub(crate) fn find_by_address(&self, account: &Account, url: &Url) -> Option<Arc<StoredFile>> {
        self.find(account, file_id_in(url)?)
    }

    /// The files that an account has left, newest first.
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

    /// Removes a file that a caller has left; says whether it was there.
    pub async fn remove_upload(&self, account: &Account, id: &str) -> Result<bool, StoreError> {
        if self.find_upload(account, id).is_none() {
            return Ok(false);
        }
        let removed = self.remove_entry(&key(account, id)).await;
        self.blobs.remove_unreferenced().await;
        removed
    }

    /// Opens some bytes of a file.
    pub async fn read(
        &self,
        file: &StoredFile,
        range: Range<u64>,
    ) -> Result<Box<dyn BlobReader>, BlobError> {
        self.blobs.read(&file.sha256, range).await
    }

    /// Writes a file into a new one at `to`.
    pub(crate) async fn copy(&self, file: &StoredFile, to: &Path) -> Result<(), FileStoreError> {
        self.blobs.copy(&file.sha256, file.size, to).await
    }

    async fn store(
        &self,
        account: &Account,
        writer: FileWriter,
        metadata: FileMetadata,
        until: FileRetention<'_>,
    ) -> Result<Arc<StoredFile>, FileStoreError> {
        let received = writer.end().await?;
        let (expires_at, job) = match until {
            FileRetention::UntilTime(mark) => (Some(mark), None),
            FileRetention::WithJob(job) => (None, Some(job.to_string())),
        };
        let FileMetadata {
            name,
            content_type,
            metadata,
        } = metadata;
        let blob = self.blobs.put(&received).await?;
        let file = Arc::new(StoredFile {
            id: JobId::from_random(random::bits()).to_string(),
            name,
            content_type,
            size: received.size,
            sha256: received.sha256,
            md5: received.md5,
            metadata,
            created_at: Timestamp::now(),
            expires_at,
            job,
            weights_of: None,
        });
        self.insert(account, Arc::clone(&file), blob).await?;
        Ok(file)
    }

    /// Writes down what is entries about a file whose bytes are there.
    async fn insert(
        &self,
        account: &Account,
        file: Arc<StoredFile>,
        blob: BlobGuard,
    ) -> Result<(), StoreError> {
        let key = key(account, &file.id);
        let json = serde_json::to_vec(&*file)
            .expect("it has string keys")
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

    /// Removes what is too old at this moment, and the files of jobs that are forgotten or without their data.
    async fn sweep(&self, now: Timestamp, jobs: &dyn Store) {
        let mut gone = self.keys_where(|entry| entry.file.expires_at.is_some_and(|at| at <= now));
        for (account, job) in self.jobs_past_retention(now) {
            match JobId::parse(&job).map(|id| (jobs, id)) {
                Ok((jobs, id)) => match jobs.get(&account, &id).await {
                    Ok(Some(record)) if !record.data_removed => continue,
                    Ok(Some(_) | None) => {}
                    Err(error) => {
                        tracing::warn!(error = %chain(&error), "it could not be looked whether files are still needed");
                        break;
                    }
                },
                Err(error) => {
                    tracing::error!(job, %error, "a file was kept for a job that cannot be")
                }
            }
            gone.extend(self.keys_where(|entry| {
                entry.account == account && entry.file.job.as_deref() == Some(&job)
            }));
        }
        for key in gone {
            if let Err(error) = self.remove_entry(&key).await {
                tracing::warn!(error = %chain(&error), "an old file could not be removed");
            }
        }
        self.blobs.remove_unreferenced().await;
    }

    /// Jobs with files that may be forgotten: none gives files after it is over.
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

    fn keys_where(&self, wanted: impl Fn(&FileEntry) -> bool) -> Vec<String> {
        self.entries()
            .iter()
            .filter(|(_, entry)| wanted(entry))
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Forgets a file. Its bytes are removed with the next `remove_unreferenced`.
    async fn remove_entry(&self, key: &str) -> Result<bool, StoreError> {
        self.documents.remove(NAMESPACE, key).await?;
        Ok(self.entries().remove(key).is_some())
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, FileEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a file is kept.
enum FileRetention<'a> {
    UntilTime(Timestamp),
    WithJob(&'a JobId),
}

fn is_unexpired(file: &StoredFile, now: Timestamp) -> bool {
    file.expires_at.is_none_or(|at| at > now)
}

/// `…/v1/files/{id}` or `…/v1/files/{id}/{name}`. What stands before is the business of proxies.
fn file_id_in(url: &Url) -> Option<&str> {
    let (_, rest) = url.path().rsplit_once("/v1/files/")?;
    match rest.split_once('/') {
        Some((id, name)) if !name.contains('/') => Some(id),
        Some(_) => None,
        None => Some(rest),
    }
}

/// The name of a document. The account of everybody has none; no name is equal to it.
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
