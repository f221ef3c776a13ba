//! Signed download URLs of files, valid as long as the file. A client with the URL can read the
//! file without a token.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use ring::hmac;
use tidegate_core::file_index::StoredFile;
use tidegate_core::store::StoreError;
use tidegate_core::{Account, JobId};
use tidegate_service::{FileStore, LinkedMessage, MessageLinks, PublishedFile, Snapshot};
use url::form_urlencoded;

use super::origin::Origin;

/// How long a URL in the output of a running job is valid beyond the retention of jobs, because its
/// end is unknown. The file is removed with its job in any case.
const RUNNING_JOB_VALIDITY: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The last path segment of the URL of a file without a name.
const UNNAMED: &str = "download";

/// Stored files and their signed URLs.
pub struct FileLinks {
    pub(super) file_store: Arc<FileStore>,
    key: hmac::Key,
    keep_jobs_for: Duration,
}

impl FileLinks {
    /// `secret` signs the URLs: anyone who has it can read every file whose id they know. Finished
    /// jobs and their files are kept for `keep_jobs_for`.
    pub fn new(file_store: Arc<FileStore>, secret: &[u8], keep_jobs_for: Duration) -> Self {
        Self {
            file_store,
            key: hmac::Key::new(hmac::HMAC_SHA256, secret),
            keep_jobs_for,
        }
    }

    /// The download URL of an uploaded file.
    pub(super) fn upload_url(&self, origin: &Origin, owner: &Account, file: &StoredFile) -> String {
        signed_url(
            &self.key,
            origin,
            owner,
            [&file.id, UNNAMED],
            file.expires_at.unwrap_or(Timestamp::MAX),
        )
    }

    /// The output of a job with download URLs for its files. The URL ends with the file name,
    /// because programs look at the extension.
    pub(super) fn output_with_urls(
        &self,
        job: &OutputJob<'_>,
        json: &Bytes,
        origin: &Origin,
    ) -> Bytes {
        self.file_store
            .replace_placeholders(job.account, job.id, json, |file| {
                self.output_url(job, file, origin)
            })
    }

    /// The download URL of an output file.
    pub(super) fn output_url(
        &self,
        job: &OutputJob<'_>,
        file: &PublishedFile,
        origin: &Origin,
    ) -> String {
        let expires_at = match job.completed_at {
            Some(completed_at) => completed_at.checked_add(self.keep_jobs_for),
            None => Timestamp::now()
                .checked_add(self.keep_jobs_for.saturating_add(RUNNING_JOB_VALIDITY)),
        };
        let name = if matches!(file.name.as_str(), "" | "." | "..") {
            UNNAMED
        } else {
            &file.name
        };
        signed_url(
            &self.key,
            origin,
            job.account,
            [&file.id, name],
            expires_at.unwrap_or(Timestamp::MAX),
        )
    }

    /// The file of a URL; `None` if the signature is wrong, the URL has expired or the file does
    /// not exist.
    pub(super) async fn open(
        &self,
        id: &str,
        query: &str,
    ) -> Result<Option<Arc<StoredFile>>, StoreError> {
        match verified_owner(&self.key, id, query, Timestamp::now()) {
            Some(owner) => self.file_store.find(&owner, id).await,
            None => Ok(None),
        }
    }
}

impl MessageLinks for FileLinks {
    fn with_urls(&self, message: LinkedMessage<'_>, body: &Bytes) -> Bytes {
        // The server stored the origin itself.
        let Some(origin) = message.hook.origin.as_deref().and_then(Origin::parse) else {
            return body.clone();
        };
        let job = OutputJob {
            account: &message.job.account,
            id: &message.job.id,
            completed_at: message.completed_at,
        };
        self.output_with_urls(&job, body, &origin)
    }
}

/// The job that an output belongs to.
pub(super) struct OutputJob<'a> {
    pub(super) account: &'a Account,
    pub(super) id: &'a JobId,
    pub(super) completed_at: Option<Timestamp>,
}

impl<'a> OutputJob<'a> {
    pub(super) fn of(job: &'a Snapshot) -> Self {
        Self {
            account: &job.account,
            id: &job.id,
            completed_at: job.completed_at,
        }
    }
}

fn signed_url(
    key: &hmac::Key,
    origin: &Origin,
    owner: &Account,
    [id, name]: [&str; 2],
    expires_at: Timestamp,
) -> String {
    let (owner, expiry) = (account_name(owner), expires_at.as_second().to_string());
    let signature = STANDARD.encode(hmac::sign(key, signed_text(owner, id, &expiry).as_bytes()));
    let mut url = origin.url(&["v1", "files", id, name]);
    url.query_pairs_mut()
        .append_pair("owner", owner)
        .append_pair("expiry", &expiry)
        .append_pair("signature", &signature);
    url.into()
}

/// The owner of the file, if the signature is valid and the URL has not expired.
fn verified_owner(key: &hmac::Key, id: &str, query: &str, now: Timestamp) -> Option<Account> {
    let value = |key: &str| {
        form_urlencoded::parse(query.as_bytes())
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
    };
    let (owner, expiry, signature) = (value("owner")?, value("expiry")?, value("signature")?);
    let signature = STANDARD.decode(signature.as_bytes()).ok()?;
    hmac::verify(key, signed_text(&owner, id, &expiry).as_bytes(), &signature).ok()?;
    if expiry.parse::<i64>().ok()? <= now.as_second() {
        return None;
    }
    if owner.is_empty() {
        Some(Account::ANONYMOUS)
    } else {
        Account::parse(&owner).ok()
    }
}

/// The anonymous account has an empty name, which no other account can have.
fn account_name(account: &Account) -> &str {
    if account.is_anonymous() {
        ""
    } else {
        account.as_str()
    }
}

fn signed_text(owner: &str, id: &str, expiry: &str) -> String {
    format!("{owner} {id} {expiry}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(secret: &[u8]) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, secret)
    }

    #[test]
    fn a_url_is_valid_for_one_file_until_it_expires() {
        let expires_at = Timestamp::from_second(1000).unwrap();
        let before = Timestamp::from_second(999).unwrap();
        let origin = Origin::parse("https://h").unwrap();
        let ours = key(b"secret");
        for owner in [Account::ANONYMOUS, Account::parse("ann").unwrap()] {
            let url = signed_url(&ours, &origin, &owner, ["abc", "cat ü/.png"], expires_at);
            let (path, query) = url.split_once('?').unwrap();
            assert_eq!(path, "https://h/v1/files/abc/cat%20%C3%BC%2F.png");
            assert_eq!(verified_owner(&ours, "abc", query, before), Some(owner));
            assert_eq!(
                verified_owner(&ours, "abc", query, expires_at),
                None,
                "too late"
            );
            assert_eq!(
                verified_owner(&ours, "abd", query, before),
                None,
                "another file"
            );
            assert_eq!(
                verified_owner(
                    &ours,
                    "abc",
                    &query.replace("expiry=1000", "expiry=9000"),
                    before
                ),
                None,
                "another expiry"
            );
            assert_eq!(
                verified_owner(&ours, "abc", &query.replace("owner=", "owner=b"), before),
                None,
                "another owner"
            );
            assert_eq!(
                verified_owner(&key(b"other"), "abc", query, before),
                None,
                "another secret"
            );
        }
        assert_eq!(verified_owner(&ours, "abc", "", before), None);
    }
}
