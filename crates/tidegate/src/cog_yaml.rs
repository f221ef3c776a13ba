//! Parses the parts of `cog.yaml` that are needed to run a model.

use std::ffi::OsString;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected, Visitor};

use crate::cog_yaml_keys;
use crate::usage_error::UsageError;

/// The keys of `cog.yaml` that are needed to run a model; the others are for building images.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "keys and values like `predict: \"predict.py:Predictor\"`")]
pub(crate) struct CogYaml {
    pub(crate) predict: Option<String>,
    pub(crate) run: Option<String>,
    pub(crate) train: Option<String>,
    pub(crate) concurrency: Option<ConcurrencySetting>,
    pub(crate) environment: Option<EnvironmentSetting>,
    #[serde(default, deserialize_with = "build")]
    pub(crate) build: BuildSetting,
    /// The name of the image, from which the model gets its name.
    pub(crate) image: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "the key `max` below it: `concurrency: {max: 4}`")]
pub(crate) struct ConcurrencySetting {
    #[serde(default, deserialize_with = "positive_number")]
    pub(crate) max: Option<u32>,
}

/// What the model needs of the machine. `environments` reads the other keys.
#[derive(Debug, Default)]
pub(crate) struct BuildSetting {
    pub(crate) gpu: Option<bool>,
}

/// Only `gpu` is checked: other values are for building images.
fn build<'de, D: Deserializer<'de>>(value: D) -> Result<BuildSetting, D::Error> {
    let value = serde_yaml_ng::Value::deserialize(value)?;
    match value.get("gpu") {
        None | Some(serde_yaml_ng::Value::Null) => Ok(BuildSetting::default()),
        Some(serde_yaml_ng::Value::Bool(gpu)) => Ok(BuildSetting { gpu: Some(*gpu) }),
        Some(_) => Err(D::Error::custom("`build.gpu` must be true or false")),
    }
}

/// A number whose errors use the words of a user instead of the names of Rust's types.
fn positive_number<'de, D: Deserializer<'de>>(value: D) -> Result<Option<u32>, D::Error> {
    struct PositiveNumber;

    impl Visitor<'_> for PositiveNumber {
        type Value = Option<u32>;

        fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            out.write_str("a positive number")
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
            let too_large = |_| E::invalid_value(Unexpected::Unsigned(number), &self);
            u32::try_from(number).map(Some).map_err(too_large)
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
            Err(E::invalid_value(Unexpected::Signed(number), &self))
        }
    }

    value.deserialize_any(PositiveNumber)
}

#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "`environment` must be a list of `NAME=value`, or a map"
)]
pub(crate) enum EnvironmentSetting {
    Lines(Vec<String>),
    Map(std::collections::BTreeMap<String, serde_yaml_ng::Value>),
}

/// Parses the text of `file`.
pub(crate) fn parse(file: &Path, text: &str) -> anyhow::Result<CogYaml> {
    if text.trim().is_empty() {
        return Ok(CogYaml::default());
    }
    cog_yaml_keys::check(file, text)?;
    serde_yaml_ng::from_str(text).map_err(|error| {
        UsageError::new(located(file, text, &error))
            .hint("tidegate reads the keys predict, run, train, concurrency.max, environment, image and build")
            .into()
    })
}

/// The message of an error after `file:line:column`. The parser repeats the location at the end of its
/// message. For an error of a whole map, its location is the begin of the map: the line of the key that the
/// message names says more.
fn located(file: &Path, text: &str, error: &serde_yaml_ng::Error) -> String {
    let (file, message) = (file.display(), error.to_string());
    let at = error.location().map(|at| (at.line(), at.column()));
    let message = match at {
        None => message,
        Some((line, column)) => message.replace(&format!(" at line {line} column {column}"), ""),
    };
    let named = match at {
        None | Some((1, 1)) => line_of_named_key(text, &message),
        Some(_) => None,
    };
    match (named, at) {
        (Some(line), _) => format!("{file}:{line}: {message}"),
        (None, Some((line, column))) => format!("{file}:{line}:{column}: {message}"),
        (None, None) => format!("{file}: {message}"),
    }
}

/// The line of the key that an error names: `environment`, or `build.gpu`. Of a repeated key, its last
/// line.
fn line_of_named_key(text: &str, message: &str) -> Option<usize> {
    let named = message.split('`').nth(1)?;
    let key = named.rsplit('.').next()?;
    let mut lines = cog_yaml_keys::lines_of(text, key);
    match message.contains("duplicate") {
        true => lines.last(),
        false => lines.next(),
    }
}

/// The environment variables of `file`, whose content is `text`.
pub(crate) fn environment(
    environment: Option<EnvironmentSetting>,
    file: &Path,
    text: &str,
) -> anyhow::Result<Vec<(OsString, OsString)>> {
    let variable = |name: &str, value: &str, entry: &str| {
        if !can_be_set(name, value) {
            let location = line_of_entry(text, if name.is_empty() { entry } else { name })
                .map_or_else(String::new, |line| format!(":{line}"));
            let message = format!(
                "{}{location}: invalid entry {entry:?} in `environment`",
                file.display()
            );
            return Err(UsageError::new(message)
                .hint("write it as `NAME=value`")
                .into());
        }
        Ok((name.into(), value.into()))
    };
    match environment {
        None => Ok(Vec::new()),
        Some(EnvironmentSetting::Map(map)) => {
            let pairs = map.iter().map(|(name, value)| (name, scalar(value)));
            pairs
                .map(|(name, value)| variable(name, &value, &format!("{name}: {value}")))
                .collect()
        }
        Some(EnvironmentSetting::Lines(lines)) => {
            let pairs = lines
                .iter()
                .map(|line| (line, line.split_once('=').unwrap_or_default()));
            pairs
                .map(|(line, (name, value))| variable(name.trim(), value, line))
                .collect()
        }
    }
}

/// The line of `environment` or below it that contains an entry.
fn line_of_entry(text: &str, entry: &str) -> Option<usize> {
    let section = cog_yaml_keys::lines_of(text, "environment").next()?;
    let mut lines = text.lines().enumerate().skip(section - 1);
    let (index, _) = lines.find(|(_, line)| line.contains(entry))?;
    Some(index + 1)
}

/// Whether a process can have the variable. With an invalid one, its start would fail without an
/// explanation.
fn can_be_set(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

/// A value as text: users do not quote numbers.
fn scalar(value: &serde_yaml_ng::Value) -> String {
    match value {
        serde_yaml_ng::Value::String(text) => text.clone(),
        serde_yaml_ng::Value::Null => String::new(),
        other => serde_yaml_ng::to_string(other)
            .unwrap_or_default()
            .trim()
            .to_owned(),
    }
}
