//! Converts jobs for the model and outputs for the platform: a handler gets the whole job, a predictor
//! only its input.

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

/// The key in a job's context with the other fields of the job, for handlers.
const OTHER_FIELDS: &str = "runpod";
/// The metric with the progress of a handler.
const PROGRESS: &str = "progress";
/// The metric with the fields that a handler returned in addition to `error`.
const BESIDE_ERROR: &str = "beside_error";

/// Prepares inputs and outputs the way the job service does.
pub(super) struct ModelJobCodec {
    job_io: JobIo,
    executor: Arc<dyn Executor>,
}

impl ModelJobCodec {
    pub(super) fn new(job_io: JobIo, executor: Arc<dyn Executor>) -> Self {
        Self { job_io, executor }
    }
}

#[async_trait]
impl JobCodec for ModelJobCodec {
    async fn decode(&self, job: &Job) -> Result<DecodedJob, String> {
        let prepared = self
            .job_io
            .prepare_input(self.executor.schema(), &job.input())
            .await?;
        for warning in &prepared.warnings {
            tracing::warn!(job = job.id, warning, "input has a mistake");
        }
        let context = BTreeMap::from([(OTHER_FIELDS.to_owned(), other_fields(job))]);
        Ok(DecodedJob {
            input: prepared.input,
            files: prepared.files,
            context,
            scratch: prepared.scratch,
        })
    }

    async fn encode_output(
        &self,
        id: &JobId,
        value: OutputValue,
        scratch: &Path,
    ) -> Result<Bytes, String> {
        self.job_io.collect_output(id, value, scratch).await
    }

    fn progress(&self, metric: &Metric) -> Option<Bytes> {
        (metric.name == PROGRESS).then(|| metric.value.to_string().into())
    }

    fn failure_output(&self, metric: &Metric) -> Option<Bytes> {
        (metric.name == BESIDE_ERROR).then(|| metric.value.to_string().into())
    }
}

/// All fields of a job except its input, as one object.
fn other_fields(job: &Job) -> String {
    let mut members: HashMap<String, &RawValue> =
        serde_json::from_slice(&job.json).unwrap_or_default();
    members.remove("input");
    serde_json::to_string(&members).unwrap_or_default()
}

/// How the results of the model are reported, from its schema.
pub(super) fn handler_semantics(document: Option<&Bytes>) -> HandlerSemantics {
    #[derive(Deserialize)]
    struct SchemaDocument {
        #[serde(rename = "x-runpod-handler")]
        handler: Option<HandlerSchema>,
    }
    #[derive(Deserialize)]
    #[serde(default)]
    #[derive(Default)]
    struct HandlerSchema {
        shape: String,
        return_aggregate_stream: bool,
        refresh_worker: bool,
    }
    let handler = document.and_then(|document| {
        serde_json::from_slice::<SchemaDocument>(document)
            .ok()?
            .handler
    });
    match handler {
        // The result of a predictor is its complete output, even if it was streamed.
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
            // The result of a generator counts as streamed, even if it had no parts.
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
    fn a_handler_gets_all_fields_of_its_job() {
        let job = Job {
            id: "a".to_owned(),
            json: r#"{"id":"a","input":{"x":1},"webhook":"http://x","policy":{"ttl":5}}"#.into(),
        };
        let read: serde_json::Value = serde_json::from_str(&other_fields(&job)).unwrap();
        assert_eq!(
            read,
            serde_json::json!({"id": "a", "webhook": "http://x", "policy": {"ttl": 5}})
        );
    }

    #[test]
    fn a_schema_defines_the_semantics_of_a_handler() {
        let document =
            Bytes::from_static(br#"{"x-runpod-handler":{"shape":"sync","refresh_worker":true}}"#);
        let semantics = handler_semantics(Some(&document));
        assert_eq!(
            (semantics.refresh, semantics.stream_result),
            (Refresh::AfterEachJob, StreamResult::EmptyList)
        );
        assert_eq!(semantics.without_stream, OutputDelivery::WithResult);
        assert_eq!(
            handler_semantics(Some(&Bytes::from_static(b"{}"))).stream_result,
            StreamResult::Aggregated
        );
        let generator = Bytes::from_static(br#"{"x-runpod-handler":{"shape":"async generator"}}"#);
        assert_eq!(
            handler_semantics(Some(&generator)).without_stream,
            OutputDelivery::Streamed
        );
    }
}
