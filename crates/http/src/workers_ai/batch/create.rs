//! Creates a batch: all of its jobs and its document, or nothing.
//!
//! The work is done in a task of its own. A request that is dropped in the middle because its client
//! disconnected would leave jobs whose results no client can ask for.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::value::RawValue;
use tidegate_core::model_interface::MappedInput;
use tidegate_core::port::BoxFuture;
use tidegate_core::{Account, JobId, Refusal};
use tidegate_service::ModelRegistry;
use tokio::sync::oneshot;

use super::documents::WorkersAiBatches;
use super::{BatchItem, ItemWork, WorkersAiBatch, job_id};
use crate::inference::{InferenceError, RefusalKind};
use crate::workers_ai::error::WorkersAiError;
use crate::workers_ai::wire::ErrorItem;

/// The model that the requests of a batch are for.
#[async_trait]
pub(crate) trait BatchTarget: Send + Sync {
    /// A request and the inputs of its jobs. One that is not valid has an error in the results instead.
    fn prepare(&self, request: &RawValue) -> Result<(BatchItem, Vec<MappedInput>), WorkersAiError>;

    /// Queues a job.
    async fn queue(&self, id: JobId, input: &MappedInput) -> Result<(), InferenceError>;

    /// Runs work that must not end with the request of a client.
    fn spawn(&self, work: BoxFuture<()>);
}

/// How many jobs are stored at the same time: the store commits them together.
const CONCURRENT: usize = 32;

/// A batch that is created.
pub(super) struct BatchCreation {
    pub(super) documents: Arc<WorkersAiBatches>,
    pub(super) models: ModelRegistry,
    pub(super) account: Account,
    pub(super) target: Arc<dyn BatchTarget>,
    /// The model, `owner/name`.
    pub(super) model_name: String,
}

/// The client that waits for the id of its batch.
type Client = oneshot::Sender<Result<String, WorkersAiError>>;

/// A job of a batch that is to be queued.
struct BatchJob {
    /// The index of its request.
    item: usize,
    id: JobId,
    input: MappedInput,
}

impl BatchCreation {
    /// Creates a batch and returns its id.
    pub(super) async fn run(self, requests: &[&RawValue]) -> Result<String, WorkersAiError> {
        let id = new_id();
        let (items, jobs) = self.prepare_all(&id, requests)?;
        let (client, created) = oneshot::channel();
        let target = Arc::clone(&self.target);
        target.spawn(Box::pin(async move {
            self.create(id, items, jobs, client).await
        }));
        // The task only disappears without an answer if it panics.
        created
            .await
            .unwrap_or_else(|_| Err(Refusal::StoreUnavailable.into()))
    }

    /// The requests and their jobs. A request that is not valid has an error in the results instead of jobs.
    fn prepare_all(
        &self,
        id: &str,
        requests: &[&RawValue],
    ) -> Result<(Vec<BatchItem>, Vec<BatchJob>), WorkersAiError> {
        let (mut items, mut jobs) = (Vec::with_capacity(requests.len()), Vec::new());
        for (index, request) in requests.iter().enumerate() {
            let (item, inputs) = self.target.prepare(request)?;
            items.push(item);
            for (part, input) in inputs.into_iter().enumerate() {
                jobs.push(BatchJob {
                    item: index,
                    id: job_id(id, index, part)?,
                    input,
                });
            }
        }
        Ok((items, jobs))
    }

    async fn create(self, id: String, items: Vec<BatchItem>, jobs: Vec<BatchJob>, client: Client) {
        let stored = match self.queue_all(&jobs, &client).await {
            Ok(invalid) => self.store(&id, items, invalid).await,
            Err(error) => Err(error),
        };
        if let Err(error) = stored {
            self.cancel(&jobs).await;
            // A client that has disconnected needs no answer.
            client.send(Err(error)).ok();
            return;
        }
        if client.send(Ok(id.clone())).is_err() {
            // The client has disconnected without the id, so no client can ask for the results.
            self.cancel(&jobs).await;
            // A document that remains expires; the error is logged.
            self.documents.remove(&self.account, &id).await.ok();
        }
        self.documents.sweep_if_due().await;
    }

    /// Queues all jobs. Returns the requests whose input is not valid.
    async fn queue_all(
        &self,
        jobs: &[BatchJob],
        client: &Client,
    ) -> Result<HashMap<usize, ErrorItem>, WorkersAiError> {
        let mut invalid = HashMap::new();
        for chunk in jobs.chunks(CONCURRENT) {
            if client.is_closed() {
                // Not sent to any client.
                return Err(WorkersAiError::from(Refusal::Closing));
            }
            let queueing = chunk
                .iter()
                .map(|job| self.target.queue(job.id.clone(), &job.input));
            // All of them, also after an error: a job that is being inserted could not be canceled.
            let queued = join_all(queueing).await;
            for (job, queued) in chunk.iter().zip(queued) {
                match queued {
                    Ok(()) => {}
                    Err(InferenceError::Refused(refused))
                        if refused.kind == RefusalKind::Invalid =>
                    {
                        invalid.insert(job.item, WorkersAiError::from(refused).item());
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        // The other jobs of such a request would run in vain.
        let in_vain = jobs.iter().filter(|job| invalid.contains_key(&job.item));
        self.cancel(in_vain).await;
        Ok(invalid)
    }

    async fn store(
        &self,
        id: &str,
        mut items: Vec<BatchItem>,
        invalid: HashMap<usize, ErrorItem>,
    ) -> Result<(), WorkersAiError> {
        for (index, error) in invalid {
            items[index].work = ItemWork::Refused(error);
        }
        let batch = WorkersAiBatch {
            model: self.model_name.clone(),
            created_at: Timestamp::now(),
            items,
        };
        self.documents.put(&self.account, id, &batch).await
    }

    /// Cancels jobs, as far as they exist.
    async fn cancel(&self, jobs: impl IntoIterator<Item = &BatchJob>) {
        let jobs: Vec<&BatchJob> = jobs.into_iter().collect();
        for chunk in jobs.chunks(CONCURRENT) {
            join_all(chunk.iter().map(|job| self.cancel_job(&job.id))).await;
        }
    }

    async fn cancel_job(&self, id: &JobId) {
        let lookup = self.models.lookup();
        if lookup.cancel(&self.account, id).await.is_err() {
            // The store does not work now. The job stops at least in this process.
            lookup.request_stop(&self.account, id);
        }
    }
}

/// A random id in the form of a UUID, which clients expect.
fn new_id() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system provides random bytes");
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_uuid() {
        let id = new_id();
        let lengths: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert!(job_id(&id, 999, 2047).is_ok());
        assert_ne!(id, new_id());
    }
}
