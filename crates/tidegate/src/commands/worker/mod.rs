//! `tidegate worker`: runs jobs that a Runpod platform hands out, or one to try.

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
use tidegate_runpod_worker::{
    Config, ExitReason, Job, OnInterruptedJob, PlatformClient, PlatformUrls, RunpodWorker,
    UrlTemplates, WorkerDeps,
};
use tidegate_runtime::{Observer, Phase, ResourceLimits, Runtime};
use tidegate_service as service;
use tokio_util::sync::CancellationToken;

use self::job_codec::{ModelJobCodec, habits};
use crate::cli::{self, WorkerArgs};
use crate::compat::CogEnv;
use crate::exit;
use crate::model_factory::{ModelConfig, ModelFactory, OutboundConfig};
use crate::model_source::ModelSource;
use crate::runpod_env::RunpodEnv;
use crate::shutdown::{ShutdownCause, Signals, Sigterm};
use crate::usage_error::UsageError;

/// Jobs at once that a `concurrency_modifier` can have; each costs a socket.
const MAX_SLOTS: u32 = 128;
/// How often is looked whether the model is ready.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_millis(5);

pub(crate) async fn worker(
    args: &WorkerArgs,
    env: &CogEnv,
    runpod: &RunpodEnv,
) -> anyhow::Result<ExitCode> {
    let mut model = ModelSource::read(&args.target, &args.model, env)?;
    let mut signals = Signals::listen(Sigterm::ShutDown)?;
    // Before the model is loaded: what is wrong here is said at once.
    let purpose = match (&args.test_input, &runpod.templates) {
        (None, Some(templates)) => {
            WorkerMode::Pull(PlatformConnection::open(args, &model, runpod, templates)?)
        }
        (Some(_), _) | (None, None) => {
            WorkerMode::Try(test_job::trial(args.test_input.as_deref())?)
        }
    };
    let factory = ModelFactory::new(&args.model, env, model_config(args))?;
    if matches!(purpose, WorkerMode::Pull(_)) && model.is_script() {
        model.env.push(unchecked(factory.scratch())?);
    }
    let runtime = factory.start(&model, Arc::new(LogObserver));
    let carrying = ModelJobCodec::new(factory.job_io()?, Arc::new(runtime.clone()));
    let ready = tokio::select! {
        ready = until_ready(&runtime) => ready,
        cause = signals.next() => {
            runtime.stop().await;
            return Ok(ExitCode::from(cause.exit_code()));
        }
    };
    let code = match (ready, purpose) {
        (Err(reason), purpose) => unfit(&reason, purpose).await,
        (Ok(()), WorkerMode::Try(job)) => {
            test_job::run(&runtime, carrying, &job, &mut signals).await?
        }
        (Ok(()), WorkerMode::Pull(post)) => {
            pull(args, runpod, &runtime, carrying, post, &mut signals).await
        }
    };
    runtime.stop().await;
    Ok(code)
}

/// Tells the first child to check the machine, as Runpod's own worker does before it takes jobs. The file is there
/// until it has passed, so that a child that takes another one's place begins at once.
fn unchecked(scratch: &Path) -> anyhow::Result<(OsString, OsString)> {
    let file = scratch.join("unchecked");
    std::fs::write(&file, "").with_context(|| format!("could not write `{}`", file.display()))?;
    Ok(("TIDEGATE_UNCHECKED".into(), file.into()))
}

/// What a worker is there for.
enum WorkerMode {
    /// One job.
    Try(Job),
    /// All that a platform has.
    Pull(PlatformConnection),
}

/// The platform, and what is kept for it.
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
        let kept = journal::open(
            args.data_dir.as_ref(),
            &model.dir.join(&model.predictor_ref),
            runpod.worker.as_deref(),
        )?;
        let addresses = PlatformUrls::from_templates(templates, &kept.worker).map_err(|bad| {
            let message = bad.to_string();
            UsageError::new(message).hint(format!(
                "set {} to an address that the platform gives out",
                bad.variable
            ))
        })?;
        // The operator's own addresses: nothing is guarded.
        let mut config = NetConfig {
            networks: AllowedNetworks::all(),
            ..NetConfig::default()
        };
        if let Some(integration) = &runpod.integration {
            write!(config.user_agent, " Integration/{integration}")
                .expect("a String never fails to write");
        }
        let client = Client::new(config);
        tracing::info!(worker = kept.worker, "this worker");
        Ok(Self {
            platform: Arc::new(PlatformClient::new(
                client,
                addresses,
                runpod.key.as_deref(),
            )),
            journal: kept.journal,
        })
    }
}

async fn pull(
    args: &WorkerArgs,
    runpod: &RunpodEnv,
    runtime: &Runtime,
    carrying: ModelJobCodec,
    post: PlatformConnection,
    signals: &mut Signals,
) -> ExitCode {
    let options = Config {
        ping_interval: runpod.ping_every,
        semantics: habits(runtime.schema().as_deref()),
        on_interrupted: match args.on_lost {
            cli::OnLostArg::Retry => OnInterruptedJob::Retry,
            cli::OnLostArg::Fail => OnInterruptedJob::Fail,
        },
        job_timeout: args.job_timeout.filter(|limit| !limit.is_zero()),
    };
    let executor: Arc<dyn Executor> = Arc::new(runtime.clone());
    let platform = Arc::clone(&post.platform);
    let puller = RunpodWorker::new(
        WorkerDeps {
            executor,
            codec: Arc::new(carrying),
            platform: post.platform,
            journal: post.journal,
        },
        options,
    );
    let leave = CancellationToken::new();
    let run = puller.run(&leave, args.drain_timeout);
    tokio::pin!(run);
    loop {
        tokio::select! {
            over = &mut run => return ended(over, &platform).await,
            cause = signals.next() => {
                if leave.is_cancelled() {
                    tracing::warn!("a second signal: ending at test_job; what is in hand is left to the next worker");
                    return ExitCode::from(if cause == ShutdownCause::Interrupt { exit::INTERRUPTED } else { exit::TERMINATED });
                }
                tracing::info!("no more jobs are taken; those in hand are finished");
                leave.cancel();
            }
        }
    }
}

async fn ended(over: ExitReason, platform: &PlatformClient) -> ExitCode {
    match over {
        ExitReason::Requested | ExitReason::Refresh => ExitCode::SUCCESS,
        ExitReason::ModelDefunct(reason) => {
            tracing::error!(reason, "the model does not work any more");
            platform.report_unhealthy("model", &reason).await;
            ExitCode::from(exit::FAILED)
        }
    }
}

/// The model could not be loaded, or a fitness check says that the machine is not fit for it.
async fn unfit(reason: &str, purpose: WorkerMode) -> ExitCode {
    writeln!(
        std::io::stderr().lock(),
        "error: the model could not be loaded\n{reason}"
    )
    .ok();
    if let WorkerMode::Pull(post) = purpose {
        let (check, reason) =
            fitness(reason).unwrap_or(("setup", reason.lines().last().unwrap_or_default()));
        post.platform.report_unhealthy(check, reason).await;
    }
    ExitCode::from(exit::FAILED)
}

/// The name of the check that failed, and what it said.
fn fitness(reason: &str) -> Option<(&str, &str)> {
    let (_, said) = reason.rsplit_once("the fitness check `")?;
    let (check, said) = said.split_once("` says ")?;
    Some((check, said.trim()))
}

async fn until_ready(runtime: &Runtime) -> Result<(), String> {
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
            Health::Unknown | Health::Starting => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

fn model_config(args: &WorkerArgs) -> ModelConfig {
    let outbound = OutboundConfig {
        networks: args.allow_private_networks.clone(),
        max_file: args.max_file as u64,
        upload_url: args.upload.upload_url.clone(),
        ..OutboundConfig::unrestricted()
    };
    ModelConfig {
        children: 1,
        slots: args.concurrency,
        max_slots: Some(MAX_SLOTS),
        queue_limit: 0,
        cancel_grace: args.cancel_grace,
        respawn: true,
        keep_for: std::time::Duration::ZERO,
        keep_data_for: None,
        job_timeout: None,
        max_output: usize::MAX,
        waiting_memory: usize::MAX,
        store: None,
        file_store: None,
        hidden_env: &[],
        on_lost: service::OnLost::Fail,
        run_as: None,
        limits: ResourceLimits::default(),
        outbound,
    }
}

/// Shows what the model prints outside of jobs, and when it had to be replaced.
struct LogObserver;

impl Observer for LogObserver {
    fn phase(&self, _worker: usize, phase: Phase<'_>) {
        match phase {
            Phase::Log { text, .. } => tracing::info!(target: "model", "{}", text.trim_end()),
            Phase::Died { reason, pause } => tracing::warn!(
                reason,
                ?pause,
                "the model's process has ended and is replaced"
            ),
            Phase::Ready { after, slots } => tracing::info!(?after, slots, "the model is ready"),
            Phase::Loading { .. } | Phase::Failed { .. } | Phase::Defunct { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fitness_check_is_told_by_its_name() {
        let reason = "Traceback\nsetup failed: the fitness check `gpu` says RuntimeError: none `here` says nvidia\n";
        assert_eq!(
            fitness(reason),
            Some(("gpu", "RuntimeError: none `here` says nvidia"))
        );
        assert_eq!(fitness("no module named x"), None);
    }
}
