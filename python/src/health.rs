//! The user's health check: who waits for it, and until when.
//!
//! The check itself is started by the Python half on a thread or on the model's event loop. Only one
//! runs at a time; requests that come meanwhile get the same answer.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tidegate_ipc::control::{HealthcheckStatus, Response};

use crate::control::{Control, channel, lock};
use crate::life::cut;

const LIMIT: Duration = Duration::from_secs(5);

static STATE: Mutex<State> = Mutex::new(State {
    start: None,
    running: false,
    waiting: Vec::new(),
});

struct State {
    /// Begins the user's check; absent if there is none.
    start: Option<Py<PyAny>>,
    running: bool,
    waiting: Vec<(u64, Instant)>,
}

/// Registers what begins a check.
#[pyfunction]
pub(crate) fn set_healthcheck(start: Py<PyAny>) {
    lock(&STATE).start = Some(start);
}

/// Ends the running check. `error` is what is wrong with the model, or `None`.
#[pyfunction]
pub(crate) fn answer_healthcheck(error: Option<String>) -> PyResult<()> {
    let control = channel()?;
    let waiting = {
        let mut state = lock(&STATE);
        state.running = false;
        std::mem::take(&mut state.waiting)
    };
    for (id, _) in waiting {
        answer(control, id, error.clone());
    }
    Ok(())
}

fn answer(control: &Control, id: u64, error: Option<String>) {
    let status = if error.is_none() {
        HealthcheckStatus::Healthy
    } else {
        HealthcheckStatus::Unhealthy
    };
    control.send(&Response::HealthcheckResult {
        id,
        status,
        error: error.map(cut),
    });
}

/// When the oldest request has waited long enough.
pub(crate) fn next_deadline() -> Option<Instant> {
    lock(&STATE).waiting.first().map(|(_, deadline)| *deadline)
}

/// Answers every request that has waited long enough.
pub(crate) fn expire(control: &Control) {
    let now = Instant::now();
    let late: Vec<u64> = {
        let mut state = lock(&STATE);
        let split = state
            .waiting
            .partition_point(|(_, deadline)| *deadline <= now);
        state.waiting.drain(..split).map(|(id, _)| id).collect()
    };
    for id in late {
        let error = "Healthcheck failed: user-defined healthcheck timed out after 5.0 seconds";
        answer(control, id, Some(error.to_owned()));
    }
}

/// Begins a check, or joins the one that runs.
pub(crate) fn check(control: &Control, id: u64) {
    {
        let mut state = lock(&STATE);
        if state.start.is_none() {
            drop(state);
            return answer(control, id, None);
        }
        state.waiting.push((id, Instant::now() + LIMIT));
        if std::mem::replace(&mut state.running, true) {
            return;
        }
    }
    let started = Python::attach(|py| {
        let start = lock(&STATE).start.as_ref().map(|start| start.clone_ref(py));
        start
            .map_or(Ok(()), |start| start.call0(py).map(drop))
            .map_err(|error| error.to_string())
    });
    if let Err(error) = started {
        // The channel is open: the request came through it.
        answer_healthcheck(Some(format!("Healthcheck failed: {error}"))).ok();
    }
}
