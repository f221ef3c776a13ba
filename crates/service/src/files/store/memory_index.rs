//! The index of one process: all documents of files are also in memory, so that inputs are checked and
//! outputs are rendered without waiting. A blob is removed with its last entry. A blob is written before its
//! document and removed after it: a crash in between leaves a blob without entry, which the next start
//! removes. Only one process may use the documents and the blobs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;
use tidegate_core::blobs::Blobs;
use tidegate_core::file_index::{FileIndex, FileReservation, ReserveError, StoredFile};
use tidegate_core::store::{Documents, Store, StoreError};
use tidegate_core::{Account, JobId, chain};

use super::refcount::{BlobGuard, BlobRefcounts};

/// The namespace of the documents.
const NAMESPACE: &str = "files";

/// The metadata of the files of one process.
pub struct MemoryFileIndex {
    inner: Arc<Inner>,
}

struct Inner {
    documents: Arc<dyn Documents>,
    /// Keyed by the names of their documents.
    entries: Mutex<BTreeMap<String, FileEntry>>,
    /// The bytes of uploads that are being stored, by account: concurrent uploads cannot exceed the quota
    /// together.
    reserved: Mutex<HashMap<Account, u64>>,
    refcounts: BlobRefcounts,
}

struct FileEntry {
    account: Account,
    file: Arc<StoredFile>,
    /// Keeps the blob from being removed.
    _blob: BlobGuard,
}

impl MemoryFileIndex {
    /// Reads the documents. Blobs without entry are removed by the first
    /// [`collect`](FileIndex::collect): there may be many, and the start does not wait for them.
    pub async fn open(
        documents: Arc<dyn Documents>,
        blobs: &dyn Blobs,
    ) -> Result<Self, super::FileStoreError> {
        let refcounts = BlobRefcounts::default();
        let mut entries = BTreeMap::new();
        for (name, json) in documents.all(NAMESPACE, "").await? {
            match (
                serde_json::from_slice::<StoredFile>(&json),
                account_in(&name),
            ) {
                (Ok(file), Some(account)) => {
                    let blob = refcounts.acquire(&file.sha256).await;
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
        for name in blobs.names().await? {
            refcounts.register(name);
        }
        Ok(Self {
            inner: Arc::new(Inner {
                documents,
                entries: Mutex::new(entries),
                reserved: Mutex::default(),
                refcounts,
            }),
        })
    }

    /// The jobs with files stored before this time, which may have been removed. A job stores no files after
    /// its end.
    fn jobs_with_files_before(&self, before: Timestamp) -> HashSet<(Account, String)> {
        let entries = self.inner.entries();
        let old = entries
            .values()
            .filter(|entry| entry.file.created_at <= before);
        old.filter_map(|entry| Some((entry.account.clone(), entry.file.job.clone()?)))
            .collect()
    }

    fn keys_where(&self, filter: impl Fn(&FileEntry) -> bool) -> Vec<String> {
        let entries = self.inner.entries();
        let found = entries.iter().filter(|(_, entry)| filter(entry));
        found.map(|(key, _)| key.clone()).collect()
    }
}

impl Inner {
    /// The bytes that count towards the quota: the uploads of the account and its trained weights.
    fn stored_bytes(&self, account: &Account) -> u64 {
        let now = Timestamp::now();
        let counts = |entry: &&FileEntry| {
            entry.account == *account && entry.file.job.is_none() && entry.file.is_unexpired(now)
        };
        let entries = self.entries();
        let counted = entries.values().filter(counts);
        counted.map(|entry| entry.file.size).sum()
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

    /// Removes an entry. Its blob is removed by the next `remove_released`.
    async fn remove_entry(&self, key: &str) -> Result<bool, StoreError> {
        self.documents.remove(NAMESPACE, key).await?;
        Ok(self.entries().remove(key).is_some())
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, FileEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reserved(&self) -> MutexGuard<'_, HashMap<Account, u64>> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl FileIndex for MemoryFileIndex {
    /// Between storing the file and dropping the reservation it counts twice, so an account close to its
    /// quota may be refused too early, but never too late.
    async fn reserve(
        &self,
        account: &Account,
        file: &Arc<StoredFile>,
        quota: Option<u64>,
    ) -> Result<Box<dyn FileReservation>, ReserveError> {
        let counted = if file.is_upload() { file.size } else { 0 };
        {
            let mut reserved = self.inner.reserved();
            if let Some(max) = quota {
                let in_flight = reserved.get(account).copied().unwrap_or_default();
                let used = self.inner.stored_bytes(account) + in_flight;
                if used.saturating_add(counted) > max {
                    return Err(ReserveError::Quota { used, max });
                }
            }
            *reserved.entry(account.clone()).or_default() += counted;
        }
        let mut reservation = MemoryReservation {
            inner: Arc::clone(&self.inner),
            account: account.clone(),
            file: Arc::clone(file),
            counted,
            blob: None,
        };
        reservation.blob = Some(self.inner.refcounts.acquire(&file.sha256).await);
        Ok(Box::new(reservation))
    }

    async fn add_copy(
        &self,
        account: &Account,
        from: &str,
        file: &Arc<StoredFile>,
    ) -> Result<bool, StoreError> {
        let blob = self.inner.refcounts.acquire(&file.sha256).await;
        if !self.inner.entries().contains_key(&key(account, from)) {
            return Ok(false);
        }
        self.inner.insert(account, Arc::clone(file), blob).await?;
        Ok(true)
    }

    async fn remove(&self, account: &Account, id: &str) -> Result<bool, StoreError> {
        self.inner.remove_entry(&key(account, id)).await
    }

    async fn find(
        &self,
        account: &Account,
        id: &str,
    ) -> Result<Option<Arc<StoredFile>>, StoreError> {
        Ok(self.find_in_memory(account, id))
    }

    fn find_in_memory(&self, account: &Account, id: &str) -> Option<Arc<StoredFile>> {
        let entries = self.inner.entries();
        let file = &entries.get(&key(account, id))?.file;
        file.is_unexpired(Timestamp::now())
            .then(|| Arc::clone(file))
    }

    async fn uploads(&self, account: &Account) -> Result<Vec<Arc<StoredFile>>, StoreError> {
        let (prefix, now) = (key(account, ""), Timestamp::now());
        let entries = self.inner.entries();
        let all = entries
            .range(prefix.clone()..)
            .take_while(|(key, _)| key.starts_with(&prefix))
            .map(|(_, entry)| &entry.file);
        let mut files: Vec<_> = all
            .filter(|file| file.is_upload() && file.is_unexpired(now))
            .cloned()
            .collect();
        files.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        Ok(files)
    }

    async fn used_bytes(&self, account: &Account) -> Result<u64, StoreError> {
        let reserved = self.inner.reserved().get(account).copied();
        Ok(self.inner.stored_bytes(account) + reserved.unwrap_or_default())
    }

    async fn weights(&self) -> Result<Vec<(Account, Arc<StoredFile>)>, StoreError> {
        let entries = self.inner.entries();
        let weights = entries
            .values()
            .filter(|entry| entry.file.weights_of.is_some());
        Ok(weights
            .map(|entry| (entry.account.clone(), Arc::clone(&entry.file)))
            .collect())
    }

    async fn remove_expired(
        &self,
        now: Timestamp,
        outputs_before: Timestamp,
        jobs: &dyn Store,
    ) -> Result<(), StoreError> {
        let mut expired = self.keys_where(|entry| !entry.file.is_unexpired(now));
        for (account, job) in self.jobs_with_files_before(outputs_before) {
            match JobId::parse(&job) {
                Ok(id) => match jobs.get(&account, &id).await? {
                    Some(record) if !record.data_removed => continue,
                    Some(_) | None => {}
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
            self.inner.remove_entry(&key).await?;
        }
        Ok(())
    }

    async fn remove_released(&self, blobs: &dyn Blobs) {
        for removal in self.inner.refcounts.take_unreferenced() {
            match blobs.remove(removal.digest()).await {
                Ok(()) => removal.done(),
                Err(error) => {
                    tracing::warn!(error = %chain(&error), digest = removal.digest(), "failed to remove blob")
                }
            }
        }
    }

    async fn collect(&self, blobs: &dyn Blobs) -> Result<(), StoreError> {
        self.remove_released(blobs).await;
        Ok(())
    }
}

/// A file that is being stored.
struct MemoryReservation {
    inner: Arc<Inner>,
    account: Account,
    file: Arc<StoredFile>,
    /// The bytes that count towards the quota meanwhile.
    counted: u64,
    blob: Option<BlobGuard>,
}

#[async_trait]
impl FileReservation for MemoryReservation {
    async fn complete(mut self: Box<Self>) -> Result<(), StoreError> {
        let Some(blob) = self.blob.take() else {
            return Ok(());
        };
        let file = Arc::clone(&self.file);
        self.inner.insert(&self.account, file, blob).await
    }

    async fn abandon(self: Box<Self>) {}
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        let mut reserved = self.inner.reserved();
        if let Some(bytes) = reserved.get_mut(&self.account) {
            *bytes -= self.counted;
            if *bytes == 0 {
                reserved.remove(&self.account);
            }
        }
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
