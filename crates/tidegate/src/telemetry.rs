//! Sets up logging. Logs go to stderr, because stdout is for data.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::cli::{Cli, Command, LogFormat};
use crate::compat::CogEnv;
use crate::runpod_log_format::RunpodLogFormat;
use crate::usage_error::UsageError;

/// Starts logging. `default` is the filter without any setting.
pub(crate) fn start(cli: &Cli, env: &CogEnv, default: &str) -> Result<(), UsageError> {
    let filter = cli
        .log_level
        .as_deref()
        .or(env.log_filter.as_deref())
        .unwrap_or(default);
    let bad = |error| {
        UsageError::new(format!("invalid log filter `{filter}`: {error}"))
            .hint("write a filter such as `info` or `warn,model=debug`")
    };
    let filter = EnvFilter::try_new(filter).map_err(bad)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let is_default = cli.log_format.is_none() && env.log_format.is_none();
    if is_default && env.endpoint_id.is_some() && matches!(cli.command, Command::Worker(_)) {
        builder
            .with_ansi(false)
            .event_format(RunpodLogFormat)
            .try_init()
            .expect("logging is started once");
        return Ok(());
    }
    let started = match format(cli, env) {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Console => builder
            .with_ansi(std::io::stderr().is_terminal())
            .compact()
            .try_init(),
    };
    started.expect("logging is started once");
    Ok(())
}

pub(crate) fn format(cli: &Cli, env: &CogEnv) -> LogFormat {
    match (cli.log_format, env.log_format.as_deref()) {
        (Some(format), _) => format,
        (None, Some("json")) => LogFormat::Json,
        (None, _) => LogFormat::Console,
    }
}
