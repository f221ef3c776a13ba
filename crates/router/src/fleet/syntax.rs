//! From text to the types of the file. Translates the errors of the TOML parser: an unknown key names the
//! one that was meant, and no message repeats a string of the file, which may be a secret.

use serde::Deserialize;
use toml::de::{DeTable, DeValue, Deserializer};

use super::error::FleetProblem;
use super::file::FleetFile;

/// How similar two names are if one was meant for the other, from 0 to 1.
const SIMILAR: f64 = 0.8;
const OTHER_SITES: &str =
    "`site` is the name of this router's own site; write other sites as `[[remote_site]]`";

/// Reads the text. The keys of `settings` belong to the command and are skipped.
pub(super) fn read(text: &str, settings: &[&str]) -> Result<FleetFile, FleetProblem> {
    let at = |error: &toml::de::Error, problem, fix| {
        FleetProblem::at(text, &error.span().unwrap_or_default(), problem, fix)
    };
    let mut table = DeTable::parse(text).map_err(|error| {
        let fix = match error.message() {
            "duplicate key" if is_site(text, &error) => OTHER_SITES,
            "duplicate key" => "write each key once",
            _ => "check the quotes and brackets of this line; https://toml.io describes the format",
        };
        let problem = format!("not valid TOML: {}", error.message());
        at(&error, problem, fix.to_owned())
    })?;
    let keys = table.get_mut();
    for setting in settings {
        keys.remove(*setting);
    }
    let site = keys.iter().find(|(key, _)| key.get_ref() == "site");
    if let Some((key, value)) = site
        && matches!(value.get_ref(), DeValue::Array(_) | DeValue::Table(_))
    {
        let problem = "`site` must be a string".to_owned();
        return Err(FleetProblem::at(
            text,
            &key.span(),
            problem,
            OTHER_SITES.to_owned(),
        ));
    }
    FleetFile::deserialize(Deserializer::from(table)).map_err(|error| {
        let (problem, fix) = explain(error.message(), settings);
        at(&error, problem, fix)
    })
}

/// Whether the parser stopped at the key `site`.
fn is_site(text: &str, error: &toml::de::Error) -> bool {
    let span = error.span().unwrap_or_default();
    text.get(span)
        .is_some_and(|key| key.trim_matches(['[', ']', ' ']) == "site")
}

/// The problem and its fix, from a message of serde.
fn explain(message: &str, settings: &[&str]) -> (String, String) {
    if let Some(rest) = message.strip_prefix("unknown field `")
        && let Some((name, expected)) = rest.split_once('`')
    {
        let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        return unknown_key(name, &known, settings);
    }
    if let Some(rest) = message.strip_prefix("invalid type: ")
        && let Some((found, expected)) = rest.rsplit_once(", expected ")
    {
        let found = match found.split_once([' ', '`', '"']) {
            Some((kind, _)) => kind,
            None => found,
        };
        let article = if found.starts_with(['i', 'a', 'o']) {
            "an"
        } else {
            "a"
        };
        let found = match found {
            "sequence" => "list",
            "map" => "table",
            "floating" => "number with a fraction",
            other => other,
        };
        let expected = match expected {
            "a sequence" => "a list",
            "a map" => "a table",
            other => other,
        };
        return (
            format!("the value must be {expected}, not {article} {found}"),
            format!("write {expected}"),
        );
    }
    (
        message.to_owned(),
        "see docs/reference/fleet.md for the format".to_owned(),
    )
}

fn unknown_key(name: &str, known: &[&str], settings: &[&str]) -> (String, String) {
    let problem = format!("there is no key `{name}` here");
    // Settings of the command are at the top of the file only.
    let is_top = known.contains(&"remote_site");
    let settings_here = if is_top { settings } else { &[] };
    let fix = match closest(name, known.iter().chain(settings_here).copied()) {
        _ if settings.contains(&name) => {
            format!("`{name}` is a setting of the command; write it before the first table")
        }
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("the keys here are {}", known.join(", ")),
    };
    (problem, fix)
}

/// The name that was probably meant.
pub(super) fn closest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let similarity = |other: &str| strsim::jaro_winkler(name, other);
    known
        .filter(|other| *other != name && similarity(other) >= SIMILAR)
        .max_by(|a, b| similarity(a).total_cmp(&similarity(b)))
}
