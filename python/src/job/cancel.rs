//! The cancelation of a job: it interrupts the user code of this job and nothing else.

use std::sync::atomic::Ordering;
use std::time::Instant;

use pyo3::ffi;
use pyo3::prelude::*;
use tidegate_ipc::control;

use super::ChildJob;
use crate::config::config;
use crate::control::{channel, lock};
use crate::{cancel_signal, sys};

impl ChildJob {
    /// Records a cancel that arrived before the job.
    pub(crate) fn mark_cancelled(&self) {
        self.cancel_requested.store(true, Ordering::Relaxed);
    }

    /// Cancels the job: cancels its task, or raises in its thread. Has no effect the second time.
    pub(crate) fn cancel(slf: &Py<Self>, py: Python<'_>) {
        let job = slf.get();
        if job.cancel_requested.swap(true, Ordering::Relaxed) {
            return;
        }
        let batch_call = lock(&job.batch_call)
            .as_ref()
            .map(|call| call.clone_ref(py));
        if let Some(call) = batch_call {
            // User code works for the other items as well.
            if call
                .get()
                .members
                .iter()
                .all(|job| job.get().cancel_requested())
            {
                Self::cancel(&call, py);
            }
            return;
        }
        let task = lock(&job.task)
            .as_ref()
            .map(|(task, schedule)| (task.clone_ref(py), schedule.clone_ref(py)));
        if let Some((task, schedule)) = task {
            // Fails if the loop is closed, and then the task has ended.
            task.getattr(py, "cancel")
                .and_then(|cancel| schedule.call1(py, (cancel,)))
                .ok();
        } else if cancel_signal::is_main_thread(job.user_thread.load(Ordering::Relaxed))
            && cancel_signal::is_our_handler_installed(py)
        {
            cancel_signal::start(slf.clone_ref(py));
        } else {
            job.raise_at_next_bytecode(py);
        }
        if let Ok(control) = channel() {
            control.send(&control::ControlResponse::Cancelled {
                slot: job.slot.number,
            });
        }
    }

    /// Raises the cancelation in the thread that runs user code, when it next runs Python code.
    ///
    /// The GIL is held, and `user_thread` changes only with the GIL held: the thread is inside user code
    /// now and stays there until this function returns.
    pub(crate) fn raise_at_next_bytecode(&self, py: Python<'_>) {
        let thread = self.user_thread.load(Ordering::Relaxed);
        if thread == 0 || self.cancel_raised.swap(true, Ordering::Relaxed) {
            return;
        }
        let Ok(config) = config(py) else { return };
        set_async_exception(thread, config.cancelation.as_ptr());
    }

    /// Whether the main thread runs this job's code and has not seen its cancel yet.
    pub(crate) fn needs_wake(&self) -> bool {
        self.cancel_requested()
            && !self.cancel_raised.load(Ordering::Relaxed)
            && cancel_signal::is_main_thread(self.user_thread.load(Ordering::Relaxed))
    }

    /// Takes the cancel: returns what `needs_wake` does, but `true` only once. On the main thread.
    pub(crate) fn take_cancel(&self) -> bool {
        self.needs_wake() && !self.cancel_raised.swap(true, Ordering::Relaxed)
    }

    /// Runs `call` so that a cancel can interrupt it, and nothing else.
    pub(super) fn run_interruptible<'py, R>(
        &self,
        py: Python<'py>,
        call: impl FnOnce() -> PyResult<R>,
    ) -> PyResult<R> {
        if self.cancel_requested() {
            return Err(config(py)?.new_cancelation(py));
        }
        let thread = sys::current_thread();
        let began = Instant::now();
        self.user_thread.store(thread, Ordering::Relaxed);
        let result = call();
        // No Python code runs between the end of the call and the next line, so the GIL stays held.
        self.user_thread.store(0, Ordering::Relaxed);
        self.nanos_in_user_code
            .fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        if self.cancel_requested() {
            // The cancel may have come too late to be raised in this call; it must not hit the next job.
            set_async_exception(thread, std::ptr::null_mut());
            return Err(config(py)?.new_cancelation(py));
        }
        result
    }
}

#[expect(unsafe_code, reason = "PyO3 has no safe wrapper")]
fn set_async_exception(thread: u64, exception: *mut ffi::PyObject) {
    // SAFETY: every caller holds the GIL; `exception` is null or a class that is never freed.
    unsafe { ffi::PyThreadState_SetAsyncExc(thread as std::ffi::c_long, exception) };
}
