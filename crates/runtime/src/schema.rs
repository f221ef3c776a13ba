//! Reads the schema of a model before it is loaded: from its source, without running its code.

use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;
use tidegate_ipc::ProcessTag;
use tokio::process::Command;

use crate::launch_config::LaunchConfig;
use crate::reaper::{self, Reaper};

/// The schema of a model could not be read from its source.
#[derive(Debug, thiserror::Error)]
pub enum SchemaReadError {
    /// Python could not be started.
    #[error("could not start `{python}` to read the model's source")]
    Python {
        /// The interpreter.
        python: String,
        /// Why.
        source: std::io::Error,
    },
    /// The source is invalid; the text is Python's message.
    #[error("{0}")]
    Source(String),
}

/// Reads the schema of a model.
pub async fn read_schema(launch: &LaunchConfig) -> Result<Bytes, SchemaReadError> {
    // Apart from the numbers of the children of models, which count from zero.
    static NEXT: AtomicU64 = AtomicU64::new(1 << 63);
    let failed = |source| SchemaReadError::Python {
        python: launch.python.display().to_string(),
        source,
    };
    let (reaper, tag) = (
        Reaper::global(),
        reaper::new_tag(NEXT.fetch_add(1, Ordering::Relaxed)),
    );
    let spawn = || {
        let process = command(launch, &tag).spawn()?;
        let pid = process.id().expect("it has not been waited for");
        Ok(((process, pid), pid))
    };
    let (process, pid) = reaper.spawn_registered(&tag, spawn).map_err(failed)?;
    let output = process.wait_with_output().await;
    reaper.unregister(pid);
    let output = output.map_err(failed)?;
    if output.status.success() {
        return Ok(output.stdout.into());
    }
    Err(SchemaReadError::Source(
        String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    ))
}

/// The warnings about the model's code in the hints of its schema.
pub(crate) fn schema_warnings(schema: &RawValue) -> Vec<String> {
    let document: Value = serde_json::from_str(schema.get()).unwrap_or_default();
    let warnings = document
        .pointer("/x-tidegate/warnings")
        .and_then(Value::as_array);
    warnings
        .into_iter()
        .flatten()
        .filter_map(|warning| warning.as_str().map(str::to_owned))
        .collect()
}

fn command(launch: &LaunchConfig, tag: &ProcessTag) -> Command {
    let mut command = Command::new(&launch.python);
    command
        .args(["-m", "tidegate.schema"])
        .arg(&launch.model_dir)
        .args(["--hints", "--predict", &launch.predictor_ref]);
    if let Some(train) = &launch.train_ref {
        command.args(["--train", train]);
    }
    // A `json.py` in the working directory must not shadow the module that our code imports.
    command
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    for name in &launch.hidden_env {
        command.env_remove(name);
    }
    let (name, value) = reaper::tag_variable(tag);
    command.env(name, value);
    if let Ok(joined) = std::env::join_paths(&launch.python_path)
        && !launch.python_path.is_empty()
    {
        command.env("PYTHONPATH", joined);
    }
    command
}
