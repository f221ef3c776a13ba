//! `sys.stdout` and `sys.stderr` of user code.
//!
//! Output is sent line by line to the job that it belongs to: the job in the writer's context
//! variables; without one, in a model that runs one job at a time, the running job; otherwise the
//! server's log. A job that has ended takes no more output, so a late thread cannot write to the log of
//! the next job.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use tidegate_ipc::slot::WireLogSource;

use crate::config::{config, is_configured};
use crate::control::{channel, is_fork};
use crate::job::ChildJob;
use crate::slot::single_job;
use crate::stdio;

/// The job that the calling code belongs to.
pub(crate) fn owner(py: Python<'_>) -> PyResult<Option<Py<ChildJob>>> {
    if !is_configured(py) {
        // This is not the child but a process that user code has started.
        return Ok(None);
    }
    let current = config(py)?.current_get.bind(py).call1((py.None(),))?;
    if current.is_none() {
        return Ok(single_job(py));
    }
    // Any other value means that the code belongs to no job on purpose: a health check.
    Ok(current
        .cast_into_exact::<ChildJob>()
        .ok()
        .map(Bound::unbind))
}

/// The job that the calling code belongs to; it may have ended.
#[pyfunction]
pub(crate) fn current_job(py: Python<'_>) -> PyResult<Option<Py<ChildJob>>> {
    owner(py)
}

fn emit(py: Python<'_>, source: WireLogSource, bytes: &[u8]) -> PyResult<()> {
    if is_fork() {
        stdio::write_stderr(bytes);
        return Ok(());
    }
    let taken = owner(py)?.is_some_and(|job| job.get().log(py, source, bytes));
    if !taken {
        channel()?.log(source, bytes);
    }
    Ok(())
}

fn flush(py: Python<'_>, source: WireLogSource) -> PyResult<()> {
    if is_fork() {
        return Ok(());
    }
    if !owner(py)?.is_some_and(|job| job.get().flush(py, source)) {
        channel()?.flush_lines(source);
    }
    Ok(())
}

fn source(fd: i32) -> PyResult<WireLogSource> {
    match fd {
        1 => Ok(WireLogSource::Stdout),
        2 => Ok(WireLogSource::Stderr),
        _ => Err(PyValueError::new_err(
            "only descriptors 1 and 2 have a stream",
        )),
    }
}

/// The text layer, like `io.TextIOBase`.
#[pyclass(frozen, dict, module = "tidegate._native")]
pub(crate) struct TextStream {
    source: WireLogSource,
    fd: i32,
    buffer: Py<ByteStream>,
}

#[pymethods]
impl TextStream {
    #[new]
    fn new(py: Python<'_>, fd: i32) -> PyResult<Self> {
        let source = source(fd)?;
        Ok(Self {
            source,
            fd,
            buffer: Py::new(py, ByteStream { source, fd })?,
        })
    }

    fn write(&self, text: &Bound<'_, PyAny>) -> PyResult<usize> {
        let py = text.py();
        let Ok(text) = text.cast::<PyString>() else {
            let given = text.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "write() argument must be str, not {given}"
            )));
        };
        match text.to_str() {
            Ok(utf8) => emit(py, self.source, utf8.as_bytes())?,
            // Lone surrogates are escaped instead of losing the line.
            Err(_) => {
                let escaped =
                    text.call_method1(intern!(py, "encode"), ("utf-8", "backslashreplace"))?;
                emit(py, self.source, escaped.cast::<PyBytes>()?.as_bytes())?;
            }
        }
        text.len()
    }

    fn writelines(&self, lines: &Bound<'_, PyAny>) -> PyResult<()> {
        for line in lines.try_iter()? {
            self.write(&line?)?;
        }
        Ok(())
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        flush(py, self.source)
    }

    fn fileno(&self) -> i32 {
        self.fd
    }

    fn isatty(&self) -> bool {
        false
    }

    fn readable(&self) -> bool {
        false
    }

    fn writable(&self) -> bool {
        true
    }

    fn seekable(&self) -> bool {
        false
    }

    /// Only flushes: closing the standard streams of the process would lose output.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        flush(py, self.source)
    }

    #[pyo3(signature = (**_options))]
    fn reconfigure(&self, _options: Option<&Bound<'_, PyAny>>) {}

    #[getter]
    fn buffer(&self, py: Python<'_>) -> Py<ByteStream> {
        self.buffer.clone_ref(py)
    }

    #[getter]
    fn closed(&self) -> bool {
        false
    }

    #[getter]
    fn encoding(&self) -> &'static str {
        "utf-8"
    }

    #[getter]
    fn errors(&self) -> &'static str {
        "backslashreplace"
    }

    #[getter]
    fn newlines(&self) -> Option<&'static str> {
        None
    }

    #[getter]
    fn line_buffering(&self) -> bool {
        true
    }

    #[getter]
    fn write_through(&self) -> bool {
        false
    }

    #[getter]
    fn mode(&self) -> &'static str {
        "w"
    }

    #[getter]
    fn name(&self) -> &'static str {
        name(self.source)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_details))]
    fn __exit__(&self, py: Python<'_>, _details: &Bound<'_, PyAny>) -> PyResult<()> {
        flush(py, self.source)
    }
}

/// The binary layer, like `io.BufferedIOBase`.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct ByteStream {
    source: WireLogSource,
    fd: i32,
}

#[pymethods]
impl ByteStream {
    fn write(&self, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let py = data.py();
        if let Ok(bytes) = data.cast::<PyBytes>() {
            emit(py, self.source, bytes.as_bytes())?;
            return Ok(bytes.as_bytes().len());
        }
        if data.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err(
                "a bytes-like object is required, not 'str'",
            ));
        }
        let copy = py.get_type::<PyBytes>().call1((data,))?;
        let copy = copy.cast::<PyBytes>()?;
        emit(py, self.source, copy.as_bytes())?;
        Ok(copy.as_bytes().len())
    }

    fn writelines(&self, lines: &Bound<'_, PyAny>) -> PyResult<()> {
        for line in lines.try_iter()? {
            self.write(&line?)?;
        }
        Ok(())
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        flush(py, self.source)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        flush(py, self.source)
    }

    fn fileno(&self) -> i32 {
        self.fd
    }

    fn isatty(&self) -> bool {
        false
    }

    fn readable(&self) -> bool {
        false
    }

    fn writable(&self) -> bool {
        true
    }

    fn seekable(&self) -> bool {
        false
    }

    #[getter]
    fn closed(&self) -> bool {
        false
    }

    #[getter]
    fn mode(&self) -> &'static str {
        "wb"
    }

    #[getter]
    fn name(&self) -> &'static str {
        name(self.source)
    }

    #[getter]
    fn raw(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_details))]
    fn __exit__(&self, py: Python<'_>, _details: &Bound<'_, PyAny>) -> PyResult<()> {
        flush(py, self.source)
    }
}

fn name(source: WireLogSource) -> &'static str {
    match source {
        WireLogSource::Stdout => "<stdout>",
        WireLogSource::Stderr => "<stderr>",
    }
}
