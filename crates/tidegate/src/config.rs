//! `--config FILE.toml`: flags in a file.
//!
//! A key is a flag's name with `_` for `-`, and its value is read as the flag's is. What the file says takes the
//! place of the flag's default, so the command line and the environment count more without further ado. One file
//! may serve several commands: each takes what it has a flag for.

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgMatches, Command};
use toml::{Spanned, Value};

use crate::cli::Cli;
use crate::compat;
use crate::usage_error::UsageError;

/// Reads the command line, and the file that it names. Help and mistakes on it are clap's to tell.
pub(crate) fn read(arguments: &[OsString]) -> anyhow::Result<ArgMatches> {
    let mut matches = Cli::parser().try_get_matches_from(arguments)?;
    if let Some(path) = matches.get_one::<PathBuf>("config") {
        let settings = ConfigFile::read(path)?;
        let command = settings.as_defaults(Cli::parser(), &commands_of(&matches));
        matches = command.try_get_matches_from(arguments)?;
    }
    Ok(matches)
}

/// The command that was given, and the commands within it.
fn commands_of(matches: &ArgMatches) -> Vec<String> {
    let within = |(name, matches): (&str, &ArgMatches)| {
        [vec![name.to_owned()], commands_of(matches)].concat()
    };
    matches.subcommand().map(within).unwrap_or_default()
}

/// What a file says, checked.
#[derive(Debug)]
struct ConfigFile(Vec<ConfigEntry>);

#[derive(Debug)]
struct ConfigEntry {
    /// The flag's name.
    flag: String,
    /// As they would stand on the command line.
    values: Vec<String>,
}

impl ConfigFile {
    fn read(path: &Path) -> Result<Self, UsageError> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            UsageError::new(format!(
                "the configuration `{}` cannot be read: {error}",
                path.display()
            ))
            .hint("name a file of UTF-8 text")
        })?;
        Self::parse(&text).map_err(|wrong| wrong.of(path, &text))
    }

    fn parse(text: &str) -> Result<Self, ConfigError> {
        let said: BTreeMap<Spanned<String>, Spanned<Value>> =
            toml::from_str(text).map_err(|error| ConfigError {
                place: error.span().unwrap_or_default(),
                what: error.message().to_owned(),
                hint: "write lines like `queue = 5` or `keep_for = \"1h\"`".to_owned(),
            })?;
        let known = Cli::parser();
        said.into_iter()
            .map(|(key, value)| setting(&known, key, value))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The command with these as the defaults of its flags, and of those of the commands on the way to the one
    /// that was given.
    fn as_defaults(&self, command: Command, commands: &[String]) -> Command {
        let said = self.0.iter().filter(|setting| !compat::says(&setting.flag));
        let command = said.fold(command, |command, setting| {
            match find(&command, &setting.flag).map(|flag| flag.get_id().clone()) {
                Some(id) => command.mut_arg(id, |flag| flag.default_values(setting.values.clone())),
                None => command,
            }
        });
        match commands {
            [name, within @ ..] => {
                command.mut_subcommand(name, |command| self.as_defaults(command, within))
            }
            [] => command,
        }
    }
}

fn setting(
    known: &Command,
    key: Spanned<String>,
    value: Spanned<Value>,
) -> Result<ConfigEntry, ConfigError> {
    let name = key.get_ref();
    let unknown = |hint: String| ConfigError {
        place: key.span(),
        what: format!("there is no setting `{name}`"),
        hint,
    };
    if name.contains('-') {
        return Err(unknown(format!(
            "write `{}`: with `_` for the `-` of the flag",
            name.replace('-', "_")
        )));
    }
    let flag = name.replace('_', "-");
    let known = anywhere(known, &flag).ok_or_else(|| {
        unknown(
            "`tidegate serve --help` lists the flags; a key is the name of one, with `_` for `-`"
                .to_owned(),
        )
    })?;
    let place = value.span();
    let bad = |why: String| ConfigError {
        place: place.clone(),
        what: format!("`{name}` cannot be used: {why}"),
        hint: hint(known),
    };
    let values = texts(value.into_inner()).ok_or_else(|| {
        bad("it is neither a text nor a number, true, false or a list of those".to_owned())
    })?;
    let values = if known.get_value_delimiter().is_some() {
        values
    } else {
        vec![values.join(",")]
    };
    values
        .iter()
        .try_for_each(|value| check(known, value))
        .map_err(bad)?;
    Ok(ConfigEntry { flag, values })
}

/// A flag that has a variable in the environment has a key too; others are for one call only.
fn find<'a>(command: &'a Command, flag: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| {
        arg.get_long() == Some(flag) && arg.get_env().is_some() && arg.get_id() != "config"
    })
}

fn anywhere<'a>(command: &'a Command, flag: &str) -> Option<&'a Arg> {
    find(command, flag).or_else(|| {
        command
            .get_subcommands()
            .find_map(|command| anywhere(command, flag))
    })
}

/// A value as it would stand on the command line; a list is one for each.
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

/// Reads a value as the flag would.
fn check(flag: &Arg, value: &str) -> Result<(), String> {
    let alone = Arg::new("value")
        .long("value")
        .allow_hyphen_values(true)
        .value_parser(flag.get_value_parser().clone());
    let read = Command::new("setting")
        .no_binary_name(true)
        .arg(alone)
        .try_get_matches_from(["--value", value]);
    read.map(drop).map_err(|error| why(&error))
}

fn why(error: &clap::Error) -> String {
    match (error.source(), error.get(ContextKind::ValidValue)) {
        (Some(source), _) => source.to_string(),
        (None, Some(ContextValue::Strings(choices))) => {
            format!("it must be one of {}", choices.join(", "))
        }
        (None, _) => error.kind().to_string(),
    }
}

/// What is right, as the help has it.
fn hint(flag: &Arg) -> String {
    let about = flag.get_help().map(ToString::to_string).unwrap_or_default();
    format!(
        "a value for `--{}`: {about}",
        flag.get_long().unwrap_or_default()
    )
}

/// What is wrong with a file, and where.
#[derive(Debug)]
struct ConfigError {
    place: Range<usize>,
    what: String,
    hint: String,
}

impl ConfigError {
    fn of(self, path: &Path, text: &str) -> UsageError {
        let line = 1 + text
            .bytes()
            .take(self.place.start)
            .filter(|byte| *byte == b'\n')
            .count();
        UsageError::new(format!("{}:{line}: {}", path.display(), self.what)).hint(self.hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        let wrong = ConfigFile::parse(text).unwrap_err();
        wrong.of(Path::new("tidegate.toml"), text).to_string()
    }

    #[test]
    fn every_flag_with_a_variable_has_a_key() {
        let text = "queue = 5\nkeep_for = \"1h\"\nwatch = true\nheader_timeout = 1.5\nlog_level = \"debug\"\n\
                    endpoint = [\"a\", \"b\"]\nallow_private_networks = [\"10.0.0.0/8\", \"::1\"]\n";
        let ConfigFile(settings) = ConfigFile::parse(text).unwrap();
        let said: BTreeMap<_, _> = settings
            .into_iter()
            .map(|setting| (setting.flag, setting.values.join(" ")))
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
            assert_eq!(said[flag], value);
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
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
                "tidegate.toml:1: `queue` cannot be used: invalid digit found in string",
            ),
            (
                "on_lost = \"cry\"",
                "tidegate.toml:1: `on_lost` cannot be used: it must be one of retry, fail",
            ),
            (
                "[queue]\nsize = 5",
                "tidegate.toml:1: `queue` cannot be used: it is neither a text nor a number, true, false or a list of those",
            ),
            ("queue = 5\nqueue = 6", "tidegate.toml:2: duplicate key"),
        ] {
            assert_eq!(wrong(text), expected, "{text}");
        }
    }
}
