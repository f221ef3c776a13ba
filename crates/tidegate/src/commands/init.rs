//! `tidegate init`: creates a model folder with an example, or the `cog.yaml` of an existing model.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

use crate::cli::InitArgs;
use crate::model_source::is_handler_folder;
use crate::predictor_file::predictor_in;
use crate::shell;
use crate::usage_error::UsageError;

const COG_YAML: &str = include_str!("init/cog.yaml");
const PREDICT_PY: &str = include_str!("init/predict.py");

/// The reference to the predictor in [`COG_YAML`].
const EXAMPLE_KEY: &str = "predict: \"predict.py:Predictor\"";
/// The files that may contain the code of an existing model, with the key of `cog.yaml` for each.
const CODE_FILES: [(&str, &str); 2] = [("run.py", "run"), ("predict.py", "predict")];

pub(crate) fn init(args: &InitArgs) -> anyhow::Result<ExitCode> {
    let dir = &args.dir;
    std::fs::create_dir_all(dir)
        .with_context(|| format!("failed to create the folder `{}`", dir.display()))?;
    if dir.join("cog.yaml").exists() {
        return Err(UsageError::new(format!(
            "`{}` already exists and was not changed",
            dir.join("cog.yaml").display()
        ))
        .hint("choose another folder: tidegate init DIR")
        .into());
    }
    let existing = CODE_FILES
        .into_iter()
        .find(|(file, _)| dir.join(file).exists());
    // A cog.yaml would hide the handler.
    if existing.is_none() && is_handler_folder(dir) {
        let message = format!(
            "`{}` has a handler.py, which needs no cog.yaml",
            dir.display()
        );
        let next = format!("tidegate serve {}", shell::word(dir));
        return Err(UsageError::new(message).hint(next).into());
    }
    let created = match existing {
        Some((file, key)) => describe_model(dir, file, key)?,
        None => {
            write(&dir.join("cog.yaml"), COG_YAML)?;
            write(&dir.join("predict.py"), PREDICT_PY)?;
            format!("created {0}/cog.yaml and {0}/predict.py", dir.display())
        }
    };
    writeln!(
        std::io::stderr().lock(),
        "{created}\n  next: tidegate serve {}",
        shell::word(dir)
    )
    .ok();
    Ok(ExitCode::SUCCESS)
}

/// Writes the `cog.yaml` of a model whose code exists already, and returns what was done.
fn describe_model(dir: &Path, file: &str, key: &str) -> anyhow::Result<String> {
    let path = dir.join(file);
    let code = std::fs::read_to_string(&path)
        .with_context(|| format!("failed to read `{}`", path.display()))?;
    let name = predictor_in(&code).ok_or_else(|| {
        UsageError::new(format!(
            "`{}` has no class with a method `run` or `predict`, and no function with one of these names",
            path.display()
        ))
        .hint(format!(
            "create {} with the line `{key}: \"{file}:NAME\"`",
            dir.join("cog.yaml").display()
        ))
    })?;
    let reference = format!("{key}: \"{file}:{name}\"");
    let mut yaml = COG_YAML.replace(EXAMPLE_KEY, &reference);
    if dir.join("requirements.txt").is_file() {
        yaml.push_str("\nbuild:\n  python_requirements: requirements.txt\n");
    }
    write(&dir.join("cog.yaml"), &yaml)?;
    Ok(format!(
        "created {}/cog.yaml for the existing {file}: {reference}",
        dir.display()
    ))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("failed to write `{}`", path.display()))
}
