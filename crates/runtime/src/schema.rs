//! A model's schema before it is loaded: its source is read, its code does not run.

use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::process::Command;

use crate::launch::LaunchConfig;
use crate::leftovers::{Family, Mark};

/// The source does not say what the model takes and gives.
#[derive(Debug, thiserror::Error)]
pub enum SchemaReadError {
    /// Python could not be started.
    #[error("`{python}` could not be started to read the model's source")]
    Python {
        /// The interpreter.
        python: String,
        /// Why.
        source: std::io::Error,
    },
    /// What is wrong with it, as Python says.
    #[error("{0}")]
    Source(String),
}

/// Reads the schema of a model.
pub async fn read_schema(launch: &LaunchConfig) -> Result<Bytes, SchemaReadError> {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 63);
    let failed = |source| SchemaReadError::Python {
        python: launch.python.display().to_string(),
        source,
    };
    let (family, mark) = (
        Family::of_process(),
        Mark::new(NEXT.fetch_add(1, Ordering::Relaxed)),
    );
    let start = || {
        let process = command(launch, &mark).spawn()?;
        let pid = process.id().expect("it has not been waited for");
        Ok(((process, pid), pid))
    };
    let (process, pid) = family.add(&mark, start).map_err(failed)?;
    let output = process.wait_with_output().await;
    family.remove(pid);
    let output = output.map_err(failed)?;
    if output.status.success() {
        return Ok(output.stdout.into());
    }
    Err(SchemaReadError::Source(
        String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    ))
}

fn command(launch: &LaunchConfig, mark: &Mark) -> Command {
    let mut command = Command::new(&launch.python);
    command
        .args(["-m", "tidegate.schema"])
        .arg(&launch.model_dir)
        .args(["--predict", &launch.predictor_ref]);
    if let Some(train) = &launch.train_ref {
        command.args(["--train", train]);
    }
    // A `json.py` in the working directory must not get in the way of ours.
    command
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    for name in &launch.hidden_env {
        command.env_remove(name);
    }
    let (name, value) = mark.variable();
    command.env(name, value);
    if let Ok(joined) = std::env::join_paths(&launch.python_path)
        && !launch.python_path.is_empty()
    {
        command.env("PYTHONPATH", joined);
    }
    command
}
