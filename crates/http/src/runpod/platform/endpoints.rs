//! The endpoints of this server, and the keys of their workers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::future::join_all;
use ring::hmac;
use tidegate_core::record::JobSummary;
use tidegate_core::store::{Documents, JobFilter, StoreError};
use tidegate_core::{Account, JobId, Status};
use tidegate_remote::RemoteExecutor;
use tidegate_service::JobService;
use tokio::sync::Mutex;

/// What the models of endpoints are called: `runpod/NAME`.
pub const MODEL_PREFIX: &str = "runpod/";
/// The longest name of an endpoint, in bytes.
const MAX_LEN: usize = 64;
/// Where the names of endpoints are kept.
const NAMESPACE: &str = "runpod-endpoints";
/// What every worker's key begins with, so that those who look for leaked secrets know it.
const PREFIX: &str = "tgw_";
/// How long jobs may take to end that are canceled with their endpoint.
const UNTIL_CANCELED: Duration = Duration::from_secs(30);

/// An endpoint: a desk, and the workers that come for its jobs.
pub struct Endpoint {
    /// Its name in paths.
    pub name: String,
    /// Takes the jobs in.
    pub jobs: JobService,
    /// Gives them to workers.
    pub remote: RemoteExecutor,
}

/// How much an endpoint has to do.
pub(super) struct EndpointLoad {
    /// Jobs that no worker has.
    pub(super) waiting: usize,
    /// Jobs that workers have.
    pub(super) running: usize,
}

impl Endpoint {
    /// How much it has to do. A job that has lost its worker waits.
    pub(super) fn load(&self) -> EndpointLoad {
        let (all, again) = (
            self.jobs.queue().all,
            self.remote.awaiting_redelivery().len(),
        );
        EndpointLoad {
            waiting: all.waiting + again,
            running: all.running.saturating_sub(again),
        }
    }

    /// Its jobs that are not over, whoever they belong to.
    fn open_jobs(&self) -> Vec<JobSummary> {
        let statuses = vec![Status::Queued, Status::Starting, Status::Processing];
        self.jobs.in_memory(&JobFilter {
            account: None,
            id: None,
            model: Some(self.jobs.target().model.clone()),
            statuses,
            limit: usize::MAX,
        })
    }

    /// Cancels a job, wherever it is; says whether it was not over.
    pub(super) async fn cancel(&self, account: &Account, id: &JobId) -> bool {
        let canceled = self.jobs.cancel(account, id).await;
        if canceled {
            self.remote.stop_unstarted(id);
        }
        canceled
    }

    /// Cancels its jobs and waits until that is written down; says how many.
    async fn cancel_all(&self) -> Result<usize, RemoveEndpointError> {
        let open = self.open_jobs();
        let attempts = join_all(open.iter().map(|job| self.cancel(&job.account, &job.id))).await;
        let attempts = open.iter().zip(attempts).filter(|(_, canceled)| *canceled);
        let canceled: Vec<_> = attempts
            .filter_map(|(job, _)| self.jobs.known(&job.account, &job.id))
            .collect();
        let over = join_all(canceled.iter().map(|job| job.ended()));
        tokio::time::timeout(UNTIL_CANCELED, over)
            .await
            .map_err(|_| RemoveEndpointError::JobsNotEnding(self.name.clone()))?;
        Ok(canceled.len())
    }
}

/// A text cannot be the name of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of an endpoint has 1 to {MAX_LEN} small letters, digits, `-` and `_`; choose another"
)]
pub struct InvalidEndpointName;

/// How endpoints come and go.
pub struct EndpointFactory {
    /// Opens an endpoint with this name.
    pub open: Box<dyn Fn(&str) -> Endpoint + Send + Sync>,
    /// Closes an endpoint whose jobs are over.
    pub close: Box<dyn Fn(&Endpoint) + Send + Sync>,
}

/// What is to become of jobs that are not over when their endpoint is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnfinishedJobs {
    /// The endpoint stays for them.
    Keep,
    /// They are canceled.
    Cancel,
}

/// Why an endpoint was not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveEndpointError {
    /// There is none.
    #[error("there is no endpoint `{0}`")]
    Unknown(String),
    /// Somebody may wait for its jobs.
    #[error(
        "endpoint `{0}` has {1} job(s) that are not over; wait for them, or have them canceled with --force (`{{\"force\": true}}`)"
    )]
    InUse(String, usize),
    /// Its jobs were told to end and did not.
    #[error("the jobs of endpoint `{0}` do not end; it stays, try again")]
    JobsNotEnding(String),
    /// That it is gone could not be written down.
    #[error("the endpoint stays: that it is gone cannot be written down")]
    Store(#[from] StoreError),
}

/// Why an endpoint was not open_or_get.
#[derive(Debug, thiserror::Error)]
pub enum OpenEndpointError {
    /// Its name cannot be used.
    #[error(transparent)]
    Name(#[from] InvalidEndpointName),
    /// It could not be written down.
    #[error("the endpoint cannot be kept")]
    Store(#[from] StoreError),
}

/// All endpoints. Cloning gives another handle.
#[derive(Clone)]
pub struct EndpointRegistry {
    all: Arc<ArcSwap<BTreeMap<String, Arc<Endpoint>>>>,
    factory: Arc<EndpointFactory>,
    /// Where their names are kept.
    documents: Option<Arc<dyn Documents>>,
    /// Writers take turns, so that what is written down is what is there.
    write_lock: Arc<Mutex<()>>,
}

impl EndpointRegistry {
    /// None yet.
    pub fn new(documents: Option<Arc<dyn Documents>>, factory: EndpointFactory) -> Self {
        Self {
            all: Arc::default(),
            factory: Arc::new(factory),
            documents,
            write_lock: Arc::default(),
        }
    }

    /// The endpoint with this name.
    pub fn get(&self, name: &str) -> Option<Arc<Endpoint>> {
        self.all.load().get(name).cloned()
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<Arc<Endpoint>> {
        self.all.load().values().cloned().collect()
    }

    /// Opens those that a server before this one had.
    pub async fn resume(&self) -> Result<(), StoreError> {
        let Some(documents) = &self.documents else {
            return Ok(());
        };
        let _lock = self.write_lock.lock().await;
        for (name, _) in documents.all(NAMESPACE, "").await? {
            self.open_or_get(&name);
        }
        Ok(())
    }

    /// Opens an endpoint, unless there is one with this name. It is there after a restart too.
    pub async fn add(&self, name: &str) -> Result<Arc<Endpoint>, OpenEndpointError> {
        let name = checked(name)?;
        let _lock = self.write_lock.lock().await;
        if let Some(documents) = &self.documents {
            documents
                .put_new(NAMESPACE, name, Bytes::from_static(b"{}"))
                .await?;
        }
        Ok(self.open_or_get(name))
    }

    /// Removes an endpoint, for good; says how many of its jobs were canceled. Whoever asks for it from now on
    /// learns that it does not exist. A server that dies on the way still has it, and fewer jobs for it.
    pub async fn remove(
        &self,
        name: &str,
        open: UnfinishedJobs,
    ) -> Result<usize, RemoveEndpointError> {
        let _lock = self.write_lock.lock().await;
        let endpoint = self
            .get(name)
            .ok_or_else(|| RemoveEndpointError::Unknown(name.to_owned()))?;
        let in_use = endpoint.open_jobs().len();
        if open == UnfinishedJobs::Keep && in_use > 0 {
            return Err(RemoveEndpointError::InUse(name.to_owned(), in_use));
        }
        self.change(|all| drop(all.remove(name)));
        let removed = self.cancel_and_forget(&endpoint).await;
        match removed {
            Ok(_) => {
                // Workers that wait for an answer get one; a job that came in this very moment fails.
                endpoint.remote.close();
                (self.factory.close)(&endpoint);
            }
            Err(_) => self.change(|all| drop(all.insert(name.to_owned(), endpoint))),
        }
        removed
    }

    async fn cancel_and_forget(&self, endpoint: &Endpoint) -> Result<usize, RemoveEndpointError> {
        let canceled = endpoint.cancel_all().await?;
        if let Some(documents) = &self.documents {
            documents.remove(NAMESPACE, &endpoint.name).await?;
        }
        Ok(canceled)
    }

    fn open_or_get(&self, name: &str) -> Arc<Endpoint> {
        self.get(name).unwrap_or_else(|| {
            let endpoint = Arc::new((self.factory.open)(name));
            self.change(|all| drop(all.insert(name.to_owned(), Arc::clone(&endpoint))));
            endpoint
        })
    }

    /// Changes the list. Only for who has the turn.
    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Arc<Endpoint>>)) {
        let mut all = BTreeMap::clone(&self.all.load());
        change(&mut all);
        self.all.store(Arc::new(all));
    }
}

/// A name that can be part of a path and of a model's name.
fn checked(name: &str) -> Result<&str, InvalidEndpointName> {
    let allowed = |byte: &u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_')
    };
    let matches = !name.is_empty() && name.len() <= MAX_LEN && name.as_bytes().iter().all(allowed);
    if matches {
        Ok(name)
    } else {
        Err(InvalidEndpointName)
    }
}

/// Makes and checks the keys of workers: one for each endpoint, good for no other, and made again after a
/// restart from the same secret.
pub struct WorkerKeys(hmac::Key);

impl WorkerKeys {
    /// Whoever knows the secret can be a worker of every endpoint.
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The key of an endpoint's workers.
    pub fn key(&self, endpoint: &str) -> String {
        let tag = hmac::sign(&self.0, endpoint.as_bytes());
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(tag))
    }

    /// Whether this is the key of the endpoint's workers.
    pub(super) fn matches(&self, endpoint: &str, key: &[u8]) -> bool {
        let tag = key
            .strip_prefix(PREFIX.as_bytes())
            .and_then(|rest| URL_SAFE_NO_PAD.decode(rest).ok());
        tag.is_some_and(|tag| hmac::verify(&self.0, endpoint.as_bytes(), &tag).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_opens_one_endpoint() {
        let keys = WorkerKeys::new(b"secret");
        let key = keys.key("echo");
        assert!(keys.matches("echo", key.as_bytes()));
        assert!(
            WorkerKeys::new(b"secret").matches("echo", key.as_bytes()),
            "also after a restart"
        );
        assert!(
            !keys.matches("other", key.as_bytes())
                && !WorkerKeys::new(b"else").matches("echo", key.as_bytes())
        );
        for bad in ["", "tgw_", "tgw_AAAA", key.trim_start_matches(PREFIX)] {
            assert!(!keys.matches("echo", bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn names_are_parts_of_paths() {
        for good in ["a", "echo-2", "x_y", &"a".repeat(64)] {
            assert!(checked(good).is_ok(), "{good}");
        }
        for bad in ["", "A", "a/b", "a b", "..", "é", &"a".repeat(65)] {
            assert!(checked(bad).is_err(), "{bad}");
        }
    }
}
