//! How a cancel reaches the main thread, even when it sleeps in a system call.
//!
//! A signal interrupts the call, and Python then runs the handler below, which raises. One signal is not
//! enough: it may arrive after the thread has given up the GIL and before it has entered the call, and
//! then nothing is interrupted. So it is sent again until the handler has run. Threads other than the
//! main one cannot be woken; they hear of a cancel when they run Python again.

use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::config::config;
use crate::control::lock;
use crate::fd;
use crate::job::Job;
use crate::slot;

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// The signal may be blocked, or the thread in code that ignores it: then wait for the next bytecode.
const GIVE_UP_AFTER: Duration = Duration::from_secs(1);

static MAIN_THREAD: OnceLock<u64> = OnceLock::new();
/// Only one job can be on the main thread.
static CALL: Mutex<Option<Call>> = Mutex::new(None);

struct Call {
    job: Py<Job>,
    began: Instant,
    pause: Duration,
    next: Instant,
}

/// Remembers which thread can be woken from a system call.
pub(crate) fn this_is_the_main_thread() {
    MAIN_THREAD.get_or_init(fd::this_thread);
}

/// Whether `thread` is the one that signals reach.
pub(crate) fn is_main_thread(thread: u64) -> bool {
    MAIN_THREAD.get() == Some(&thread)
}

/// Whether the user's code has left our signal handler in place.
pub(crate) fn handler_is_ours(py: Python<'_>) -> bool {
    let current = py
        .import("_signal")
        .and_then(|signal| signal.call_method1("getsignal", (libc::SIGURG,)));
    match (current, config(py)) {
        (Ok(current), Ok(config)) => current.is(config.on_wake.bind(py)),
        _ => false,
    }
}

/// Wakes the main thread until it has heard of this job's cancel.
pub(crate) fn begin(job: Py<Job>) {
    let now = Instant::now();
    *lock(&CALL) = Some(Call {
        job,
        began: now,
        pause: FIRST_PAUSE,
        next: now,
    });
    again();
}

/// When to wake it again.
pub(crate) fn next_deadline() -> Option<Instant> {
    lock(&CALL).as_ref().map(|call| call.next)
}

/// Wakes it again, if that is due and still needed.
pub(crate) fn again() {
    let mut slot = lock(&CALL);
    let Some(call) = slot.as_mut() else { return };
    let now = Instant::now();
    if now < call.next {
        return;
    }
    if !call.job.get().must_be_woken() {
        *slot = None;
        return;
    }
    if call.began.elapsed() > GIVE_UP_AFTER {
        let call = slot.take();
        drop(slot);
        Python::attach(|py| call.map(|call| call.job.get().raise_at_next_bytecode(py)));
        return;
    }
    if let Some(thread) = MAIN_THREAD.get() {
        fd::wake(*thread);
    }
    call.next = now + call.pause;
    call.pause = (call.pause * 2).min(LONGEST_PAUSE);
}

/// The handler of the signal: raises in the code that it interrupts, if that is to be cancelled.
#[pyfunction]
pub(crate) fn on_wake(py: Python<'_>, _signum: i32, _frame: &Bound<'_, PyAny>) -> PyResult<()> {
    if slot::jobs(py).iter().any(|job| job.get().take_cancel()) {
        Err(config(py)?.cancelled(py))
    } else {
        Ok(())
    }
}
