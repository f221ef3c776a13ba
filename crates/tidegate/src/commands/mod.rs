//! One file per command.

mod api;
mod api_models;
mod banner;
mod cancel;
mod dead_letters;
mod director;
mod doctor;
mod doctor_gpus;
mod doctor_packages;
mod endpoints;
mod heartbeat;
mod init;
mod install;
mod logs;
mod migrate;
mod platform;
mod predict;
mod ps;
mod router;
mod schema;
mod serve;
mod table;
mod token;
mod worker;

use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::cli::{Cli, Command};
use crate::compat::CogEnv;
use crate::runpod_env::{RunpodEnv, server_log_filter};
use crate::telemetry;
use crate::trace_export::TraceExport;

/// Runs a command.
pub(crate) fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let env = CogEnv::read();
    let default = match cli.command {
        Command::Serve(_) => server_log_filter().unwrap_or("info"),
        Command::Platform(_) | Command::Api(_) | Command::Director(_) | Command::Router(_) => {
            "info"
        }
        Command::Worker(_) => RunpodEnv::read()?.log_filter.unwrap_or("info"),
        Command::Predict(_)
        | Command::Endpoints(_)
        | Command::Ps(_)
        | Command::Logs(_)
        | Command::Cancel(_)
        | Command::Replay(_)
        | Command::DeadLetters(_)
        | Command::Migrate(_)
        | Command::Schema(_)
        | Command::Init(_)
        | Command::Install(_)
        | Command::Doctor(_)
        | Command::Token(_)
        | Command::Completions { .. } => "warn",
    };
    telemetry::start(&cli, &env, default)?;
    let format = telemetry::format(&cli, &env);
    match cli.command {
        Command::Serve(args) => on_runtime(traced(
            "tidegate-serve",
            serve::serve(&args, &env, format, cli.settings),
        )),
        Command::Api(args) => {
            on_runtime(traced("tidegate-api", api::api(&args, &env, cli.settings)))
        }
        Command::Platform(args) => on_runtime(platform::platform(&args, &env, cli.settings)),
        Command::Router(args) => {
            let command = router::router(&args, cli.config.as_deref(), cli.settings);
            on_runtime(traced("tidegate-router", command))
        }
        Command::Endpoints(args) => on_runtime(endpoints::endpoints(&args)),
        Command::Predict(args) => on_runtime(predict::predict(&args, &env)),
        Command::Worker(args) => on_runtime(worker::worker(&args, &env, &RunpodEnv::read()?)),
        Command::Director(args) => {
            let command = director::director(&args, &env, format);
            on_runtime(traced("tidegate-director", command))
        }
        Command::Ps(args) => on_runtime(ps::ps(&args)),
        Command::Logs(args) => on_runtime(logs::logs(&args)),
        Command::Cancel(args) => on_runtime(cancel::cancel(&args)),
        Command::Replay(args) => on_runtime(cancel::replay(&args)),
        Command::DeadLetters(args) => on_runtime(dead_letters::dead_letters(&args)),
        Command::Migrate(args) => on_runtime(migrate::migrate(&args)),
        Command::Schema(args) => schema::schema(&args, &env),
        Command::Init(args) => init::init(&args),
        Command::Install(args) => install::install(&args, format),
        Command::Doctor(args) => doctor::doctor(&args, &env),
        Command::Token(args) => token::token(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "tidegate", &mut script);
            // Ignored, because the reader may close the pipe early.
            std::io::stdout().write_all(&script).ok();
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Runs a command whose spans are exported under the name `service`. The last ones are exported when the
/// command has shut everything else down.
async fn traced(
    service: &'static str,
    command: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    let export = TraceExport::start(service)?;
    let result = command.await;
    export.finish().await;
    result
}

fn on_runtime(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(command);
    // Only blocking calls still run after an orderly shutdown, and no task waits for them.
    runtime.shutdown_timeout(std::time::Duration::from_millis(100));
    result
}

/// The error of a failed job without the words that say that it failed, for messages that say so
/// themselves.
pub(crate) fn error_cause(error: &str) -> &str {
    ["Prediction failed: ", "Training failed: "]
        .iter()
        .find_map(|prefix| error.strip_prefix(prefix))
        .unwrap_or(error)
}
