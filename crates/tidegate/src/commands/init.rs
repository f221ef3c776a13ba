//! `tidegate init`: creates a model folder with an example.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

use crate::cli::InitArgs;
use crate::usage_error::UsageError;

const COG_YAML: &str = include_str!("init/cog.yaml");
const PREDICT_PY: &str = include_str!("init/predict.py");

pub(crate) fn init(args: &InitArgs) -> anyhow::Result<ExitCode> {
    let dir = &args.dir;
    std::fs::create_dir_all(dir)
        .with_context(|| format!("failed to create the folder `{}`", dir.display()))?;
    let files = [("cog.yaml", COG_YAML), ("predict.py", PREDICT_PY)];
    if let Some((name, _)) = files.iter().find(|(name, _)| dir.join(name).exists()) {
        return Err(UsageError::new(format!(
            "`{}` already exists and was not changed",
            dir.join(name).display()
        ))
        .hint("choose another folder: tidegate init DIR")
        .into());
    }
    for (name, text) in files {
        write(&dir.join(name), text)?;
    }
    writeln!(
        std::io::stderr().lock(),
        "created {0}/cog.yaml and {0}/predict.py\n  next: tidegate serve {0}",
        dir.display()
    )
    .ok();
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("failed to write `{}`", path.display()))
}
