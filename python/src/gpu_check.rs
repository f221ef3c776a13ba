//! Finds out whether the process can still use its GPU and how much memory its allocator has reserved, at most
//! once a second at the end of a job.
//!
//! An error of a GPU such as a failed assertion in a kernel stays in the context of the process: every
//! later call fails, whatever the model does. `tidegate.gpu_context` synchronises the context to find such
//! an error, also if the model's code has swallowed it; this file decides when.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use tidegate_ipc::control::ControlResponse;

use crate::control::{channel, lock};
use crate::lifecycle::truncate;
use crate::slot;

/// The shortest time between two checks of jobs that have not failed.
const INTERVAL: Duration = Duration::from_secs(1);

static FUNCTIONS: PyOnceLock<GpuFunctions> = PyOnceLock::new();
static NEXT_AT: Mutex<Option<Instant>> = Mutex::new(None);
/// What the server knows about the memory: reserved now, and at most.
static REPORTED: Mutex<Option<(u64, u64)>> = Mutex::new(None);

struct GpuFunctions {
    /// Whether this process has used a GPU.
    is_used: Py<PyAny>,
    /// Returns the error of the GPU, or `None`.
    check: Py<PyAny>,
    /// Returns what the allocator has reserved now and at most, or `None`.
    memory: Py<PyAny>,
}

/// Where a job ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndsOn {
    /// A thread of its own, which may wait for the GPU.
    JobThread,
    /// The event loop, which other jobs need.
    EventLoop,
}

/// Registers the functions of `tidegate.gpu_context` and `tidegate.gpu_memory`.
#[pyfunction]
pub(crate) fn set_gpu_functions(
    py: Python<'_>,
    is_used: Py<PyAny>,
    check: Py<PyAny>,
    memory: Py<PyAny>,
) {
    let functions = GpuFunctions {
        is_used,
        check,
        memory,
    };
    // The first registration is the one of the child; user code cannot replace it.
    FUNCTIONS.set(py, functions).ok();
}

/// Reports to the server what the allocator has reserved, if that has changed.
#[pyfunction]
pub(crate) fn report_gpu_memory(py: Python<'_>) {
    let Some(functions) = FUNCTIONS.get(py) else {
        return;
    };
    let result = functions.memory.bind(py).call0();
    let Some(memory) = result.ok().and_then(|value| value.extract().ok()) else {
        return;
    };
    if lock(&REPORTED).replace(memory) == Some(memory) {
        return;
    }
    if let Ok(control) = channel() {
        let (reserved, peak) = memory;
        control.send(&ControlResponse::GpuMemory { reserved, peak });
    }
}

/// Checks the GPU before the last message of a job, if the last check is long enough ago. Returns the
/// error. A job of an event loop is not delayed: the check runs on another thread and reports by itself.
pub(crate) fn before_end(py: Python<'_>, ends_on: EndsOn) -> Option<String> {
    let functions = FUNCTIONS.get(py)?;
    if !take_turn(Instant::now()) || !is_true(py, &functions.is_used) {
        return None;
    }
    match ends_on {
        EndsOn::JobThread => {
            report_gpu_memory(py);
            error_of_gpu(py)
        }
        EndsOn::EventLoop => {
            // Without a thread there is no check; the next one may succeed.
            thread::Builder::new()
                .name("tidegate-gpu".to_owned())
                .spawn(check_and_report)
                .ok();
            None
        }
    }
}

/// Whether a check is due; the next one is due later.
fn take_turn(now: Instant) -> bool {
    let mut next_at = lock(&NEXT_AT);
    let is_due = next_at.is_none_or(|at| now >= at);
    if is_due {
        *next_at = Some(now + INTERVAL);
    }
    is_due
}

fn is_true(py: Python<'_>, function: &Py<PyAny>) -> bool {
    let result = function.bind(py).call0();
    result.and_then(|value| value.is_truthy()).unwrap_or(false)
}

/// The error of the GPU. A check that fails by itself finds none.
fn error_of_gpu(py: Python<'_>) -> Option<String> {
    let check = &FUNCTIONS.get(py)?.check;
    let result = check.bind(py).call0().ok()?;
    result.extract::<Option<String>>().ok()?.map(truncate)
}

fn check_and_report() {
    let error = Python::attach(|py| {
        report_gpu_memory(py);
        error_of_gpu(py)
    });
    if let (Some(reason), Ok(control)) = (error, channel()) {
        slot::refuse_batches();
        control.send(&ControlResponse::Broken { reason });
    }
}
