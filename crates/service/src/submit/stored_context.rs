//! The warnings of a job that waits in the store only, or that a previous server process accepted. They
//! are part of the stored context, because the stored input no longer shows what was wrong.

use std::collections::BTreeMap;

use tidegate_core::record::JobSpec;

use super::PreparedJob;
use crate::job::Job;

/// The key of the warnings in a stored context. The model does not get it.
const CONTEXT_KEY: &str = "tidegate.warnings";

/// The context to store for a new job.
pub(super) fn stored_context(prepared: &PreparedJob) -> BTreeMap<String, String> {
    let (mut context, warnings) = (prepared.context.clone(), prepared.job.warnings());
    if !warnings.is_empty() {
        let list = serde_json::to_string(&warnings).expect("strings serialize");
        context.insert(CONTEXT_KEY.to_owned(), list);
    }
    context
}

/// Adds the stored warnings to a job that was created from its record.
pub(crate) fn restore_warnings(job: &Job, spec: &JobSpec) {
    let list = spec.context.get(CONTEXT_KEY);
    let warnings = list.and_then(|list| serde_json::from_str::<Vec<String>>(list).ok());
    for warning in warnings.unwrap_or_default() {
        job.warn(warning);
    }
}

/// The context for the model, from a stored one.
pub(crate) fn model_context(mut context: BTreeMap<String, String>) -> BTreeMap<String, String> {
    context.remove(CONTEXT_KEY);
    context
}
