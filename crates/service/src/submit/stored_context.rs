//! What is stored in the context of a job besides the client's values, for a job that waits in the store
//! only, that a previous server process accepted, or that a director runs: its warnings, because the stored
//! input no longer shows what was wrong, and the parent of its spans.

use std::collections::BTreeMap;

use tidegate_core::record::JobSpec;
use tidegate_core::trace::SpanContext;

use super::PreparedJob;
use crate::job::Job;

/// The key of the warnings in a stored context. The model does not get it.
const WARNINGS_KEY: &str = "tidegate.warnings";
/// The key of the parent of its spans, in the form of the header. The model does not get it.
const TRACEPARENT_KEY: &str = "tidegate.traceparent";

/// The context to store for a new job.
pub(super) fn stored_context(prepared: &PreparedJob) -> BTreeMap<String, String> {
    let (mut context, warnings) = (prepared.context.clone(), prepared.job.warnings());
    if !warnings.is_empty() {
        let list = serde_json::to_string(&warnings).expect("strings serialize");
        context.insert(WARNINGS_KEY.to_owned(), list);
    }
    if let Some(trace) = prepared.job.trace() {
        context.insert(TRACEPARENT_KEY.to_owned(), trace.to_string());
    }
    context
}

/// Adds the stored warnings to a job that was created from its record.
pub(crate) fn restore_warnings(job: &Job, spec: &JobSpec) {
    let list = spec.context.get(WARNINGS_KEY);
    let warnings = list.and_then(|list| serde_json::from_str::<Vec<String>>(list).ok());
    for warning in warnings.unwrap_or_default() {
        job.warn(warning);
    }
}

/// The parent of the spans of a recorded job.
pub(crate) fn stored_trace(spec: &JobSpec) -> Option<SpanContext> {
    SpanContext::parse(spec.context.get(TRACEPARENT_KEY)?)
}

/// The context for the model, from a stored one.
pub(crate) fn model_context(mut context: BTreeMap<String, String>) -> BTreeMap<String, String> {
    context.remove(WARNINGS_KEY);
    context.remove(TRACEPARENT_KEY);
    context
}
