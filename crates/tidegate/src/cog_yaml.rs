//! The text of a `cog.yaml`, as far as running a model needs it.

use std::ffi::OsString;
use std::path::Path;

use serde::Deserialize;

use crate::usage_error::UsageError;

/// The parts of `cog.yaml` that matter when a model runs; the others are for building images.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "keys and values like `predict: \"predict.py:Predictor\"`")]
pub(crate) struct CogYaml {
    pub(crate) predict: Option<String>,
    pub(crate) run: Option<String>,
    pub(crate) train: Option<String>,
    pub(crate) concurrency: Option<ConcurrencySetting>,
    pub(crate) environment: Option<EnvironmentSetting>,
    /// What the model's image is called, and so the model.
    pub(crate) image: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "the key `max` below it: `concurrency: {max: 4}`")]
pub(crate) struct ConcurrencySetting {
    pub(crate) max: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum EnvironmentSetting {
    Lines(Vec<String>),
    Map(std::collections::BTreeMap<String, serde_yaml_ng::Value>),
}

/// Reads the text of `file`.
pub(crate) fn parse(file: &Path, text: &str) -> anyhow::Result<CogYaml> {
    if text.trim().is_empty() {
        return Ok(CogYaml::default());
    }
    serde_yaml_ng::from_str(text).map_err(|error| {
        let place = error.location().map_or_else(String::new, |at| format!(":{}:{}", at.line(), at.column()));
        UsageError::new(format!("{}{place}: {error}", file.display()))
            .hint("the keys that are read are predict, run, train, concurrency.max, environment and image")
            .into()
    })
}

/// The variables that `file` sets.
pub(crate) fn environment(
    environment: Option<EnvironmentSetting>,
    file: &Path,
) -> anyhow::Result<Vec<(OsString, OsString)>> {
    let variable = |name: &str, value: &str, entry: &str| {
        if !can_be_set(name, value) {
            let message = format!("{}: `environment` has the entry {entry:?}", file.display());
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

/// Whether a process can have the variable: starting one with another fails without a word about it.
fn can_be_set(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

/// A value as it was written: people do not quote numbers.
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
