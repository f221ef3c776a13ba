//! One job without a platform: `--test-input`, or `test_input.json` beside whoever starts the worker.

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

use super::job_codec::{ModelJobCodec, habits};
use crate::exit;
use crate::shutdown::Signals;
use crate::usage_error::UsageError;

const FILE: &str = "test_input.json";
const EXAMPLE: &str = r#"--test-input '{"input": {}}'"#;

/// The job to try: what was said, or what the file says.
pub(super) fn trial(said: Option<&str>) -> anyhow::Result<Job> {
    if let Some(text) = said {
        return job("--test-input", text);
    }
    if !Path::new(FILE).is_file() {
        let message = format!(
            "RUNPOD_WEBHOOK_GET_JOB is not set, so there is no platform to work for, and there is no {FILE} to try"
        );
        let hint = format!(
            "set RUNPOD_WEBHOOK_GET_JOB and RUNPOD_WEBHOOK_POST_OUTPUT to the platform's addresses, or run one job with {EXAMPLE}"
        );
        return Err(UsageError::new(message).hint(hint).transient().into());
    }
    let text = std::fs::read_to_string(FILE).with_context(|| format!("could not read {FILE}"))?;
    job(FILE, &text)
}

fn job(whence: &str, text: &str) -> anyhow::Result<Job> {
    let wrong = |what: String| {
        UsageError::new(format!("{whence} {what}"))
            .hint(EXAMPLE)
            .transient()
    };
    // What is in them is the handler's, to the last digit.
    let mut members: BTreeMap<String, &RawValue> =
        serde_json::from_str(text).map_err(|error| wrong(format!("is no JSON object: {error}")))?;
    if members
        .get("input")
        .is_none_or(|input| input.get() == "null")
    {
        return Err(wrong("has no `input`".to_owned()).into());
    }
    let said = members
        .get("id")
        .and_then(|id| serde_json::from_str::<String>(id.get()).ok());
    let id = said.unwrap_or_else(|| "local_test".to_owned());
    let named = to_raw_value(&id)?;
    members.insert("id".to_owned(), &named);
    Ok(Job {
        id,
        json: serde_json::to_vec(&members)?.into(),
    })
}

/// Runs it; what came of it is printed.
pub(super) async fn run(
    runtime: &Runtime,
    carrying: ModelJobCodec,
    job: &Job,
    signals: &mut Signals,
) -> anyhow::Result<ExitCode> {
    let (stop, habits) = (
        CancellationToken::new(),
        habits(runtime.schema().as_deref()),
    );
    let executor: Arc<dyn Executor> = Arc::new(runtime.clone());
    let once = tidegate_runpod_worker::run_once(executor, Arc::new(carrying), habits, job, &stop);
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
        tracing::error!(job = job.id, "the job has failed");
        return Ok(ExitCode::from(exit::FAILED));
    }
    tracing::info!(job = job.id, "the job has succeeded");
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_job_to_try_needs_an_input_and_gets_an_id() {
        let read = job("x", r#"{"input":{"a":1},"more":true}"#).unwrap();
        assert_eq!(read.id, "local_test");
        assert_eq!(
            serde_json::from_slice::<Value>(&read.json).unwrap()["more"],
            true
        );
        assert_eq!(job("x", r#"{"input":1,"id":"mine"}"#).unwrap().id, "mine");
        assert!(
            job("x", r#"{"input":123456789012345678901}"#)
                .unwrap()
                .json
                .ends_with(b"123456789012345678901}")
        );
        for bad in ["", "[]", "{}", r#"{"input":null}"#] {
            assert!(job("x", bad).is_err(), "{bad}");
        }
    }
}
