//! One slot: a socket on which jobs come in one after the other.
//!
//! The thread that runs the user's code reads the socket itself, so that a small job costs one read
//! and one write. Everything that is written goes through [`Shared::post`], which knows the job that is
//! open on the slot: a thread that prints after its job has ended cannot reach the next one.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pyo3::exceptions::{PyConnectionError, PyValueError};
use pyo3::prelude::*;
use tidegate_ipc::slot::Request;

use crate::control::lock;
use crate::fd::{self, Wait};
use crate::inbox::{Inbox, Progress};
use crate::job::Job;

static SLOTS: Mutex<Vec<Arc<Shared>>> = Mutex::new(Vec::new());
/// One slot and a synchronous model: whoever prints without a job means the one that runs.
static SOLO: AtomicBool = AtomicBool::new(false);

/// What the slot's reader, its writers and the control channel share.
pub(crate) struct Shared {
    pub(crate) number: u32,
    socket: UnixStream,
    outbox: Mutex<Outbox>,
    /// Only locked with the GIL held, and never across a call into Python.
    current: Mutex<Current>,
}

#[derive(Default)]
struct Outbox {
    /// Serial number of the open job; zero when there is none.
    open: u64,
    /// What the socket did not take at once.
    backlog: Vec<u8>,
}

#[derive(Default)]
struct Current {
    job: Option<Py<Job>>,
    serial: u64,
    /// A cancel that overtook its job on the way here.
    early_cancel: Option<u64>,
}

/// What becomes of the slot with a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// The job goes on.
    Continue,
    /// The job has ended; nothing of it may follow.
    Close,
}

impl Shared {
    /// Sends frames of the job `serial`. `false` if that job has ended.
    ///
    /// Tries without giving the GIL up first: handing it over costs far more than a small write.
    pub(crate) fn post(
        &self,
        py: Python<'_>,
        serial: u64,
        frames: &[u8],
        then: Then,
    ) -> io::Result<bool> {
        let mut queued = false;
        if let Ok(mut outbox) = self.outbox.try_lock() {
            if outbox.open != serial {
                return Ok(false);
            }
            outbox.admit(&self.socket, frames, then)?;
            if outbox.backlog.is_empty() {
                return Ok(true);
            }
            queued = true;
        }
        py.detach(|| {
            let mut outbox = lock(&self.outbox);
            if !queued {
                if outbox.open != serial {
                    return Ok(false);
                }
                outbox.admit(&self.socket, frames, then)?;
            }
            outbox.drain(&self.socket)?;
            Ok(true)
        })
    }

    /// The slot has no job from here on; a cancel for this one comes too late.
    pub(crate) fn leave(&self) -> Option<Py<Job>> {
        lock(&self.current).job.take()
    }

    fn job(&self, py: Python<'_>) -> Option<Py<Job>> {
        lock(&self.current)
            .job
            .as_ref()
            .map(|job| job.clone_ref(py))
    }
}

impl Outbox {
    fn admit(&mut self, socket: &UnixStream, mut frames: &[u8], then: Then) -> io::Result<()> {
        if then == Then::Close {
            self.open = 0;
        }
        while self.backlog.is_empty() && !frames.is_empty() {
            match fd::send(socket, frames, Wait::Never) {
                Ok(n) => frames = &frames[n..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        self.backlog.extend_from_slice(frames);
        Ok(())
    }

    fn drain(&mut self, socket: &UnixStream) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.backlog.len() {
            match fd::send(socket, &self.backlog[sent..], Wait::Block) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.backlog = Vec::new();
        Ok(())
    }
}

/// The reading end of a slot.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Slot {
    shared: Arc<Shared>,
    inbox: Mutex<Inbox>,
    closed: AtomicBool,
}

#[pymethods]
impl Slot {
    /// Waits for the next job, without the GIL. `None` when the server has closed the slot.
    fn recv(&self, py: Python<'_>) -> PyResult<Option<Py<Job>>> {
        end_in_fork();
        loop {
            match py.detach(|| self.fill(Wait::Block)) {
                Ok(Progress::Frame) => return self.take(py).map(Some),
                Ok(_) => return Ok(None),
                // The user's own signal handlers run here; what they raise ends the child.
                Err(e) if e.kind() == io::ErrorKind::Interrupted => py.check_signals()?,
                Err(e) => return Err(broken(&e)),
            }
        }
    }

    /// The next job, if it is all there.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<Py<Job>>> {
        end_in_fork();
        loop {
            match self.fill(Wait::Never) {
                Ok(Progress::Frame) => return self.take(py).map(Some),
                Ok(Progress::Nothing) => return Ok(None),
                Ok(Progress::End) => {
                    self.closed.store(true, Ordering::Relaxed);
                    return Ok(None);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(broken(&e)),
            }
        }
    }

    /// Whether the server has closed the slot.
    #[getter]
    fn closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// The socket, for an event loop to watch.
    fn fileno(&self) -> i32 {
        self.shared.socket.as_raw_fd()
    }
}

impl Slot {
    fn fill(&self, wait: Wait) -> io::Result<Progress> {
        lock(&self.inbox).fill(|buffer| fd::recv(&self.shared.socket, buffer, wait))
    }

    /// Turns the frame in the inbox into the slot's current job.
    fn take(&self, py: Python<'_>) -> PyResult<Py<Job>> {
        let mut inbox = lock(&self.inbox);
        let Request::Predict(predict) = serde_json::from_slice(inbox.frame()).map_err(|e| {
            PyValueError::new_err(format!("the server sent something that is not a job: {e}"))
        })?;
        let serial = {
            let mut current = lock(&self.shared.current);
            current.serial += 1;
            current.serial
        };
        let job = Py::new(
            py,
            Job::new(py, Arc::clone(&self.shared), serial, &predict)?,
        )?;
        // Nobody else writes between two jobs, so the lock is free or about to be.
        lock(&self.shared.outbox).open = serial;
        let mut current = lock(&self.shared.current);
        if current
            .early_cancel
            .take_if(|nth| *nth <= serial)
            .is_some_and(|nth| nth == serial)
        {
            job.get().mark_cancelled();
        }
        current.job = Some(job.clone_ref(py));
        drop(current);
        inbox.consume();
        Ok(job)
    }
}

/// A copy of the child that user code has forked off and come back with is done: jobs are not for it.
fn end_in_fork() {
    if crate::control::forked() {
        fd::exit_now(0);
    }
}

fn broken(error: &io::Error) -> PyErr {
    PyConnectionError::new_err(format!("the slot's socket is broken: {error}"))
}

/// Connects `n` slots, in order.
#[pyfunction]
pub(crate) fn connect(path: &str, n: u32) -> PyResult<Vec<Slot>> {
    (0..n)
        .map(|number| {
            let socket = UnixStream::connect(path).map_err(|e| {
                PyConnectionError::new_err(format!("cannot connect slot {number} to `{path}`: {e}"))
            })?;
            let shared = Arc::new(Shared {
                number,
                socket,
                outbox: Mutex::default(),
                current: Mutex::default(),
            });
            lock(&SLOTS).push(Arc::clone(&shared));
            Ok(Slot {
                shared,
                inbox: Mutex::default(),
                closed: AtomicBool::new(false),
            })
        })
        .collect()
}

/// Says that the model runs one job at a time on the main thread.
#[pyfunction]
pub(crate) fn set_solo() {
    SOLO.store(true, Ordering::Relaxed);
}

/// The only job that can run, in a model that runs one at a time.
pub(crate) fn solo_job(py: Python<'_>) -> Option<Py<Job>> {
    if !SOLO.load(Ordering::Relaxed) {
        return None;
    }
    let shared = lock(&SLOTS).first().map(Arc::clone)?;
    shared.job(py)
}

/// Every job that has begun and not ended.
pub(crate) fn jobs(py: Python<'_>) -> Vec<Py<Job>> {
    lock(&SLOTS)
        .iter()
        .filter_map(|shared| shared.job(py))
        .collect()
}

/// Stops the `nth` job of slot `number`, if it is (or is about to be) there.
pub(crate) fn cancel(number: u32, nth: u64) {
    let Some(shared) = lock(&SLOTS).get(number as usize).map(Arc::clone) else {
        return;
    };
    Python::attach(|py| {
        let job = {
            let mut current = lock(&shared.current);
            match &current.job {
                Some(job) if nth == current.serial => Some(job.clone_ref(py)),
                // One that has ended is asked for by nobody: its number never comes again.
                _ => {
                    current.early_cancel = Some(nth);
                    None
                }
            }
        };
        if let Some(job) = job {
            Job::cancel(&job, py);
        }
    });
}

/// Lets every slot see the end of its socket once it has done what is in it. `false` without slots.
pub(crate) fn stop_reading() -> bool {
    let slots = lock(&SLOTS);
    for shared in slots.iter() {
        // A socket that is closed already has the same effect.
        shared.socket.shutdown(Shutdown::Read).ok();
    }
    !slots.is_empty()
}

/// Closes the sockets in a forked copy of the child.
pub(crate) fn close_in_fork() {
    // Another thread may have held the lock when the process was copied; then they stay open.
    if let Ok(slots) = SLOTS.try_lock() {
        for shared in slots.iter() {
            fd::close_in_fork(shared.socket.as_raw_fd());
        }
    }
}
