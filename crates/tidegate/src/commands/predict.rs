//! `tidegate predict`: runs one prediction.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use serde_json::{Map, Value};
use tidegate_core::health::{Health, SetupStatus};
use tidegate_core::port::Executor;
use tidegate_core::record::{Api, Target};
use tidegate_core::{Account, JobKind, Status};
use tidegate_net::{Client, Config, Url};
use tidegate_runtime::{Observer, Phase, ResourceLimits};
use tidegate_service::{JobService, OnDuplicateId, OnLost, ResponseMode, Submission, Submitted};

use crate::cli::PredictArgs;
use crate::compat::CogEnv;
use crate::model_factory::{ModelConfig, ModelFactory, OutboundConfig};
use crate::model_source::ModelSource;
use crate::models::full_name;
use crate::shutdown::{Signals, Sigterm};
use crate::usage_error::UsageError;
use crate::{admin_client, exit, inputs, outputs};

pub(crate) async fn predict(args: &PredictArgs, env: &CogEnv) -> anyhow::Result<ExitCode> {
    let result = if args.target.starts_with("http://") || args.target.starts_with("https://") {
        predict_on_server(args).await?
    } else {
        predict_locally(args, env).await?
    };
    if let Some(logs) = result.logs.as_deref() {
        write!(std::io::stderr().lock(), "{logs}").ok();
    }
    if result.status != "succeeded" {
        let error = result
            .error
            .unwrap_or_else(|| "no error message".to_owned());
        writeln!(
            std::io::stderr().lock(),
            "error: the prediction {}: {error}",
            result.status
        )
        .ok();
        return Ok(ExitCode::from(exit::FAILED));
    }
    outputs::write(&result.output, &result.schema, args.output.as_deref()).await?;
    Ok(ExitCode::SUCCESS)
}

/// The result of a prediction.
struct PredictionResult {
    status: String,
    output: Value,
    error: Option<String>,
    /// Logs of the job that were not printed yet.
    logs: Option<String>,
    schema: Value,
}

async fn predict_on_server(args: &PredictArgs) -> anyhow::Result<PredictionResult> {
    let base = Url::parse(&args.target)
        .map_err(|error| UsageError::new(format!("`{}` is not a URL: {error}", args.target)))?;
    let at = |path: &str| -> anyhow::Result<Url> {
        let mut url = base.clone();
        url.path_segments_mut()
            .map_err(|()| UsageError::new(format!("`{base}` cannot have a path")))?
            .pop_if_empty()
            .push(path);
        Ok(url)
    };
    let client = Client::new(Config::default());
    let token = admin_client::token(args.token_file.as_deref())?;
    let fetched = client
        .fetch(&at("openapi.json")?, token.as_deref(), None)
        .await;
    let (status, body) = fetched.with_context(|| format!("no server responds at {base}"))?;
    if status.as_u16() == 401 {
        return Err(UsageError::new(format!(
            "access to {base} denied: {}",
            if token.is_some() {
                "the token is invalid"
            } else {
                "a token is required"
            }
        ))
        .hint("set TIDEGATE_API_TOKEN or --token-file FILE")
        .into());
    }
    let schema: Value = if status.is_success() {
        serde_json::from_slice(&body).unwrap_or_default()
    } else {
        Value::Null
    };
    let input = inputs::read(args.json.as_deref(), &args.inputs, &schema)?;
    let path = if args.training {
        "trainings"
    } else {
        "predictions"
    };
    let request = serde_json::json!({ "input": input }).to_string();
    let (status, body) = client
        .fetch(&at(path)?, token.as_deref(), Some(request.into()))
        .await?;
    let mut answer: Map<String, Value> = serde_json::from_slice(&body)
        .with_context(|| format!("the response of {base} ({status}) is not JSON"))?;
    let text = |value: Option<Value>| value.and_then(|value| value.as_str().map(str::to_owned));
    if !status.is_success() {
        bail!("{base} responded with {status}: {}", refusal(&answer));
    }
    Ok(PredictionResult {
        status: text(answer.remove("status")).unwrap_or_default(),
        output: answer.remove("output").unwrap_or_default(),
        error: text(answer.remove("error")),
        logs: text(answer.remove("logs")),
        schema,
    })
}

/// The error message in the response of a server that refused the job.
fn refusal(answer: &Map<String, Value>) -> String {
    let line = |detail: &Value| {
        let location: Vec<&str> = detail
            .get("loc")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .skip(2)
            .collect();
        format!(
            "{}: {}",
            location.join("."),
            detail
                .get("msg")
                .and_then(Value::as_str)
                .unwrap_or_default()
        )
    };
    match (
        answer.get("error"),
        answer.get("detail").and_then(Value::as_array),
    ) {
        (Some(error), _) => error
            .as_str()
            .map_or_else(|| error.to_string(), str::to_owned),
        (None, Some(details)) => details.iter().map(line).collect::<Vec<_>>().join("; "),
        (None, None) => Value::Object(answer.clone()).to_string(),
    }
}

async fn predict_locally(args: &PredictArgs, env: &CogEnv) -> anyhow::Result<PredictionResult> {
    let model = ModelSource::read(Path::new(&args.target), &args.model, env)?;
    let config = ModelConfig {
        children: 1,
        slots: Some(1),
        max_slots: None,
        queue_limit: 0,
        cancel_grace: Duration::from_secs(1),
        respawn: false,
        keep_for: Duration::from_secs(60),
        keep_data_for: None,
        outbound: OutboundConfig {
            upload_url: args.upload.upload_url.clone(),
            ..OutboundConfig::unrestricted()
        },
        job_timeout: None,
        max_output: usize::MAX,
        waiting_memory: usize::MAX,
        store: None,
        file_store: None,
        hidden_env: &[],
        on_lost: OnLost::Fail,
        run_as: None,
        limits: ResourceLimits::default(),
    };
    let mut signals = Signals::listen(Sigterm::ShutDown)?;
    let factory = ModelFactory::new(&args.model, env, config)?;
    let runtime = factory.start(&model, Arc::new(StderrObserver));
    // Nothing is stored, so the version is not needed.
    let target = Target {
        model: full_name(&model, None, None),
        version: String::new(),
        deployment: None,
    };
    let jobs = factory.job_service(Arc::new(runtime.clone()), target)?;
    let result = tokio::select! {
        result = run_once(args, &model, &jobs) => result,
        _ = signals.next() => Err(anyhow::anyhow!("interrupted")),
    };
    runtime.stop().await;
    result
}

/// The default input of a handler.
const TEST_INPUT: &str = "test_input.json";

/// The input from the arguments, or from the test input next to a handler.
fn read_input(
    args: &PredictArgs,
    model: &ModelSource,
    document: &Value,
) -> anyhow::Result<Map<String, Value>> {
    if let Some(text) = &args.test_input {
        return Ok(inputs::from_test_job(text, "--test-input")?);
    }
    let file = model.dir.join(TEST_INPUT);
    if model.is_script() && args.json.is_none() && args.inputs.is_empty() && file.is_file() {
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("failed to read `{}`", file.display()))?;
        return Ok(inputs::from_test_job(&text, TEST_INPUT)?);
    }
    inputs::read(args.json.as_deref(), &args.inputs, document)
}

async fn run_once(
    args: &PredictArgs,
    model: &ModelSource,
    jobs: &JobService,
) -> anyhow::Result<PredictionResult> {
    wait_until_ready(jobs).await?;
    let schema = jobs.schema().context("the model has no schema")?;
    if args.training && !schema.trainable {
        return Err(UsageError::new("the model has no training function")
            .hint("set it in cog.yaml: `train: \"train.py:train\"`")
            .into());
    }
    let document: Value = serde_json::from_slice(&schema.document)?;
    let input = read_input(args, model, &document)?;
    let submission = Submission {
        account: Account::ANONYMOUS,
        id: None,
        kind: if args.training {
            JobKind::Training
        } else {
            JobKind::Prediction
        },
        input: Bytes::from(serde_json::to_vec(&input)?),
        webhook: None,
        context: BTreeMap::new(),
        response_mode: ResponseMode::Wait,
        on_duplicate: OnDuplicateId::Refuse,
        deadline: None,
        api: Api::Cog,
        policies: Api::Cog.policies(),
        deployment: None,
        destination: None,
    };
    let submitted = jobs.submit(submission).await.map_err(|refusal| {
        UsageError::new(refusal.to_string()).hint("`tidegate schema` shows the inputs of the model")
    })?;
    let Submitted::New(mut ticket) = submitted else {
        bail!("the job service returned an existing job")
    };
    ticket.ended().await;
    let job = ticket.job().snapshot();
    Ok(PredictionResult {
        status: if job.status == Status::Succeeded {
            "succeeded"
        } else if job.status == Status::Canceled {
            "canceled"
        } else {
            "failed"
        }
        .to_owned(),
        output: job
            .output
            .map(|json| parse_output(&json))
            .unwrap_or_default(),
        error: job.error,
        logs: Some(job.logs),
        schema: document,
    })
}

/// The output; as text if it has numbers or a depth that cannot be parsed.
fn parse_output(json: &Bytes) -> Value {
    serde_json::from_slice(json)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(json).into_owned()))
}

async fn wait_until_ready(jobs: &JobService) -> anyhow::Result<()> {
    loop {
        let report = jobs.health().await;
        match report.health {
            Health::Ready | Health::Busy => return Ok(()),
            Health::SetupFailed | Health::Defunct => {
                let logs = report
                    .setup
                    .filter(|setup| setup.status == SetupStatus::Failed)
                    .map(|setup| setup.logs);
                bail!(
                    "failed to load the model\n{}",
                    logs.or(report.health_error).unwrap_or_default()
                );
            }
            Health::Unknown | Health::Starting => {
                tokio::time::sleep(Duration::from_millis(5)).await
            }
        }
    }
}

/// Prints the output of the setup.
struct StderrObserver;

impl Observer for StderrObserver {
    fn phase(&self, _child: usize, phase: Phase<'_>) {
        if let Phase::Log { text, .. } = phase {
            write!(std::io::stderr().lock(), "{text}").ok();
        }
    }
}
