//! Embeddings: one job for all texts, or one job for each.

use serde_json::{Map, Value};
use tidegate_core::inference::{EmbeddingRequest, Embeddings};
use tidegate_core::model_interface::{MappedInput, vectors_of};
use tidegate_core::text_generation::{TextError, TextErrorKind, Usage};
use tidegate_service::Snapshot;

use super::{InferenceError, InferenceModel, failure};

impl InferenceModel {
    /// The inputs of the jobs for a request. Those fields of `extra` that are inputs of the model are passed
    /// on to each.
    pub(crate) fn embedding_inputs(
        &self,
        request: &EmbeddingRequest,
        extra: &Map<String, Value>,
    ) -> Result<Vec<MappedInput>, InferenceError> {
        let mut inputs = self.interface().embedding_inputs(request)?;
        for input in &mut inputs {
            self.add_extra_inputs(input, extra);
        }
        Ok(inputs)
    }

    /// Computes the embeddings of texts. The jobs of a model that takes one text run one after the other, so
    /// that a long list leaves slots to other clients.
    pub(crate) async fn embed(
        &self,
        request: &EmbeddingRequest,
        extra: &Map<String, Value>,
    ) -> Result<Embeddings, InferenceError> {
        let inputs = self.embedding_inputs(request, extra)?;
        let mut jobs = Vec::with_capacity(inputs.len());
        for input in &inputs {
            // A model without capacity refuses the first job. The others wait: a refusal in the middle would
            // discard the work so far, and the client would begin anew.
            let policies = if jobs.is_empty() {
                self.api.policies()
            } else {
                self.queued()
            };
            let mut ticket = self.start_with(input, policies).await?;
            ticket.ended().await;
            let over = ticket.job().snapshot();
            if let Some(error) = failure(&over) {
                return Err(error.into());
            }
            jobs.push(over);
        }
        Ok(embeddings_of(&jobs, request.texts.len())?)
    }
}

/// The embeddings that jobs have returned for this many texts.
pub(crate) fn embeddings_of(jobs: &[Snapshot], n_texts: usize) -> Result<Embeddings, TextError> {
    let mut embeddings = Embeddings::default();
    for job in jobs {
        if let Some(error) = failure(job) {
            return Err(error);
        }
        let output = job.output.as_deref().unwrap_or(b"null");
        let value = serde_json::from_slice(output).unwrap_or_default();
        let vectors =
            vectors_of(&value).ok_or_else(|| failed("the model returned no vectors".to_owned()))?;
        embeddings.vectors.extend(vectors);
        embeddings.usage = match (embeddings.usage, Usage::from_metrics(&job.metrics)) {
            (Some(sum), Some(usage)) => Some(sum.plus(usage)),
            (sum, usage) => sum.or(usage),
        };
    }
    if embeddings.vectors.len() != n_texts {
        return Err(failed(format!(
            "the model returned {} vectors for {n_texts} texts",
            embeddings.vectors.len()
        )));
    }
    Ok(embeddings)
}

fn failed(message: String) -> TextError {
    TextError {
        kind: TextErrorKind::Failed,
        message,
    }
}
