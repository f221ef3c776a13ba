//! Parses the command line, and applies `RUNPOD_REALTIME_PORT`: a script with a handler is then served on
//! that port on all networks, as Runpod's own package does.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::parser::ValueSource;
use clap::{ArgMatches, FromArgMatches};
use tidegate_http::access::AllowedHost;

use crate::cli::{Cli, Command, ServeArgs, WebhookArgs, WorkerArgs};
use crate::config::{self, ParsedConfig};
use crate::model_source::is_handler_folder;
use crate::runpod_env::RealtimeEnv;
use crate::usage_error::UsageError;
use crate::worker_count::WorkerCount;

/// Parses the command line.
pub(crate) fn parse_command_line(arguments: &[OsString]) -> anyhow::Result<Cli> {
    let ParsedConfig { matches, settings } = config::read(arguments)?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    cli.settings = settings.into();
    match RealtimeEnv::read()? {
        Some(realtime) => Ok(apply(cli, &matches, realtime)?),
        None => Ok(cli),
    }
}

fn apply(mut cli: Cli, matches: &ArgMatches, realtime: RealtimeEnv) -> Result<Cli, UsageError> {
    cli.command = match cli.command {
        Command::Serve(args) if is_script(&args.dir) => {
            Command::Serve(Box::new(with_realtime(*args, matches, realtime)))
        }
        Command::Worker(args) if is_script(&args.target) => {
            Command::Serve(Box::new(serve_instead_of_polling(*args, realtime)?))
        }
        other => other,
    };
    Ok(cli)
}

/// Flags and the configuration file take precedence over environment variables, and tidegate's
/// variables over Runpod's.
fn with_realtime(args: ServeArgs, matches: &ArgMatches, realtime: RealtimeEnv) -> ServeArgs {
    let serve = matches.subcommand().map(|(_, given)| given);
    let source = |name: &str| FlagSource::of(serve, name);
    let mut args = args;
    // `PORT` is generic, and RUNPOD_REALTIME_PORT is specific to handlers.
    if source("port") != FlagSource::CommandLine {
        args.listen.port = realtime.port;
    }
    if source("host") == FlagSource::Default {
        "0.0.0.0".clone_into(&mut args.listen.host);
        // The variable requests a public port, and Runpod has no tokens for it.
        args.listen.allow_anonymous = true;
        // Clients reach the port through a proxy of Runpod, under names that are unknown here.
        args.listen.allowed_hosts.push(AllowedHost::Any);
    }
    if source("workers") == FlagSource::Default {
        args.workers = WorkerCount::fixed(realtime.workers);
    }
    args
}

/// The source of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlagSource {
    /// The command line, or the file that it names.
    CommandLine,
    /// An environment variable.
    Environment,
    /// The default.
    Default,
}

impl FlagSource {
    fn of(serve: Option<&ArgMatches>, name: &str) -> Self {
        match serve.and_then(|given| given.value_source(name)) {
            Some(ValueSource::CommandLine) => Self::CommandLine,
            Some(ValueSource::EnvVariable) => Self::Environment,
            // A value of the file replaces the default.
            _ if serve.and_then(|given| given.get_raw(name)?.next_back())
                != default_value(name).as_deref() =>
            {
                Self::CommandLine
            }
            _ => Self::Default,
        }
    }
}

/// The default value of a flag of `serve`.
fn default_value(name: &str) -> Option<OsString> {
    let command = Cli::parser();
    let flag = command
        .find_subcommand("serve")?
        .get_arguments()
        .find(|flag| flag.get_id() == name)?;
    flag.get_default_values()
        .first()
        .map(|value| value.as_os_str().to_owned())
}

fn serve_instead_of_polling(
    worker: WorkerArgs,
    realtime: RealtimeEnv,
) -> Result<ServeArgs, UsageError> {
    let words = [
        OsStr::new("tidegate"),
        OsStr::new("serve"),
        worker.target.as_os_str(),
    ];
    let internal = |error: clap::Error| UsageError::new(error.to_string());
    let matches = Cli::parser()
        .try_get_matches_from(words)
        .map_err(internal)?;
    let Command::Serve(serve) = Cli::from_arg_matches(&matches).map_err(internal)?.command else {
        return Err(UsageError::new("`serve` is not a command"));
    };
    let serve = *serve;
    let serve = ServeArgs {
        model: worker.model,
        upload: worker.upload,
        concurrency: worker.concurrency,
        cancel_grace: worker.cancel_grace,
        job_timeout: worker.job_timeout,
        drain_timeout: worker.drain_timeout,
        data_dir: worker.data_dir,
        on_lost: worker.on_lost,
        max_file: worker.max_file,
        webhook: WebhookArgs {
            allow_private_networks: worker.allow_private_networks,
            ..serve.webhook
        },
        ..serve
    };
    Ok(with_realtime(serve, &matches, realtime))
}

/// Whether it is a script with a handler, or a folder with one.
fn is_script(target: &Path) -> bool {
    let is_file = target
        .extension()
        .is_some_and(|extension| extension == "py");
    is_file || is_handler_folder(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REALTIME: RealtimeEnv = RealtimeEnv {
        port: 8001,
        workers: 3,
    };

    fn served(words: &[&str]) -> ServeArgs {
        let matches = Cli::parser().try_get_matches_from(words).unwrap();
        let cli = apply(Cli::from_arg_matches(&matches).unwrap(), &matches, REALTIME).unwrap();
        let Command::Serve(args) = cli.command else {
            panic!("not served: {words:?}")
        };
        *args
    }

    #[test]
    fn a_script_is_served_on_the_realtime_port() {
        for words in [
            ["tidegate", "serve", "handler.py"],
            ["tidegate", "worker", "handler.py"],
        ] {
            let args = served(&words);
            assert_eq!(
                (
                    args.listen.host.as_str(),
                    args.listen.port,
                    args.workers,
                    args.listen.allow_anonymous
                ),
                ("0.0.0.0", 8001, WorkerCount::fixed(3), true)
            );
        }
    }

    #[test]
    fn flags_take_precedence_and_folders_are_not_affected() {
        let args = served(&[
            "tidegate",
            "serve",
            "handler.py",
            "--port",
            "9",
            "--host",
            "192.0.2.1",
            "--workers",
            "1",
        ]);
        assert_eq!(
            (
                args.listen.host.as_str(),
                args.listen.port,
                args.workers,
                args.listen.allow_anonymous
            ),
            ("192.0.2.1", 9, WorkerCount::fixed(1), false)
        );
        assert_eq!(served(&["tidegate", "serve", "folder"]).listen.port, 5000);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "host = \"192.0.2.1\"\nport = 9\nworkers = 2\n").unwrap();
        let words: Vec<OsString> = [
            "tidegate".into(),
            "serve".into(),
            "handler.py".into(),
            "--config".into(),
            file.path().into(),
        ]
        .into();
        let ParsedConfig { matches, .. } = config::read(&words).unwrap();
        let cli = apply(Cli::from_arg_matches(&matches).unwrap(), &matches, REALTIME).unwrap();
        let Command::Serve(args) = cli.command else {
            panic!("not served")
        };
        assert_eq!(
            (
                args.listen.host.as_str(),
                args.listen.port,
                args.workers,
                args.listen.allow_anonymous
            ),
            ("192.0.2.1", 9, WorkerCount::fixed(2), false)
        );
        let worker = served(&["tidegate", "worker", "handler.py", "--drain-timeout", "3s"]);
        assert_eq!(worker.drain_timeout.as_secs(), 3);
    }
}
