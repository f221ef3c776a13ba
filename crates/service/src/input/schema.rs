//! A model's OpenAPI document, read once per load of the model.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use tidegate_core::JobKind;

use super::InputValidator;

/// What the desk needs to know of a model's OpenAPI document.
pub struct ModelSchema {
    /// The document as the model's child sent it.
    pub document: Arc<Bytes>,
    /// Whether its answers can be streamed.
    pub streaming: bool,
    /// Whether its output comes value by value, said to be streamed or not.
    pub yields_values: bool,
    /// Whether what comes value by value are files.
    pub yields_files: bool,
    /// Whether it is a handler that has shown that it is no generator: only running its script shows it.
    pub never_yields: bool,
    /// Whether it can be trained.
    pub trainable: bool,
    prediction: InputValidator,
    training: Option<InputValidator>,
}

/// The document cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SchemaError {
    #[error("the model's schema is not JSON")]
    NotJson(#[source] serde_json::Error),
    #[error("`{component}` of the model's schema cannot be used: {reason}")]
    Component {
        component: &'static str,
        reason: String,
    },
}

impl ModelSchema {
    pub(crate) fn read(document: Arc<Bytes>) -> Result<Self, SchemaError> {
        let whole: Value = serde_json::from_slice(&document).map_err(SchemaError::NotJson)?;
        let check = |component| {
            let Some(schema) = whole.pointer(&format!("/components/schemas/{component}")) else {
                return Ok(None);
            };
            InputValidator::compile(schema, &whole)
                .map(Some)
                .map_err(|reason| SchemaError::Component { component, reason })
        };
        let prediction = check("Input")?.unwrap_or_default();
        let training = check("TrainingInput")?;
        let streaming =
            whole.pointer("/paths/~1predictions/post/x-cog-streaming") == Some(&Value::Bool(true));
        let yields_values = whole
            .pointer("/components/schemas/Output/x-cog-array-type")
            .and_then(Value::as_str)
            == Some("iterator");
        let item = whole
            .pointer("/components/schemas/Output/items/format")
            .and_then(Value::as_str);
        let yields_files = yields_values && item == Some("uri");
        let shape = whole
            .pointer("/x-runpod-handler/shape")
            .and_then(Value::as_str);
        let never_yields = shape.is_some_and(|shape| !shape.ends_with("generator"));
        Ok(Self {
            streaming,
            yields_values,
            yields_files,
            never_yields,
            trainable: training.is_some(),
            prediction,
            training,
            document,
        })
    }

    /// The check for one kind of job. A model without training treats one as a prediction, as Cog does.
    pub(crate) fn validator(&self, kind: JobKind) -> &InputValidator {
        match (kind, &self.training) {
            (JobKind::Training, Some(training)) => training,
            (JobKind::Training, None) | (JobKind::Prediction, _) => &self.prediction,
        }
    }
}
