//! `tidegate router`: routes requests to a fleet of backends.

use std::io::Write;
use std::num::NonZero;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_http::edge::{EdgeConfig, EventLoops};
use tidegate_http::gateway::{Gateway, GatewayParts};
use tidegate_http::ui::Setting;
use tidegate_net::upstream::{UpstreamConfig, UpstreamPool};
use tidegate_router::FleetRegistry;
use tidegate_router::control::{FleetControl, FleetInput, SystemSecrets};
use tidegate_router::fleet::{FleetError, FleetSource, parse_fleet};
use tidegate_router::forward::RequestForwarder;
use tidegate_router::loopback::run_loopbacks;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::batch_setup::BatchSetup;
use crate::cli::{RouterArgs, RouterCommand};
use crate::http_server::HttpServer;
use crate::listen::{AccessPolicy, listen_with};
use crate::reload::Reload;
use crate::shutdown::{ShutdownCause, Signals, Sigterm};
use crate::usage_error::UsageError;
use crate::{build_info, config, edge_config, startup};

/// How long the start waits for the first answers of discovery and of backends.
const FIRST_ENDPOINTS: Duration = Duration::from_secs(5);
/// How long background tasks may take at the end, such as the cancellation of requests.
const LAST_TASKS: Duration = Duration::from_secs(5);
/// How long before the end of `--drain-timeout` WebSocket connections are closed.
const WEBSOCKET_CLOSE: Duration = Duration::from_secs(1);

pub(crate) async fn router(
    args: &RouterArgs,
    file: Option<&Path>,
    settings: Arc<[Setting]>,
) -> anyhow::Result<ExitCode> {
    if let Some(RouterCommand::Check { file }) = &args.command {
        return check(file);
    }
    let started_at = Timestamp::now();
    let input = fleet_input(args, file)?;
    // Before the signals have handlers: the database may not be there yet, and Ctrl-C must end the wait.
    let batches = BatchSetup::open(args).await?;
    let mut signals = Signals::listen(Sigterm::ShutDown)?;
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let registry = Arc::new(FleetRegistry::new());
    // The tasks of the pool end with the pool, which lives as long as the gateway.
    let pool = UpstreamPool::new(UpstreamConfig::default(), &TaskTracker::new());
    let control = FleetControl::start(
        Arc::clone(&registry),
        pool.clone(),
        input,
        &tasks,
        stop.clone(),
    )
    .map_err(usage_error)?;
    let timers = Arc::clone(&registry);
    let timers_stop = stop.clone();
    tasks.spawn(async move { timers.run_timers(timers_stop).await });
    tasks.spawn(run_loopbacks(
        Arc::clone(&registry),
        pool.clone(),
        tasks.clone(),
        stop.clone(),
    ));

    let mut reload = Reload::default();
    let mut edge = edge_config(args, &registry, &mut reload)?;
    let event_loops = start_event_loops()?;
    edge.event_loops = Some(Arc::clone(&event_loops));
    reload_on_sighup(&control, &tasks, &mut reload);
    let reload = reload.listen()?;
    let has_accounts = !registry.table().fleet().accounts.is_empty();
    let listeners = listen_with(&args.listen, AccessPolicy::of(&args.listen, has_accounts)).await?;
    let url = format!(
        "{}://{}",
        edge_config::scheme(&edge),
        listeners.tcp.local_addr()?
    );
    let parts = GatewayParts {
        registry: Arc::clone(&registry),
        control: control.clone(),
        forwarder: RequestForwarder::new(pool, tasks.clone()),
        request_metrics: Arc::clone(&edge.request_metrics),
        build: build_info::BUILD,
        started_at,
        batches: batches.as_ref().map(BatchSetup::ports),
        settings,
    };
    let gateway = Gateway::start(parts, &tasks, stop.clone());
    // Ignored: a source that does not answer must not keep the others from being used.
    tokio::time::timeout(FIRST_ENDPOINTS, control.ready())
        .await
        .ok();
    if let Some(batches) = &batches {
        batches.resume(&gateway).await?;
    }
    announce(&registry, &url);
    let mut http = HttpServer::start(listeners, gateway.clone(), edge);
    let cause = http.while_running(async {
        tokio::select! {
            () = reload => unreachable!("reload never ends"),
            () = run_batches(batches.as_ref()) => ShutdownCause::Requested,
            cause = signals.next() => cause,
        }
    });
    let cause = cause.await;
    let forced = drain(args, &gateway, batches.as_ref(), &mut http, &mut signals).await;
    stop.cancel();
    tasks.close();
    if forced.is_none() {
        tokio::time::timeout(LAST_TASKS, tasks.wait()).await.ok(); // The process ends anyway.
    }
    // Not earlier: some of these tasks run there.
    drop(event_loops);
    Ok(forced.unwrap_or_else(|| ExitCode::from(cause.exit_code())))
}

/// Runs the queued requests. Ends when another router has taken over their database.
async fn run_batches(batches: Option<&BatchSetup>) {
    match batches {
        Some(batches) => batches.run().await,
        None => std::future::pending().await,
    }
}

/// Where the fleet is described.
fn fleet_input(args: &RouterArgs, file: Option<&Path>) -> Result<FleetInput, UsageError> {
    match (file, args.backends.as_slice()) {
        (Some(path), []) => Ok(FleetInput::File {
            path: path.to_owned(),
            settings: config::ROUTER_SETTINGS,
        }),
        (None, [_, ..]) => Ok(FleetInput::Backends(args.backends.clone())),
        (Some(_), [_, ..]) => Err(UsageError::new("--config and --backend exclude each other")
            .hint("write the backends into the file, as [[model.endpoint]]")),
        (None, []) => Err(UsageError::new("the router has no backends").hint(
            "give --backend URL, several times if there are several, or --config fleet.toml",
        )),
    }
}

fn edge_config(
    args: &RouterArgs,
    registry: &FleetRegistry,
    reload: &mut Reload,
) -> Result<EdgeConfig, UsageError> {
    if args.listen.tokens_file.is_some() {
        return Err(UsageError::new("--tokens-file has no effect on a router")
            .hint("write the accounts into the file of --config, as [[account]] with token_hash"));
    }
    let mut edge = edge_config::read(&args.listen, reload)?;
    if registry.table().fleet().accounts.is_empty() {
        edge.origin_policy = Some(startup::origin_policy(&args.listen, None));
    }
    if let Some(max_connections) = args.max_connections {
        edge.max_connections = max_connections;
    }
    Ok(edge)
}

fn start_event_loops() -> Result<Arc<EventLoops>, UsageError> {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let event_loops = EventLoops::start(processors).map_err(|error| {
        UsageError::new(format!(
            "failed to start the threads of the server: {error}"
        ))
        .hint("check the limit of processes and threads (`ulimit -u`)")
    })?;
    Ok(Arc::new(event_loops))
}

fn reload_on_sighup(control: &FleetControl, tasks: &TaskTracker, reload: &mut Reload) {
    let (control, tasks) = (control.clone(), tasks.clone());
    reload.actions.push((
        "fleet",
        Box::new(move || {
            let control = control.clone();
            tasks.spawn(async move {
                if let Err(error) = control.reload().await {
                    tracing::error!(%error, "failed to reload, keeping the previous configuration");
                }
            });
            Ok(())
        }),
    ));
}

/// Logs what is served where.
fn announce(registry: &FleetRegistry, url: &str) {
    let table = registry.table();
    let models: Vec<&str> = table
        .fleet()
        .models()
        .iter()
        .map(|model| model.name.as_str())
        .collect();
    if models.is_empty() {
        tracing::warn!(
            url,
            "listening without a model: no backend has answered yet; they are asked again"
        );
    } else {
        tracing::info!(url, models = models.join(", "), "listening");
    }
}

/// Lets the health check fail, then stops accepting, then waits for open requests. A second signal ends
/// it, and its exit code is returned.
async fn drain(
    args: &RouterArgs,
    gateway: &Gateway,
    batches: Option<&BatchSetup>,
    http: &mut HttpServer,
    signals: &mut Signals,
) -> Option<ExitCode> {
    tracing::info!(grace = ?args.drain_grace, timeout = ?args.drain_timeout, "draining");
    gateway.begin_drain();
    let close_batches = async {
        if let Some(batches) = batches {
            batches.close(args.drain_timeout).await;
        }
    };
    // In time for the close frames to pass.
    let closing = WEBSOCKET_CLOSE.min(args.drain_timeout / 2);
    let close_websockets = async {
        tokio::time::sleep(args.drain_grace + args.drain_timeout - closing).await;
        gateway.close_websockets();
        std::future::pending::<()>().await
    };
    let drained = async {
        tokio::join!(
            http.drain(args.drain_grace, args.drain_timeout),
            close_batches
        )
    };
    tokio::select! {
        ((), ()) = drained => None,
        () = close_websockets => None,
        second = signals.second(log_wait) => {
            tracing::warn!("received a second signal, exiting now");
            Some(ExitCode::from(second.forced_exit_code()))
        }
    }
}

fn log_wait() {
    tracing::warn!("waiting for open requests; send the signal again to stop at once");
}

/// `tidegate router check FILE`
fn check(file: &Path) -> anyhow::Result<ExitCode> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| usage_error(FleetError::unreadable(file, &error)))?;
    let source = FleetSource {
        path: file,
        text: &text,
        settings: config::ROUTER_SETTINGS,
    };
    let fleet = parse_fleet(source, &SystemSecrets::default()).map_err(usage_error)?;
    let endpoints: usize = fleet.models().iter().map(|m| m.endpoints.len()).sum();
    let summary = format!(
        "{} is valid: {} models, {endpoints} endpoints, {} accounts",
        file.display(),
        fleet.models().len(),
        fleet.accounts.len()
    );
    writeln!(std::io::stdout().lock(), "{summary}").ok(); // The reader may close the pipe early.
    Ok(ExitCode::SUCCESS)
}

fn usage_error(error: FleetError) -> UsageError {
    UsageError::new(format!("the configuration is not valid\n{error}"))
}
