//! Runs batches: their requests become jobs, and what becomes of these is written down with the batch.
//!
//! One task for each batch that is not over. It can be ended and begun again at any moment: a request whose job is
//! known is not brought again.

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
use tidegate_core::{Status, chain};
use tidegate_service::{Job, Submission, Submitted};
use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::documents::{BatchDocuments, BatchKey, BatchRequest, BatchState, Tally};
use crate::runpod::platform::endpoints::{Endpoint, EndpointRegistry};
use crate::runpod::platform::render;
use crate::runpod::platform::reply::ApiError;
use crate::runpod::platform::wire::JobRequest;

/// The pause before something is tried again that the server cannot do now.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How often is looked for batches that are too old. Nobody is shown them meanwhile.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10 * 60);
/// How many requests are brought at once: a store commits them together.
const CONCURRENT_SUBMITS: usize = 64;

/// All batches. Cloning gives another handle.
#[derive(Clone)]
pub struct Batches {
    pub(super) documents: BatchDocuments,
    pub(super) endpoints: EndpointRegistry,
    /// Who changes batches takes turns, also with who brings their jobs.
    pub(super) changing: Arc<RwLock<()>>,
    /// How the requests of batches ended that are not over.
    live: Arc<Mutex<HashMap<BatchKey, Tally>>>,
    tasks: TaskTracker,
    closing: CancellationToken,
}

impl Batches {
    /// Those that are kept here. Nothing runs yet.
    pub fn new(documents: Arc<dyn Documents>, endpoints: EndpointRegistry) -> Self {
        let (changing, live) = (Arc::default(), Arc::default());
        Self {
            documents: BatchDocuments(documents),
            endpoints,
            changing,
            live,
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
        }
    }

    /// Goes on with what a server before this one has left. To be called when its jobs are known again.
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

    /// Removes batches that are too old, from now on.
    async fn sweep_loop(&self) {
        loop {
            if let Err(error) = self.sweep().await {
                tracing::warn!(error = %chain(&error), "batches that are too old could not be removed");
            }
            tokio::time::sleep(SWEEP_INTERVAL).await;
        }
    }

    async fn sweep(&self) -> Result<(), StoreError> {
        let (old, _) = self.documents.all().await?;
        for (key, batch) in old {
            // Whoever has begun to change it when it was not too old is done with that.
            let _lock = self.changing.write().await;
            if self.documents.get(&key).await?.is_none() {
                self.documents.remove(&key, &batch).await?;
            }
        }
        Ok(())
    }

    /// Brings no more jobs. What is not over is left to the next server.
    pub async fn close(&self) {
        self.closing.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// How the requests of a batch ended so far, while it runs here.
    pub(super) fn tally(&self, key: &BatchKey) -> Option<Tally> {
        self.with(|live| live.get(key).copied())
    }

    /// Runs a batch, in a task of its own.
    pub(super) fn run(&self, key: BatchKey) {
        let batches = self.clone();
        self.with(|live| live.insert(key.clone(), Tally::default()));
        self.tasks.spawn(async move {
            let closing = batches.closing.clone();
            let work = async {
                while let Err(error) = batches.work(&key).await {
                    tracing::error!(batch = key.id, error = %chain(&error), "a batch cannot go on and is tried again");
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

    /// From the first request to the end of the last.
    async fn work(&self, key: &BatchKey) -> Result<(), StoreError> {
        let Some(batch) = self.documents.get(key).await? else {
            return Ok(());
        };
        // An endpoint that was removed may come again, and with it its batches.
        let Some(endpoint) = self.endpoints.get(&key.endpoint) else {
            return Ok(());
        };
        let begun = batch
            .numbers()
            .map(|number| self.begun(key, number, &endpoint));
        let (mut begun, mut running) = (
            stream::iter(begun).buffered(CONCURRENT_SUBMITS),
            FuturesUnordered::new(),
        );
        while let Some(job) = begun.try_next().await? {
            running.extend(job.map(|(number, job)| async move {
                job.ended().await;
                (number, render::job(&job.snapshot()))
            }));
        }
        while let Some((number, result)) = running.next().await {
            self.over(key, number, result).await?;
        }
        let _lock = self.changing.write().await;
        if let Some(mut batch) = self.documents.get(key).await? {
            batch.over_at = Some(Timestamp::now());
            batch.tally = self.tally(key).unwrap_or_default();
            self.documents.put(key, &batch).await?;
        }
        Ok(())
    }

    /// A request with its job, unless it is over.
    async fn begun(
        &self,
        key: &BatchKey,
        number: u32,
        endpoint: &Endpoint,
    ) -> Result<Option<(u32, Arc<Job>)>, StoreError> {
        match self.documents.request(key, number).await? {
            None => {}
            Some(BatchRequest::Finished(result)) => self.count(key, &result),
            Some(BatchRequest::Pending(body)) => {
                match self.begin(key, number, endpoint, &body).await? {
                    Ok(job) => return Ok(Some((number, job))),
                    Err(result) => self.over(key, number, result).await?,
                }
            }
        }
        Ok(None)
    }

    /// The job of a request; or what became of it, when it never will be one.
    async fn begin(
        &self,
        key: &BatchKey,
        number: u32,
        endpoint: &Endpoint,
        body: &RawValue,
    ) -> Result<Result<Arc<Job>, Bytes>, StoreError> {
        let id = key.request(number);
        loop {
            // Nobody cancels the batch between the look and the submission.
            let lock = self.changing.read().await;
            let gone = self.endpoints.get(&key.endpoint).is_none();
            let cancelled = gone
                || self
                    .documents
                    .get(key)
                    .await?
                    .is_none_or(|batch| batch.state == BatchState::Cancelled);
            let known = endpoint.jobs.find(&key.account, &id).await;
            if let Some(job) = known {
                if cancelled && job.status() == Status::Queued {
                    endpoint.cancel(&key.account, &id).await;
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
                    tracing::debug!(batch = key.id, %error, "a request of a batch waits")
                }
            }
            drop(lock);
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// A request is over, as clients are result.
    async fn over(&self, key: &BatchKey, number: u32, result: Bytes) -> Result<(), StoreError> {
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
    async fn batches_that_grow_old_while_the_server_runs_are_removed_with_their_requests() {
        let documents = Arc::new(MemoryDocuments::default());
        let factory = EndpointFactory {
            open: Box::new(|_| panic!("nobody opens an endpoint")),
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
            "nobody is shown it"
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
