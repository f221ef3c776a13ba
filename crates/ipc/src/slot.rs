//! The slot channel: one job after the other on one Unix socket.
//!
//! A job's input and output are the user's JSON and stay bytes here: [`RawValue`] on both sides.
//! The messages are tagged from outside (`{"done": {…}}`) because serde cannot borrow raw values
//! through any other kind of tag.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::frame;

/// Parent to child.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotRequest<'a> {
    /// Run one job.
    #[serde(borrow)]
    Predict(PredictRequest<'a>),
}

/// One job for a child.
#[derive(Debug, Serialize, Deserialize)]
pub struct PredictRequest<'a> {
    /// The job's id; comes back in its last message.
    #[serde(borrow)]
    pub id: Cow<'a, str>,
    /// Which of the model's functions to call.
    pub kind: WireJobKind,
    /// The input object, checked by the parent; absent when it is in `input_file`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub input: Option<&'a RawValue>,
    /// Where an input too large for the socket was written. The child reads and removes it.
    pub input_file: Option<Cow<'a, str>>,
    /// Where the child may write files of this job. Made by whoever needs it first.
    pub output_dir: Cow<'a, str>,
    /// The fetched files: JSON pointer into `input` (`/image`, `/images/0`) to local path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// The caller's `context`, for the model to read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, String>,
}

/// Appends `predict` as one frame with `input` in it. The bytes are taken as they are: the caller
/// knows that they are one JSON object, and a second parse of a large input costs milliseconds.
pub fn append_predict(buffer: &mut Vec<u8>, predict: PredictRequest<'_>, input: &[u8]) {
    debug_assert!(predict.input.is_none(), "the input is given once");
    frame::append(buffer, |out| {
        serde_json::to_writer(&mut *out, &SlotRequest::Predict(predict))
            .expect("a Vec never fails to write");
        out.truncate(out.len() - 2);
        out.extend_from_slice(b",\"input\":");
        out.extend_from_slice(input);
        out.extend_from_slice(b"}}");
    });
}

/// Which of the model's functions a job is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireJobKind {
    /// `run` or `predict`.
    Prediction,
    /// `train`.
    Training,
}

/// Child to parent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotResponse<'a> {
    /// A line that the job printed.
    Log {
        /// Where.
        source: WireLogSource,
        /// The text with its line break, if it had one.
        #[serde(borrow)]
        data: Cow<'a, str>,
    },
    /// A value that a generator yielded.
    Output {
        /// The value as JSON.
        #[serde(borrow)]
        output: &'a RawValue,
    },
    /// A file that belongs into the next `Output` or `Done`. Sent before it.
    FileOutput(FileOutput<'a>),
    /// A number or note about the job.
    Metric {
        /// Dots make nested objects.
        #[serde(borrow)]
        name: Cow<'a, str>,
        /// `null` with [`WireMetricMode::Replace`] takes the metric away.
        #[serde(borrow)]
        value: &'a RawValue,
        /// How it joins what is there.
        mode: WireMetricMode,
    },
    /// The child wants to be replaced once the jobs that it has are over. Sent before a job's last message.
    Retire,
    /// The job has ended well; the slot is free.
    Done {
        /// The job.
        #[serde(borrow)]
        id: Cow<'a, str>,
        /// The returned value; absent after a stream or when it is in a file.
        #[serde(borrow)]
        output: Option<&'a RawValue>,
        /// Seconds in the user's code.
        predict_time: f64,
        /// Whether the values came one by one in `Output`.
        is_stream: bool,
    },
    /// The job has ended with an error; the slot is free.
    Failed {
        /// The job.
        #[serde(borrow)]
        id: Cow<'a, str>,
        /// What the caller is told.
        #[serde(borrow)]
        error: Cow<'a, str>,
    },
    /// The job was stopped; the slot is free.
    Cancelled {
        /// The job.
        #[serde(borrow)]
        id: Cow<'a, str>,
    },
}

/// Where a line was printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireLogSource {
    /// `sys.stdout`
    Stdout,
    /// `sys.stderr`
    Stderr,
}

/// A file made by the job, or an output too large for the socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOutput<'a> {
    /// Absolute path.
    #[serde(borrow)]
    pub filename: Cow<'a, str>,
    /// What the file is.
    pub kind: FileOutputKind,
    /// What the child thinks it holds.
    pub mime_type: Option<Cow<'a, str>>,
    /// Where in the next output's JSON an empty string stands for this file, in bytes.
    pub offset: usize,
}

/// What a [`FileOutput`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileOutputKind {
    /// A file of the user's, to be inlined or uploaded.
    FileType,
    /// The whole output as JSON, because it was too large for a frame.
    Oversized,
}

/// How a metric joins the value that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireMetricMode {
    /// Takes its place.
    Replace,
    /// Is added to it.
    Increment,
    /// Is put at the end of a list.
    Append,
}
