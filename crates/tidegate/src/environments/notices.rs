//! Says what in a `cog.yaml` differs from this machine or has no effect.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::build_spec::BuildSpec;
use super::interpreter;
use super::python_version::{OLDEST, PythonVersion};
use super::system_packages;
use crate::shell;

/// What a user should know about a model's `cog.yaml`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The model may not work.
    Warning { text: String, remedy: String },
    /// How a key of Cog is treated.
    Explanation(String),
}

/// The notices for a model that runs with the interpreter `python`. Starts processes.
pub(crate) fn notices(spec: &BuildSpec, python: &Path) -> Vec<Notice> {
    let version = spec
        .python_version
        .and_then(|wanted| version_notice(wanted, python, &spec.dir));
    let system = system_notice(&spec.system_packages);
    let keys = keys_notice(&spec.without_effect);
    let mut explained: Vec<Notice> = spec.explained.iter().map(|key| explain(key)).collect();
    // `cuda` and `cudnn` have one text.
    explained.dedup();
    let warnings = [version, system, keys].into_iter().flatten();
    warnings.chain(explained).collect()
}

/// Logs the notices of a model, once for each `cog.yaml`, however often the model is loaded.
pub(super) fn log_once(spec: &BuildSpec, python: &Path) {
    static SEEN: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    let key = format!("{spec:?} {}", python.display());
    let is_new = SEEN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get_or_insert_default()
        .insert(key);
    if !is_new {
        return;
    }
    let folder = spec.dir.display();
    for notice in notices(spec, python) {
        match notice {
            Notice::Warning { text, remedy } => {
                tracing::warn!(%folder, "{text}; try: {remedy}");
            }
            Notice::Explanation(text) => tracing::info!(%folder, "{text}"),
        }
    }
}

fn version_notice(wanted: PythonVersion, python: &Path, dir: &Path) -> Option<Notice> {
    let version = interpreter::version_of(python)?;
    (!wanted.accepts(version)).then(|| Notice::Warning {
        text: format!(
            "cog.yaml asks for Python {wanted}, and the model runs with Python {version} (`{}`)",
            python.display()
        ),
        remedy: match wanted < OLDEST {
            true => interpreter::newer_version_advice(),
            false => format!("`tidegate install {}`", shell::word(dir)),
        },
    })
}

fn system_notice(packages: &[String]) -> Option<Notice> {
    let missing = system_packages::missing(packages);
    (!missing.is_empty()).then(|| Notice::Warning {
        text: format!(
            "`system_packages` that are not installed: {}",
            missing.join(", ")
        ),
        remedy: format!("`{}`", system_packages::install_command(&missing)),
    })
}

fn keys_notice(keys: &[String]) -> Option<Notice> {
    let names: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
    (!keys.is_empty()).then(|| Notice::Warning {
        text: format!("keys in cog.yaml without effect: {}", names.join(", ")),
        remedy: "see the reference of cog.yaml for the keys that have one".to_owned(),
    })
}

fn explain(key: &str) -> Notice {
    Notice::Explanation(
        match key {
            "run" => {
                "`build.run` in cog.yaml is not executed: its commands are for building an image; run those that the model needs on this machine yourself"
            }
            _ => {
                "`build.cuda` and `build.cudnn` in cog.yaml have no effect: the model uses the driver of this machine and the CUDA libraries of its Python packages"
            }
        }
        .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(yaml: &str) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("cog.yaml"), yaml).unwrap();
        let spec = BuildSpec::read(dir.path()).unwrap();
        super::notices(&spec, Path::new("/no/such/python"))
            .into_iter()
            .map(|notice| match notice {
                Notice::Warning { text, remedy } => format!("{text}; try: {remedy}"),
                Notice::Explanation(text) => text,
            })
            .collect()
    }

    #[test]
    fn each_kind_of_key_has_a_notice() {
        let found = texts(
            "weights: x\nbuild:\n  run: [a]\n  system_packages: [no-such-package-of-tidegate]\n",
        );
        let expected = [
            "`sudo apt-get install -y no-such-package-of-tidegate`",
            "`weights`",
            "`build.run`",
        ];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (notice, part) in found.iter().zip(expected) {
            assert!(notice.contains(part), "{notice}");
        }
    }

    #[test]
    fn the_advice_for_another_version_can_be_followed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("my model");
        std::fs::create_dir(&folder).unwrap();
        let python = interpreter::tests::python(dir.path(), "3.98.2");
        let advice = |version: &str| {
            let notice = version_notice(version.parse().unwrap(), &python, &folder);
            match notice {
                Some(Notice::Warning { remedy, .. }) => remedy,
                other => panic!("{other:?}"),
            }
        };
        let install = format!("`tidegate install '{}'`", folder.display());
        assert_eq!(advice("3.97"), install);
        assert_eq!(advice("3.8"), interpreter::newer_version_advice());
    }

    #[test]
    fn an_ordinary_model_has_no_notices() {
        assert_eq!(texts("predict: p.py:P\n"), Vec::<String>::new());
    }
}
