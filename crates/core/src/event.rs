//! What an executor reports while it works on a job, and how it ends.

use std::path::PathBuf;

use bytes::Bytes;
use serde::Serialize;

use crate::remote::RemoteFact;

/// One report about a running job. They come in order, and [`Event::Ended`] is the last.
#[derive(Debug)]
pub enum Event {
    /// The job printed something.
    Log {
        /// Where.
        source: LogSource,
        /// The text with its line break, if it had one.
        text: String,
    },
    /// A generator yielded a value.
    Output(OutputValue),
    /// The model noted a number or a word about the job.
    Metric(Metric),
    /// Something about the remote worker that runs the job.
    Remote(RemoteFact),
    /// Nothing more will come.
    Ended(Outcome),
}

/// How a job ended once it was taken.
#[derive(Debug)]
pub enum Outcome {
    /// The model returned.
    Succeeded {
        /// What it returned; absent after a stream of [`Event::Output`].
        output: Option<OutputValue>,
    },
    /// The model raised, or died.
    Failed {
        /// What the caller is told.
        error: String,
    },
    /// The job was stopped on request.
    Canceled,
}

/// A value of the model's, as JSON, with the files that belong into it.
#[derive(Debug, Clone)]
pub struct OutputValue {
    /// The JSON text. Where a file belongs it has an empty string.
    pub json: Bytes,
    /// The files, by rising offset.
    pub files: Vec<OutputFile>,
}

/// A file that the model made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputFile {
    /// Where it is.
    pub path: PathBuf,
    /// What its maker thinks it holds.
    pub mime_type: Option<String>,
    /// Where in the JSON its empty string begins, in bytes.
    pub offset: usize,
    /// What the file is.
    pub kind: OutputFileKind,
}

/// What an [`OutputFile`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFileKind {
    /// The user's file.
    User,
    /// The whole JSON of the value, too large to travel with the message.
    WholeOutput,
}

/// Where a line was printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogSource {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A note of the model's about its job.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Dots make nested objects.
    pub name: String,
    /// `Null` with [`MetricMode::Replace`] takes the metric away.
    pub value: serde_json::Value,
    /// How it joins the value that is there.
    pub mode: MetricMode,
}

/// How a metric joins the value that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricMode {
    /// Takes its place.
    Replace,
    /// Is added to it.
    Increment,
    /// Is put at the end of a list.
    Append,
}
