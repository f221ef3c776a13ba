//! The model's health check: its pending requests and their deadlines.
//!
//! `tidegate.health` runs the check itself, on a thread or on the model's event loop. Only one check
//! runs at a time; requests that arrive meanwhile get the same result.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tidegate_ipc::control::{ControlResponse, HealthcheckStatus};

use crate::control::{Control, channel, lock};
use crate::lifecycle::truncate;

const TIMEOUT: Duration = Duration::from_secs(5);

static STATE: Mutex<HealthcheckState> = Mutex::new(HealthcheckState {
    start: None,
    running: false,
    waiting: Vec::new(),
});

struct HealthcheckState {
    /// The Python function that starts the check; `None` if the model has no health check.
    start: Option<Py<PyAny>>,
    running: bool,
    waiting: Vec<(u64, Instant)>,
}

/// Registers the function that starts the check.
#[pyfunction]
pub(crate) fn set_healthcheck(start: Py<PyAny>) {
    lock(&STATE).start = Some(start);
}

/// Sends the result of the running check. `error` says why the model is unhealthy.
#[pyfunction]
pub(crate) fn finish_healthcheck(error: Option<String>) -> PyResult<()> {
    let control = channel()?;
    let waiting = {
        let mut state = lock(&STATE);
        state.running = false;
        std::mem::take(&mut state.waiting)
    };
    for (id, _) in waiting {
        send_result(control, id, error.clone());
    }
    Ok(())
}

fn send_result(control: &Control, id: u64, error: Option<String>) {
    let status = if error.is_none() {
        HealthcheckStatus::Healthy
    } else {
        HealthcheckStatus::Unhealthy
    };
    control.send(&ControlResponse::HealthcheckResult {
        id,
        status,
        error: error.map(truncate),
    });
}

/// The deadline of the oldest request.
pub(crate) fn next_deadline() -> Option<Instant> {
    lock(&STATE).waiting.first().map(|(_, deadline)| *deadline)
}

/// Reports a timeout for every request whose deadline has passed.
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
        send_result(control, id, Some(error.to_owned()));
    }
}

/// Starts a check, or waits for the one that already runs.
pub(crate) fn check(control: &Control, id: u64) {
    {
        let mut state = lock(&STATE);
        if state.start.is_none() {
            drop(state);
            return send_result(control, id, None);
        }
        state.waiting.push((id, Instant::now() + TIMEOUT));
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
        // The channel is open: the request was received on it.
        finish_healthcheck(Some(format!("Healthcheck failed: {error}"))).ok();
    }
}
