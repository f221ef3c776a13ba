//! Files that callers leave with this server for a day, to name them in inputs.
//!
//! Bytes are in a folder, each content once, under its SHA-256. What is said about a file is a document; all
//! of them are also in memory, for inputs are checked without waiting. One process has the folder.

mod receiving;

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_core::store::{Documents, StoreError};
use tidegate_core::{Account, JobId, chain};
use tidegate_net::Url;

use crate::files::{OwnFile, OwnFiles};
use crate::random;

pub use receiving::{Upload, UploadError};

/// The documents.
const SHELF: &str = "files";
/// How long a file is kept.
const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// The pause between two looks for what is too old.
const EVERY: Duration = Duration::from_secs(60 * 60);

/// What is known about a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Uploaded {
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
    /// When it goes.
    pub expires_at: Timestamp,
}

/// The files that callers have left.
pub struct Uploads {
    folder: PathBuf,
    documents: Arc<dyn Documents>,
    /// By the names of their documents. Bytes come and go under this lock only.
    known: Mutex<BTreeMap<String, Arc<Uploaded>>>,
}

impl Uploads {
    /// Opens the folder; what is too old or belongs to nothing is removed.
    pub async fn open(folder: PathBuf, documents: Arc<dyn Documents>) -> Result<Arc<Self>, UploadError> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let mut known = BTreeMap::new();
        for (name, json) in documents.all(SHELF, "").await? {
            match serde_json::from_slice::<Uploaded>(&json) {
                Ok(file) => drop(known.insert(name, Arc::new(file))),
                Err(error) => tracing::error!(name, %error, "what was kept about a file cannot be read"),
            }
        }
        let uploads = Arc::new(Self { folder, documents, known: Mutex::new(known) });
        uploads.remove_strangers()?;
        uploads.sweep(Timestamp::now()).await;
        Ok(uploads)
    }

    /// Removes what is too old, now and then, for ever.
    pub async fn upkeep(&self) {
        loop {
            tokio::time::sleep(EVERY).await;
            self.sweep(Timestamp::now()).await;
        }
    }

    /// Begins to take a file in, of at most `limit` bytes.
    pub async fn receive(&self, limit: u64) -> Result<Upload, UploadError> {
        Upload::begin(&self.folder, limit).await
    }

    /// Keeps a file that has come in whole.
    pub async fn keep(
        &self,
        account: &Account,
        upload: Upload,
        name: String,
        content_type: String,
        metadata: Box<RawValue>,
    ) -> Result<Arc<Uploaded>, UploadError> {
        let received = upload.end().await?;
        let created_at = Timestamp::now();
        let file = Arc::new(Uploaded {
            id: JobId::from_random(random::bits()).to_string(),
            name,
            content_type,
            size: received.size,
            sha256: received.sha256,
            md5: received.md5,
            metadata,
            created_at,
            expires_at: created_at.checked_add(KEPT_FOR).unwrap_or(Timestamp::MAX),
        });
        let key = key(account, &file.id);
        {
            let mut known = self.known();
            received.place.rename(&self.folder.join(&file.sha256))?;
            known.insert(key.clone(), Arc::clone(&file));
        }
        let json = serde_json::to_vec(&*file).expect("it has string keys").into();
        if let Err(error) = self.documents.put(SHELF, &key, json).await {
            self.forget(&key);
            return Err(error.into());
        }
        Ok(file)
    }

    /// One file of an account.
    pub fn get(&self, account: &Account, id: &str) -> Option<Arc<Uploaded>> {
        self.known().get(&key(account, id)).filter(|file| file.expires_at > Timestamp::now()).cloned()
    }

    /// The files of an account, newest first.
    pub fn list(&self, account: &Account) -> Vec<Arc<Uploaded>> {
        let (prefix, now) = (key(account, ""), Timestamp::now());
        let known = self.known();
        let all = known.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix)).map(|(_, file)| file);
        let mut files: Vec<_> = all.filter(|file| file.expires_at > now).cloned().collect();
        files.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        files
    }

    /// Removes a file; says whether it was there.
    pub async fn remove(&self, account: &Account, id: &str) -> Result<bool, StoreError> {
        let key = key(account, id);
        if !self.known().contains_key(&key) {
            return Ok(false);
        }
        self.documents.remove(SHELF, &key).await?;
        Ok(self.forget(&key))
    }

    /// Where the bytes of a file are.
    pub fn path_of(&self, file: &Uploaded) -> PathBuf {
        self.folder.join(&file.sha256)
    }

    /// Removes what is too old at this moment.
    async fn sweep(&self, now: Timestamp) {
        let old: Vec<String> = self.known().iter().filter(|(_, file)| file.expires_at <= now).map(|(key, _)| key.clone()).collect();
        for key in old {
            match self.documents.remove(SHELF, &key).await {
                Ok(_) => drop(self.forget(&key)),
                Err(error) => tracing::warn!(error = %chain(&error), "an old file could not be removed"),
            }
        }
    }

    /// Forgets a file, and its bytes if no other has the same.
    fn forget(&self, key: &str) -> bool {
        let mut known = self.known();
        let Some(file) = known.remove(key) else { return false };
        if !known.values().any(|other| other.sha256 == file.sha256)
            && let Err(error) = std::fs::remove_file(self.path_of(&file))
        {
            tracing::warn!(%error, file.sha256, "the bytes of a file could not be removed");
        }
        true
    }

    /// What a server left that died while it took a file in or removed one.
    fn remove_strangers(&self) -> std::io::Result<()> {
        let ours: HashSet<OsString> = self.known().values().map(|file| file.sha256.clone().into()).collect();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            if !ours.contains(&entry.file_name())
                && let Err(error) = std::fs::remove_file(entry.path())
            {
                tracing::warn!(%error, path = %entry.path().display(), "something among the files belongs to nothing and could not be removed");
            }
        }
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Uploaded>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OwnFiles for Uploads {
    fn find(&self, account: &Account, url: &Url) -> Option<OwnFile> {
        let file = self.get(account, id_in(url)?)?;
        Some(OwnFile { path: self.path_of(&file), name: file.name.clone(), size: file.size })
    }
}

/// `…/v1/files/{id}` or `…/v1/files/{id}/download`. What stands before is the business of proxies.
fn id_in(url: &Url) -> Option<&str> {
    let path = url.path();
    let (_, id) = path.strip_suffix("/download").unwrap_or(path).rsplit_once("/v1/files/")?;
    Some(id)
}

/// The name of a document. The account of everybody has none; no name is equal to it.
fn key(account: &Account, id: &str) -> String {
    format!("{}/{id}", if account.is_anonymous() { "" } else { account.as_str() })
}

#[cfg(test)]
mod tests;
