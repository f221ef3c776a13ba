//! The Python objects that native code calls, registered once at start.
//!
//! They are captured before user code runs, so that a model that patches `contextvars` or the
//! `tidegate` modules does not change how jobs are run.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

static CONFIG: PyOnceLock<Config> = PyOnceLock::new();

/// The registered Python objects.
pub(crate) struct Config {
    /// `ContextVar.get` of the variable that holds the current job.
    pub(crate) current_get: Py<PyAny>,
    /// `ContextVar.set` of the same variable.
    pub(crate) current_set: Py<PyAny>,
    /// `contextvars.copy_context`
    pub(crate) copy_context: Py<PyAny>,
    /// The exception class that is raised in the code of a canceled job.
    pub(crate) cancelation: Py<PyAny>,
    /// The exception class for values that cannot be sent.
    pub(crate) output_error: Py<PyAny>,
    /// The Python object of our signal handler.
    pub(crate) on_cancel_signal: Py<PyAny>,
    /// Converts a value that is not plain JSON into one that is.
    pub(crate) simplify: Py<PyAny>,
}

/// Registers the Python objects. Must be called once, before anything else is used.
#[pyfunction]
#[pyo3(signature = (*, current, copy_context, cancelation, output_error, on_cancel_signal, simplify))]
pub(crate) fn configure(
    py: Python<'_>,
    current: &Bound<'_, PyAny>,
    copy_context: Py<PyAny>,
    cancelation: Py<PyAny>,
    output_error: Py<PyAny>,
    on_cancel_signal: Py<PyAny>,
    simplify: Py<PyAny>,
) -> PyResult<()> {
    let config = Config {
        current_get: current.getattr("get")?.unbind(),
        current_set: current.getattr("set")?.unbind(),
        copy_context,
        cancelation,
        output_error,
        on_cancel_signal,
        simplify,
    };
    CONFIG
        .set(py, config)
        .map_err(|_| PyRuntimeError::new_err("`configure` was called twice"))
}

/// Whether this process is the child, and not a process that user code has started.
pub(crate) fn is_configured(py: Python<'_>) -> bool {
    CONFIG.get(py).is_some()
}

/// The registered objects; an error before `configure`.
pub(crate) fn config(py: Python<'_>) -> PyResult<&Config> {
    CONFIG
        .get(py)
        .ok_or_else(|| PyRuntimeError::new_err("`configure` was not called"))
}

impl Config {
    /// A new exception that ends a canceled job.
    pub(crate) fn new_cancelation(&self, py: Python<'_>) -> PyErr {
        match self.cancelation.call0(py) {
            Ok(exception) => PyErr::from_value(exception.into_bound(py)),
            Err(error) => error,
        }
    }

    /// A new exception for a value that cannot be sent.
    pub(crate) fn new_output_error(&self, py: Python<'_>, message: String) -> PyErr {
        match self.output_error.call1(py, (message,)) {
            Ok(exception) => PyErr::from_value(exception.into_bound(py)),
            Err(error) => error,
        }
    }
}
