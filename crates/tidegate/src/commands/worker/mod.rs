//! `tidegate worker`: runs the jobs of a Runpod platform, or one test job.

mod job_codec;
mod journal;
mod test_job;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use tidegate_core::health::{Health, SetupStatus};
use tidegate_core::port::Executor;
use tidegate_net::{AllowedNetworks, Client, Config as NetConfig};
use tidegate_queue::MemoryQueue;
use tidegate_runpod_worker::{
    Config, ExitReason, Job, OnInterruptedJob, PlatformClient, PlatformUrls, RunpodWorker,
    UrlTemplates, WorkerDeps,
};
use tidegate_runtime::{Observer, Phase, ResourceLimits, Runtime};
use tidegate_service as service;
use tokio_util::sync::CancellationToken;

use self::job_codec::{ModelJobCodec, handler_semantics};
use crate::cli::{self, WorkerArgs};
use crate::compat::CogEnv;
use crate::data_dir::DataDir;
use crate::environments::EnvironmentStore;
use crate::exit;
use crate::gpu_setup::GpuSetup;
use crate::model_factory::{ModelConfig, ModelFactory, OutboundConfig};
use crate::model_source::ModelSource;
use crate::models::full_name;
use crate::runpod_env::RunpodEnv;
use crate::shutdown::{Signals, Sigterm};
use crate::usage_error::UsageError;
use crate::worker_count::WorkerCount;

/// The most jobs at the same time that a `concurrency_modifier` can request; each needs a socket.
const MAX_SLOTS: u32 = 128;
/// How often the worker checks whether the model is ready.
const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(5);

pub(crate) async fn worker(
    args: &WorkerArgs,
    env: &CogEnv,
    runpod: &RunpodEnv,
) -> anyhow::Result<ExitCode> {
    let mut model = ModelSource::read(&args.target, &args.model, env)?;
    let mut signals = Signals::listen(Sigterm::ShutDown)?;
    // Before the model is loaded, so that a mistake is reported at once.
    let mode = match (&args.test_input, &runpod.templates) {
        (None, Some(templates)) => {
            WorkerMode::Poll(PlatformConnection::open(args, &model, runpod, templates)?)
        }
        (Some(_), _) | (None, None) => {
            WorkerMode::TestJob(test_job::read(args.test_input.as_deref())?)
        }
    };
    let folder = args.data_dir.as_ref().and_then(DataDir::path);
    let gpus = GpuSetup::open(&args.gpu, folder).await?;
    let factory = ModelFactory::new(&args.model, env, model_config(args, gpus))?;
    if matches!(mode, WorkerMode::Poll(_)) && model.is_script() {
        model.env.push(request_fitness_check(factory.scratch())?);
    }
    let name = full_name(&model, None, None);
    let runtime = factory
        .starter(&model, &name, "")
        .start(Arc::new(LogObserver));
    let codec = ModelJobCodec::new(factory.job_io()?, Arc::new(runtime.clone()));
    let ready = tokio::select! {
        ready = wait_until_ready(&runtime) => ready,
        cause = signals.next() => {
            runtime.stop().await;
            return Ok(ExitCode::from(cause.exit_code()));
        }
    };
    let code = match (ready, mode) {
        (Err(reason), mode) => report_setup_failure(&reason, mode).await,
        (Ok(()), WorkerMode::TestJob(job)) => {
            test_job::run(&runtime, codec, &job, &mut signals).await?
        }
        (Ok(()), WorkerMode::Poll(connection)) => {
            poll(args, runpod, &runtime, codec, connection, &mut signals).await
        }
    };
    runtime.stop().await;
    Ok(code)
}

/// Makes the first child run the fitness checks, as Runpod's own worker does before it takes jobs. The
/// child deletes the file when they pass, so that its replacements start without them.
fn request_fitness_check(scratch: &Path) -> anyhow::Result<(OsString, OsString)> {
    let file = scratch.join("unchecked");
    std::fs::write(&file, "").with_context(|| format!("failed to write `{}`", file.display()))?;
    Ok(("TIDEGATE_UNCHECKED".into(), file.into()))
}

/// What the worker does.
enum WorkerMode {
    /// Runs one job and exits.
    TestJob(Job),
    /// Fetches jobs from the platform.
    Poll(PlatformConnection),
}

/// The platform, and the journal of its jobs.
struct PlatformConnection {
    platform: Arc<PlatformClient>,
    journal: tidegate_runpod_worker::Journal,
}

impl PlatformConnection {
    fn open(
        args: &WorkerArgs,
        model: &ModelSource,
        runpod: &RunpodEnv,
        templates: &UrlTemplates,
    ) -> anyhow::Result<Self> {
        let opened = journal::open(
            args.data_dir.as_ref(),
            &model.dir.join(&model.predictor_ref),
            runpod.worker.as_deref(),
        )?;
        let urls = PlatformUrls::from_templates(templates, &opened.worker_id).map_err(|error| {
            UsageError::new(error.to_string()).hint(format!(
                "set {} to the address that the platform provides",
                error.variable
            ))
        })?;
        // The operator sets these addresses, so all networks are allowed.
        let mut config = NetConfig {
            networks: AllowedNetworks::all(),
            ..NetConfig::default()
        };
        if let Some(integration) = &runpod.integration {
            write!(config.user_agent, " Integration/{integration}")
                .expect("writing to a String cannot fail");
        }
        let client = Client::new(config);
        tracing::info!(worker = opened.worker_id, "connecting to the platform");
        Ok(Self {
            platform: Arc::new(PlatformClient::new(client, urls, runpod.key.as_deref())),
            journal: opened.journal,
        })
    }
}

/// Runs the jobs of the platform until a signal or the platform ends the worker.
async fn poll(
    args: &WorkerArgs,
    runpod: &RunpodEnv,
    runtime: &Runtime,
    codec: ModelJobCodec,
    connection: PlatformConnection,
    signals: &mut Signals,
) -> ExitCode {
    let config = Config {
        ping_interval: runpod.ping_every,
        semantics: handler_semantics(runtime.schema().as_deref()),
        on_interrupted: match args.on_lost {
            cli::OnLostArg::Retry => OnInterruptedJob::Retry,
            cli::OnLostArg::Fail => OnInterruptedJob::Fail,
        },
        job_timeout: args.job_timeout.filter(|limit| !limit.is_zero()),
    };
    let executor: Arc<dyn Executor> = Arc::new(runtime.clone());
    let platform = Arc::clone(&connection.platform);
    let worker = RunpodWorker::new(
        WorkerDeps {
            executor,
            codec: Arc::new(codec),
            platform: connection.platform,
            journal: connection.journal,
        },
        config,
    );
    let stop = CancellationToken::new();
    let run = worker.run(&stop, args.drain_timeout);
    tokio::pin!(run);
    loop {
        tokio::select! {
            reason = &mut run => return exit_code(reason, &platform).await,
            cause = signals.next() => {
                if stop.is_cancelled() {
                    tracing::warn!("received a second signal, exiting now; the next worker resumes the running jobs");
                    return ExitCode::from(cause.forced_exit_code());
                }
                tracing::info!("stopped fetching jobs, finishing the running ones");
                stop.cancel();
            }
        }
    }
}

async fn exit_code(reason: ExitReason, platform: &PlatformClient) -> ExitCode {
    match reason {
        ExitReason::Requested | ExitReason::Refresh => ExitCode::SUCCESS,
        ExitReason::ModelDefunct(reason) => {
            tracing::error!(reason, "model is defunct");
            platform.report_unhealthy("model", &reason).await;
            ExitCode::from(exit::FAILED)
        }
    }
}

/// Reports that the model failed to load, or that a fitness check failed.
async fn report_setup_failure(reason: &str, mode: WorkerMode) -> ExitCode {
    writeln!(
        std::io::stderr().lock(),
        "error: failed to load the model\n{reason}"
    )
    .ok();
    if let WorkerMode::Poll(connection) = mode {
        let (check, reason) =
            failed_check(reason).unwrap_or(("setup", reason.lines().last().unwrap_or_default()));
        connection.platform.report_unhealthy(check, reason).await;
    }
    ExitCode::from(exit::FAILED)
}

/// The name and the message of the fitness check that failed.
fn failed_check(reason: &str) -> Option<(&str, &str)> {
    let (_, rest) = reason.rsplit_once("the fitness check `")?;
    let (check, message) = rest.split_once("` says ")?;
    Some((check, message.trim()))
}

async fn wait_until_ready(runtime: &Runtime) -> Result<(), String> {
    loop {
        let report = runtime.report();
        match report.health {
            Health::Ready | Health::Busy => return Ok(()),
            Health::SetupFailed | Health::Defunct => {
                let logs = report
                    .setup
                    .filter(|setup| setup.status == SetupStatus::Failed)
                    .map(|setup| setup.logs);
                return Err(logs.or(report.health_error).unwrap_or_default());
            }
            Health::Unknown | Health::Starting => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

fn model_config(args: &WorkerArgs, gpus: GpuSetup) -> ModelConfig {
    let outbound = OutboundConfig {
        networks: args.allow_private_networks.clone(),
        max_file: args.max_file as u64,
        upload_url: args.upload.upload_url.clone(),
        ..OutboundConfig::unrestricted()
    };
    ModelConfig {
        workers: WorkerCount::fixed(1),
        gpus: Some(gpus),
        autoscaling: None,
        spare: None,
        slots: args.concurrency,
        max_slots: Some(MAX_SLOTS),
        async_handler_slots: None,
        queue_limit: 0,
        cancel_grace: args.cancel_grace,
        respawn: true,
        keep_for: std::time::Duration::ZERO,
        keep_data_for: None,
        job_timeout: None,
        max_output: usize::MAX,
        waiting_memory: usize::MAX,
        store: None,
        queue: Arc::new(MemoryQueue::default()),
        file_store: None,
        hidden_env: &[],
        on_lost: service::OnLost::Fail,
        run_as: None,
        limits: ResourceLimits::default(),
        batch: args.batch.settings(),
        outbound,
        environments: EnvironmentStore::new(args.data_dir.as_ref()),
        install: None,
    }
}

/// Logs what the model prints outside of jobs, and when its process was replaced.
struct LogObserver;

impl Observer for LogObserver {
    fn phase(&self, _child: usize, phase: Phase<'_>) {
        match phase {
            Phase::Log { text, .. } => tracing::info!(target: "model", "{}", text.trim_end()),
            Phase::Died { reason, pause } => {
                tracing::warn!(reason, ?pause, "model process died, replacing it")
            }
            Phase::Ready { after, slots } => tracing::info!(?after, slots, "model ready"),
            Phase::Loading { .. } | Phase::Failed { .. } | Phase::Defunct { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_failed_fitness_check_is_found() {
        let reason = "Traceback\nsetup failed: the fitness check `gpu` says RuntimeError: none `here` says nvidia\n";
        assert_eq!(
            failed_check(reason),
            Some(("gpu", "RuntimeError: none `here` says nvidia"))
        );
        assert_eq!(failed_check("no module named x"), None);
    }
}
