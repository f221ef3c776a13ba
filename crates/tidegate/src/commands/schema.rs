//! `tidegate schema`: the model's OpenAPI document, without running its code.

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
    // A `json.py` in the working directory must not get in the way of ours.
    command.current_dir("/");
    let status = command.status().with_context(|| {
        format!(
            "could not start `{}`; give the interpreter with --python",
            python.program.display()
        )
    })?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(exit::FAILED)
    })
}
