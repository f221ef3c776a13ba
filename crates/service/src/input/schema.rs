//! A model's OpenAPI document, parsed once per load of the model.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use tidegate_core::JobKind;
use tidegate_core::model_interface::ModelInterface;

use super::hints::{SchemaHints, without_hints};
use super::{InputValidator, OutputTypes};

/// The parts of a model's OpenAPI document that the job service needs.
pub struct ModelSchema {
    /// The document for clients.
    pub document: Arc<Bytes>,
    /// The document as the model's child sent it, with hints for the server.
    pub source: Arc<Bytes>,
    /// Whether the model declares that its responses can be streamed.
    pub streaming: bool,
    /// Whether the event stream of a prediction can be followed: it is declared, or the function
    /// is a generator.
    pub can_stream: bool,
    /// Whether the model yields its output value by value, with or without declared streaming.
    pub yields_values: bool,
    /// Whether the yielded values are files.
    pub yields_files: bool,
    /// Whether the model is a Runpod handler that is known not to be a generator. This is known
    /// only after its script has run.
    pub never_yields: bool,
    /// Whether the model can be trained.
    pub trainable: bool,
    /// What the model can be asked for.
    pub interface: ModelInterface,
    /// The declared types of the output of a prediction.
    pub(crate) output_types: OutputTypes,
    prediction: InputValidator,
    training: Option<InputValidator>,
}

/// Why the document cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SchemaError {
    #[error("the model's schema is not JSON")]
    NotJson(#[source] serde_json::Error),
    #[error("cannot use `{component}` of the model's schema: {reason}")]
    Component {
        component: &'static str,
        reason: String,
    },
}

impl ModelSchema {
    pub(crate) fn read(source: Arc<Bytes>) -> Result<Self, SchemaError> {
        let root: Value = serde_json::from_slice(&source).map_err(SchemaError::NotJson)?;
        let hints = SchemaHints::of(&root);
        let document = without_hints(&source, &root).map_err(SchemaError::NotJson)?;
        let validator = |component| {
            let Some(schema) = root.pointer(&format!("/components/schemas/{component}")) else {
                return Ok(None);
            };
            InputValidator::compile(schema, &root, hints.optional(component))
                .map(Some)
                .map_err(|reason| SchemaError::Component { component, reason })
        };
        let prediction = validator("Input")?.unwrap_or_default();
        let training = validator("TrainingInput")?;
        let streaming =
            root.pointer("/paths/~1predictions/post/x-cog-streaming") == Some(&Value::Bool(true));
        let yields_values = root
            .pointer("/components/schemas/Output/x-cog-array-type")
            .and_then(Value::as_str)
            == Some("iterator");
        let item = root
            .pointer("/components/schemas/Output/items/format")
            .and_then(Value::as_str);
        let yields_files = yields_values && item == Some("uri");
        let call_kind = root
            .pointer("/x-runpod-handler/shape")
            .and_then(Value::as_str);
        let never_yields = call_kind.is_some_and(|kind| !kind.ends_with("generator"));
        let output_types = root
            .pointer("/components/schemas/Output")
            .map(OutputTypes::of)
            .unwrap_or_default();
        Ok(Self {
            output_types,
            streaming,
            can_stream: streaming || yields_values || hints.yields,
            yields_values,
            yields_files,
            never_yields,
            trainable: training.is_some(),
            interface: ModelInterface::read(&root),
            prediction,
            training,
            document,
            source,
        })
    }

    /// The validator for one kind of job. A model without training validates a training as a
    /// prediction, as Cog does.
    pub(crate) fn validator(&self, kind: JobKind) -> &InputValidator {
        match (kind, &self.training) {
            (JobKind::Training, Some(training)) => training,
            (JobKind::Training, None) | (JobKind::Prediction, _) => &self.prediction,
        }
    }
}
