//! Interrupts the main thread to cancel its job, even while it sleeps in a system call.
//!
//! A signal interrupts the call, and Python then runs the handler below, which raises. One signal is
//! not enough: it may arrive after the thread has released the GIL and before it has entered the call,
//! and then it interrupts nothing. So the signal is sent again until the handler has run. Threads other
//! than the main thread cannot be interrupted; they see a cancel when they next run Python code.

use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::config::config;
use crate::control::lock;
use crate::job::ChildJob;
use crate::slot;
use crate::sys;

const FIRST_INTERVAL: Duration = Duration::from_millis(1);
const MAX_INTERVAL: Duration = Duration::from_millis(50);
/// The signal may be blocked, or the thread may be in code that ignores it. After this time the
/// exception is raised at the next bytecode instead.
const GIVE_UP_AFTER: Duration = Duration::from_secs(1);

static MAIN_THREAD: OnceLock<u64> = OnceLock::new();
/// The cancel that the main thread has not seen yet. Only one job can run on the main thread.
static PENDING: Mutex<Option<PendingWake>> = Mutex::new(None);

struct PendingWake {
    job: Py<ChildJob>,
    started: Instant,
    interval: Duration,
    next: Instant,
}

/// Records the calling thread as the one that the signal can interrupt.
pub(crate) fn record_main_thread() {
    MAIN_THREAD.get_or_init(sys::current_thread);
}

/// Whether `thread` is the main thread, which runs Python's signal handlers.
pub(crate) fn is_main_thread(thread: u64) -> bool {
    MAIN_THREAD.get() == Some(&thread)
}

/// Whether our signal handler is still installed; user code may have replaced it.
pub(crate) fn is_our_handler_installed(py: Python<'_>) -> bool {
    let current = py
        .import("_signal")
        .and_then(|signal| signal.call_method1("getsignal", (libc::SIGURG,)));
    match (current, config(py)) {
        (Ok(current), Ok(config)) => current.is(config.on_cancel_signal.bind(py)),
        _ => false,
    }
}

/// Sends the signal to the main thread until it has seen the cancel of this job.
pub(crate) fn start(job: Py<ChildJob>) {
    let now = Instant::now();
    *lock(&PENDING) = Some(PendingWake {
        job,
        started: now,
        interval: FIRST_INTERVAL,
        next: now,
    });
    resend_if_due();
}

/// When to send the signal again.
pub(crate) fn next_resend() -> Option<Instant> {
    lock(&PENDING).as_ref().map(|wake| wake.next)
}

/// Sends the signal again, if it is due and still needed.
pub(crate) fn resend_if_due() {
    let mut pending = lock(&PENDING);
    let Some(wake) = pending.as_mut() else { return };
    let now = Instant::now();
    if now < wake.next {
        return;
    }
    if !wake.job.get().needs_wake() {
        *pending = None;
        return;
    }
    if wake.started.elapsed() > GIVE_UP_AFTER {
        let wake = pending.take();
        drop(pending);
        Python::attach(|py| wake.map(|wake| wake.job.get().raise_at_next_bytecode(py)));
        return;
    }
    if let Some(thread) = MAIN_THREAD.get() {
        sys::interrupt_thread(*thread);
    }
    wake.next = now + wake.interval;
    wake.interval = (wake.interval * 2).min(MAX_INTERVAL);
}

/// The signal handler: raises in the code that it interrupts, if that code's job is canceled.
#[pyfunction]
pub(crate) fn on_cancel_signal(
    py: Python<'_>,
    _signum: i32,
    _frame: &Bound<'_, PyAny>,
) -> PyResult<()> {
    if slot::jobs(py).iter().any(|job| job.get().take_cancel()) {
        Err(config(py)?.new_cancelation(py))
    } else {
        Ok(())
    }
}
