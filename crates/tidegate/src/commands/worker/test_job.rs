//! Runs one job without a platform, from `--test-input` or from `test_input.json` in the working directory.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use serde_json::value::{RawValue, to_raw_value};
use tidegate_core::port::Executor;
use tidegate_runpod_worker::Job;
use tidegate_runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::job_codec::{ModelJobCodec, handler_semantics};
use crate::exit;
use crate::shutdown::Signals;
use crate::usage_error::UsageError;

const FILE: &str = "test_input.json";
const EXAMPLE: &str = r#"--test-input '{"input": {}}'"#;

/// The job from `--test-input`, or from the file.
pub(super) fn read(test_input: Option<&str>) -> anyhow::Result<Job> {
    if let Some(text) = test_input {
        return parse("--test-input", text);
    }
    if !Path::new(FILE).is_file() {
        let message = format!(
            "there is no platform and no test job: RUNPOD_WEBHOOK_GET_JOB is not set, and there is no {FILE}"
        );
        let hint = format!(
            "set RUNPOD_WEBHOOK_GET_JOB and RUNPOD_WEBHOOK_POST_OUTPUT to the addresses of the platform, or run one job with {EXAMPLE}"
        );
        return Err(UsageError::new(message).hint(hint).transient().into());
    }
    let text = std::fs::read_to_string(FILE).with_context(|| format!("failed to read {FILE}"))?;
    parse(FILE, &text)
}

fn parse(source: &str, text: &str) -> anyhow::Result<Job> {
    let invalid = |problem: String| {
        UsageError::new(format!("{source} {problem}"))
            .hint(EXAMPLE)
            .transient()
    };
    // Raw values, because numbers must reach the handler with all their digits.
    let mut members: BTreeMap<String, &RawValue> = serde_json::from_str(text)
        .map_err(|error| invalid(format!("is not a JSON object: {error}")))?;
    if members
        .get("input")
        .is_none_or(|input| input.get() == "null")
    {
        return Err(invalid("has no `input`".to_owned()).into());
    }
    let given = members
        .get("id")
        .and_then(|id| serde_json::from_str::<String>(id.get()).ok());
    let id = given.unwrap_or_else(|| "local_test".to_owned());
    let raw_id = to_raw_value(&id)?;
    members.insert("id".to_owned(), &raw_id);
    Ok(Job {
        id,
        json: serde_json::to_vec(&members)?.into(),
    })
}

/// Runs the job and prints its result.
pub(super) async fn run(
    runtime: &Runtime,
    codec: ModelJobCodec,
    job: &Job,
    signals: &mut Signals,
) -> anyhow::Result<ExitCode> {
    let (stop, semantics) = (
        CancellationToken::new(),
        handler_semantics(runtime.schema().as_deref()),
    );
    let executor: Arc<dyn Executor> = Arc::new(runtime.clone());
    let once = tidegate_runpod_worker::run_once(executor, Arc::new(codec), semantics, job, &stop);
    let body = tokio::select! {
        body = once => body.unwrap_or_default(),
        cause = signals.next() => return Ok(ExitCode::from(cause.exit_code())),
    };
    let result: BTreeMap<String, &RawValue> = serde_json::from_slice(&body).unwrap_or_default();
    writeln!(
        std::io::stdout().lock(),
        "{}",
        String::from_utf8_lossy(&body)
    )?;
    if result.contains_key("error") {
        tracing::error!(job = job.id, "job failed");
        return Ok(ExitCode::from(exit::FAILED));
    }
    tracing::info!(job = job.id, "job succeeded");
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_test_job_needs_an_input_and_gets_an_id() {
        let read = parse("x", r#"{"input":{"a":1},"more":true}"#).unwrap();
        assert_eq!(read.id, "local_test");
        assert_eq!(
            serde_json::from_slice::<Value>(&read.json).unwrap()["more"],
            true
        );
        assert_eq!(parse("x", r#"{"input":1,"id":"mine"}"#).unwrap().id, "mine");
        assert!(
            parse("x", r#"{"input":123456789012345678901}"#)
                .unwrap()
                .json
                .ends_with(b"123456789012345678901}")
        );
        for bad in ["", "[]", "{}", r#"{"input":null}"#] {
            assert!(parse("x", bad).is_err(), "{bad}");
        }
    }
}
