//! Jobs with named inputs, whose output is answered as it is.

use serde_json::{Map, Value};
use tidegate_core::model_interface::MappedInput;
use tidegate_service::Snapshot;

use super::{InferenceError, InferenceModel, failure};

impl InferenceModel {
    /// Runs the model with these inputs.
    pub(crate) async fn run(&self, input: Map<String, Value>) -> Result<Snapshot, InferenceError> {
        let input = MappedInput {
            input,
            ..MappedInput::default()
        };
        let mut ticket = self.start(&input).await?;
        ticket.ended().await;
        let over = ticket.job().snapshot();
        match failure(&over) {
            Some(error) => Err(error.into()),
            None => Ok(over),
        }
    }
}
