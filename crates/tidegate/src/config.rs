//! `--config FILE.toml`: flags from a file.
//!
//! A key is the name of a flag with `_` for `-`, and its value is parsed like the flag's. The value
//! replaces the default of the flag, so the command line and the environment take precedence. One file
//! can serve several commands: each reads the keys for which it has a flag.

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgMatches, Command};
use tidegate_http::ui::Setting;
use toml::{Spanned, Value};

use crate::cli::Cli;
use crate::compat;
use crate::settings::{self, FileOrigin};
use crate::usage_error::UsageError;

/// The keys of the file of `tidegate router --config` that are settings of the command. All others describe
/// the fleet.
pub(crate) const ROUTER_SETTINGS: &[&str] = &[
    "host",
    "port",
    "socket",
    "tls_cert",
    "tls_key",
    "allow_anonymous",
    "allow_host",
    "allow_origin",
    "max_connections",
    "drain_grace",
    "drain_timeout",
    "log_format",
    "log_level",
    "data_dir",
    "postgres",
    "redis",
    "queue_shards",
    "account_shards",
    "keep_for",
];

/// The parsed command line and settings file.
pub(crate) struct ParsedConfig {
    pub(crate) matches: ArgMatches,
    /// The settings of the command, for operators.
    pub(crate) settings: Vec<Setting>,
}

/// Parses the command line, and the file that it names.
pub(crate) fn read(arguments: &[OsString]) -> anyhow::Result<ParsedConfig> {
    let matches = Cli::parser().try_get_matches_from(arguments)?;
    let Some(path) = matches.get_one::<PathBuf>("config") else {
        let settings = settings::effective(&matches, None);
        return Ok(ParsedConfig { matches, settings });
    };
    let file = match matches.subcommand_name() {
        Some("router") => ConfigFile::read_settings(path, ROUTER_SETTINGS)?,
        _ => ConfigFile::read(path)?,
    };
    let command = file.as_defaults(Cli::parser(), &command_path(&matches));
    let with_file = command.try_get_matches_from(arguments)?;
    let settings = settings::effective(&with_file, Some(&file.origin(path)));
    Ok(ParsedConfig {
        matches: with_file,
        settings,
    })
}

/// The command of the command line and its subcommand.
fn command_path(matches: &ArgMatches) -> Vec<String> {
    let nested = |(name, matches): (&str, &ArgMatches)| {
        [vec![name.to_owned()], command_path(matches)].concat()
    };
    matches.subcommand().map(nested).unwrap_or_default()
}

type ConfigEntries = BTreeMap<Spanned<String>, Spanned<Value>>;

/// The validated entries of a file.
#[derive(Debug)]
struct ConfigFile(Vec<ConfigEntry>);

#[derive(Debug)]
struct ConfigEntry {
    /// The flag's name.
    flag: String,
    /// The values as on the command line.
    values: Vec<String>,
    /// The line of the file.
    line: usize,
}

impl ConfigFile {
    fn read(path: &Path) -> Result<Self, UsageError> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            UsageError::new(format!(
                "failed to read the configuration file `{}`: {error}",
                path.display()
            ))
            .hint("give the path of a TOML file in UTF-8")
        })?;
        Self::parse(&text).map_err(|error| error.into_usage_error(path, &text))
    }

    /// Reads only these settings of a file that has other keys, too. A file that cannot be read or parsed
    /// has none: the parser of the other keys reports that.
    fn read_settings(path: &Path, settings: &[&str]) -> Result<Self, UsageError> {
        let Ok(text) = std::fs::read_to_string(path) else {
            return Ok(Self(Vec::new()));
        };
        let Ok(mut entries) = toml::from_str::<ConfigEntries>(&text) else {
            return Ok(Self(Vec::new()));
        };
        entries.retain(|key, _| settings.contains(&key.get_ref().as_str()));
        Self::from_entries(entries, &text).map_err(|error| error.into_usage_error(path, &text))
    }

    fn parse(text: &str) -> Result<Self, ConfigError> {
        let entries: ConfigEntries = toml::from_str(text).map_err(|error| ConfigError {
            span: error.span().unwrap_or_default(),
            problem: error.message().to_owned(),
            hint: "write lines like `queue = 5` or `keep_for = \"1h\"`".to_owned(),
        })?;
        Self::from_entries(entries, text)
    }

    fn from_entries(entries: ConfigEntries, text: &str) -> Result<Self, ConfigError> {
        let known = Cli::parser();
        entries
            .into_iter()
            .map(|(key, value)| {
                let line = line_of(text, key.span().start);
                parse_entry(&known, key, value, line)
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Which settings the file has, and where.
    fn origin<'a>(&'a self, path: &'a Path) -> FileOrigin<'a> {
        let lines = self.0.iter().map(|entry| (&*entry.flag, entry.line));
        FileOrigin {
            path,
            lines: lines.collect(),
        }
    }

    /// The command with these values as the defaults of its flags, and of the flags of the subcommands
    /// in `commands`.
    fn as_defaults(&self, command: Command, commands: &[String]) -> Command {
        let entries = self.0.iter().filter(|entry| !compat::is_set(&entry.flag));
        let command = entries.fold(command, |command, entry| {
            match find(&command, &entry.flag).map(|flag| flag.get_id().clone()) {
                Some(id) => command.mut_arg(id, |flag| flag.default_values(entry.values.clone())),
                None => command,
            }
        });
        match commands {
            [name, nested @ ..] => {
                command.mut_subcommand(name, |command| self.as_defaults(command, nested))
            }
            [] => command,
        }
    }
}

fn parse_entry(
    known: &Command,
    key: Spanned<String>,
    value: Spanned<Value>,
    line: usize,
) -> Result<ConfigEntry, ConfigError> {
    let name = key.get_ref();
    let unknown = |hint: String| ConfigError {
        span: key.span(),
        problem: format!("there is no setting `{name}`"),
        hint,
    };
    if name.contains('-') {
        return Err(unknown(format!(
            "write `{}`, with `_` for the `-` of the flag",
            name.replace('-', "_")
        )));
    }
    let flag = name.replace('_', "-");
    let known = find_anywhere(known, &flag).ok_or_else(|| {
        unknown(
            "`tidegate serve --help` lists the flags; a key is the name of a flag with `_` for `-`"
                .to_owned(),
        )
    })?;
    let span = value.span();
    let invalid = |reason: String| ConfigError {
        span: span.clone(),
        problem: format!("invalid value for `{name}`: {reason}"),
        hint: hint(known),
    };
    let values = texts(value.into_inner()).ok_or_else(|| {
        invalid("it must be a string, a number, true, false, or a list of those".to_owned())
    })?;
    let values = if known.get_value_delimiter().is_some() {
        values
    } else {
        vec![values.join(",")]
    };
    values
        .iter()
        .try_for_each(|value| check(known, value))
        .map_err(invalid)?;
    Ok(ConfigEntry { flag, values, line })
}

/// A flag of a command. Only flags with an environment variable have a key.
fn find<'a>(command: &'a Command, flag: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| {
        arg.get_long() == Some(flag) && arg.get_env().is_some() && arg.get_id() != "config"
    })
}

fn find_anywhere<'a>(command: &'a Command, flag: &str) -> Option<&'a Arg> {
    find(command, flag).or_else(|| {
        command
            .get_subcommands()
            .find_map(|command| find_anywhere(command, flag))
    })
}

/// A value as on the command line; a list has one for each item.
fn texts(value: Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) => Some(vec![text]),
        Value::Integer(number) => Some(vec![number.to_string()]),
        Value::Float(number) => Some(vec![number.to_string()]),
        Value::Boolean(is) => Some(vec![is.to_string()]),
        Value::Array(values) => {
            let each: Option<Vec<_>> = values
                .into_iter()
                .filter(|value| !value.is_array())
                .map(texts)
                .collect();
            each.map(|each| each.concat())
        }
        Value::Datetime(_) | Value::Table(_) => None,
    }
}

/// Parses a value like the flag does.
fn check(flag: &Arg, value: &str) -> Result<(), String> {
    let alone = Arg::new("value")
        .long("value")
        .allow_hyphen_values(true)
        .value_parser(flag.get_value_parser().clone());
    let read = Command::new("setting")
        .no_binary_name(true)
        .arg(alone)
        .try_get_matches_from(["--value", value]);
    read.map(drop).map_err(|error| reason(&error))
}

fn reason(error: &clap::Error) -> String {
    match (error.source(), error.get(ContextKind::ValidValue)) {
        (Some(source), _) => source.to_string(),
        (None, Some(ContextValue::Strings(choices))) => {
            format!("it must be one of {}", choices.join(", "))
        }
        (None, _) => error.kind().to_string(),
    }
}

/// The help text of the flag.
fn hint(flag: &Arg) -> String {
    let about = flag.get_help().map(ToString::to_string).unwrap_or_default();
    format!("`--{}`: {about}", flag.get_long().unwrap_or_default())
}

/// The line of a position, from one.
fn line_of(text: &str, position: usize) -> usize {
    let before = text.bytes().take(position);
    1 + before.filter(|byte| *byte == b'\n').count()
}

/// A mistake in a file.
#[derive(Debug)]
struct ConfigError {
    span: Range<usize>,
    problem: String,
    hint: String,
}

impl ConfigError {
    fn into_usage_error(self, path: &Path, text: &str) -> UsageError {
        let line = line_of(text, self.span.start);
        UsageError::new(format!("{}:{line}: {}", path.display(), self.problem)).hint(self.hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &str) -> String {
        let error = ConfigFile::parse(text).unwrap_err();
        error
            .into_usage_error(Path::new("tidegate.toml"), text)
            .to_string()
    }

    #[test]
    fn every_flag_with_an_environment_variable_has_a_key() {
        let text = "queue = 5\nkeep_for = \"1h\"\nwatch = true\nheader_timeout = 1.5\nlog_level = \"debug\"\n\
                    endpoint = [\"a\", \"b\"]\nallow_private_networks = [\"10.0.0.0/8\", \"::1\"]\n";
        let ConfigFile(entries) = ConfigFile::parse(text).unwrap();
        let values: BTreeMap<_, _> = entries
            .into_iter()
            .map(|entry| (entry.flag, entry.values.join(" ")))
            .collect();
        for (flag, value) in [
            ("queue", "5"),
            ("keep-for", "1h"),
            ("watch", "true"),
            ("header-timeout", "1.5"),
            ("log-level", "debug"),
            ("endpoint", "a b"),
            ("allow-private-networks", "10.0.0.0/8,::1"),
        ] {
            assert_eq!(values[flag], value);
        }
    }

    #[test]
    fn mistakes_are_reported_with_their_line() {
        for (text, expected) in [
            (
                "queue = 5\n\nqueues = 5\n",
                "tidegate.toml:3: there is no setting `queues`",
            ),
            (
                "keep-for = \"1h\"",
                "tidegate.toml:1: there is no setting `keep-for`",
            ),
            (
                "# no\nconfig = \"x\"",
                "tidegate.toml:2: there is no setting `config`",
            ),
            (
                "json = \"{}\"",
                "tidegate.toml:1: there is no setting `json`",
            ),
            (
                "queue = \"many\"",
                "tidegate.toml:1: invalid value for `queue`: invalid digit found in string",
            ),
            (
                "on_lost = \"cry\"",
                "tidegate.toml:1: invalid value for `on_lost`: it must be one of retry, fail",
            ),
            (
                "[queue]\nsize = 5",
                "tidegate.toml:1: invalid value for `queue`: it must be a string, a number, true, false, or a list of those",
            ),
            ("queue = 5\nqueue = 6", "tidegate.toml:2: duplicate key"),
        ] {
            assert_eq!(error_of(text), expected, "{text}");
        }
    }
}
