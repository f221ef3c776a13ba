//! `tidegate serve`: a model over HTTP.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use rustix::process::DumpableBehavior;
use tidegate_core::store::Store;
use tidegate_http::access::{self, Tokens};
use tidegate_http::admin;
use tidegate_http::cog::{self, Build};
use tidegate_http::replicate::{self, Abroad};
use tidegate_runtime::Limits;
use tidegate_service::{Jobs, MAX_INLINE_FILE, ModelSchema, OnLost, Resumed, Secrets};
use tidegate_store::Sqlite;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::cli::{self, LogFormat, Serve};
use crate::compat::CogEnv;
use crate::failure::Usage;
use crate::files_store::{self, FilesStore};
use crate::listen::{Callers, addresses};
use crate::model::Model;
use crate::platform::Platform;
use crate::progress::Progress;
use crate::reload::Reload;
use crate::shutdown::{self, Cause, Signals};
use crate::tokens::Sources;
use crate::wiring::{self, Outward, Setting};
use crate::{build_info, data_dir, exit, front, inputs, run_as, webhook_secrets};

/// Times that a job may be given to the model, when the server dies with it again and again.
const ATTEMPTS: u32 = 3;

pub(crate) async fn serve(args: &Serve, env: &CogEnv, format: LogFormat) -> anyhow::Result<ExitCode> {
    let model = Model::read(&args.dir, &args.model, env)?;
    let mut signals = Signals::listen(args.await_explicit_shutdown)?;
    // A model that runs as the same user must not read this process's memory.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).ok();
    let mut reload = Reload::default();
    let tokens = Sources::new(args.tokens_file.clone())?.open(&mut reload)?;
    let webhook_secrets = webhook_secrets::read(env.webhook_secret.as_deref(), args.webhook_secret_file.as_deref(), &mut reload)?;
    let edge = front::edge(args, &mut reload)?;
    let reload = reload.listen()?;
    let addresses = addresses(&args.host, args.port, callers(args, tokens.as_ref())).await?;
    let listener = listen(&addresses, &args.host, args.port).await?;
    let url = format!("{}://{}", front::scheme(&edge), listener.local_addr()?);

    let data = data_dir::open(args.data_dir.as_ref(), &model.dir, args.port)?;
    let platform = Platform::of(args, &model, data.as_ref()).await?;
    let setting = setting(args, webhook_secrets.clone(), &platform, data.map(|data| data.store))?;

    // Emptied in the end: the desk holds the runtime, which holds the progress, which holds this.
    let jobs: Arc<Mutex<Option<Jobs>>> = Arc::default();
    let greeting = Arc::clone(&jobs);
    let (greeting_url, greeting_tokens) = (url.clone(), tokens.clone());
    let on_ready = move || {
        let jobs = greeting.lock().unwrap_or_else(PoisonError::into_inner);
        Some(greet(&greeting_url, greeting_tokens.as_ref(), &*jobs.as_ref()?.schema()?))
    };
    let progress = Arc::new(Progress::new(args.progress, format, args.workers.into(), Box::new(on_ready)));
    progress.announce(&model, &url);

    let observer = Arc::clone(&progress);
    let wired = wiring::wire(&model, &args.model, env, &setting, observer)?;
    *jobs.lock().unwrap_or_else(PoisonError::into_inner) = Some(wired.jobs.clone());
    let _emptied = Emptied(jobs);
    let resumed = wired.jobs.resume().await.context("what a server before this one has left cannot be read")?;
    if resumed != Resumed::default() {
        tracing::info!(resumed.queued, resumed.failed, resumed.letters, "took up what was left by the server before");
    }

    let (stop, goodbye, asked) = (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
    let platform = platform.face(args, &url, webhook_secrets).await?;
    let faces = cog::routes(wired.jobs.clone(), face_config(args, env, platform.abroad()), asked.clone())
        .merge(admin::routes(wired.jobs.clone()))
        .merge(replicate::routes(wired.jobs.clone(), platform));
    // Last, so that it stands before every route.
    let faces = match tokens {
        Some(tokens) => access::guarded(faces, tokens),
        None => faces,
    };
    let http = tidegate_http::edge::serve(listener, faces, edge, stop.clone(), goodbye.clone());
    let upkeep = async {
        match (&setting.cabinet, &setting.store) {
            (Some(cabinet), Some(store)) => cabinet.upkeep(&**store).await,
            _ => std::future::pending().await,
        }
    };
    tokio::pin!(http, reload, upkeep);
    let cause = tokio::select! {
        () = &mut http => unreachable!("the listener ends only when it is told to"),
        () = &mut reload => unreachable!("it listens for ever"),
        () = &mut upkeep => unreachable!("it looks after files for ever"),
        cause = signals.next() => cause,
        () = asked.cancelled() => Cause::Asked,
    };
    tracing::info!(?cause, "shutting down");
    stop.cancel();
    tokio::select! {
        () = shutdown::drain(&wired.jobs, &wired.runtime, args.drain_timeout, &goodbye, http) => {}
        () = reload => unreachable!("it listens for ever"),
        second = signals.next() => {
            tracing::warn!("a second signal: ending at once");
            return Ok(ExitCode::from(if second == Cause::Interrupt { exit::INTERRUPTED } else { exit::TERMINATED }));
        }
    }
    Ok(ExitCode::from(cause.exit_code()))
}

/// Forgets the desk when the server is over, however it ends.
struct Emptied(Arc<Mutex<Option<Jobs>>>);

impl Drop for Emptied {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

fn callers(args: &Serve, tokens: Option<&Tokens>) -> Callers {
    match tokens {
        Some(_) => Callers::WithToken,
        None if args.allow_anonymous => Callers::AnybodyOnPurpose,
        None => Callers::Anybody,
    }
}

async fn listen(addresses: &[SocketAddr], host: &str, port: u16) -> anyhow::Result<TcpListener> {
    TcpListener::bind(addresses).await.map_err(|error| {
        let usage = Usage::new(format!("cannot listen on {host}:{port}: {error}"));
        match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                usage.hint("another program has this port; choose one with --port, or --port 0 for any free one")
            }
            _ => usage.hint("check --host and --port"),
        }
        .into()
    })
}

fn setting(args: &Serve, webhook_secrets: Secrets, platform: &Platform, store: Option<Arc<Sqlite>>) -> Result<Setting, Usage> {
    let run_as = args.run_as.as_deref().map(run_as::read).transpose()?;
    let is_root = rustix::process::geteuid().is_root();
    if args.worker_processes.is_some() && run_as.as_ref().map_or(is_root, |user| user.uid == 0) {
        let usage = Usage::new("--worker-processes has no effect on root, and the model would run as root");
        return Err(usage.hint("let the model run as somebody else: --run-as nobody"));
    }
    let keeps_large_files = args.model.upload_url.is_some() || platform.cabinet().is_some();
    Ok(Setting {
        target: platform.target.clone(),
        workers: args.workers.into(),
        slots: args.concurrency,
        line_limit: args.queue,
        cancel_grace: args.cancel_grace,
        respawn: !args.no_respawn,
        keep_for: args.keep_for,
        job_timeout: args.job_timeout.filter(|limit| !limit.is_zero()),
        max_output: args.max_output,
        store: store.map(|store| store as Arc<dyn Store>),
        cabinet: platform.cabinet(),
        hidden_env: match &args.files_store {
            Some(FilesStore::Bucket { .. }) => &files_store::SECRETS,
            Some(FilesStore::Folder(_)) | None => &[],
        },
        on_lost: match args.on_lost {
            cli::OnLost::Retry => OnLost::Retry { attempts: ATTEMPTS },
            cli::OnLost::Fail => OnLost::Fail,
        },
        run_as,
        limits: Limits {
            memory: args.worker_memory.map(|bytes| bytes as u64),
            processes: args.worker_processes,
            output_file: Some(if keeps_large_files { args.max_file as u64 } else { MAX_INLINE_FILE }),
        },
        outward: Outward {
            networks: args.allow_private_networks.clone(),
            max_file: args.max_file as u64,
            webhook_secrets,
            webhook_retry_for: args.webhook_retry_for,
            voice: platform.voice.clone(),
        },
    })
}

fn face_config(args: &Serve, env: &CogEnv, abroad: Abroad) -> cog::Config {
    cog::Config {
        max_body: args.max_body,
        body_timeout: args.body_timeout,
        build: Build { version: build_info::VERSION, git_sha: build_info::COMMIT, built_at: build_info::BUILT_AT },
        ready_file: env.ready_file.clone(),
        abroad,
    }
}

/// How to go on from here: the address, a call that can be pasted, a page.
fn greet(url: &str, tokens: Option<&Tokens>, schema: &ModelSchema) -> String {
    let document: serde_json::Value = serde_json::from_slice(&schema.document).unwrap_or_default();
    let body = serde_json::json!({ "input": inputs::example(&document) }).to_string().replace('\'', "'\\''");
    let call = format!("{url}/predictions -H 'content-type: application/json' -d '{body}'");
    match tokens {
        Some(_) => format!("\n  {url}\n  curl -s -H \"authorization: Bearer $TIDEGATE_API_TOKEN\" {call}\n"),
        None => format!("\n  {url}\n  curl -s {call}\n  in a browser: {url}/docs\n"),
    }
}
