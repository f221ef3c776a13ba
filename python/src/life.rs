//! The child's own life: how it begins, what it reports about itself, how it ends.
//!
//! Thin functions over `control`; the order in which they are called is `tidegate.child`'s business.

use std::time::Duration;

use pyo3::exceptions::{PyConnectionError, PyEOFError, PyValueError};
use pyo3::prelude::*;
use serde_json::value::RawValue;
use tidegate_ipc::control::{self as wire, Mode, Request, Response, Stage};
use tidegate_ipc::slot::LogSource;

use crate::control::{self, channel};
use crate::encode::to_json;
use crate::{fd, wake};

/// What the server wants to be run.
#[pyclass(frozen, get_all, module = "tidegate._native")]
pub(crate) struct Init {
    model_dir: String,
    predictor_ref: String,
    train_ref: Option<String>,
    /// Whether predictions are answered by `train`.
    train_mode: bool,
    num_slots: Option<u32>,
    room: Option<u32>,
    socket: String,
    /// The largest output file, in bytes.
    max_output_file: Option<u64>,
}

/// Takes descriptors 0 and 1 away from the user's code and waits for the first message.
#[pyfunction]
pub(crate) fn begin(py: Python<'_>) -> PyResult<Init> {
    wake::this_is_the_main_thread();
    control::open()?;
    fd::gain_no_privileges()?;
    let control = channel()?;
    let request = py.detach(|| control.read())?;
    let Some(Request::Init(init)) = request else {
        return Err(PyEOFError::new_err(
            "the server closed the channel before it said what to run",
        ));
    };
    // Before there are threads and before any of the model's code; only the user's own can be bounded.
    fd::limit_memory(init.limits.memory)?;
    fd::limit_processes(init.limits.processes)?;
    Ok(Init {
        model_dir: init.model_dir,
        predictor_ref: init.predictor_ref,
        train_ref: init.train_ref,
        train_mode: init.mode == Mode::Train,
        num_slots: init.num_slots,
        room: init.room,
        socket: init.socket,
        max_output_file: init.limits.output_file,
    })
}

/// Starts listening to the server. Not in `begin`, because a process with threads must not fork.
#[pyfunction]
pub(crate) fn start_threads() -> PyResult<()> {
    Ok(control::start()?)
}

/// Reports what the model's code says it takes and gives.
#[pyfunction]
pub(crate) fn described(schema: &Bound<'_, PyAny>) -> PyResult<()> {
    channel()?.send(&Response::Described {
        schema: document(schema)?,
    });
    Ok(())
}

fn document(schema: &Bound<'_, PyAny>) -> PyResult<Box<RawValue>> {
    let schema =
        String::from_utf8(to_json(schema)?).map_err(|e| PyValueError::new_err(e.to_string()))?;
    RawValue::from_string(schema).map_err(|e| PyValueError::new_err(e.to_string()))
}

/// Reports that the model is loaded and every slot waits for a job.
#[pyfunction]
#[pyo3(signature = (*, n_slots, schema, is_async, has_healthcheck, python, sdk))]
pub(crate) fn ready(
    n_slots: u32,
    schema: &Bound<'_, PyAny>,
    is_async: bool,
    has_healthcheck: bool,
    python: String,
    sdk: Option<String>,
) -> PyResult<()> {
    let schema = document(schema)?;
    let control = channel()?;
    control::setup_is_over();
    for source in [LogSource::Stdout, LogSource::Stderr] {
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
    };
    control.send(&Response::Ready(ready));
    for slot in slots {
        control.send(&Response::Idle { slot });
    }
    Ok(())
}

/// Reports why the child cannot go on. `stage` is `schema`, `load`, `setup` or `run`.
#[pyfunction]
pub(crate) fn fatal(stage: &str, reason: String, traceback: Option<String>) -> PyResult<()> {
    let stage = match stage {
        "schema" => Stage::Schema,
        "load" => Stage::Load,
        "setup" => Stage::Setup,
        "run" => Stage::Run,
        _ => return Err(PyValueError::new_err("not a stage")),
    };
    let control = channel()?;
    for source in [LogSource::Stdout, LogSource::Stderr] {
        control.flush_lines(source);
    }
    control.send(&Response::Fatal(wire::Fatal {
        stage,
        reason: cut(reason),
        traceback: traceback.map(cut),
    }));
    Ok(())
}

/// Shows text to the operator: the server's log, not a job's.
#[pyfunction]
pub(crate) fn tell_operator(text: &str) -> PyResult<()> {
    let control = channel()?;
    control.log(LogSource::Stderr, text.as_bytes());
    control.flush_lines(LogSource::Stderr);
    Ok(())
}

/// A text that fits into a frame, however long an exception of the user's is.
pub(crate) fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(1024 * 1024));
    text
}

/// Says how many jobs at once the model's code wants from now on.
#[pyfunction]
pub(crate) fn wants(slots: u32) -> PyResult<()> {
    channel()?.send(&Response::Wants { slots });
    Ok(())
}

/// A remark of the child's own. `level` is `error`, `warn`, `info` or `debug`.
#[pyfunction]
pub(crate) fn remark(level: String, target: String, message: String) -> PyResult<()> {
    channel()?.send(&Response::WorkerLog {
        target,
        level,
        message: cut(message),
    });
    Ok(())
}

/// Ends the process within `seconds`, whatever still runs by then.
#[pyfunction]
pub(crate) fn exit_after(seconds: f64, code: i32) -> PyResult<()> {
    let limit =
        Duration::try_from_secs_f64(seconds).map_err(|e| PyValueError::new_err(e.to_string()))?;
    control::exit_after(limit, code).map_err(|e| PyConnectionError::new_err(e.to_string()))
}

/// Writes what waits and ends the process.
#[pyfunction]
pub(crate) fn exit_now(py: Python<'_>, code: i32) -> PyResult<()> {
    let control = channel()?;
    for source in [LogSource::Stdout, LogSource::Stderr] {
        control.flush_lines(source);
    }
    py.detach(|| control.flush(Duration::from_secs(1)));
    fd::exit_now(code)
}

/// Cuts a forked copy of the child off from the server.
#[pyfunction]
pub(crate) fn after_fork() {
    control::after_fork();
}
