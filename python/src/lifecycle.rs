//! The lifecycle of the child: its first message, its reports to the server, and its exit.
//!
//! Thin functions over `control`; `tidegate.child` calls them in the right order.

use std::collections::BTreeMap;
use std::time::Duration;

use pyo3::exceptions::{PyConnectionError, PyEOFError, PyValueError};
use pyo3::prelude::*;
use serde_json::value::RawValue;
use tidegate_ipc::control::{self as wire, ControlRequest, ControlResponse, FatalStage, ModelMode};
use tidegate_ipc::slot::WireLogSource;

use crate::control::{self, channel};
use crate::encode::to_json;
use crate::{cancel_signal, descendants, sys};

/// The server's first message: which model to run, and how.
#[pyclass(frozen, get_all, module = "tidegate._native")]
pub(crate) struct InitMessage {
    model_dir: String,
    predictor_ref: String,
    train_ref: Option<String>,
    /// Whether predictions call `train`.
    train_mode: bool,
    /// The number of concurrent jobs; `None` if the model decides.
    num_slots: Option<u32>,
    /// The number of slots for a handler that changes its concurrency while it runs.
    max_slots: Option<u32>,
    /// The path of the Unix socket that the slots connect to.
    socket: String,
    /// The packages that the model needs, as in pip.
    requirements: Vec<String>,
    /// The maximum size of an output file, in bytes.
    max_output_file: Option<u64>,
    /// The operator's maximum number of items in a batch.
    batch_size: Option<u32>,
    /// How long an item may wait for others, in microseconds, if the operator says so.
    batch_wait_micros: Option<u64>,
    /// Whether the setup waits for a request of the server.
    waits_for_setup: bool,
}

/// Opens the control channel on descriptors 0 and 1 and waits for the first message.
#[pyfunction]
pub(crate) fn receive_init(py: Python<'_>) -> PyResult<InitMessage> {
    cancel_signal::record_main_thread();
    control::open()?;
    sys::set_no_new_privileges()?;
    sys::continue_when_parent_dies()?;
    descendants::set_tag();
    let control = channel()?;
    let request = py.detach(|| control.read())?;
    let Some(ControlRequest::Init(init)) = request else {
        return Err(PyEOFError::new_err(
            "the server closed the control channel before it sent `init`",
        ));
    };
    // Before any thread starts and before any code of the model runs: the limits apply to both.
    sys::limit_memory(init.limits.memory)?;
    sys::limit_processes(init.limits.processes)?;
    Ok(InitMessage {
        model_dir: init.model_dir,
        predictor_ref: init.predictor_ref,
        train_ref: init.train_ref,
        train_mode: init.mode == ModelMode::Train,
        num_slots: init.num_slots,
        max_slots: init.max_slots,
        socket: init.socket,
        requirements: init.requirements,
        max_output_file: init.limits.output_file,
        batch_size: init.batch.max_size,
        batch_wait_micros: init.batch.max_wait_micros,
        waits_for_setup: init.waits_for_setup,
    })
}

/// Starts the threads of the control channel. Not in `receive_init`: a process with threads must not
/// fork.
#[pyfunction]
pub(crate) fn start_threads() -> PyResult<()> {
    Ok(control::start()?)
}

/// Sends the model's schema to the server, before the model is loaded.
#[pyfunction]
pub(crate) fn send_schema(schema: &Bound<'_, PyAny>) -> PyResult<()> {
    channel()?.send(&ControlResponse::Schema {
        schema: schema_json(schema)?,
    });
    Ok(())
}

/// Reports that the model's modules are imported, and waits until the server asks for the setup. Returns
/// environment variables to set before.
#[pyfunction]
pub(crate) fn wait_for_setup(
    py: Python<'_>,
    uses_gpu: bool,
    has_driver: bool,
) -> PyResult<BTreeMap<String, String>> {
    let control = channel()?;
    for source in [WireLogSource::Stdout, WireLogSource::Stderr] {
        control.flush_lines(source);
    }
    control.send(&ControlResponse::Imported {
        uses_gpu,
        has_driver,
    });
    Ok(py.detach(control::wait_for_setup_request))
}

fn schema_json(schema: &Bound<'_, PyAny>) -> PyResult<Box<RawValue>> {
    let schema =
        String::from_utf8(to_json(schema)?).map_err(|e| PyValueError::new_err(e.to_string()))?;
    RawValue::from_string(schema).map_err(|e| PyValueError::new_err(e.to_string()))
}

/// Reports that the model is loaded and that every slot waits for a job. `batch` has, for a model that
/// batches, the maximum number of items in a call and in a message, and the wait in microseconds.
#[pyfunction]
#[pyo3(signature = (*, n_slots, schema, is_async, has_healthcheck, python, sdk, batch))]
pub(crate) fn send_ready(
    n_slots: u32,
    schema: &Bound<'_, PyAny>,
    is_async: bool,
    has_healthcheck: bool,
    python: String,
    sdk: Option<String>,
    batch: Option<(u32, u32, u64)>,
) -> PyResult<()> {
    let schema = schema_json(schema)?;
    let control = channel()?;
    control::mark_setup_done();
    for source in [WireLogSource::Stdout, WireLogSource::Stderr] {
        control.flush_lines(source);
    }
    let slots: Vec<u32> = (0..n_slots).collect();
    let ready = wire::Ready {
        slots: slots.clone(),
        schema,
        is_async,
        has_healthcheck,
        python,
        sdk,
        batch: batch.map(
            |(max_size, max_message, max_wait_micros)| wire::BatchLimits {
                max_size,
                max_message,
                max_wait_micros,
            },
        ),
    };
    control.send(&ControlResponse::Ready(ready));
    for slot in slots {
        control.send(&ControlResponse::Idle { slot });
    }
    Ok(())
}

/// Reports why the child must exit. `stage` is `schema`, `load`, `setup` or `run`.
#[pyfunction]
pub(crate) fn send_fatal(stage: &str, reason: String, traceback: Option<String>) -> PyResult<()> {
    let stage = match stage {
        "schema" => FatalStage::Schema,
        "load" => FatalStage::Load,
        "setup" => FatalStage::Setup,
        "run" => FatalStage::Run,
        _ => return Err(PyValueError::new_err(format!("unknown stage `{stage}`"))),
    };
    let control = channel()?;
    for source in [WireLogSource::Stdout, WireLogSource::Stderr] {
        control.flush_lines(source);
    }
    control.send(&ControlResponse::Fatal(wire::Fatal {
        stage,
        reason: truncate(reason),
        traceback: traceback.map(truncate),
    }));
    Ok(())
}

/// Writes text to the server's log, not to the log of a job.
#[pyfunction]
pub(crate) fn write_server_log(text: &str) -> PyResult<()> {
    let control = channel()?;
    control.log(WireLogSource::Stderr, text.as_bytes());
    control.flush_lines(WireLogSource::Stderr);
    Ok(())
}

/// Truncates the text of a user exception so that it fits into a frame.
pub(crate) fn truncate(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(1024 * 1024));
    text
}

/// Reports how many concurrent jobs the handler wants from now on.
#[pyfunction]
pub(crate) fn send_concurrency(slots: u32) -> PyResult<()> {
    channel()?.send(&ControlResponse::DesiredConcurrency { slots });
    Ok(())
}

/// Writes a log record of the child itself. `level` is `error`, `warn`, `info` or `debug`.
#[pyfunction]
pub(crate) fn log(level: String, target: String, message: String) -> PyResult<()> {
    channel()?.send(&ControlResponse::ChildLog {
        target,
        level,
        message: truncate(message),
    });
    Ok(())
}

/// Ends the process after `seconds`, even if something still runs.
#[pyfunction]
pub(crate) fn exit_after(seconds: f64, code: i32) -> PyResult<()> {
    let limit =
        Duration::try_from_secs_f64(seconds).map_err(|e| PyValueError::new_err(e.to_string()))?;
    control::exit_after(limit, code).map_err(|e| PyConnectionError::new_err(e.to_string()))
}

/// Writes pending messages and ends the process.
#[pyfunction]
pub(crate) fn exit_now(py: Python<'_>, code: i32) -> PyResult<()> {
    let control = channel()?;
    for source in [WireLogSource::Stdout, WireLogSource::Stderr] {
        control.flush_lines(source);
    }
    py.detach(|| {
        control.flush(Duration::from_secs(1));
        descendants::kill_all();
    });
    sys::exit_now(code)
}

/// Disconnects a forked copy of the child from the server.
#[pyfunction]
pub(crate) fn after_fork() {
    control::after_fork();
}
