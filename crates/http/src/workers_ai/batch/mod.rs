//! `?queueRequest=true`: requests that run from the durable queue, under one id that clients poll.
//!
//! Each request is one job, or several for embeddings of a model that takes one text. The document of a
//! batch is stored after its jobs: a client that gets an id finds all results, also after a restart.

mod create;
mod documents;
mod poll;
mod served_model;

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tidegate_core::{Account, JobId};
use tidegate_service::{ModelRegistry, ServedModel};

use super::AppState;
use super::error::WorkersAiError;
use super::run::open;
use super::wire::{BatchStatus, Envelope, ErrorItem};
use crate::access::Identity;
use crate::inference::TextRules;
use crate::openai::parse_text::field;
use crate::shared::json_fields::JsonFields;
use crate::shared::parse_body::parse_object;
use crate::shared::response::json;
use create::BatchCreation;
pub(crate) use create::BatchTarget;
pub(crate) use documents::WorkersAiBatches;
use poll::BatchPoll;

/// The largest body of a batch, in bytes.
pub(crate) const MAX_BODY: usize = 10_000_000;
const MAX_REQUESTS: usize = 1000;
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
pub(crate) struct BatchItem {
    pub(crate) external_reference: Option<Value>,
    pub(crate) work: ItemWork,
}

/// What the jobs of a request are for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ItemWork {
    Text(TextRules),
    Embeddings {
        texts: usize,
        jobs: usize,
    },
    Output,
    /// The answer of a backend of the router.
    Routed,
    /// The request was not valid and has no job.
    Refused(ErrorItem),
}

impl ItemWork {
    fn n_jobs(&self) -> usize {
        match self {
            Self::Text(_) | Self::Output | Self::Routed => 1,
            Self::Embeddings { jobs, .. } => *jobs,
            Self::Refused(_) => 0,
        }
    }
}

/// Whether a body only has the id of a batch.
pub(crate) fn is_poll(body: &[u8]) -> bool {
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
    let documents = state.batches.as_ref();
    let documents = documents.ok_or_else(|| WorkersAiError::not_configured(NOT_DURABLE))?;
    let batches = AccountBatches {
        documents,
        models: &state.models,
        account: &caller.account,
        name,
        model: served.name(),
    };
    match BatchBody::parse(body)? {
        BatchBody::Poll(id) => batches.poll(&id).await,
        BatchBody::New(items) => {
            let target = Arc::new(open(served, caller).await?);
            batches.create(target, &items).await
        }
    }
}

/// What the body of a request with `queueRequest` asks for.
pub(crate) enum BatchBody<'a> {
    /// The results of the batch with this id.
    Poll(String),
    /// A batch of these requests.
    New(Vec<&'a RawValue>),
}

impl<'a> BatchBody<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, WorkersAiError> {
        let fields: JsonFields<'_> = parse_object(body)?.unwrap_or_default();
        if let Some(id) = field::<String>(&fields, "request_id")? {
            return Ok(Self::Poll(id));
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
        Ok(Self::New(items))
    }
}

/// The batches of one account for one model.
pub(crate) struct AccountBatches<'a> {
    pub(crate) documents: &'a Arc<WorkersAiBatches>,
    /// Finds the jobs.
    pub(crate) models: &'a ModelRegistry,
    pub(crate) account: &'a Account,
    /// The model as the client names it.
    pub(crate) name: &'a str,
    /// The model as batches are stored with it.
    pub(crate) model: &'a str,
}

impl AccountBatches<'_> {
    /// Creates a batch of these requests.
    pub(crate) async fn create(
        &self,
        target: Arc<dyn BatchTarget>,
        items: &[&RawValue],
    ) -> Result<Response, WorkersAiError> {
        let creation = BatchCreation {
            documents: Arc::clone(self.documents),
            models: self.models.clone(),
            account: self.account.clone(),
            target,
            model_name: self.model.to_owned(),
        };
        let id = creation.run(items).await?;
        let status = BatchStatus {
            status: "queued",
            request_id: &id,
            model: self.name,
        };
        Ok(json(StatusCode::OK, Envelope::of(status)))
    }

    /// Answers with the results of a batch, or how far it is.
    pub(crate) async fn poll(&self, id: &str) -> Result<Response, WorkersAiError> {
        let poll = BatchPoll {
            documents: self.documents,
            models: self.models,
            account: self.account,
            name: self.name,
            model: self.model,
        };
        poll.answer(id).await
    }
}

/// The id of a job of a batch.
fn job_id(batch: &str, index: usize, part: usize) -> Result<JobId, WorkersAiError> {
    JobId::parse(&format!("{batch}-{index}-{part}"))
        .map_err(|_| WorkersAiError::batch_not_found(batch))
}

#[cfg(test)]
mod tests {
    use super::*;

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
