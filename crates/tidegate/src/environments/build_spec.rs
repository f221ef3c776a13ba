//! Reads `build` in a `cog.yaml`, and finds the keys that have no effect.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_yaml_ng::{Mapping, Value};

use super::python_version::PythonVersion;
use super::requirements::Requirements;
use crate::usage_error::UsageError;

/// The top-level keys that have an effect.
const KEYS: [&str; 7] = [
    "predict",
    "run",
    "train",
    "concurrency",
    "environment",
    "image",
    "build",
];
/// The keys below `build` that have an effect.
const BUILD_KEYS: [&str; 5] = [
    "gpu",
    "python_version",
    "python_packages",
    "python_requirements",
    "system_packages",
];
/// The keys below `build` that are explained instead of only named.
const EXPLAINED_KEYS: [&str; 3] = ["cuda", "cudnn", "run"];

/// What a `cog.yaml` says about the packages and the system that a model needs.
#[derive(Debug, Default)]
pub(crate) struct BuildSpec {
    /// The folder of the model.
    pub(crate) dir: PathBuf,
    pub(crate) python_version: Option<PythonVersion>,
    pub(crate) requirements: Requirements,
    pub(crate) system_packages: Vec<String>,
    /// The keys `cuda`, `cudnn` and `run` that are set.
    pub(super) explained: Vec<&'static str>,
    /// Other keys without effect, such as `weights` or `build.pre_install`.
    pub(super) without_effect: Vec<String>,
}

impl BuildSpec {
    /// Reads the `cog.yaml` of a folder. Without one, nothing is needed.
    pub(crate) fn read(dir: &Path) -> anyhow::Result<Self> {
        let file = dir.join("cog.yaml");
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                return Err(error).with_context(|| format!("failed to read `{}`", file.display()));
            }
        };
        let document: Value = serde_yaml_ng::from_str(&text)
            .map_err(|error| UsageError::new(format!("{}: {error}", file.display())))?;
        let reader = Reader {
            file: &file,
            text: &text,
        };
        match document {
            Value::Mapping(document) => reader.spec(dir, &document),
            _ => Ok(Self {
                dir: dir.to_owned(),
                ..Self::default()
            }),
        }
    }

    /// Whether the model needs an environment of its own.
    pub(crate) fn needs_environment(&self) -> bool {
        self.python_version.is_some() || !self.requirements.is_empty()
    }
}

/// Reads the values of one file.
struct Reader<'a> {
    file: &'a Path,
    text: &'a str,
}

impl Reader<'_> {
    fn spec(&self, dir: &Path, document: &Mapping) -> anyhow::Result<BuildSpec> {
        let empty = Mapping::new();
        let build = match document.get("build") {
            None | Some(Value::Null) => &empty,
            Some(Value::Mapping(build)) => build,
            Some(_) => return Err(self.invalid("build", "keys and values below it").into()),
        };
        let packages = self.texts(build, "python_packages")?;
        let file = match build.get("python_requirements") {
            None | Some(Value::Null) => None,
            Some(Value::String(file)) => Some(dir.join(file)),
            Some(_) => {
                return Err(self
                    .invalid("python_requirements", "the name of a file")
                    .into());
            }
        };
        Ok(BuildSpec {
            dir: dir.to_owned(),
            python_version: self.python_version(build)?,
            requirements: Requirements::read(dir, self.file, packages, file)?,
            system_packages: self.texts(build, "system_packages")?,
            explained: EXPLAINED_KEYS
                .into_iter()
                .filter(|key| build.get(key).is_some_and(is_set))
                .collect(),
            without_effect: without_effect(document, build),
        })
    }

    fn python_version(&self, build: &Mapping) -> anyhow::Result<Option<PythonVersion>> {
        let value = match build.get("python_version") {
            None | Some(Value::Null) => return Ok(None),
            Some(value) => value,
        };
        // YAML reads 3.10 without quotes as the number 3.1.
        let is_ambiguous = value.as_f64().is_some_and(|number| number < 3.105);
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) if !is_ambiguous => number.to_string(),
            _ => {
                let expected = "a version in quotes, such as \"3.10\"";
                return Err(self.invalid("python_version", expected).into());
            }
        };
        let version = text
            .parse()
            .map_err(|problem: String| self.error("python_version", &problem))?;
        Ok(Some(version))
    }

    fn texts(&self, build: &Mapping, key: &str) -> anyhow::Result<Vec<String>> {
        let entries = match build.get(key) {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Sequence(entries)) => entries,
            Some(_) => return Err(self.invalid(key, "a list of strings").into()),
        };
        let texts = entries
            .iter()
            .map(|entry| entry.as_str().map(str::to_owned));
        texts
            .collect::<Option<Vec<String>>>()
            .ok_or_else(|| self.invalid(key, "a list of strings").into())
    }

    fn invalid(&self, key: &str, expected: &str) -> UsageError {
        self.error(key, &format!("it must be {expected}"))
    }

    fn error(&self, key: &str, problem: &str) -> UsageError {
        let line = self
            .text
            .lines()
            .position(|line| line.trim_start().starts_with(key));
        let location = line.map_or_else(String::new, |line| format!(":{}", line + 1));
        UsageError::new(format!(
            "{}{location}: invalid `{key}`: {problem}",
            self.file.display()
        ))
        .hint("correct the value, or remove the key")
    }
}

/// Whether a key asks for something: `gpu: false` does not.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Sequence(entries) => !entries.is_empty(),
        _ => true,
    }
}

fn without_effect(document: &Mapping, build: &Mapping) -> Vec<String> {
    let names = |mapping: &Mapping, known: &[&str], prefix: &str| {
        let unknown = mapping
            .iter()
            .filter(|(_, value)| is_set(value))
            .filter_map(|(key, _)| key.as_str())
            .filter(|key| !known.contains(key));
        unknown
            .map(|key| format!("{prefix}{key}"))
            .collect::<Vec<_>>()
    };
    let known: Vec<&str> = BUILD_KEYS.into_iter().chain(EXPLAINED_KEYS).collect();
    let concurrency = document.get("concurrency").and_then(Value::as_mapping);
    let of_concurrency =
        concurrency.map_or_else(Vec::new, |keys| names(keys, &["max"], "concurrency."));
    [
        names(document, &KEYS, ""),
        of_concurrency,
        names(build, &known, "build."),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<BuildSpec, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("cog.yaml"), yaml).unwrap();
        BuildSpec::read(dir.path()).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn keys_without_effect_are_found() {
        let spec = read(
            "build:\n  gpu: true\n  cuda: '12.1'\n  run: [a]\n  pre_install: [b]\n  python_version: '3.12'\npredict: p.py:P\nweights: {src: x}\nconcurrency: {max: 2, default_target: 1}\n",
        )
        .unwrap();
        assert_eq!(spec.explained, ["cuda", "run"]);
        assert_eq!(
            spec.without_effect,
            ["weights", "concurrency.default_target", "build.pre_install"]
        );
        assert!(spec.needs_environment());
    }

    #[test]
    fn a_model_without_packages_needs_no_environment() {
        for yaml in ["", "predict: p.py:P", "build:", "build:\n  gpu: false\n"] {
            let spec = read(yaml).unwrap();
            assert!(!spec.needs_environment(), "{yaml}");
            assert!(spec.explained.is_empty() && spec.without_effect.is_empty());
        }
    }

    #[test]
    fn a_version_may_be_a_number_unless_it_is_ambiguous() {
        let version = |text: &str| {
            read(&format!("build:\n  python_version: {text}\n"))
                .map(|spec| spec.python_version.map(|version| version.to_string()))
        };
        assert_eq!(version("3.12"), Ok(Some("3.12".to_owned())));
        assert_eq!(version("'3.10'"), Ok(Some("3.10".to_owned())));
        for invalid in ["3.10", "3", "[3.12]", "'3.12.x'"] {
            let error = version(invalid).unwrap_err();
            assert!(
                error.contains("cog.yaml:2: invalid `python_version`"),
                "{error}"
            );
        }
    }

    #[test]
    fn mistakes_name_the_key() {
        for (yaml, key) in [
            ("build: [a]", "build"),
            ("build:\n  python_packages: numpy\n", "python_packages"),
            ("build:\n  python_packages: [1]\n", "python_packages"),
            (
                "build:\n  python_requirements: [a]\n",
                "python_requirements",
            ),
            ("build:\n  python_requirements: gone.txt\n", "gone.txt"),
            ("build:\n  system_packages: ffmpeg\n", "system_packages"),
        ] {
            let error = read(yaml).unwrap_err();
            assert!(error.contains(key), "{error}");
        }
    }
}
