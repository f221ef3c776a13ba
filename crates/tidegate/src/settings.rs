//! The effective settings of a command, with the origin of each value, for the web UI.

use std::path::Path;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches};
use tidegate_http::ui::Setting;

use crate::cli::Cli;
use crate::{compat, secrets};

/// What is shown in place of a secret.
const HIDDEN: &str = "(hidden)";
/// The flags whose values may contain a password in several notations.
const WITH_PASSWORD: [&str; 2] = ["postgres", "redis"];

/// The settings file of a command, as far as it is shown.
pub(crate) struct FileOrigin<'a> {
    pub(crate) path: &'a Path,
    /// The flags that it sets, with their lines.
    pub(crate) lines: Vec<(&'a str, usize)>,
}

/// The settings of the command that `matches` has parsed.
pub(crate) fn effective(matches: &ArgMatches, file: Option<&FileOrigin<'_>>) -> Vec<Setting> {
    let parser = Cli::parser();
    let Some((name, given)) = matches.subcommand() else {
        return Vec::new();
    };
    let Some(command) = parser.find_subcommand(name) else {
        return Vec::new();
    };
    // Only flags with an environment variable are settings.
    let flags = command
        .get_arguments()
        .filter(|arg| arg.get_env().is_some());
    let flags = flags.filter_map(|arg| setting(arg, given, file));
    flags.chain(secret_variables()).collect()
}

fn setting(arg: &Arg, given: &ArgMatches, file: Option<&FileOrigin<'_>>) -> Option<Setting> {
    let flag = arg.get_long()?;
    let id = arg.get_id().as_str();
    let raw = given.get_raw(id).into_iter().flatten();
    let values: Vec<_> = raw.map(|value| value.to_string_lossy()).collect();
    let mut value = given.contains_id(id).then(|| values.join(","));
    let env = arg
        .get_env()
        .map(|name| name.to_string_lossy().into_owned());
    let origin = match given.value_source(id) {
        Some(ValueSource::CommandLine) => "command line".to_owned(),
        Some(ValueSource::EnvVariable) => "environment".to_owned(),
        _ => match compat::other_variable(flag) {
            Some((_, other)) => {
                value = Some(other);
                "environment".to_owned()
            }
            None => origin_in(file, flag),
        },
    };
    Some(Setting {
        name: flag.replace('-', "_"),
        flag: Some(format!("--{flag}")),
        env,
        value: value.map(|value| shown(flag, &value)),
        origin,
        help: arg.get_help().map(ToString::to_string),
    })
}

/// The origin of a value that replaces the default, or is the default.
fn origin_in(file: Option<&FileOrigin<'_>>, flag: &str) -> String {
    let line = file.and_then(|file| {
        let (_, line) = file.lines.iter().find(|(name, _)| *name == flag)?;
        Some(format!("file {}:{line}", file.path.display()))
    });
    line.unwrap_or_else(|| "default".to_owned())
}

/// The secrets that are set in the environment.
fn secret_variables() -> impl Iterator<Item = Setting> {
    let names = secrets::NAMES
        .iter()
        .filter(|name| **name != secrets::POSTGRES);
    let set = names.filter(|name| secrets::variable(name).is_some());
    set.map(|name| {
        let own = name.strip_prefix("TIDEGATE_").unwrap_or(name);
        Setting {
            name: own.to_ascii_lowercase(),
            flag: None,
            env: Some((*name).to_owned()),
            value: Some(HIDDEN.to_owned()),
            origin: "environment".to_owned(),
            help: None,
        }
    })
}

/// A value without passwords.
fn shown(flag: &str, value: &str) -> String {
    let has_password = value.contains('@') || value.contains("password");
    if WITH_PASSWORD.contains(&flag) && has_password {
        return HIDDEN.to_owned();
    }
    let parts: Vec<String> = value.split(',').map(without_credentials).collect();
    parts.join(",")
}

/// A URL without user, password and query, which may have a key. Other texts are unchanged.
fn without_credentials(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let (rest, query) = match rest.split_once('?') {
        Some((rest, _)) => (rest, format!("?{HIDDEN}")),
        None => (rest, String::new()),
    };
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{HIDDEN}@{host}{query}"),
        None => format!("{scheme}://{rest}{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str], file: Option<&FileOrigin<'_>>) -> Vec<Setting> {
        let words = [&["tidegate"], words].concat();
        let matches = Cli::parser().try_get_matches_from(words).unwrap();
        effective(&matches, file)
    }

    fn find(settings: &[Setting], name: &str) -> (Option<String>, String) {
        let found = settings.iter().find(|setting| setting.name == name);
        let found = found.expect(name);
        (found.value.clone(), found.origin.clone())
    }

    #[test]
    fn every_value_has_its_origin() {
        let file = FileOrigin {
            path: Path::new("/etc/tidegate.toml"),
            lines: vec![("keep-for", 3)],
        };
        let settings = parsed(&["serve", ".", "--queue", "7", "--watch"], Some(&file));
        let command_line = |value: &str| (Some(value.to_owned()), "command line".to_owned());
        assert_eq!(find(&settings, "queue"), command_line("7"));
        assert_eq!(find(&settings, "watch"), command_line("true"));
        assert_eq!(find(&settings, "keep_for").1, "file /etc/tidegate.toml:3");
        assert_eq!(find(&settings, "max_body").1, "default");
        assert!(find(&settings, "max_body").0.is_some());
        assert_eq!(find(&settings, "public_url").0, None);
        let queue = settings
            .iter()
            .find(|setting| setting.name == "queue")
            .unwrap();
        assert_eq!(queue.flag.as_deref(), Some("--queue"));
        assert_eq!(queue.env.as_deref(), Some("TIDEGATE_QUEUE"));
        assert!(queue.help.is_some());
    }

    #[test]
    fn every_server_command_has_settings() {
        for command in [
            &["serve", "."][..],
            &["platform"],
            &["router", "--backend", "http://x"],
        ] {
            assert!(parsed(command, None).len() > 5, "{command:?}");
        }
    }

    #[test]
    fn passwords_are_hidden() {
        for (flag, value, expected) in [
            ("postgres", "postgres://u:p@h/db", HIDDEN),
            ("postgres", "host=h password=p", HIDDEN),
            ("postgres", "postgres://h/db", "postgres://h/db"),
            ("redis", "redis://:p@a,redis://:p/@b", HIDDEN),
            (
                "upload-url",
                "https://u:p@h/x?key=k",
                "https://(hidden)@h/x?(hidden)",
            ),
            ("upload-url", "https://h/x?key=k", "https://h/x?(hidden)"),
            ("endpoint", "a,b", "a,b"),
        ] {
            assert_eq!(shown(flag, value), expected, "{value}");
        }
    }
}
