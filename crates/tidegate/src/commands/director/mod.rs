//! `tidegate director`: runs the jobs of a cluster on the models of this machine.

mod cog_server;
mod health;
mod models;
mod trained;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use jiff::Timestamp;
use rustix::process::DumpableBehavior;
use tidegate_core::director_api::DirectorJobKind;
use tidegate_director::{
    ApiCalls, ApiClient, ApiWeights, Config, Director, DirectorDeps, DirectorError, Hook, Hooks,
    LoadTiming, OnHookFailure, OnIsolated,
};
use tidegate_net::{Client, Config as NetConfig, Url};
use tidegate_queue::redis::RedisQueueConfig;
use tokio_util::sync::CancellationToken;

use self::health::HealthServer;
use self::models::DirectorModels;
use crate::cli::{DirectorArgs, HookArgs, JobKindArg, LogFormat, OnHookFailureArg, OnIsolatedArg};
use crate::cluster_backends;
use crate::compat::CogEnv;
use crate::data_dir::DataDir;
use crate::director_env::DirectorEnv;
use crate::director_token;
use crate::gpu_setup::GpuSetup;
use crate::shutdown::{Signals, Sigterm};
use crate::usage_error::UsageError;

pub(crate) async fn director(
    args: &DirectorArgs,
    env: &CogEnv,
    format: LogFormat,
) -> anyhow::Result<ExitCode> {
    let started_at = Timestamp::now();
    // A model that runs as the same user must not read this process's memory.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).ok();
    let director_env = DirectorEnv::read()?;
    let token = director_token::read(args.token_file.as_deref(), director_env.token.as_deref())?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => host_name()?,
    };
    // Not required by clap, because the configuration file may have them.
    let redis = args.redis.as_ref().ok_or_else(|| {
        UsageError::new("a director needs the Redis server that the queue is in")
            .hint("give it with --redis, such as redis://10.0.0.5:6379")
    })?;
    if args.api.is_empty() {
        return Err(UsageError::new("a director needs the URL of the API")
            .hint("give the URL of `tidegate api` with --api, such as http://10.0.0.6:5000")
            .into());
    }
    let net = Client::new(NetConfig {
        max_file: args.max_file as u64,
        ..NetConfig::default()
    });
    let api = Arc::new(ApiClient::new(net, args.api.clone(), &token)?);
    if args.install {
        models::install_packages(args, format)?;
    }
    let folder = args.data_dir.as_ref().and_then(DataDir::path);
    let gpus = GpuSetup::open(&args.gpu, folder).await?;
    let gpu_source = Arc::clone(&gpus.source);
    let mut signals = Signals::listen(Sigterm::ShutDown)?;
    let open = async {
        let models = match &args.cog_url {
            Some(url) => cog_server::connect(args, env, &director_env, url).await?,
            None => {
                let weights = Arc::new(ApiWeights::new(Arc::clone(&api) as Arc<dyn ApiCalls>));
                models::load(args, env, &director_env, weights, gpus).await?
            }
        };
        let config = RedisQueueConfig::new(redis.clone(), &name);
        let queue = cluster_backends::open_queue(config).await?;
        anyhow::Ok((models, Arc::new(queue)))
    };
    let (DirectorModels { models, trained }, queue) = tokio::select! {
        opened = open => opened?,
        cause = signals.next() => return Ok(ExitCode::from(cause.exit_code())),
    };
    let config = Config {
        name,
        job_kind: job_kind(args.job_kind.or(director_env.job_kind)),
        claim_interval: args.claim_interval,
        on_isolated: match args.on_isolated {
            OnIsolatedArg::Stop => OnIsolated::Stop,
            OnIsolatedArg::Continue => OnIsolated::Continue,
        },
        loading: if models::loads_on_demand(args) {
            LoadTiming::OnDemand
        } else {
            LoadTiming::AtStart
        },
    };
    tracing::info!(name = config.name, api = api.hosts(), "starting director");
    let deps = DirectorDeps {
        api,
        queue,
        models: models.clone(),
        live: Some(Arc::new(cluster_backends::open_live(redis)?)),
        trained,
    };
    let director = Arc::new(Director::with_hooks(config, deps, hooks(&args.hooks)));
    let mut health = HealthServer::start(args, &director, &models, gpu_source, started_at).await?;
    let result = health
        .while_running(run(args, &director, &mut signals))
        .await;
    health.finish().await;
    models.stop().await;
    result
}

/// Runs the director until it ends by itself or a signal ends it.
async fn run(
    args: &DirectorArgs,
    director: &Director,
    signals: &mut Signals,
) -> anyhow::Result<ExitCode> {
    let stop = CancellationToken::new();
    let run = director.run(stop.clone(), args.drain_timeout);
    tokio::pin!(run);
    let mut exit_code = ExitCode::SUCCESS;
    loop {
        tokio::select! {
            result = &mut run => {
                return match result {
                    Ok(_) => Ok(exit_code),
                    // Both would replace each other for ever if this one were started again.
                    Err(error @ DirectorError::Superseded { .. }) => {
                        Err(UsageError::new(error.to_string()).into())
                    }
                    Err(error) => Err(UsageError::new(error.to_string()).transient().into()),
                };
            }
            cause = signals.next() => {
                if stop.is_cancelled() {
                    tracing::warn!("received a second signal, exiting now; other directors run the jobs when their leases have expired");
                    return Ok(ExitCode::from(cause.forced_exit_code()));
                }
                exit_code = ExitCode::from(cause.exit_code());
                stop.cancel();
                signals.skip_repeated().await;
            }
        }
    }
}

/// The name of this machine.
fn host_name() -> anyhow::Result<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .context("failed to read the name of the host; give the director a name with --name")?;
    Ok(name.trim().to_owned())
}

fn hooks(args: &HookArgs) -> Hooks {
    let net = Arc::new(Client::new(NetConfig::default()));
    let hook = |url: &Option<Url>, timeout, on_failure| {
        url.clone().map(|url| Hook {
            net: Arc::clone(&net),
            url,
            timeout,
            on_failure: match on_failure {
                OnHookFailureArg::Fail => OnHookFailure::Fail,
                OnHookFailureArg::Allow => OnHookFailure::Allow,
            },
        })
    };
    Hooks {
        policy: hook(
            &args.policy_url,
            args.policy_timeout,
            args.on_policy_failure,
        ),
        moderation: hook(
            &args.moderation_url,
            args.moderation_timeout,
            args.on_moderation_failure,
        ),
    }
}

fn job_kind(kind: Option<JobKindArg>) -> DirectorJobKind {
    match kind {
        None | Some(JobKindArg::Prediction) => DirectorJobKind::Prediction,
        Some(JobKindArg::Training) => DirectorJobKind::Training,
        Some(JobKindArg::Procedure) => DirectorJobKind::Procedure,
    }
}
