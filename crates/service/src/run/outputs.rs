//! The outputs of a running job: values that it yields, and the one that it returns.

use bytes::Bytes;
use tidegate_core::planted;
use tidegate_core::{JobKind, Outcome, OutputValue};

use super::tracker::Tracker;
use crate::files::OutputOwner;
use crate::input::{JsonType, OutputTypes};
use crate::models::trained::training::{VersionCreator, attach_version};
use crate::snapshot::{ReadPosition, TerminalState};

impl Tracker {
    /// The value that the model returned, or how else it ended.
    pub(super) async fn final_output(
        &mut self,
        outcome: Outcome,
    ) -> Result<Option<Bytes>, TerminalState> {
        planted!(sometimes FalseSuccess if matches!(outcome, Outcome::Failed { .. }), return Ok(None));
        match outcome {
            Outcome::Succeeded { output: None } => Ok(None),
            Outcome::Succeeded {
                output: Some(value),
            } => {
                let output = self.publish_files(value).await;
                output.map(Some).map_err(TerminalState::Failed)
            }
            Outcome::Failed { error } => Err(TerminalState::Failed(error)),
            Outcome::Canceled => Err(TerminalState::Canceled),
        }
    }

    /// Not cancellable: a version made from a training is not undone.
    pub(super) async fn conclude(
        &mut self,
        output: Option<Bytes>,
        declared: &mut Option<JsonType>,
    ) -> TerminalState {
        let Some(output) = output else {
            return TerminalState::Succeeded;
        };
        self.check_type(&output, declared);
        let leased = self.leased.as_ref();
        let creator = match leased.and_then(|leased| leased.versions.as_deref()) {
            Some(versions) => VersionCreator::Other(versions),
            None => VersionCreator::Own(self.service.version_maker()),
        };
        let destination = self.destination.as_deref();
        let attached = attach_version(creator, &self.job, destination, output).await;
        let output = match attached {
            Ok(output) => output,
            Err(error) => return TerminalState::Failed(error),
        };
        match self.job.returned(output) {
            Ok(mark) => {
                self.notify_output(mark);
                TerminalState::Succeeded
            }
            Err(error) => TerminalState::Failed(error.to_string()),
        }
    }

    /// Adds a value that a generator yielded.
    pub(super) async fn add_output(
        &mut self,
        value: OutputValue,
        declared: &mut Option<JsonType>,
    ) -> Result<(), String> {
        let json = self.publish_files(value).await?;
        self.check_type(&json, declared);
        let mark = self.job.output(json).map_err(|error| error.to_string())?;
        self.notify_output(mark);
        Ok(())
    }

    /// The declared types of the output of a prediction.
    pub(super) fn output_types(&self) -> OutputTypes {
        match self.job.kind() {
            JobKind::Prediction => self
                .service
                .schema()
                .map(|schema| schema.output_types)
                .unwrap_or_default(),
            JobKind::Training => OutputTypes::default(),
        }
    }

    /// Warns about the first value that does not have the declared type.
    fn check_type(&mut self, json: &Bytes, declared: &mut Option<JsonType>) {
        let Some(warning) = declared.and_then(|declared| declared.mismatch(json)) else {
            return;
        };
        *declared = None;
        tracing::info!(target: "model", job = %self.job.id(), "Warning: {warning}");
        let mark = self.job.warn(warning);
        if let Some(webhook) = &mut self.webhook {
            webhook.logs(mark);
        }
    }

    /// The JSON of a value, with a URL in the place of each file.
    async fn publish_files(&mut self, value: OutputValue) -> Result<Bytes, String> {
        if value.files.is_empty() {
            planted!(
                ForeignOutput,
                return Ok(tidegate_core::planted::previous(value.json))
            );
            return Ok(value.json);
        }
        self.scratch_used |= value
            .files
            .iter()
            .any(|file| file.path.starts_with(&self.work.scratch));
        let owner = OutputOwner {
            account: self.job.account(),
            id: self.job.id(),
            policy: self.job.policies().output_files,
            uploads: self
                .leased
                .as_ref()
                .and_then(|leased| leased.uploads.as_deref()),
        };
        let files = &self.service.shared().deps.files;
        files.publish(value, owner, &self.work.scratch).await
    }

    fn notify_output(&mut self, mark: ReadPosition) {
        if let Some(webhook) = &mut self.webhook {
            webhook.output(mark);
        }
    }
}

/// Whether publishing the output takes time. An output without files is not discarded by a late cancel.
pub(super) fn has_files(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Succeeded { output: Some(value) } if !value.files.is_empty())
}
