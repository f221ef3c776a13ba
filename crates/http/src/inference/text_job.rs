//! The text of a job, read while the model generates it.

use std::sync::Arc;

use serde_json::Value;
use tidegate_core::inference::GeneratedText;
use tidegate_core::model_interface::{MappedInput, text_of};
use tidegate_core::text_generation::{
    FinishReason, StopSequences, TextError, TextErrorKind, TextEvent, TextRequest, Usage,
};
use tidegate_service::{Job, OutputCursor, OutputEvent, Snapshot, Ticket};

use super::{InferenceError, InferenceModel, failure};

const RESTARTED: &str = "the process that generated the text was lost, and the text begins anew; send the request again";
const NOT_TEXT: &str = "the model returned a value that is not text";

/// What ends a text besides the model itself.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct TextRules {
    /// The text ends before the first of these strings.
    pub(crate) stop: Vec<String>,
    /// The most tokens that the client wants.
    pub(crate) max_tokens: Option<u64>,
    /// The most parts of the text, for a model whose input has no limit of tokens. A part has at least one token.
    pub(crate) max_parts: Option<u64>,
    #[serde(default)]
    pub(crate) output: TextOutput,
}

/// Which outputs of a model are text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TextOutput {
    /// All: the schema of the model says so.
    #[default]
    Declared,
    /// A string. The schema of the model allows any value.
    String,
    /// Strings that the model yields. The schema of the model allows any values.
    YieldedStrings,
}

/// A job that generates a text. It is canceled when this is dropped.
pub(crate) struct TextJob {
    /// `None` after the last event.
    ticket: Option<Ticket>,
    job: Arc<Job>,
    cursor: OutputCursor,
    scan: TextScan,
}

impl InferenceModel {
    /// The input of the model for a request, and what the server enforces.
    pub(crate) fn text_input(
        &self,
        request: &TextRequest,
    ) -> Result<(MappedInput, TextRules), InferenceError> {
        let mut input = self.interface().text_input(request)?;
        self.add_extra_inputs(&mut input, &request.extra);
        let max_tokens = request.parameters.max_tokens;
        let is_enforced_here = !input.limits_tokens && self.streams();
        if max_tokens.is_some() && !input.limits_tokens && !is_enforced_here {
            input.warnings.push(
                "`max_tokens` was ignored: the model has no such input and returns its text at once"
                    .to_owned(),
            );
        }
        let rules = TextRules {
            stop: request.stop.clone(),
            max_tokens,
            max_parts: max_tokens.filter(|_| is_enforced_here),
            output: self.text_output(),
        };
        Ok((input, rules))
    }

    fn text_output(&self) -> TextOutput {
        if self.interface().declares_text() {
            TextOutput::Declared
        } else if self.streams() {
            TextOutput::YieldedStrings
        } else {
            TextOutput::String
        }
    }

    /// Starts to generate a text.
    pub(crate) async fn generate(&self, request: &TextRequest) -> Result<TextJob, InferenceError> {
        let (input, rules) = self.text_input(request)?;
        let ticket = self.start(&input).await?;
        Ok(TextJob {
            job: Arc::clone(ticket.job()),
            ticket: Some(ticket),
            cursor: OutputCursor::default(),
            scan: TextScan::new(rules),
        })
    }
}

impl TextJob {
    /// The id of the job.
    pub(crate) fn id(&self) -> &str {
        self.job.id().as_str()
    }

    /// What the client should know about its request.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.job.warnings()
    }

    /// Waits for the next events; `None` after the last. Nothing is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> Option<Vec<TextEvent>> {
        self.ticket.as_ref()?;
        let read = self.job.output_events(self.cursor).await;
        let mut events = Vec::new();
        match read {
            Ok(read) => {
                for event in &read.events {
                    self.cursor = OutputCursor {
                        position: event.position(),
                        attempt: read.attempt,
                    };
                    if let OutputEvent::Output { json, .. } = event {
                        self.scan.push(json, &self.job, &mut events);
                    }
                }
                if read.ended && !self.scan.ended {
                    self.scan.end(&self.job, &mut events);
                }
            }
            Err(tidegate_service::JobRestarted) => self.scan.fail(RESTARTED, &mut events),
        }
        if self.scan.ended {
            // Cancels a job that still runs.
            self.ticket = None;
        }
        Some(events)
    }

    /// The whole text.
    pub(crate) async fn whole(mut self) -> Result<GeneratedText, TextError> {
        let mut text = String::new();
        while let Some(events) = self.next().await {
            for event in events {
                match event {
                    TextEvent::Text(part) => text.push_str(&part),
                    TextEvent::Failed(error) => return Err(error),
                    TextEvent::Ended {
                        finish_reason,
                        usage,
                    } => {
                        return Ok(GeneratedText {
                            text,
                            finish_reason,
                            usage,
                        });
                    }
                }
            }
        }
        Err(TextError {
            kind: TextErrorKind::Failed,
            message: RESTARTED.to_owned(),
        })
    }
}

/// Turns values of a job to events.
struct TextScan {
    stop: StopSequences,
    rules: TextRules,
    parts: u64,
    ended: bool,
}

impl TextScan {
    fn new(rules: TextRules) -> Self {
        Self {
            stop: StopSequences::new(rules.stop.clone()),
            rules,
            parts: 0,
            ended: false,
        }
    }

    fn push(&mut self, json: &[u8], job: &Job, events: &mut Vec<TextEvent>) {
        if self.ended {
            return;
        }
        let value: Value = serde_json::from_slice(json).unwrap_or_default();
        let Some(part) = text_of(&value) else {
            return self.fail(NOT_TEXT, events);
        };
        if part.is_empty() {
            return;
        }
        self.parts += 1;
        let scan = self.stop.push(&part);
        let found = scan.found;
        if !scan.text.is_empty() {
            events.push(TextEvent::Text(scan.text.into_owned()));
        }
        let is_cut = self.rules.max_parts.is_some_and(|most| self.parts >= most);
        if found {
            self.finish(FinishReason::Stop, &job.snapshot_without_output(), events);
        } else if is_cut {
            self.release_held(events);
            self.finish(FinishReason::Length, &job.snapshot_without_output(), events);
        }
    }

    fn end(&mut self, job: &Job, events: &mut Vec<TextEvent>) {
        let over = job.snapshot_without_output();
        match failure(&over) {
            Some(error) => {
                self.ended = true;
                events.push(TextEvent::Failed(error));
            }
            None => {
                self.release_held(events);
                let reason = FinishReason::from_metrics(&over.metrics, self.rules.max_tokens);
                self.finish(reason, &over, events);
            }
        }
    }

    /// Adds the text that might have been the beginning of a stop string.
    fn release_held(&mut self, events: &mut Vec<TextEvent>) {
        let held = std::mem::take(&mut self.stop).finish();
        if !held.is_empty() {
            events.push(TextEvent::Text(held));
        }
    }

    fn finish(&mut self, finish_reason: FinishReason, job: &Snapshot, events: &mut Vec<TextEvent>) {
        self.ended = true;
        events.push(TextEvent::Ended {
            finish_reason,
            usage: Usage::from_metrics(&job.metrics),
        });
    }

    fn fail(&mut self, message: &str, events: &mut Vec<TextEvent>) {
        self.ended = true;
        events.push(TextEvent::Failed(TextError {
            kind: TextErrorKind::Failed,
            message: message.to_owned(),
        }));
    }
}

/// The text in the output of a job that has succeeded, with the same rules as while it is read.
pub(super) fn text_of_output(
    value: Value,
    job: &Snapshot,
    rules: &TextRules,
) -> Result<GeneratedText, TextError> {
    let parts = match (value, rules.max_parts) {
        (Value::Array(parts), Some(most)) => {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            Value::Array(parts.into_iter().take(most).collect())
        }
        (value, _) => value,
    };
    let whole = text_of(&parts).ok_or_else(|| TextError {
        kind: TextErrorKind::Failed,
        message: NOT_TEXT.to_owned(),
    })?;
    let mut stop = StopSequences::new(rules.stop.clone());
    let scan = stop.push(&whole);
    let (mut text, found) = (scan.text.into_owned(), scan.found);
    if !found {
        text.push_str(&stop.finish());
    }
    let finish_reason = if found {
        FinishReason::Stop
    } else {
        FinishReason::from_metrics(&job.metrics, rules.max_tokens)
    };
    Ok(GeneratedText {
        text,
        finish_reason,
        usage: Usage::from_metrics(&job.metrics),
    })
}
