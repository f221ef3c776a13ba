//! `tidegate predict`: runs one prediction.

mod live_output;
mod on_server;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tidegate_core::health::{Health, SetupStatus};
use tidegate_core::port::{BoxFuture, Executor};
use tidegate_core::record::{Api, Target};
use tidegate_core::{Account, JobKind, Status, chain};
use tidegate_http::cog;
use tidegate_queue::MemoryQueue;
use tidegate_runtime::{
    BatchSettings, LoadLimit, OnDemand, ResourceLimits, StartedModel, read_schema,
};
use tidegate_service::{
    Job, JobService, OnDuplicateId, OnLost, ReadPosition, ResponseMode, Submission, Submitted,
};

use crate::cli::{ModeArg, PredictArgs};
use crate::commands::error_cause;
use crate::compat::CogEnv;
use crate::environments::EnvironmentStore;
use crate::model_factory::{ModelConfig, ModelFactory, OutboundConfig};
use crate::model_source::ModelSource;
use crate::models::{full_name, read_one};
use crate::shutdown::{Signals, Sigterm};
use crate::usage_error::UsageError;
use crate::worker_count::WorkerCount;
use crate::{exit, inputs, outputs};
use live_output::LiveOutput;

pub(crate) async fn predict(args: &PredictArgs, env: &CogEnv) -> anyhow::Result<ExitCode> {
    let live = Arc::new(LiveOutput::new());
    let result = if args.target.starts_with("http://") || args.target.starts_with("https://") {
        on_server::predict(args, &live).await
    } else {
        predict_locally(args, env, &live).await
    };
    live.stop();
    let result = result?;
    if !result.logs_shown {
        live.log(&result.text("logs").unwrap_or_default());
    }
    let status = result.text("status").unwrap_or_default();
    let has_succeeded = status == "succeeded";
    let error = result.text("error");
    let error = error.unwrap_or_else(|| "no error message".to_owned());
    let streamed = args.shows_streamed_text(&result.schema) && live.is_streaming();
    if args.json.is_some() {
        outputs::write_prediction(result.fields, &result.schema, args.output.as_deref())?;
    } else if streamed {
        // The text itself was printed as it arrived.
        live.text("\n");
    } else if has_succeeded {
        let null = RawValue::NULL.to_owned();
        let output = result.fields.get("output").unwrap_or(&null);
        outputs::write(output, &result.schema, args.output.as_deref()).await?;
    }
    if has_succeeded {
        return Ok(ExitCode::SUCCESS);
    }
    if args.json.is_none() {
        writeln!(
            std::io::stderr().lock(),
            "error: the prediction {status}: {}",
            error_cause(&error)
        )
        .ok();
    }
    Ok(ExitCode::from(exit::FAILED))
}

/// A prediction that has ended.
struct PredictionResult {
    /// The fields of the response of Cog's API.
    fields: BTreeMap<String, Box<RawValue>>,
    schema: Value,
    /// Whether the logs were printed while it ran.
    logs_shown: bool,
}

impl PredictionResult {
    /// Parses the response of Cog's API.
    fn parse(body: &[u8], schema: Value) -> serde_json::Result<Self> {
        Ok(Self {
            fields: serde_json::from_slice(body)?,
            schema,
            logs_shown: false,
        })
    }

    /// A field that is a text.
    fn text(&self, field: &str) -> Option<String> {
        serde_json::from_str(self.fields.get(field)?.get()).ok()
    }
}

impl PredictArgs {
    /// Whether streamed text is printed as it arrives.
    fn shows_streamed_text(&self, schema: &Value) -> bool {
        self.json.is_none() && self.output.is_none() && outputs::is_streamed_text(schema)
    }
}

async fn predict_locally(
    args: &PredictArgs,
    env: &CogEnv,
    live: &Arc<LiveOutput>,
) -> anyhow::Result<PredictionResult> {
    let target = Path::new(&args.target);
    if args.target.contains('=') && !target.exists() {
        return Err(
            UsageError::new(format!("there is no folder `{}`", args.target))
                .hint(format!("inputs are given with -i: -i {}", args.target))
                .into(),
        );
    }
    let model = read_one(target, args.model_name.as_deref(), &args.model, env)?;
    let config = ModelConfig {
        workers: WorkerCount::fixed(1),
        gpus: None,
        autoscaling: None,
        spare: None,
        slots: Some(1),
        max_slots: None,
        async_handler_slots: None,
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
        queue: Arc::new(MemoryQueue::default()),
        file_store: None,
        hidden_env: &[],
        on_lost: OnLost::Fail,
        run_as: None,
        limits: ResourceLimits::default(),
        batch: BatchSettings::default(),
        environments: EnvironmentStore::new(args.environments.data_dir.as_ref()),
        install: None,
    };
    let mut signals = Signals::listen(Sigterm::ShutDown)?;
    let factory = ModelFactory::new(&args.model, env, config)?;
    // Loaded on demand: the input is validated before any code of the model runs.
    let schema = read_schema(&factory.launch(&model))
        .await
        .map_err(|error| anyhow::anyhow!("failed to load the model\n{}", chain(&error)))?;
    let (starter, observer) = (
        factory.starter(&model, &full_name(&model, None, None), ""),
        Arc::clone(live),
    );
    let start = move || {
        let runtime = starter.start(Arc::clone(&observer) as Arc<_>);
        let workdir = None;
        Box::pin(std::future::ready(Ok(StartedModel { runtime, workdir }))) as BoxFuture<_>
    };
    let executor = OnDemand::new(schema, None, LoadLimit::new(None), Box::new(start));
    // Nothing is stored, so the version is not needed.
    let target = Target {
        model: full_name(&model, None, None),
        version: String::new(),
        deployment: None,
    };
    let jobs = factory.job_service(Arc::new(executor.clone()), target)?;
    let result = tokio::select! {
        result = run_once(args, &model, &jobs, live) => result,
        cause = signals.next() => {
            Err(UsageError::new("interrupted").exit_code(cause.forced_exit_code()).into())
        }
    };
    executor.stop().await;
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
    inputs::read(args.json.as_deref(), &args.inputs, document, kind(args))
}

/// The function whose inputs the arguments contain.
fn kind(args: &PredictArgs) -> JobKind {
    if args.training || args.model.mode == ModeArg::Train {
        JobKind::Training
    } else {
        JobKind::Prediction
    }
}

async fn run_once(
    args: &PredictArgs,
    model: &ModelSource,
    jobs: &JobService,
    live: &LiveOutput,
) -> anyhow::Result<PredictionResult> {
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
        warnings: Vec::new(),
    };
    let submitted = jobs.submit(submission).await.map_err(|refusal| {
        UsageError::new(refusal.to_string()).hint("`tidegate schema` shows the inputs of the model")
    })?;
    let Submitted::New(mut ticket) = submitted else {
        bail!("the job service returned an existing job")
    };
    if args.shows_streamed_text(&document) {
        live.start_streaming();
    }
    let job = Arc::clone(ticket.job());
    tokio::join!(ticket.ended(), follow(&job, live));
    let snapshot = job.snapshot();
    if snapshot.started_at.is_none() && snapshot.status == Status::Failed {
        check_loaded(jobs).await?;
    }
    // A script may define more when it runs than its source shows.
    let document = match jobs.schema() {
        Some(schema) => serde_json::from_slice(&schema.document)?,
        None => document,
    };
    let mut result = PredictionResult::parse(&cog::prediction_json(&snapshot), document)?;
    result.logs_shown = true;
    Ok(result)
}

/// Prints the logs of the job as they arrive and, if it is streamed text, the output.
async fn follow(job: &Job, live: &LiveOutput) {
    let mut seen = ReadPosition::default();
    loop {
        let delta = job.progress(seen).await;
        seen.outputs += delta.outputs.len();
        seen.logs += delta.logs.len();
        live.log(&delta.logs);
        for output in delta.outputs.iter().filter(|_| live.is_streaming()) {
            live.text(&serde_json::from_slice::<String>(output).unwrap_or_default());
        }
        if delta.ended {
            return;
        }
    }
}

/// Fails with the reason if the model could not be loaded.
async fn check_loaded(jobs: &JobService) -> anyhow::Result<()> {
    let report = jobs.health().await;
    match report.health {
        Health::Unknown | Health::Starting | Health::Ready | Health::Busy => Ok(()),
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
    }
}
