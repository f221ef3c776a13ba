//! One call of user code for several items of a batch.
//!
//! The call needs what a single job has: it can be interrupted, and code that it runs belongs to it. So a
//! job stands for the call. The server does not know this job, and what is printed in the call belongs to
//! no item.

use pyo3::prelude::*;

use crate::job::ChildJob;

/// Starts a call for `items`: returns the job that stands for it. A cancel of all items cancels it.
#[pyfunction]
pub(crate) fn begin_batch_call(py: Python<'_>, items: Vec<Py<ChildJob>>) -> PyResult<Py<ChildJob>> {
    ChildJob::begin_batch_call(py, items)
}

/// Ends the call.
#[pyfunction]
pub(crate) fn end_batch_call(call: &Bound<'_, ChildJob>) {
    call.get().end_batch_call();
}

/// Reports to the server that user code is called with these items.
#[pyfunction]
pub(crate) fn report_batch_call(py: Python<'_>, items: Vec<Py<ChildJob>>) {
    ChildJob::report_batch_call(py, &items);
}
