//! One call of user code for several items of a batch.
//!
//! The call needs what a single job has: it can be interrupted, and code that it runs belongs to it. So a
//! job stands for the call. The server does not know this job, and what is printed in the call belongs to
//! no item.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tidegate_ipc::frame;
use tidegate_ipc::slot::{PredictRequest, SlotResponse, WireJobKind};

use super::ChildJob;
use crate::control::lock;
use crate::slot::AfterSend;

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

impl ChildJob {
    /// Creates the job that stands for one call of user code with several items.
    fn begin_batch_call(py: Python<'_>, items: Vec<Py<Self>>) -> PyResult<Py<Self>> {
        let Some(first) = items.first() else {
            return Err(PyValueError::new_err("a call needs an item"));
        };
        let slot = Arc::clone(&first.get().slot);
        let request = PredictRequest {
            id: "batch".into(),
            kind: WireJobKind::Prediction,
            input: None,
            input_file: None,
            output_dir: first.get().output_dir.to_string_lossy().into_owned().into(),
            files: Default::default(),
            context: Default::default(),
        };
        // No job of the server has the number zero.
        let mut call = Self::new(py, Arc::clone(&slot), 0, None, &request)?;
        call.members = items.iter().map(|item| item.clone_ref(py)).collect();
        let call = Py::new(py, call)?;
        for item in &items {
            *lock(&item.get().batch_call) = Some(call.clone_ref(py));
        }
        slot.set_batch_call(Some(call.clone_ref(py)));
        if items.iter().all(|item| item.get().cancel_requested()) {
            // The last cancel may have come just before the items knew of the call.
            call.get().mark_cancelled();
        }
        Ok(call)
    }

    /// Ends the call that this job stands for.
    fn end_batch_call(&self) {
        for item in &self.members {
            let call = lock(&item.get().batch_call).take();
            drop(call);
        }
        self.slot.set_batch_call(None);
        self.ended.store(true, Ordering::Relaxed);
        let task = lock(&self.task).take();
        let vars = lock(&self.context_vars).take();
        let scope = lock(&self.scope).take();
        // Without holding locks: destructors of user code may run here.
        drop((task, vars, scope));
    }

    /// Reports a call of user code with these items.
    fn report_batch_call(py: Python<'_>, items: &[Py<Self>]) {
        let positions = items.iter().filter_map(|item| item.get().item).collect();
        let mut frames = Vec::new();
        frame::append_json(&mut frames, &SlotResponse::BatchCall { items: positions });
        if let Some(first) = items.first() {
            first.get().send(py, &frames, AfterSend::KeepOpen);
        }
    }
}
