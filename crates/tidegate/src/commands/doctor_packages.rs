//! `tidegate doctor DIR`: compares what `build` in a `cog.yaml` asks for with what is installed.

use std::path::Path;

use super::doctor::CheckReport;
use crate::environments::{self, BuildSpec, EnvironmentStore, Notice};
use crate::model_source::ModelSource;
use crate::python::Python;
use crate::shell;

/// Checks the packages of a model. Returns the interpreter that runs it. `links` is a folder for temporary
/// files.
pub(super) fn check(
    checks: &mut CheckReport,
    model: &ModelSource,
    default: &Python,
    store: &EnvironmentStore,
    links: &Path,
) -> Python {
    let spec = match BuildSpec::read(&model.dir) {
        Ok(spec) if !model.is_script() => spec,
        Ok(_) => return default.clone(),
        Err(error) => {
            checks.fail(&format!("{error:#}"), "correct `build` in cog.yaml");
            return default.clone();
        }
    };
    let environment = store.find(&spec, &default.program);
    let python = match &environment {
        Some(environment) => {
            let (path, version) = (environment.path.display(), &environment.description.python);
            checks.pass(&format!(
                "the packages of cog.yaml are installed in {path} (Python {version})"
            ));
            let python = default.with_program(environment.python(), links);
            python.unwrap_or_else(|error| {
                checks.fail(&format!("{error:#}"), "set the interpreter with --python");
                default.clone()
            })
        }
        None => default.clone(),
    };
    let requirements = spec.requirements.texts();
    if environment.is_none() && !requirements.is_empty() {
        compare(checks, &python, &requirements, &model.dir);
    }
    for notice in environments::notices(&spec, &python.program) {
        match notice {
            Notice::Warning { text, remedy } => checks.warn(&text, &remedy),
            Notice::Explanation(text) => checks.pass(&text),
        }
    }
    python
}

/// Compares the required packages with those of an interpreter.
fn compare(checks: &mut CheckReport, python: &Python, requirements: &[String], dir: &Path) {
    let output = python
        .command()
        .args(["-m", "tidegate.requirements"])
        .args(requirements)
        .current_dir("/")
        .output();
    let unmet = match output {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(error) => return checks.fail(&error.to_string(), "set the interpreter with --python"),
    };
    if unmet.is_empty() {
        return checks.pass("the packages of cog.yaml are installed");
    }
    checks.fail(
        &format!(
            "packages of cog.yaml that `{}` does not have: {}",
            python.program.display(),
            unmet.replace('\n', ", ")
        ),
        &format!("tidegate install {}", shell::word(dir)),
    );
}
