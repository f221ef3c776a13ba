//! `tidegate install`: installs the Python packages of models.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::cli::{InstallArgs, LogFormat, ProgressMode};
use crate::environments::{
    self, BuildSpec, EnvironmentStore, InstallProgress, InstallRequest, Notice,
};
use crate::exit;
use crate::models::ServeTarget;
use crate::python::Python;
use crate::usage_error::{self, UsageError};

pub(crate) fn install(args: &InstallArgs, format: LogFormat) -> anyhow::Result<ExitCode> {
    let folders = model_folders(&args.dir)?;
    let installer = Installation {
        python: Python::find(args.python.as_deref())?,
        store: EnvironmentStore::new(args.environments.data_dir.as_ref()),
        progress: InstallProgress::new(ProgressMode::Auto, format),
        again: args.reinstall,
    };
    let is_only = folders.len() == 1;
    let mut failed = false;
    for folder in &folders {
        match installer.install(folder) {
            Ok(()) => {}
            Err(error) if is_only => return Err(error),
            Err(error) => {
                failed = true;
                let message = format!("failed to install the packages of {}", folder.display());
                usage_error::report(&error.context(message));
            }
        }
    }
    Ok(if failed {
        ExitCode::from(exit::FAILED)
    } else {
        ExitCode::SUCCESS
    })
}

/// The folders with a `cog.yaml`.
fn model_folders(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let found = dir.canonicalize().ok().filter(|path| path.is_dir());
    let Some(dir) = found else {
        return Err(
            UsageError::new(format!("there is no folder `{}`", dir.display()))
                .hint("give the folder that contains the cog.yaml of the model")
                .into(),
        );
    };
    let folders: Vec<PathBuf> = ServeTarget::of(&dir)
        .folders()
        .into_iter()
        .filter(|folder| folder.join("cog.yaml").is_file())
        .collect();
    if folders.is_empty() {
        let message = format!("there is no cog.yaml in `{}`", dir.display());
        return Err(UsageError::new(message)
            .hint("`build` in cog.yaml lists the packages to install")
            .into());
    }
    Ok(folders)
}

/// Installs the packages of one model after the other.
struct Installation {
    python: Python,
    store: EnvironmentStore,
    progress: InstallProgress,
    again: bool,
}

impl Installation {
    /// Installs the packages of a model and prints the path of its environment.
    fn install(&self, folder: &Path) -> anyhow::Result<()> {
        let spec = BuildSpec::read(folder)?;
        let installed = environments::install(&InstallRequest {
            spec: &spec,
            store: &self.store,
            python: &self.python.program,
            progress: self.progress,
            again: self.again,
        })?;
        let python = match &installed {
            Some(environment) => {
                writeln!(std::io::stdout().lock(), "{}", environment.path.display()).ok();
                environment.python()
            }
            None => {
                let text = format!("cog.yaml in {} lists no packages", folder.display());
                writeln!(std::io::stderr().lock(), "{text}").ok();
                self.python.program.clone()
            }
        };
        for notice in environments::notices(&spec, &python) {
            let text = match notice {
                Notice::Warning { text, remedy } => format!("warning: {text}\n  try: {remedy}"),
                Notice::Explanation(text) => format!("note: {text}"),
            };
            // Ignored, because stderr may be closed.
            writeln!(std::io::stderr().lock(), "{text}").ok();
        }
        Ok(())
    }
}
