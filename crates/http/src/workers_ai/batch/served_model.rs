//! The requests of a batch for a model of this server.

use async_trait::async_trait;
use serde_json::value::RawValue;
use tidegate_core::JobId;
use tidegate_core::inference::InferenceRequest;
use tidegate_core::model_interface::MappedInput;
use tidegate_core::port::BoxFuture;

use super::create::BatchTarget;
use super::{BatchItem, ItemWork};
use crate::inference::{InferenceError, InferenceModel};
use crate::openai::parse_text::field;
use crate::shared::json_fields::JsonFields;
use crate::workers_ai::error::WorkersAiError;
use crate::workers_ai::parse::{extra_embedding_inputs, parse_run_for};

#[async_trait]
impl BatchTarget for InferenceModel {
    fn prepare(&self, request: &RawValue) -> Result<(BatchItem, Vec<MappedInput>), WorkersAiError> {
        prepare_item(self, request)
    }

    async fn queue(&self, id: JobId, input: &MappedInput) -> Result<(), InferenceError> {
        InferenceModel::queue(self, id, input).await
    }

    fn spawn(&self, work: BoxFuture<()>) {
        InferenceModel::spawn(self, work);
    }
}

fn prepare_item(
    model: &InferenceModel,
    request: &RawValue,
) -> Result<(BatchItem, Vec<MappedInput>), WorkersAiError> {
    let fields: Result<JsonFields<'_>, _> = serde_json::from_str(request.get());
    let external_reference = match &fields {
        Ok(fields) => field(fields, "external_reference")?,
        Err(_) => None,
    };
    let prepared = match fields {
        Ok(_) => prepare_work(model, request.get().as_bytes()),
        Err(_) => Err(WorkersAiError::invalid("a request must be an object")),
    };
    let (work, inputs) =
        prepared.unwrap_or_else(|error| (ItemWork::Refused(error.item()), Vec::new()));
    let item = BatchItem {
        external_reference,
        work,
    };
    Ok((item, inputs))
}

fn prepare_work(
    model: &InferenceModel,
    request: &[u8],
) -> Result<(ItemWork, Vec<MappedInput>), WorkersAiError> {
    match parse_run_for(model.interface(), request)? {
        InferenceRequest::Text(text) => {
            let (input, rules) = model.text_input(&text)?;
            Ok((ItemWork::Text(rules), vec![input]))
        }
        InferenceRequest::Embeddings(embeddings) => {
            let extra = extra_embedding_inputs(request)?;
            let inputs = model.embedding_inputs(&embeddings, &extra)?;
            let work = ItemWork::Embeddings {
                texts: embeddings.texts.len(),
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
