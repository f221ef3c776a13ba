//! The events that an executor reports while it runs a job, and the outcome of the job.

use std::path::PathBuf;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::remote::RemoteFact;

/// One event of a running job. Events are ordered, and [`Event::Ended`] is the last.
#[derive(Debug)]
pub enum Event {
    /// The job printed something.
    Log {
        /// The stream that the text was printed to.
        source: LogSource,
        /// The text, with its line break if it had one.
        text: String,
    },
    /// A generator yielded a value.
    Output(OutputValue),
    /// The model recorded a metric of the job.
    Metric(Metric),
    /// A fact about the remote worker that runs the job.
    Remote(RemoteFact),
    /// The job has ended; there are no more events.
    Ended(Outcome),
}

/// How a job ended after an executor started it.
#[derive(Debug)]
pub enum Outcome {
    /// The model returned.
    Succeeded {
        /// The value that the model returned; absent after a stream of [`Event::Output`].
        output: Option<OutputValue>,
    },
    /// The model raised an exception, or its process died.
    Failed {
        /// The error message for the client.
        error: String,
    },
    /// The job was stopped on request.
    Canceled,
}

/// A value that the model returned or yielded, as JSON, with the files that it contains.
#[derive(Debug, Clone)]
pub struct OutputValue {
    /// The JSON text. It has an empty string in place of each file.
    pub json: Bytes,
    /// The files, ordered by ascending offset.
    pub files: Vec<OutputFile>,
}

/// A file in the output of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The media type that the model declared.
    pub mime_type: Option<String>,
    /// The offset of the file's empty string in the JSON text, in bytes.
    pub offset: usize,
    /// What the file contains.
    pub kind: OutputFileKind,
}

/// What an [`OutputFile`] contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFileKind {
    /// A file that the model created.
    User,
    /// The whole JSON text of the value, which is too large for the message.
    WholeOutput,
}

/// The stream that a text was printed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogSource {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A metric that the model recorded for its job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// The name. Dots separate the keys of nested objects.
    pub name: String,
    /// The value. `Null` with [`MetricMode::Replace`] removes the metric.
    pub value: serde_json::Value,
    /// How the value is combined with the existing value.
    pub mode: MetricMode,
}

/// How the value of a metric is combined with the existing value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricMode {
    /// Replaces the existing value.
    Replace,
    /// Is added to the existing value.
    Increment,
    /// Is appended to a list.
    Append,
}
