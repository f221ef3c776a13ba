//! The outputs of jobs that have ended: as they are, or as the text that a client asked for.

use serde_json::{Map, Value};
use tidegate_core::inference::InferenceAnswer;
use tidegate_core::model_interface::MappedInput;
use tidegate_core::text_generation::{TextError, TextRequest};
use tidegate_service::Snapshot;

use super::text_job::{TextOutput, TextRules, text_of_output};
use super::{InferenceError, InferenceModel, failure};

impl InferenceModel {
    /// Runs the model with these inputs.
    pub(crate) async fn run(&self, input: Map<String, Value>) -> Result<Snapshot, InferenceError> {
        let input = MappedInput {
            input,
            ..MappedInput::default()
        };
        self.run_to_end(&input).await
    }

    /// Runs a model for a request for text, and answers when it has ended: with a text, or with the output
    /// of a model that may return any value. Also returns the warnings of the job.
    pub(crate) async fn answer_prompt(
        &self,
        request: &TextRequest,
    ) -> Result<(InferenceAnswer, Vec<String>), InferenceError> {
        let (input, rules) = self.text_input(request)?;
        let over = self.run_to_end(&input).await?;
        let answer = answer_of_output(&over, &rules)?;
        Ok((answer, over.warnings))
    }

    async fn run_to_end(&self, input: &MappedInput) -> Result<Snapshot, InferenceError> {
        let mut ticket = self.start(input).await?;
        ticket.ended().await;
        let over = ticket.job().snapshot();
        match failure(&over) {
            Some(error) => Err(error.into()),
            None => Ok(over),
        }
    }
}

/// The output of a job that has ended.
pub(crate) fn output_value(job: &Snapshot) -> Value {
    let output = job.output.as_deref().unwrap_or(b"null");
    serde_json::from_slice(output).unwrap_or_default()
}

/// The answer to a request for text: the text, or the output of a model that may return any value.
pub(crate) fn answer_of_output(
    job: &Snapshot,
    rules: &TextRules,
) -> Result<InferenceAnswer, TextError> {
    if let Some(error) = failure(job) {
        return Err(error);
    }
    let value = output_value(job);
    if rules.output.is_text(&value) {
        text_of_output(value, job, rules).map(InferenceAnswer::Text)
    } else {
        Ok(InferenceAnswer::Output(value))
    }
}

impl TextOutput {
    fn is_text(self, value: &Value) -> bool {
        match (self, value) {
            (Self::Declared, _) => true,
            (Self::YieldedStrings, Value::Array(parts)) => parts.iter().all(Value::is_string),
            (Self::String | Self::YieldedStrings, value) => value.is_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_text_if_the_model_says_so_or_it_is_a_string() {
        for value in [json!("a"), json!(["a"]), json!({"a": 1}), json!(null)] {
            assert!(TextOutput::Declared.is_text(&value), "{value}");
        }
        for output in [TextOutput::String, TextOutput::YieldedStrings] {
            assert!(output.is_text(&json!("a")));
            for value in [json!({"a": 1}), json!(["a", 1]), json!(null), json!(1)] {
                assert!(!output.is_text(&value), "{output:?}: {value}");
            }
        }
        assert!(TextOutput::YieldedStrings.is_text(&json!(["a", "b"])));
        assert!(!TextOutput::String.is_text(&json!(["a", "b"])));
    }
}
