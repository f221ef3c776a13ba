//! The state of a batch, and its results when all jobs have ended.

use axum::http::StatusCode;
use axum::response::Response;
use tidegate_core::inference::InferenceAnswer;
use tidegate_core::text_generation::{TextErrorKind, Usage};
use tidegate_core::{Account, Status};
use tidegate_service::{ModelRegistry, Snapshot};

use super::documents::WorkersAiBatches;
use super::{BatchItem, ItemWork, job_id};
use crate::gateway::QueuedError;
use crate::inference::{answer_of_output, embeddings_of, failure, output_value};
use crate::shared::response::json;
use crate::workers_ai::error::WorkersAiError;
use crate::workers_ai::render::answer_result;
use crate::workers_ai::wire::{BatchResponse, BatchResult, BatchStatus, Envelope, ErrorItem};

/// A request for the state of a batch.
pub(super) struct BatchPoll<'a> {
    pub(super) documents: &'a WorkersAiBatches,
    pub(super) models: &'a ModelRegistry,
    pub(super) account: &'a Account,
    /// The model as the client names it.
    pub(super) name: &'a str,
    /// The model, `owner/name`.
    pub(super) model: &'a str,
}

impl BatchPoll<'_> {
    pub(super) async fn answer(&self, id: &str) -> Result<Response, WorkersAiError> {
        let found = self.documents.get(self.account, id).await?;
        let Some(batch) = found.filter(|batch| batch.model == self.model) else {
            return Err(WorkersAiError::batch_not_found(id));
        };
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
            let lookup = self.models.lookup();
            match lookup.get(self.account, &job_id(id, index, part)?).await? {
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
}

enum ItemJobs {
    Open(Status),
    Ended(Vec<Snapshot>),
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
        ItemWork::Routed => match failure(first) {
            Some(error) if error.kind == TextErrorKind::Failed => {
                let QueuedError { number, message } = QueuedError::parse(&error.message);
                Err(ErrorItem {
                    code: number,
                    message,
                })
            }
            Some(error) => Err(failed(error)),
            None => Ok(InferenceAnswer::Output(output_value(first))),
        },
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
