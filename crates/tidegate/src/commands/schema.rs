//! `tidegate schema`: prints the OpenAPI document of a model, without running its code.

use std::process::ExitCode;

use anyhow::Context;

use crate::cli::SchemaArgs;
use crate::compat::CogEnv;
use crate::exit;
use crate::model_source::ModelSource;
use crate::python::Python;

pub(crate) fn schema(args: &SchemaArgs, env: &CogEnv) -> anyhow::Result<ExitCode> {
    let model = ModelSource::read(&args.dir, &args.model, env)?;
    let python = Python::find(args.model.python.as_deref())?;
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
    let status = command.status().with_context(|| {
        format!(
            "failed to start `{}`; set the interpreter with --python",
            python.program.display()
        )
    })?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(exit::FAILED)
    })
}
