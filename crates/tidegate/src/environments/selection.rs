//! Selects the interpreter of a model: that of its environment, if it is installed.

use std::path::Path;

use super::build_spec::BuildSpec;
use super::installer::{InstallRequest, install};
use super::notices;
use super::progress::InstallProgress;
use super::store::{Environment, EnvironmentStore};
use crate::model_source::ModelSource;
use crate::models::ServeTarget;
use crate::python::Python;

/// What a model runs with.
pub(crate) struct SelectedInterpreter {
    pub(crate) python: Python,
    /// The packages that the model needs.
    pub(crate) requirements: Vec<String>,
}

/// The interpreter of the model's environment, or else `default`. `links` is a folder for temporary files.
pub(crate) fn select(
    model: &ModelSource,
    store: &EnvironmentStore,
    default: &Python,
    links: &Path,
) -> SelectedInterpreter {
    let without_environment = |requirements| SelectedInterpreter {
        python: default.clone(),
        requirements,
    };
    if model.is_script() {
        return without_environment(Vec::new());
    }
    let spec = match BuildSpec::read(&model.dir) {
        Ok(spec) => spec,
        Err(error) => {
            tracing::warn!(error = format!("{error:#}"), "ignoring `build` in cog.yaml");
            return without_environment(Vec::new());
        }
    };
    let requirements = spec.requirements.texts();
    let Some(environment) = store.find(&spec, &default.program) else {
        notices::log_once(&spec, &default.program);
        return without_environment(requirements);
    };
    notices::log_once(&spec, &environment.python());
    tracing::debug!(environment = %environment.path.display(), "using the environment of the model");
    match default.with_program(environment.python(), links) {
        Ok(python) => SelectedInterpreter {
            python,
            requirements,
        },
        Err(error) => {
            tracing::warn!(
                error = format!("{error:#}"),
                "failed to use the environment of the model"
            );
            without_environment(requirements)
        }
    }
}

/// Installs the packages of the model in a folder, unless they are installed.
pub(crate) fn install_folder(
    dir: &Path,
    store: &EnvironmentStore,
    python: &Path,
    progress: InstallProgress,
) -> anyhow::Result<Option<Environment>> {
    let spec = BuildSpec::read(dir)?;
    install(&InstallRequest {
        spec: &spec,
        store,
        python,
        progress,
        again: false,
    })
}

/// Installs the packages of all models of a command. A model of several whose packages fail is served
/// without them: its import error says what is missing.
pub(crate) fn install_target(
    target: &ServeTarget,
    python: Option<&Path>,
    store: &EnvironmentStore,
    progress: InstallProgress,
) -> anyhow::Result<()> {
    let python = Python::find(python)?;
    for folder in target.folders().iter().filter(|folder| folder.is_dir()) {
        match install_folder(folder, store, &python.program, progress) {
            Err(error) if target.root().is_some() => tracing::error!(
                folder = %folder.display(),
                error = format!("{error:#}"),
                "failed to install the packages of a model"
            ),
            result => drop(result?),
        }
    }
    Ok(())
}
