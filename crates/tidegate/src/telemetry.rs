//! Log lines: where they go and how they look. Always stderr: stdout is for data.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::cli::{Cli, LogFormat};
use crate::compat::CogEnv;

/// Starts logging. `default` is what is shown when nobody says anything.
pub(crate) fn start(cli: &Cli, env: &CogEnv, default: &str) {
    let wanted = cli.log_level.clone().or_else(|| env.log_filter.clone());
    let filter = wanted.as_deref().and_then(|filter| EnvFilter::try_new(filter).ok()).unwrap_or_else(|| EnvFilter::new(default));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format(cli, env) {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Console => builder.with_ansi(std::io::stderr().is_terminal()).compact().try_init(),
    };
    started.expect("logging is started once");
}

pub(crate) fn format(cli: &Cli, env: &CogEnv) -> LogFormat {
    match (cli.log_format, env.log_format.as_deref()) {
        (Some(format), _) => format,
        (None, Some("json")) => LogFormat::Json,
        (None, _) => LogFormat::Console,
    }
}
