//! Runs batches: submits their requests as jobs and stores the results with the batch.
//!
//! Each unfinished batch has one task, which can be stopped and restarted at any time: a request that
//! already has a job is not submitted again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use futures_util::stream::{self, FuturesUnordered};
use futures_util::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use serde_json::value::RawValue;
use tidegate_core::store::{Documents, StoreError};
use tidegate_core::{Refusal, Status, chain};
use tidegate_service::{Job, Submission, Submitted};
use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::documents::{BatchDocuments, BatchKey, BatchRequest, BatchState, Tally};
use crate::runpod::platform::endpoints::{Endpoint, EndpointRegistry};
use crate::runpod::platform::render;
use crate::runpod::platform::reply::ApiError;
use crate::runpod::platform::wire::JobRequest;

/// The pause before a failed operation is retried.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How often expired batches are removed. Clients do not see them before that.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10 * 60);
/// How many requests are submitted concurrently: the store commits them together.
const CONCURRENT_SUBMITS: usize = 64;

/// All batches. Cloning gives another handle.
#[derive(Clone)]
pub struct Batches {
    pub(super) documents: BatchDocuments,
    pub(super) endpoints: EndpointRegistry,
    /// Write lock for changes of batches; read lock for the submission of their jobs.
    pub(super) change_lock: Arc<RwLock<()>>,
    /// The results so far of unfinished batches.
    live: Arc<Mutex<HashMap<BatchKey, Tally>>>,
    tasks: TaskTracker,
    closing: CancellationToken,
}

impl Batches {
    /// The batches in these documents. None runs yet.
    pub fn new(documents: Arc<dyn Documents>, endpoints: EndpointRegistry) -> Self {
        let (change_lock, live) = (Arc::default(), Arc::default());
        Self {
            documents: BatchDocuments(documents),
            endpoints,
            change_lock,
            live,
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
        }
    }

    /// Continues the batches of the previous run. Call it after the jobs are resumed.
    pub async fn resume(&self) -> Result<(), StoreError> {
        let (_, batches) = self.documents.all().await?;
        for (key, batch) in batches {
            if batch.is_active() && batch.state != BatchState::Draft {
                self.run(key);
            }
        }
        let (batches, closing) = (self.clone(), self.closing.clone());
        self.tasks
            .spawn(async move { closing.run_until_cancelled(batches.sweep_loop()).await });
        Ok(())
    }

    /// Removes expired batches periodically.
    async fn sweep_loop(&self) {
        loop {
            if let Err(error) = self.sweep().await {
                tracing::warn!(error = %chain(&error), "failed to remove expired batches");
            }
            tokio::time::sleep(SWEEP_INTERVAL).await;
        }
    }

    async fn sweep(&self) -> Result<(), StoreError> {
        let (old, _) = self.documents.all().await?;
        for (key, batch) in old {
            // With the lock, no change is in progress that began before the batch expired.
            let _lock = self.change_lock.write().await;
            if self.documents.get(&key).await?.is_none() {
                self.documents.remove(&key, &batch).await?;
            }
        }
        Ok(())
    }

    /// Submits no more jobs. The next server process continues unfinished batches.
    pub async fn close(&self) {
        self.closing.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// The results so far of a running batch.
    pub(super) fn tally(&self, key: &BatchKey) -> Option<Tally> {
        self.with(|live| live.get(key).copied())
    }

    /// Runs a batch in its own task.
    pub(super) fn run(&self, key: BatchKey) {
        let batches = self.clone();
        self.with(|live| live.insert(key.clone(), Tally::default()));
        self.tasks.spawn(async move {
            let closing = batches.closing.clone();
            let work = async {
                while let Err(error) = batches.work(&key).await {
                    tracing::error!(batch = key.id, error = %chain(&error), "failed to run batch, retrying");
                    tokio::time::sleep(RETRY_PAUSE).await;
                    batches.with(|live| live.insert(key.clone(), Tally::default()));
                }
            };
            closing.run_until_cancelled(work).await;
            batches.with(|live| live.remove(&key));
        });
    }

    fn with<R>(&self, f: impl FnOnce(&mut HashMap<BatchKey, Tally>) -> R) -> R {
        f(&mut self.live.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Submits all requests and waits for the end of the last job.
    async fn work(&self, key: &BatchKey) -> Result<(), StoreError> {
        let Some(batch) = self.documents.get(key).await? else {
            return Ok(());
        };
        // A removed endpoint may be added again; its batches continue then.
        let Some(endpoint) = self.endpoints.get(&key.endpoint) else {
            return Ok(());
        };
        let jobs = batch
            .numbers()
            .map(|number| self.job_of(key, number, &endpoint));
        let (mut jobs, mut running) = (
            stream::iter(jobs).buffered(CONCURRENT_SUBMITS),
            FuturesUnordered::new(),
        );
        while let Some(job) = jobs.try_next().await? {
            running.extend(job.map(|(number, job)| async move {
                job.ended().await;
                (number, render::job(&job.snapshot()))
            }));
        }
        while let Some((number, result)) = running.next().await {
            self.finish_request(key, number, result).await?;
        }
        let _lock = self.change_lock.write().await;
        if let Some(mut batch) = self.documents.get(key).await? {
            batch.over_at = Some(Timestamp::now());
            batch.tally = self.tally(key).unwrap_or_default();
            self.documents.put(key, &batch).await?;
        }
        Ok(())
    }

    /// The job of a request, unless the request has a result.
    async fn job_of(
        &self,
        key: &BatchKey,
        number: u32,
        endpoint: &Endpoint,
    ) -> Result<Option<(u32, Arc<Job>)>, StoreError> {
        match self.documents.request(key, number).await? {
            None => {}
            Some(BatchRequest::Finished(result)) => self.count(key, &result),
            Some(BatchRequest::Pending(body)) => {
                match self.submit_request(key, number, endpoint, &body).await? {
                    Ok(job) => return Ok(Some((number, job))),
                    Err(result) => self.finish_request(key, number, result).await?,
                }
            }
        }
        Ok(None)
    }

    /// Submits a request. Returns its job, or the result of a request that cannot become a job.
    async fn submit_request(
        &self,
        key: &BatchKey,
        number: u32,
        endpoint: &Endpoint,
        body: &RawValue,
    ) -> Result<Result<Arc<Job>, Bytes>, StoreError> {
        let id = key.request(number);
        loop {
            // With the lock, the batch is not canceled between this check and the submission.
            let lock = self.change_lock.read().await;
            let gone = self.endpoints.get(&key.endpoint).is_none();
            let cancelled = gone
                || self
                    .documents
                    .get(key)
                    .await?
                    .is_none_or(|batch| batch.state == BatchState::Cancelled);
            let unavailable = |refusal: Refusal| StoreError::Unavailable(refusal.to_string());
            let known = endpoint.jobs.find(&key.account, &id).await;
            if let Some(job) = known.map_err(unavailable)? {
                if cancelled && job.status() == Status::Queued {
                    let canceled = endpoint.cancel(&key.account, &id).await;
                    canceled.map_err(unavailable)?;
                }
                return Ok(Ok(job));
            }
            if cancelled {
                return Ok(Err(render::summary(id.as_str(), "CANCELLED")));
            }
            match submit(key, number, endpoint, body).await {
                Ok(job) => return Ok(Ok(job)),
                Err(error) if error.status() == StatusCode::BAD_REQUEST => {
                    return Ok(Err(render::failed(id.as_str(), &error.to_string())));
                }
                Err(error) => {
                    tracing::debug!(batch = key.id, %error, "batch request not accepted yet, retrying")
                }
            }
            drop(lock);
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Stores the result of a request, as clients see it.
    async fn finish_request(
        &self,
        key: &BatchKey,
        number: u32,
        result: Bytes,
    ) -> Result<(), StoreError> {
        let result = RawValue::from_string(String::from_utf8_lossy(&result).into_owned())
            .map_err(|error| StoreError::Invalid(error.to_string()))?;
        self.count(key, &result);
        self.documents
            .put_request(key, number, &BatchRequest::Finished(result))
            .await
    }

    fn count(&self, key: &BatchKey, result: &RawValue) {
        let status = render::status_of(result.get()).unwrap_or_default();
        self.with(|live| live.entry(key.clone()).or_default().count(&status));
    }
}

async fn submit(
    key: &BatchKey,
    number: u32,
    endpoint: &Endpoint,
    body: &RawValue,
) -> Result<Arc<Job>, ApiError> {
    let wanted = JobRequest::of_batch(&Bytes::copy_from_slice(body.get().as_bytes()), &key.id)?;
    let submission = endpoint.submission(&key.account, wanted, &HeaderMap::new())?;
    let submission = Submission {
        id: Some(key.request(number)),
        ..submission
    };
    Ok(match endpoint.jobs.submit(submission).await? {
        Submitted::New(ticket) => ticket.detach(),
        Submitted::Running(job) | Submitted::Ended(job) => job,
    })
}

#[cfg(test)]
mod tests {
    use tidegate_core::Account;
    use tidegate_store::MemoryDocuments;

    use super::super::documents::{BATCHES, Batch, REQUESTS};
    use super::*;
    use crate::runpod::platform::endpoints::EndpointFactory;

    #[tokio::test(start_paused = true)]
    async fn expired_batches_are_removed_with_their_requests() {
        let documents = Arc::new(MemoryDocuments::default());
        let factory = EndpointFactory {
            open: Box::new(|_| panic!("the test opens no endpoint")),
            close: Box::new(|_| {}),
        };
        let batches = Batches::new(documents.clone(), EndpointRegistry::new(None, factory));
        batches.resume().await.unwrap();
        let key = |id: &str| BatchKey {
            account: Account::ANONYMOUS,
            endpoint: "echo".to_owned(),
            id: id.to_owned(),
        };
        let days_ago = |days: i64| Timestamp::now() - jiff::SignedDuration::from_hours(24 * days);
        for (id, days) in [("batch-old", 8), ("batch-young", 6)] {
            let mut batch = Batch::new(None);
            batch.created_at = days_ago(days);
            let request = BatchRequest::Pending(RawValue::from_string("{}".to_owned()).unwrap());
            batches
                .documents
                .put_request(&key(id), batch.next_number(), &request)
                .await
                .unwrap();
            batches.documents.put(&key(id), &batch).await.unwrap();
        }
        assert!(
            batches
                .documents
                .get(&key("batch-old"))
                .await
                .unwrap()
                .is_none(),
            "clients do not see it"
        );
        tokio::time::sleep(SWEEP_INTERVAL + Duration::from_secs(1)).await;
        let mut left = Vec::new();
        for namespace in [BATCHES, REQUESTS] {
            left.extend(
                documents
                    .all(namespace, "")
                    .await
                    .unwrap()
                    .into_iter()
                    .map(|(name, _)| name),
            );
        }
        assert_eq!(left, ["~/echo/batch-young", "~/echo/batch-young/00000"]);
        batches.close().await;
    }
}
