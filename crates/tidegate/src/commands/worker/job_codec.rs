//! Jobs on their way to the model and back: a script's handler sees the whole job, a predictor its input.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_core::port::Executor;
use tidegate_core::{JobId, Metric, OutputValue};
use tidegate_runpod_worker::{
    DecodedJob, EmptyObject, HandlerSemantics, Job, JobCodec, OutputDelivery, Refresh, StreamResult,
};
use tidegate_service::JobIo;

/// The note in a job's context that holds what else there is in the job, for handlers.
const EXTRAS: &str = "runpod";
/// The metric that handlers report their progress in.
const PROGRESS: &str = "progress";
/// The metric that holds what a handler returned besides `error`.
const BESIDE_ERROR: &str = "beside_error";

/// Carries jobs with the desk's own tools.
pub(super) struct ModelJobCodec {
    carrier: JobIo,
    executor: Arc<dyn Executor>,
}

impl ModelJobCodec {
    pub(super) fn new(carrier: JobIo, executor: Arc<dyn Executor>) -> Self {
        Self { carrier, executor }
    }
}

#[async_trait]
impl JobCodec for ModelJobCodec {
    async fn decode(&self, job: &Job) -> Result<DecodedJob, String> {
        let carried = self
            .carrier
            .carry_in(self.executor.schema(), &job.input())
            .await?;
        let context = BTreeMap::from([(EXTRAS.to_owned(), extras(job))]);
        Ok(DecodedJob {
            input: carried.input,
            files: carried.files,
            context,
            scratch: carried.scratch,
        })
    }

    async fn encode_output(
        &self,
        id: &JobId,
        value: OutputValue,
        scratch: &Path,
    ) -> Result<Bytes, String> {
        self.carrier.carry_out(id, value, scratch).await
    }

    fn progress(&self, metric: &Metric) -> Option<Bytes> {
        (metric.name == PROGRESS).then(|| metric.value.to_string().into())
    }

    fn failure_output(&self, metric: &Metric) -> Option<Bytes> {
        (metric.name == BESIDE_ERROR).then(|| metric.value.to_string().into())
    }
}

/// All of a job but its input, as one object.
fn extras(job: &Job) -> String {
    let mut members: HashMap<String, &RawValue> =
        serde_json::from_slice(&job.json).unwrap_or_default();
    members.remove("input");
    serde_json::to_string(&members).unwrap_or_default()
}

/// What the model's document says about its code.
pub(super) fn habits(document: Option<&Bytes>) -> HandlerSemantics {
    #[derive(Deserialize)]
    struct Document {
        #[serde(rename = "x-runpod-handler")]
        handler: Option<Handler>,
    }
    #[derive(Deserialize)]
    #[serde(default)]
    #[derive(Default)]
    struct Handler {
        shape: String,
        return_aggregate_stream: bool,
        refresh_worker: bool,
    }
    let handler =
        document.and_then(|document| serde_json::from_slice::<Document>(document).ok()?.handler);
    match handler {
        // A predictor's output is all of it, also when it came in parts.
        None => HandlerSemantics {
            stream_result: StreamResult::Aggregated,
            empty_object: EmptyObject::Output,
            without_stream: OutputDelivery::WithResult,
            refresh: Refresh::OnRequest,
        },
        Some(handler) => HandlerSemantics {
            stream_result: if handler.return_aggregate_stream {
                StreamResult::Aggregated
            } else {
                StreamResult::EmptyList
            },
            empty_object: EmptyObject::NoOutput,
            // A generator's result says that its parts came before it, also when there were none.
            without_stream: if handler.shape.ends_with("generator") {
                OutputDelivery::Streamed
            } else {
                OutputDelivery::WithResult
            },
            refresh: if handler.refresh_worker {
                Refresh::AfterEachJob
            } else {
                Refresh::OnRequest
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_gets_everything_that_is_in_its_job() {
        let job = Job {
            id: "a".to_owned(),
            json: r#"{"id":"a","input":{"x":1},"webhook":"http://x","policy":{"ttl":5}}"#.into(),
        };
        let read: serde_json::Value = serde_json::from_str(&extras(&job)).unwrap();
        assert_eq!(
            read,
            serde_json::json!({"id": "a", "webhook": "http://x", "policy": {"ttl": 5}})
        );
    }

    #[test]
    fn a_script_says_how_it_wants_to_be_run() {
        let document =
            Bytes::from_static(br#"{"x-runpod-handler":{"shape":"sync","refresh_worker":true}}"#);
        let habits_of = habits(Some(&document));
        assert_eq!(
            (habits_of.refresh, habits_of.stream_result),
            (Refresh::AfterEachJob, StreamResult::EmptyList)
        );
        assert_eq!(habits_of.without_stream, OutputDelivery::WithResult);
        assert_eq!(
            habits(Some(&Bytes::from_static(b"{}"))).stream_result,
            StreamResult::Aggregated
        );
        let generator = Bytes::from_static(br#"{"x-runpod-handler":{"shape":"async generator"}}"#);
        assert_eq!(
            habits(Some(&generator)).without_stream,
            OutputDelivery::Streamed
        );
    }
}
