//! `tidegate schema`: prints the OpenAPI document of a model, or of several models, without running their
//! code.

use std::io::Write;
use std::process::{Command, ExitCode};

use anyhow::Context;
use serde_json::{Map, Value};
use tidegate_runtime::Scratch;

use crate::cli::SchemaArgs;
use crate::compat::CogEnv;
use crate::environments::{self, EnvironmentStore};
use crate::exit;
use crate::model_factory::SCRATCH_FAILED;
use crate::model_source::ModelSource;
use crate::models::{read_all, read_one};
use crate::python::Python;

pub(crate) fn schema(args: &SchemaArgs, env: &CogEnv) -> anyhow::Result<ExitCode> {
    let interpreters = Interpreters {
        default: Python::find(args.model.python.as_deref())?,
        environments: EnvironmentStore::new(args.environments.data_dir.as_ref()),
        scratch: Scratch::new(None).context(SCRATCH_FAILED)?,
    };
    let mut models = match &args.model_name {
        Some(_) => Vec::new(),
        None => read_all(&args.dir, &args.model, env)?,
    };
    let is_printed = if models.len() > 1 {
        print_all(&interpreters, &models)?
    } else {
        let model = match models.pop() {
            Some((_, model)) => model,
            None => read_one(&args.dir, args.model_name.as_deref(), &args.model, env)?,
        };
        let python = interpreters.of(&model);
        command(&python, &model)
            .status()
            .with_context(|| no_python(&python))?
            .success()
    };
    Ok(if is_printed {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(exit::FAILED)
    })
}

/// The interpreters of models.
struct Interpreters {
    default: Python,
    environments: EnvironmentStore,
    scratch: Scratch,
}

impl Interpreters {
    fn of(&self, model: &ModelSource) -> Python {
        environments::select(
            model,
            &self.environments,
            &self.default,
            self.scratch.path(),
        )
        .python
    }
}

/// Prints the documents as one object with the names of the models as keys. Returns whether all of them
/// are valid.
fn print_all(
    interpreters: &Interpreters,
    models: &[(String, ModelSource)],
) -> anyhow::Result<bool> {
    let mut documents = Map::new();
    for (name, model) in models {
        let python = interpreters.of(model);
        let output = command(&python, model)
            .stderr(std::process::Stdio::inherit())
            .output()
            .with_context(|| no_python(&python))?;
        if output.status.success() {
            let document: Value = serde_json::from_slice(&output.stdout)
                .with_context(|| format!("the schema of `{name}` is not JSON"))?;
            documents.insert(name.clone(), document);
        }
    }
    let is_complete = documents.len() == models.len();
    let text = serde_json::to_string_pretty(&documents)?;
    // Ignored, because the reader may close the pipe early.
    writeln!(std::io::stdout().lock(), "{text}").ok();
    Ok(is_complete)
}

fn command(python: &Python, model: &ModelSource) -> Command {
    let mut command = python.command();
    command
        .args(["-m", "tidegate.schema"])
        .arg(&model.dir)
        .args(["--predict", &model.predictor_ref]);
    if let Some(train) = &model.train_ref {
        command.args(["--train", train]);
    }
    // Python must not import a `json.py` of the working directory.
    command.current_dir("/");
    command
}

fn no_python(python: &Python) -> String {
    format!(
        "failed to start `{}`; set the interpreter with --python",
        python.program.display()
    )
}
