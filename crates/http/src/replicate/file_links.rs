//! The addresses of files: signed, and good as long as the file. Who has one can read that file, without a token.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use ring::hmac;
use tidegate_core::{Account, JobId};
use tidegate_service::{FileStore, StoredFile};
use url::form_urlencoded;

use super::origin::Origin;

/// How long the address of a file of a job is good that is not over: nobody knows when it will be. The file
/// goes with its job in any case.
const WHILE_RUNNING: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The last part of an address that has no name of a file.
const UNNAMED: &str = "download";

/// The files that are kept, and their addresses.
pub struct FileLinks {
    pub(super) file_store: Arc<FileStore>,
    key: hmac::Key,
    keep_jobs_for: Duration,
}

impl FileLinks {
    /// Whoever knows the secret can read every file whose id they know. Jobs that are over are kept for
    /// `keep_jobs_for`, and their files with them.
    pub fn new(file_store: Arc<FileStore>, secret: &[u8], keep_jobs_for: Duration) -> Self {
        Self {
            file_store,
            key: hmac::Key::new(hmac::HMAC_SHA256, secret),
            keep_jobs_for,
        }
    }

    /// The address of the bytes of a file that a caller has left.
    pub(super) fn of_upload(&self, origin: &Origin, owner: &Account, file: &StoredFile) -> String {
        signed_address(
            &self.key,
            origin,
            owner,
            [&file.id, UNNAMED],
            file.expires_at.unwrap_or(Timestamp::MAX),
        )
    }

    /// What a job gave, with addresses of its files. Each ends as the file is called: programs look at that.
    pub(super) fn told(&self, job: &JobRef<'_>, json: &Bytes, origin: &Origin) -> Bytes {
        let expires_at = match job.completed_at {
            Some(over) => over.checked_add(self.keep_jobs_for),
            None => Timestamp::now().checked_add(self.keep_jobs_for.saturating_add(WHILE_RUNNING)),
        };
        let expires_at = expires_at.unwrap_or(Timestamp::MAX);
        self.file_store.told(job.account, job.id, json, |file| {
            let name = if matches!(file.name.as_str(), "" | "." | "..") {
                UNNAMED
            } else {
                &file.name
            };
            signed_address(&self.key, origin, job.account, [&file.id, name], expires_at)
        })
    }

    /// The file of an address, if we have signed it, it is still good, and so is the file.
    pub(super) fn open(&self, id: &str, query: &str) -> Option<Arc<StoredFile>> {
        self.file_store
            .find(&owner_in(&self.key, id, query, Timestamp::now())?, id)
    }
}

/// The job that gave what is told.
pub(super) struct JobRef<'a> {
    pub(super) account: &'a Account,
    pub(super) id: &'a JobId,
    pub(super) completed_at: Option<Timestamp>,
}

fn signed_address(
    key: &hmac::Key,
    origin: &Origin,
    owner: &Account,
    [id, name]: [&str; 2],
    expires_at: Timestamp,
) -> String {
    let (owner, expiry) = (name_of(owner), expires_at.as_second().to_string());
    let signature = STANDARD.encode(hmac::sign(key, signed(owner, id, &expiry).as_bytes()));
    let mut url = origin.url(&["v1", "files", id, name]);
    url.query_pairs_mut()
        .append_pair("owner", owner)
        .append_pair("expiry", &expiry)
        .append_pair("signature", &signature);
    url.into()
}

/// Whose file it is, if we have signed this and it is still good.
fn owner_in(key: &hmac::Key, id: &str, query: &str, now: Timestamp) -> Option<Account> {
    let value = |wanted: &str| {
        form_urlencoded::parse(query.as_bytes())
            .find(|(name, _)| name == wanted)
            .map(|(_, value)| value)
    };
    let (owner, expiry, signature) = (value("owner")?, value("expiry")?, value("signature")?);
    let signature = STANDARD.decode(signature.as_bytes()).ok()?;
    hmac::verify(key, signed(&owner, id, &expiry).as_bytes(), &signature).ok()?;
    if expiry.parse::<i64>().ok()? <= now.as_second() {
        return None;
    }
    if owner.is_empty() {
        Some(Account::ANONYMOUS)
    } else {
        Account::parse(&owner).ok()
    }
}

/// The account of everybody has no name, so that nobody can be called like it.
fn name_of(account: &Account) -> &str {
    if account.is_anonymous() {
        ""
    } else {
        account.as_str()
    }
}

fn signed(owner: &str, id: &str, expiry: &str) -> String {
    format!("{owner} {id} {expiry}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(secret: &[u8]) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, secret)
    }

    #[test]
    fn an_address_is_good_for_one_file_until_its_time() {
        let expires_at = Timestamp::from_second(1000).unwrap();
        let before = Timestamp::from_second(999).unwrap();
        let origin = Origin::parse("https://h").unwrap();
        let ours = key(b"secret");
        for owner in [Account::ANONYMOUS, Account::parse("ann").unwrap()] {
            let address = signed_address(&ours, &origin, &owner, ["abc", "cat ü/.png"], expires_at);
            let (path, query) = address.split_once('?').unwrap();
            assert_eq!(path, "https://h/v1/files/abc/cat%20%C3%BC%2F.png");
            assert_eq!(owner_in(&ours, "abc", query, before), Some(owner));
            assert_eq!(owner_in(&ours, "abc", query, expires_at), None, "too late");
            assert_eq!(owner_in(&ours, "abd", query, before), None, "another file");
            assert_eq!(
                owner_in(
                    &ours,
                    "abc",
                    &query.replace("expiry=1000", "expiry=9000"),
                    before
                ),
                None,
                "another time"
            );
            assert_eq!(
                owner_in(&ours, "abc", &query.replace("owner=", "owner=b"), before),
                None,
                "another owner"
            );
            assert_eq!(
                owner_in(&key(b"other"), "abc", query, before),
                None,
                "another secret"
            );
        }
        assert_eq!(owner_in(&ours, "abc", "", before), None);
    }
}
