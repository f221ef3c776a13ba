//! The slot channel: one job after the other on one Unix socket.
//!
//! Input and output of a job are the user's JSON and are not parsed here: both sides use [`RawValue`].
//! The messages are externally tagged (`{"done": {…}}`) because serde cannot borrow raw values through
//! any other kind of tag.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::frame;

/// A message from the server to the child.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotRequest<'a> {
    /// Run one job.
    #[serde(borrow)]
    Predict(PredictRequest<'a>),
    /// Run several predictions as one batch. Only for a model that batches.
    #[serde(borrow)]
    Batch(BatchPredictRequest<'a>),
}

/// Predictions that reach the child together. Each counts as one job of the slot, in this order.
#[derive(Debug, Serialize, Deserialize)]
pub struct BatchPredictRequest<'a> {
    /// The predictions.
    #[serde(borrow)]
    pub items: Vec<PredictRequest<'a>>,
}

/// A job for a child.
#[derive(Debug, Serialize, Deserialize)]
pub struct PredictRequest<'a> {
    /// The id of the job, repeated in its last message.
    #[serde(borrow)]
    pub id: Cow<'a, str>,
    /// The function to call.
    pub kind: WireJobKind,
    /// The input object, validated by the server; absent when it is in `input_file`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub input: Option<&'a RawValue>,
    /// The file of an input that is too large for the socket. The child reads and removes it.
    pub input_file: Option<Cow<'a, str>>,
    /// The folder for files of this job. The side that needs it first creates it.
    pub output_dir: Cow<'a, str>,
    /// The downloaded files: JSON pointer into `input` (`/image`, `/images/0`) to local path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// The client's `context`, readable by the model.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, String>,
}

/// Appends `predict` as one frame that contains `input`. The caller guarantees that the bytes are one
/// JSON object; parsing a large input a second time would cost milliseconds.
pub fn append_predict(buffer: &mut Vec<u8>, predict: &PredictRequest<'_>, input: &[u8]) {
    append_predict_head(buffer, predict, input.len());
    buffer.extend_from_slice(input);
    buffer.extend_from_slice(PREDICT_TAIL);
}

/// What follows the input in the frame of a job.
pub const PREDICT_TAIL: &[u8] = b"}}";

/// Appends the beginning of the frame of [`append_predict`]: an input of `length` bytes and
/// [`PREDICT_TAIL`] follow, perhaps from other buffers.
pub fn append_predict_head(buffer: &mut Vec<u8>, predict: &PredictRequest<'_>, length: usize) {
    let start = buffer.len();
    frame::append(buffer, |out| {
        out.extend_from_slice(b"{\"predict\":");
        append_item_head(out, predict);
    });
    frame::add_to_length(&mut buffer[start..], length + PREDICT_TAIL.len());
}

/// Appends one frame with a job that was written by [`append_item`].
pub fn append_single(buffer: &mut Vec<u8>, item: &[u8]) {
    frame::append(buffer, |out| {
        out.extend_from_slice(b"{\"predict\":");
        out.extend_from_slice(item);
        out.push(b'}');
    });
}

/// Appends `predict` with `input` as JSON without a frame: an item of [`append_batch`].
pub fn append_item(out: &mut Vec<u8>, predict: &PredictRequest<'_>, input: &[u8]) {
    append_item_head(out, predict);
    out.extend_from_slice(input);
    out.push(b'}');
}

fn append_item_head(out: &mut Vec<u8>, predict: &PredictRequest<'_>) {
    debug_assert!(predict.input.is_none(), "the input is passed once");
    serde_json::to_writer(&mut *out, predict).expect("writing to a Vec does not fail");
    out.pop();
    out.extend_from_slice(b",\"input\":");
}

/// Appends one frame with a batch; each item was written by [`append_item`].
pub fn append_batch<'a>(buffer: &mut Vec<u8>, items: impl Iterator<Item = &'a [u8]>) {
    frame::append(buffer, |out| {
        out.extend_from_slice(b"{\"batch\":{\"items\":[");
        for (n, item) in items.enumerate() {
            if n > 0 {
                out.push(b',');
            }
            out.extend_from_slice(item);
        }
        out.extend_from_slice(b"]}}");
    });
}

/// The function of the model that a job calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireJobKind {
    /// `run` or `predict`.
    Prediction,
    /// `train`.
    Training,
}

/// A message from the child to the server.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotResponse<'a> {
    /// A line that the job printed.
    Log {
        /// The stream.
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
    /// A file that belongs to the next `Output` or `Done`; sent before it.
    FileOutput(FileOutput<'a>),
    /// A metric of the job.
    Metric {
        /// The name; dots separate nested objects.
        #[serde(borrow)]
        name: Cow<'a, str>,
        /// The value; `null` with [`WireMetricMode::Replace`] removes the metric.
        #[serde(borrow)]
        value: &'a RawValue,
        /// How the value is combined with the present one.
        mode: WireMetricMode,
    },
    /// The child asks to be replaced after its running jobs. Sent before the last message of a job.
    Retire,
    /// A message about one item of the batch that the slot runs.
    Item {
        /// The position of the item in the batch.
        n: u32,
        /// The message, as for a job of its own.
        #[serde(borrow)]
        message: Box<SlotResponse<'a>>,
    },
    /// The child calls the model with these items of the batch.
    BatchCall {
        /// The positions of the items.
        items: Vec<u32>,
    },
    /// The child can no longer use its GPU and must be replaced. Sent before the last message of a
    /// job.
    Broken {
        /// The error of the GPU.
        #[serde(borrow)]
        reason: Cow<'a, str>,
    },
    /// The child ignores the message that it has received, and can run no more jobs: the server sent it
    /// before it knew that. Only from a model that batches.
    Refused,
    /// The job succeeded; the slot is free.
    Done {
        /// The job.
        #[serde(borrow)]
        id: Cow<'a, str>,
        /// The returned value; absent after a stream or when it is in a file.
        #[serde(borrow)]
        output: Option<&'a RawValue>,
        /// Seconds in user code.
        predict_time: f64,
        /// Whether the values were sent one by one in `Output`.
        is_stream: bool,
    },
    /// The job failed; the slot is free.
    Failed {
        /// The job.
        #[serde(borrow)]
        id: Cow<'a, str>,
        /// The error message for the client.
        #[serde(borrow)]
        error: Cow<'a, str>,
    },
    /// The job was canceled; the slot is free.
    Cancelled {
        /// The job.
        #[serde(borrow)]
        id: Cow<'a, str>,
    },
}

/// The stream that a line was printed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireLogSource {
    /// `sys.stdout`
    Stdout,
    /// `sys.stderr`
    Stderr,
}

/// A file that the job created, or an output that is too large for the socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOutput<'a> {
    /// The absolute path.
    #[serde(borrow)]
    pub filename: Cow<'a, str>,
    /// What the file is.
    pub kind: FileOutputKind,
    /// The media type that the child guessed.
    pub mime_type: Option<Cow<'a, str>>,
    /// The byte offset of the empty string in the next output's JSON that stands for this file.
    pub offset: usize,
}

/// The kind of a [`FileOutput`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileOutputKind {
    /// A file of the user, which the server inlines or uploads.
    FileType,
    /// The whole output as JSON, because it is too large for a frame.
    Oversized,
}

/// How a metric is combined with the present value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireMetricMode {
    /// Replaces it.
    Replace,
    /// Is added to it.
    Increment,
    /// Is appended to a list.
    Append,
}
