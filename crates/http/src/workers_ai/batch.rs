//! `?queueRequest=true`: requests that run from the durable queue, under one id that clients poll.
//!
//! Each request is one job, or several for embeddings of a model that takes one text. The document of a
//! batch is stored after its jobs: a client that gets an id finds all results, also after a restart.

use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tidegate_core::inference::{InferenceAnswer, InferenceRequest};
use tidegate_core::model_interface::MappedInput;
use tidegate_core::store::{Documents, StoreError};
use tidegate_core::text_generation::Usage;
use tidegate_core::{Account, JobId, Refusal, Status, chain};
use tidegate_service::{ServedModel, Snapshot};

use super::AppState;
use super::error::WorkersAiError;
use super::parse::{extra_embedding_inputs, extra_text_inputs, parse_run_for};
use super::render::answer_result;
use super::run::open;
use super::wire::{BatchResponse, BatchResult, BatchStatus, Envelope, ErrorItem};
use crate::access::Identity;
use crate::inference::{
    InferenceError, InferenceModel, RefusalKind, TextRules, answer_of_output, embeddings_of,
    failure, output_value,
};
use crate::openai::parse_text::field;
use crate::shared::json_fields::JsonFields;
use crate::shared::parse_body::parse_object;
use crate::shared::response::json;

const NAMESPACE: &str = "workers-ai-batches";
/// The largest body of a batch, in bytes.
const MAX_BODY: usize = 10_000_000;
const MAX_REQUESTS: usize = 1000;
/// How many jobs are stored at the same time: the store commits them together.
const CONCURRENT: usize = 32;
/// How long the document of a batch is kept. Its results are kept as long as other jobs.
const KEEP: SignedDuration = SignedDuration::from_hours(7 * 24);
const NOT_DURABLE: &str = "`queueRequest` needs a store that survives a restart: start the server with `--data-dir`, or with `--postgres`";

/// A batch as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct WorkersAiBatch {
    /// The model, `owner/name`.
    model: String,
    created_at: Timestamp,
    items: Vec<BatchItem>,
}

#[derive(Debug, Serialize, Deserialize)]
struct BatchItem {
    external_reference: Option<Value>,
    work: ItemWork,
}

/// What the jobs of a request are for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ItemWork {
    Text(TextRules),
    Embeddings {
        texts: usize,
        jobs: usize,
    },
    Output,
    /// The request was not valid and has no job.
    Refused(ErrorItem),
}

impl ItemWork {
    fn n_jobs(&self) -> usize {
        match self {
            Self::Text(_) | Self::Output => 1,
            Self::Embeddings { jobs, .. } => *jobs,
            Self::Refused(_) => 0,
        }
    }
}

/// Whether a body only has the id of a batch.
pub(super) fn is_poll(body: &[u8]) -> bool {
    let fields: Option<JsonFields<'_>> = parse_object(body).ok().flatten();
    fields.is_some_and(|fields| fields.raw("request_id").is_some() && fields.iter().count() == 1)
}

/// Creates a batch, or answers how far one is.
pub(super) async fn queue_or_poll(
    state: &AppState,
    caller: &Identity,
    served: &ServedModel,
    name: &str,
    body: &Bytes,
) -> Result<Response, WorkersAiError> {
    let documents = state.config.documents.as_deref();
    let documents = documents.ok_or_else(|| WorkersAiError::not_configured(NOT_DURABLE))?;
    let request = BatchCall {
        state,
        documents,
        account: &caller.account,
        name,
    };
    let fields: JsonFields<'_> = parse_object(body)?.unwrap_or_default();
    if let Some(id) = field::<String>(&fields, "request_id")? {
        return request.poll(served.name(), &id).await;
    }
    if body.len() > MAX_BODY {
        let message = format!("a batch has at most {MAX_BODY} bytes");
        return Err(WorkersAiError::too_large(message));
    }
    let items: Vec<&RawValue> = match field(&fields, "requests")? {
        Some(items) => items,
        // One request, as without `queueRequest`.
        None => vec![
            serde_json::from_slice(body)
                .map_err(|_| WorkersAiError::invalid("the body has no `requests`"))?,
        ],
    };
    if items.is_empty() || items.len() > MAX_REQUESTS {
        let message = format!("`requests` must have 1 to {MAX_REQUESTS} requests");
        return Err(WorkersAiError::invalid(message));
    }
    let model = open(served, caller).await?;
    request.create(&model, served.name(), &items).await
}

struct BatchCall<'a> {
    state: &'a AppState,
    documents: &'a dyn Documents,
    account: &'a Account,
    /// The model as the client names it.
    name: &'a str,
}

impl BatchCall<'_> {
    async fn create(
        &self,
        model: &InferenceModel,
        model_name: &str,
        items: &[&RawValue],
    ) -> Result<Response, WorkersAiError> {
        self.remove_expired().await?;
        let (id, n_items) = (new_id(), items.len());
        let mut queued = Vec::with_capacity(n_items);
        for (chunk_number, chunk) in items.chunks(CONCURRENT).enumerate() {
            let mut chunk_jobs = Vec::with_capacity(chunk.len());
            for (at, item) in chunk.iter().enumerate() {
                let index = chunk_number * CONCURRENT + at;
                chunk_jobs.push(queue_item(model, &id, index, item));
            }
            queued.extend(join_all(chunk_jobs).await);
        }
        let items: Result<Vec<BatchItem>, WorkersAiError> = queued.into_iter().collect();
        let stored = match items {
            Ok(items) => self.store(&id, model_name, items).await,
            Err(error) => Err(error),
        };
        if let Err(error) = stored {
            // The client gets no id, so the jobs would run in vain.
            self.cancel(&id, n_items).await;
            return Err(error);
        }
        let status = BatchStatus {
            status: "queued",
            request_id: &id,
            model: self.name,
        };
        Ok(json(StatusCode::OK, Envelope::of(status)))
    }

    async fn poll(&self, model_name: &str, id: &str) -> Result<Response, WorkersAiError> {
        let found = self.documents.fetch(NAMESPACE, &self.key(id)).await;
        let batch: WorkersAiBatch = match found.map_err(store_error)? {
            Some(json) => serde_json::from_slice(&json).map_err(|error| {
                store_error(StoreError::Corrupt(format!("batch `{id}`: {error}")))
            })?,
            None => return Err(WorkersAiError::batch_not_found(id)),
        };
        if batch.model != model_name {
            return Err(WorkersAiError::batch_not_found(id));
        }
        let (mut responses, mut usage) = (Vec::with_capacity(batch.items.len()), None);
        for (index, item) in batch.items.into_iter().enumerate() {
            match self.jobs_of(id, index, &item.work).await? {
                ItemJobs::Open(status) => {
                    let is_waiting = index == 0 && status == Status::Queued;
                    let status = BatchStatus {
                        status: if is_waiting { "queued" } else { "running" },
                        request_id: id,
                        model: self.name,
                    };
                    return Ok(json(StatusCode::OK, Envelope::of(status)));
                }
                ItemJobs::Ended(jobs) => {
                    for job in &jobs {
                        usage = sum(usage, Usage::from_metrics(&job.metrics));
                    }
                    responses.push(response(index, item, &jobs));
                }
            }
        }
        let result = BatchResult { responses, usage };
        Ok(json(StatusCode::OK, Envelope::of(result)))
    }

    /// The jobs of a request, if all have ended.
    async fn jobs_of(
        &self,
        id: &str,
        index: usize,
        work: &ItemWork,
    ) -> Result<ItemJobs, WorkersAiError> {
        let mut ended = Vec::new();
        for part in 0..work.n_jobs() {
            let lookup = self.state.models.lookup();
            let job = match job_id(id, index, part) {
                Some(job) => lookup.get(self.account, &job).await?,
                None => None,
            };
            match job {
                Some(job) if !job.status().is_terminal() => {
                    return Ok(ItemJobs::Open(job.status()));
                }
                Some(job) => ended.push(job.snapshot()),
                // Expired.
                None => {}
            }
        }
        Ok(ItemJobs::Ended(ended))
    }

    async fn store(
        &self,
        id: &str,
        model: &str,
        items: Vec<BatchItem>,
    ) -> Result<(), WorkersAiError> {
        let batch = WorkersAiBatch {
            model: model.to_owned(),
            created_at: Timestamp::now(),
            items,
        };
        let json = serde_json::to_vec(&batch).expect("batches have string keys");
        let key = self.key(id);
        let stored = self.documents.put_new(NAMESPACE, &key, json.into());
        stored.await.map(|_| ()).map_err(store_error)
    }

    /// Cancels the first job of each request.
    async fn cancel(&self, id: &str, n_items: usize) {
        for job in (0..n_items).filter_map(|index| job_id(id, index, 0)) {
            // A job that is not canceled runs in vain, which does no harm.
            self.state
                .models
                .lookup()
                .cancel(self.account, &job)
                .await
                .ok();
        }
    }

    async fn remove_expired(&self) -> Result<(), WorkersAiError> {
        let all = self.documents.all(NAMESPACE, &self.key("")).await;
        for (name, json) in all.map_err(store_error)? {
            let batch = serde_json::from_slice::<WorkersAiBatch>(&json);
            let is_expired =
                batch.is_ok_and(|batch| Timestamp::now().duration_since(batch.created_at) > KEEP);
            if is_expired {
                let removed = self.documents.remove(NAMESPACE, &name).await;
                removed.map_err(store_error)?;
            }
        }
        Ok(())
    }

    fn key(&self, id: &str) -> String {
        // No account can have this name.
        let account = if self.account.is_anonymous() {
            "~"
        } else {
            self.account.as_str()
        };
        format!("{account}/{id}")
    }
}

enum ItemJobs {
    Open(Status),
    Ended(Vec<Snapshot>),
}

/// Queues the jobs of one request. A request that is not valid has an error in the results instead.
async fn queue_item(
    model: &InferenceModel,
    id: &str,
    index: usize,
    item: &RawValue,
) -> Result<BatchItem, WorkersAiError> {
    let fields: Result<JsonFields<'_>, _> = serde_json::from_str(item.get());
    let external_reference = match &fields {
        Ok(fields) => field(fields, "external_reference")?,
        Err(_) => None,
    };
    let prepared = match fields {
        Ok(_) => prepare(model, item),
        Err(_) => Err(WorkersAiError::invalid("a request must be an object")),
    };
    let work = match prepared {
        Err(error) => ItemWork::Refused(error.item()),
        Ok((work, inputs)) => match queue_jobs(model, id, index, &inputs).await {
            Ok(()) => work,
            Err(InferenceError::Refused(refused)) if refused.kind == RefusalKind::Invalid => {
                ItemWork::Refused(WorkersAiError::from(refused).item())
            }
            Err(error) => return Err(error.into()),
        },
    };
    Ok(BatchItem {
        external_reference,
        work,
    })
}

fn prepare(
    model: &InferenceModel,
    item: &RawValue,
) -> Result<(ItemWork, Vec<MappedInput>), WorkersAiError> {
    match parse_run_for(model.interface(), item.get().as_bytes())? {
        InferenceRequest::Text(request) => {
            let extra = extra_text_inputs(item.get().as_bytes())?;
            let (input, rules) = model.text_input(&request, &extra)?;
            Ok((ItemWork::Text(rules), vec![input]))
        }
        InferenceRequest::Embeddings(request) => {
            let extra = extra_embedding_inputs(item.get().as_bytes())?;
            let inputs = model.embedding_inputs(&request, &extra)?;
            let work = ItemWork::Embeddings {
                texts: request.texts.len(),
                jobs: inputs.len(),
            };
            Ok((work, inputs))
        }
        InferenceRequest::Inputs(mut input) => {
            input.remove("external_reference");
            let input = MappedInput {
                input,
                ..MappedInput::default()
            };
            Ok((ItemWork::Output, vec![input]))
        }
    }
}

async fn queue_jobs(
    model: &InferenceModel,
    id: &str,
    index: usize,
    inputs: &[MappedInput],
) -> Result<(), InferenceError> {
    for (part, input) in inputs.iter().enumerate() {
        if let Some(job) = job_id(id, index, part) {
            model.queue(job, input).await?;
        }
    }
    Ok(())
}

fn response(index: usize, item: BatchItem, jobs: &[Snapshot]) -> BatchResponse {
    let answer = answer(&item.work, jobs);
    BatchResponse {
        id: index,
        success: answer.is_ok(),
        errors: answer.as_ref().err().cloned().into_iter().collect(),
        result: answer.ok().map(|answer| answer_result(&answer)),
        external_reference: item.external_reference,
    }
}

fn answer(work: &ItemWork, jobs: &[Snapshot]) -> Result<InferenceAnswer, ErrorItem> {
    let failed = |error| WorkersAiError::from(error).item();
    if let ItemWork::Refused(error) = work {
        return Err(error.clone());
    }
    let Some(first) = jobs
        .first()
        .filter(|job| jobs.len() == work.n_jobs() && !job.data_removed)
    else {
        return Err(WorkersAiError::expired().item());
    };
    match work {
        ItemWork::Text(rules) => answer_of_output(first, rules).map_err(failed),
        ItemWork::Embeddings { texts, .. } => embeddings_of(jobs, *texts)
            .map(InferenceAnswer::Embeddings)
            .map_err(failed),
        ItemWork::Output | ItemWork::Refused(_) => match failure(first) {
            Some(error) => Err(failed(error)),
            None => Ok(InferenceAnswer::Output(output_value(first))),
        },
    }
}

fn sum(sum: Option<Usage>, usage: Option<Usage>) -> Option<Usage> {
    match (sum, usage) {
        (Some(sum), Some(usage)) => Some(sum.plus(usage)),
        (sum, usage) => sum.or(usage),
    }
}

fn job_id(batch: &str, index: usize, part: usize) -> Option<JobId> {
    JobId::parse(&format!("{batch}-{index}-{part}")).ok()
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

fn store_error(error: StoreError) -> WorkersAiError {
    tracing::error!(error = %chain(&error), "failed to use store");
    WorkersAiError::from(Refusal::StoreUnavailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_uuid() {
        let id = new_id();
        let lengths: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert!(job_id(&id, 999, 2047).is_some());
        assert_ne!(id, new_id());
    }

    #[test]
    fn only_an_id_is_a_poll() {
        assert!(is_poll(br#"{"request_id": "x"}"#));
        for other in [
            &br#"{"request_id": "x", "prompt": "y"}"#[..],
            b"{}",
            b"[",
            b"",
        ] {
            assert!(!is_poll(other));
        }
    }
}
