//! Finds misspelt keys in `cog.yaml`. A key that resembles no known key is ignored, because newer
//! versions of Cog may define it.

use std::path::Path;

use serde_yaml_ng::{Mapping, Value};

use crate::usage_error::UsageError;

/// The keys of the whole file, and of two sections.
const KNOWN: [(Option<&str>, &[&str]); 3] = [
    (
        None,
        &[
            "build",
            "concurrency",
            "environment",
            "image",
            "predict",
            "run",
            "tests",
            "train",
            "weights",
        ],
    ),
    (
        Some("build"),
        &[
            "cog_runtime",
            "cuda",
            "cudnn",
            "environment",
            "fast",
            "gpu",
            "pre_install",
            "python_overrides",
            "python_packages",
            "python_requirements",
            "python_version",
            "run",
            "sdk_version",
            "system_packages",
        ],
    ),
    (Some("concurrency"), &["default_target", "max"]),
];

/// How similar a key must be to a known one to count as misspelt; equal keys have 1.
const MISSPELT: f64 = 0.8;

/// Refuses the first misspelt key of `file`, whose content is `text`.
pub(crate) fn check(file: &Path, text: &str) -> Result<(), UsageError> {
    // The parser reports a file that is not a map.
    let Ok(whole) = serde_yaml_ng::from_str::<Mapping>(text) else {
        return Ok(());
    };
    for (section, known) in KNOWN {
        let map = match section {
            None => Some(&whole),
            Some(section) => whole.get(section).and_then(Value::as_mapping),
        };
        let keys = map.into_iter().flat_map(Mapping::keys);
        for key in keys.filter_map(Value::as_str) {
            if let Some(meant) = correction(key, known) {
                return Err(unknown_key(file, text, section, key, meant));
            }
        }
    }
    Ok(())
}

/// The numbers of the lines that have the key, from 1.
pub(crate) fn lines_of(text: &str, key: &str) -> impl Iterator<Item = usize> {
    let named = format!("{key}:");
    let has_key = move |line: &str| {
        let line = line.replace(['"', '\''], "");
        // The end of another key, such as `pre_run:`, is not the key.
        let begins = |at: usize| {
            line[..at]
                .chars()
                .next_back()
                .is_none_or(|last| " {,".contains(last))
        };
        !line.trim_start().starts_with('#') && line.match_indices(&named).any(|(at, _)| begins(at))
    };
    let lines = text.lines().enumerate();
    lines
        .filter(move |(_, line)| has_key(line))
        .map(|(index, _)| index + 1)
}

fn unknown_key(
    file: &Path,
    text: &str,
    section: Option<&str>,
    key: &str,
    meant: &str,
) -> UsageError {
    let line = lines_of(text, key).next();
    let line = line.map_or_else(String::new, |line| format!(":{line}"));
    let section = section.map_or_else(String::new, |section| format!(" in `{section}`"));
    let message = format!(
        "{}{line}: unknown key `{key}`{section}; did you mean `{meant}`?",
        file.display()
    );
    UsageError::new(message).hint(format!("rename `{key}` to `{meant}`, or remove it"))
}

/// The known key that a misspelt key resembles most.
fn correction<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    if known.contains(&key) {
        return None;
    }
    let similarity = |name: &&str| strsim::jaro_winkler(key, name);
    known
        .iter()
        .copied()
        .max_by(|one, other| similarity(one).total_cmp(&similarity(other)))
        .filter(|name| similarity(name) >= MISSPELT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> Option<String> {
        check(Path::new("cog.yaml"), text)
            .err()
            .map(|error| error.to_string())
    }

    #[test]
    fn a_misspelt_key_is_reported_with_its_line_and_the_known_key() {
        for (text, expected) in [
            (
                "predct: a.py:A",
                "cog.yaml:1: unknown key `predct`; did you mean `predict`?",
            ),
            (
                "run: a.py:A\nconcurency:\n  max: 2",
                "cog.yaml:2: unknown key `concurency`; did you mean `concurrency`?",
            ),
            (
                "concurrency: {maxx: 2}",
                "cog.yaml:1: unknown key `maxx` in `concurrency`; did you mean `max`?",
            ),
            (
                "build:\n  python_verison: 3",
                "cog.yaml:2: unknown key `python_verison` in `build`; did you mean `python_version`?",
            ),
            (
                "enviroment: []",
                "cog.yaml:1: unknown key `enviroment`; did you mean `environment`?",
            ),
        ] {
            assert_eq!(error(text).as_deref(), Some(expected));
        }
    }

    #[test]
    fn known_and_quite_different_keys_are_accepted() {
        for text in [
            "predict: a.py:A\nbuild: {gpu: true}\nweights: []",
            "x-mine: 1\nlicense: MIT",
            "build: 5",
            "- a",
            "{",
        ] {
            assert_eq!(error(text), None, "{text}");
        }
    }
}
