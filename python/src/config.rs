//! What the Python half has told us once, at start: the objects that native code has to call.
//!
//! Captured before user code runs, so that a model that patches `contextvars` or our modules does not
//! change how jobs are run.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

static CONFIG: PyOnceLock<Config> = PyOnceLock::new();

/// Objects of the Python half.
pub(crate) struct Config {
    /// `ContextVar.get` of the variable that holds the current job.
    pub(crate) current_get: Py<PyAny>,
    /// `ContextVar.set` of the same.
    pub(crate) current_set: Py<PyAny>,
    /// `contextvars.copy_context`
    pub(crate) copy_context: Py<PyAny>,
    /// The exception class that stops user code.
    pub(crate) cancelation: Py<PyAny>,
    /// The exception class for values that cannot be sent.
    pub(crate) output_error: Py<PyAny>,
    /// Our signal handler, as Python knows it.
    pub(crate) on_wake: Py<PyAny>,
    /// Turns a value that is not plain JSON into one that is.
    pub(crate) simplify: Py<PyAny>,
}

/// Hands the objects of the Python half over. Once, before anything else is used.
#[pyfunction]
#[pyo3(signature = (*, current, copy_context, cancelation, output_error, on_wake, simplify))]
pub(crate) fn configure(
    py: Python<'_>,
    current: &Bound<'_, PyAny>,
    copy_context: Py<PyAny>,
    cancelation: Py<PyAny>,
    output_error: Py<PyAny>,
    on_wake: Py<PyAny>,
    simplify: Py<PyAny>,
) -> PyResult<()> {
    let config = Config {
        current_get: current.getattr("get")?.unbind(),
        current_set: current.getattr("set")?.unbind(),
        copy_context,
        cancelation,
        output_error,
        on_wake,
        simplify,
    };
    CONFIG
        .set(py, config)
        .map_err(|_| PyRuntimeError::new_err("configure was called twice"))
}

/// Whether this process is the child.
pub(crate) fn configured(py: Python<'_>) -> bool {
    CONFIG.get(py).is_some()
}

/// The objects; an error before `configure`.
pub(crate) fn config(py: Python<'_>) -> PyResult<&Config> {
    CONFIG
        .get(py)
        .ok_or_else(|| PyRuntimeError::new_err("configure was not called"))
}

impl Config {
    /// The exception that ends a cancelled job.
    pub(crate) fn cancelled(&self, py: Python<'_>) -> PyErr {
        match self.cancelation.call0(py) {
            Ok(exception) => PyErr::from_value(exception.into_bound(py)),
            Err(error) => error,
        }
    }

    /// The exception for a value that cannot be sent.
    pub(crate) fn unsendable(&self, py: Python<'_>, message: String) -> PyErr {
        match self.output_error.call1(py, (message,)) {
            Ok(exception) => PyErr::from_value(exception.into_bound(py)),
            Err(error) => error,
        }
    }
}
