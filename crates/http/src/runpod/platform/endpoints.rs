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
use tidegate_core::{Account, JobId, Refusal, Status};
use tidegate_remote::{RemoteExecutor, WorkerActivity};
use tidegate_service::JobService;
use tokio::sync::Mutex;

/// The maximum length of an endpoint's name, in bytes.
const MAX_LEN: usize = 64;
/// The documents with the names of endpoints.
const NAMESPACE: &str = "runpod-endpoints";
/// The prefix of every worker key, so that secret scanners recognize it.
const PREFIX: &str = "tgw_";
/// How long the removal of an endpoint waits for the end of its canceled jobs.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(30);

/// An endpoint: a job service, and the workers that fetch its jobs.
pub struct Endpoint {
    /// The name in paths.
    pub name: String,
    /// Accepts the jobs.
    pub jobs: JobService,
    /// Gives the jobs to workers.
    pub remote: RemoteExecutor,
}

/// The number of waiting and running jobs of an endpoint.
pub(crate) struct EndpointLoad {
    /// Jobs without a worker.
    pub(crate) waiting: usize,
    /// Jobs on workers.
    pub(crate) running: usize,
}

impl Endpoint {
    /// Whether a worker is connected.
    pub(crate) fn has_workers(&self) -> bool {
        let workers = self.remote.workers();
        workers
            .iter()
            .any(|worker| worker.state != WorkerActivity::Gone)
    }

    /// Its waiting and running jobs. A job that lost its worker counts as waiting.
    pub(crate) fn load(&self) -> EndpointLoad {
        let (all, again) = (
            self.jobs.queue().total,
            self.remote.awaiting_redelivery().len(),
        );
        EndpointLoad {
            waiting: all.waiting + again,
            running: all.running.saturating_sub(again),
        }
    }

    /// Its unfinished jobs of all accounts.
    fn open_jobs(&self) -> Vec<JobSummary> {
        let statuses = vec![Status::Queued, Status::Starting, Status::Processing];
        self.jobs.list_in_memory(&JobFilter {
            model: Some(self.jobs.target().model.clone()),
            statuses,
            limit: usize::MAX,
            ..JobFilter::default()
        })
    }

    /// Cancels a job, also on its worker. Returns whether the job was unfinished.
    pub(super) async fn cancel(&self, account: &Account, id: &JobId) -> Result<bool, Refusal> {
        let canceled = self.jobs.cancel(account, id).await?;
        if canceled {
            self.remote.stop_unstarted(id);
        }
        Ok(canceled)
    }

    /// Cancels all its jobs, waits until they have ended, and returns their number.
    async fn cancel_all(&self) -> Result<usize, RemoveEndpointError> {
        let open = self.open_jobs();
        let attempts = join_all(open.iter().map(|job| self.cancel(&job.account, &job.id))).await;
        // A job whose cancel cannot be recorded goes on, and is reported as not ending.
        let attempts = open
            .iter()
            .zip(attempts)
            .filter(|(_, canceled)| !matches!(canceled, Ok(false)));
        let canceled: Vec<_> = attempts
            .filter_map(|(job, _)| self.jobs.get_in_memory(&job.account, &job.id))
            .collect();
        let over = join_all(canceled.iter().map(|job| job.ended()));
        tokio::time::timeout(CANCEL_TIMEOUT, over)
            .await
            .map_err(|_| RemoveEndpointError::JobsNotEnding(self.name.clone()))?;
        Ok(canceled.len())
    }
}

/// A text that is not a valid endpoint name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "an endpoint name has 1 to {MAX_LEN} lowercase letters, digits, `-` and `_`; choose another"
)]
pub struct InvalidEndpointName;

/// Creates and removes the job services of endpoints.
pub struct EndpointFactory {
    /// Creates an endpoint with this name.
    pub open: Box<dyn Fn(&str) -> Endpoint + Send + Sync>,
    /// Removes an endpoint whose jobs have ended.
    pub close: Box<dyn Fn(&Endpoint) + Send + Sync>,
}

/// What to do with unfinished jobs when their endpoint is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnfinishedJobs {
    /// Refuse to remove the endpoint.
    Keep,
    /// Cancel them.
    Cancel,
}

/// Why an endpoint was not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveEndpointError {
    /// No endpoint has this name.
    #[error("there is no endpoint `{0}`")]
    Unknown(String),
    /// It has unfinished jobs.
    #[error(
        "endpoint `{0}` has {1} unfinished job(s); wait for them, or cancel them with --force (`{{\"force\": true}}`)"
    )]
    InUse(String, usize),
    /// Its canceled jobs did not end in time.
    #[error(
        "the canceled jobs of endpoint `{0}` have not ended; the endpoint was not removed, try again"
    )]
    JobsNotEnding(String),
    /// The store did not accept the removal.
    #[error("failed to remove endpoint: store unavailable")]
    Store(#[from] StoreError),
}

/// Why an endpoint was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenEndpointError {
    /// Its name is not valid.
    #[error(transparent)]
    Name(#[from] InvalidEndpointName),
    /// The store did not accept it.
    #[error("failed to save endpoint: store unavailable")]
    Store(#[from] StoreError),
}

/// All endpoints. Cloning gives another handle.
#[derive(Clone)]
pub struct EndpointRegistry {
    all: Arc<ArcSwap<BTreeMap<String, Arc<Endpoint>>>>,
    factory: Arc<EndpointFactory>,
    /// Where their names are stored.
    documents: Option<Arc<dyn Documents>>,
    /// Serializes changes, so that the stored list matches the one in memory.
    write_lock: Arc<Mutex<()>>,
}

impl EndpointRegistry {
    /// An empty registry.
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

    /// All endpoints, sorted by name.
    pub fn all(&self) -> Vec<Arc<Endpoint>> {
        self.all.load().values().cloned().collect()
    }

    /// Opens the endpoints of the previous run.
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

    /// Opens an endpoint, unless one with this name exists. It is opened again after a restart.
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

    /// Removes an endpoint permanently and returns how many of its jobs were canceled. Requests for it
    /// now get 404. If the server dies before the end, the endpoint still exists, with fewer jobs.
    pub async fn remove(
        &self,
        name: &str,
        open: UnfinishedJobs,
    ) -> Result<usize, RemoveEndpointError> {
        let _lock = self.write_lock.lock().await;
        let endpoint = self
            .get(name)
            .ok_or_else(|| RemoveEndpointError::Unknown(name.to_owned()))?;
        endpoint.jobs.loaded().await;
        let in_use = endpoint.open_jobs().len();
        if open == UnfinishedJobs::Keep && in_use > 0 {
            return Err(RemoveEndpointError::InUse(name.to_owned(), in_use));
        }
        self.change(|all| drop(all.remove(name)));
        let removed = self.cancel_and_forget(&endpoint).await;
        match removed {
            Ok(_) => {
                // Answers the long polls of its workers; a job submitted at this moment fails.
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

    /// Changes the list. The caller holds `write_lock`.
    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Arc<Endpoint>>)) {
        let mut all = BTreeMap::clone(&self.all.load());
        change(&mut all);
        self.all.store(Arc::new(all));
    }
}

/// Stores the name of an endpoint of a cluster, unless it exists.
pub async fn register_endpoint(
    documents: &dyn Documents,
    name: &str,
) -> Result<(), OpenEndpointError> {
    let json = Bytes::from_static(b"{}");
    documents.put_new(NAMESPACE, checked(name)?, json).await?;
    Ok(())
}

/// The names of all endpoints of a cluster.
pub async fn registered_endpoints(documents: &dyn Documents) -> Result<Vec<String>, StoreError> {
    let names = documents.all(NAMESPACE, "").await?.into_iter();
    Ok(names.map(|(name, _)| name).collect())
}

/// Checks that the name can be part of a path and of a model's name.
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

/// Creates and checks the keys of workers: each endpoint has one key, derived from the secret, so that
/// it stays the same after a restart.
#[derive(Clone)]
pub struct WorkerKeys(hmac::Key);

impl WorkerKeys {
    /// Keys derived from this secret, which allows access as a worker of every endpoint.
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
    fn a_key_is_valid_for_one_endpoint() {
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
    fn endpoint_names_are_path_segments() {
        for good in ["a", "echo-2", "x_y", &"a".repeat(64)] {
            assert!(checked(good).is_ok(), "{good}");
        }
        for bad in ["", "A", "a/b", "a b", "..", "é", &"a".repeat(65)] {
            assert!(checked(bad).is_err(), "{bad}");
        }
    }
}
