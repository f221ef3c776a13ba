//! Turns the messages of a child about one job into events.

use std::path::PathBuf;

use bytes::Bytes;
use tidegate_core::{Event, Metric, MetricMode, Outcome, OutputFile, OutputFileKind, OutputValue};
use tidegate_ipc::slot::{FileOutputKind, SlotResponse, WireMetricMode};

use super::boot::log_source;

/// The maximum nesting of a metric's name.
const MAX_METRIC_DEPTH: usize = 8;

/// What a message means for the job.
pub(crate) enum Parsed {
    /// The job has an event.
    Event(Event),
    /// The child asks to be replaced after its jobs.
    Retire,
    /// The child can no longer use its GPU, for this reason.
    Broken(String),
    /// The message belongs to a later one.
    Nothing,
}

/// The message does not fit the job: server and child are out of step.
#[derive(Debug)]
pub(crate) struct MalformedMessage;

/// Parses the messages about one job.
pub(crate) struct MessageParser {
    work_id: Box<str>,
    /// Files that belong to the next output.
    files: Vec<OutputFile>,
}

impl MessageParser {
    pub(crate) fn new(work_id: &str) -> Self {
        Self {
            work_id: work_id.into(),
            files: Vec::new(),
        }
    }

    /// The id of the job.
    pub(crate) fn work_id(&self) -> &str {
        &self.work_id
    }

    /// Interprets `response`, which was parsed from `message`.
    pub(crate) fn interpret(
        &mut self,
        message: &Bytes,
        response: SlotResponse<'_>,
    ) -> Result<Parsed, MalformedMessage> {
        let event = match response {
            SlotResponse::Log { source, data } => Event::Log {
                source: log_source(source),
                text: data.into_owned(),
            },
            SlotResponse::Output { output } => Event::Output(self.value(message, output.get())),
            SlotResponse::FileOutput(file) => {
                self.files.push(OutputFile {
                    path: PathBuf::from(file.filename.as_ref()),
                    mime_type: file.mime_type.map(|mime| mime.into_owned()),
                    offset: file.offset,
                    kind: match file.kind {
                        FileOutputKind::FileType => OutputFileKind::User,
                        FileOutputKind::Oversized => OutputFileKind::WholeOutput,
                    },
                });
                return Ok(Parsed::Nothing);
            }
            SlotResponse::Retire => return Ok(Parsed::Retire),
            SlotResponse::Broken { reason } => return Ok(Parsed::Broken(reason.into_owned())),
            // The child checks names, so a message like this does not come from our code.
            SlotResponse::Metric { name, .. } if name.split('.').count() > MAX_METRIC_DEPTH => {
                return Err(MalformedMessage);
            }
            SlotResponse::Metric { name, value, mode } => Event::Metric(Metric {
                name: name.into_owned(),
                value: serde_json::from_str(value.get()).map_err(|_| MalformedMessage)?,
                mode: match mode {
                    WireMetricMode::Replace => MetricMode::Replace,
                    WireMetricMode::Increment => MetricMode::Increment,
                    WireMetricMode::Append => MetricMode::Append,
                },
            }),
            SlotResponse::Done {
                id,
                output,
                is_stream,
                ..
            } => {
                self.check(&id)?;
                let output = match output {
                    Some(output) => Some(self.value(message, output.get())),
                    None if is_stream => None,
                    None => Some(self.value(message, "")),
                };
                Event::Ended(Outcome::Succeeded { output })
            }
            SlotResponse::Failed { id, error } => {
                self.check(&id)?;
                Event::Ended(Outcome::Failed {
                    error: error.into_owned(),
                })
            }
            SlotResponse::Cancelled { id } => {
                self.check(&id)?;
                Event::Ended(Outcome::Canceled)
            }
            // A message about a batch, inside of a job.
            SlotResponse::Item { .. } | SlotResponse::BatchCall { .. } | SlotResponse::Refused => {
                return Err(MalformedMessage);
            }
        };
        Ok(Parsed::Event(event))
    }

    /// A last message with the id of another job means that server and child are out of step.
    fn check(&self, id: &str) -> Result<(), MalformedMessage> {
        if *id == *self.work_id {
            Ok(())
        } else {
            Err(MalformedMessage)
        }
    }

    /// The output value. A large value shares the bytes of the message; a small one is copied, so that
    /// it does not keep a much larger read buffer alive.
    fn value(&mut self, message: &Bytes, json: &str) -> OutputValue {
        const SMALL: usize = 16 * 1024;
        let json = match json.len() {
            0 => Bytes::from_static(b"null"),
            1..SMALL => Bytes::copy_from_slice(json.as_bytes()),
            _ => message.slice_ref(json.as_bytes()),
        };
        OutputValue {
            json,
            files: std::mem::take(&mut self.files),
        }
    }
}
