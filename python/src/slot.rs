//! One slot: a socket that receives jobs one after the other.
//!
//! The thread that runs user code reads the socket itself, so that a small job costs one read and one
//! write. Every write goes through [`SlotState::send`], which knows the open job of the slot: a thread
//! that prints after its job has ended cannot write to the log of the next job.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pyo3::exceptions::{PyConnectionError, PyValueError};
use pyo3::prelude::*;
use tidegate_ipc::slot::SlotRequest;

use crate::control::lock;
use crate::frame_buffer::{FillStatus, FrameBuffer};
use crate::job::ChildJob;
use crate::sys::{self, Wait};

static SLOTS: Mutex<Vec<Arc<SlotState>>> = Mutex::new(Vec::new());
/// Whether the model is synchronous with one slot: output without a job then belongs to the running job.
static SINGLE_JOB: AtomicBool = AtomicBool::new(false);

/// The state that the slot's reader, its writers and the control channel share.
pub(crate) struct SlotState {
    pub(crate) number: u32,
    socket: UnixStream,
    outgoing: Mutex<SendBuffer>,
    /// Only locked with the GIL held, and never across a call into Python.
    current: Mutex<CurrentJob>,
}

#[derive(Default)]
struct SendBuffer {
    /// Serial number of the open job; zero when there is none.
    open_job: u64,
    /// Bytes that the socket did not accept yet.
    backlog: Vec<u8>,
}

#[derive(Default)]
struct CurrentJob {
    job: Option<Py<ChildJob>>,
    serial: u64,
    /// The number of a job whose cancel arrived before the job itself.
    early_cancel: Option<u64>,
}

/// Whether the job stays open after a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterSend {
    /// The job continues.
    KeepOpen,
    /// The job has ended; no message of it may follow.
    Close,
}

impl SlotState {
    /// Sends frames of the job `serial`. Returns `false` if that job has ended.
    ///
    /// Tries a write without releasing the GIL first: a release costs far more than a small write.
    pub(crate) fn send(
        &self,
        py: Python<'_>,
        serial: u64,
        frames: &[u8],
        after: AfterSend,
    ) -> io::Result<bool> {
        let mut queued = false;
        if let Ok(mut outgoing) = self.outgoing.try_lock() {
            if outgoing.open_job != serial {
                return Ok(false);
            }
            outgoing.push(&self.socket, frames, after)?;
            if outgoing.backlog.is_empty() {
                return Ok(true);
            }
            queued = true;
        }
        py.detach(|| {
            let mut outgoing = lock(&self.outgoing);
            if !queued {
                if outgoing.open_job != serial {
                    return Ok(false);
                }
                outgoing.push(&self.socket, frames, after)?;
            }
            outgoing.drain(&self.socket)?;
            Ok(true)
        })
    }

    /// Removes the current job of the slot; a later cancel of this job has no effect.
    pub(crate) fn take_job(&self) -> Option<Py<ChildJob>> {
        lock(&self.current).job.take()
    }

    fn job(&self, py: Python<'_>) -> Option<Py<ChildJob>> {
        lock(&self.current)
            .job
            .as_ref()
            .map(|job| job.clone_ref(py))
    }
}

impl SendBuffer {
    fn push(&mut self, socket: &UnixStream, mut frames: &[u8], after: AfterSend) -> io::Result<()> {
        if after == AfterSend::Close {
            self.open_job = 0;
        }
        while self.backlog.is_empty() && !frames.is_empty() {
            match sys::send(socket, frames, Wait::Never) {
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
            match sys::send(socket, &self.backlog[sent..], Wait::Block) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.backlog = Vec::new();
        Ok(())
    }
}

/// The receiving end of a slot.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Slot {
    state: Arc<SlotState>,
    received: Mutex<FrameBuffer>,
    closed: AtomicBool,
}

#[pymethods]
impl Slot {
    /// Waits for the next job, without the GIL. `None` when the server has closed the slot.
    fn recv(&self, py: Python<'_>) -> PyResult<Option<Py<ChildJob>>> {
        exit_if_fork();
        loop {
            match py.detach(|| self.fill(Wait::Block)) {
                Ok(FillStatus::Frame) => return self.take(py).map(Some),
                Ok(_) => return Ok(None),
                // Signal handlers of the model run here; an exception in one ends the child.
                Err(e) if e.kind() == io::ErrorKind::Interrupted => py.check_signals()?,
                Err(e) => return Err(socket_error(&e)),
            }
        }
    }

    /// The next job, if it has been received completely. Does not wait.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<Py<ChildJob>>> {
        exit_if_fork();
        loop {
            match self.fill(Wait::Never) {
                Ok(FillStatus::Frame) => return self.take(py).map(Some),
                Ok(FillStatus::Incomplete) => return Ok(None),
                Ok(FillStatus::End) => {
                    self.closed.store(true, Ordering::Relaxed);
                    return Ok(None);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(socket_error(&e)),
            }
        }
    }

    /// Whether the server has closed the slot.
    #[getter]
    fn closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// The descriptor of the socket, for an event loop.
    fn fileno(&self) -> i32 {
        self.state.socket.as_raw_fd()
    }
}

impl Slot {
    fn fill(&self, wait: Wait) -> io::Result<FillStatus> {
        lock(&self.received).fill(|buffer| sys::recv(&self.state.socket, buffer, wait))
    }

    /// Turns the received frame into the slot's current job.
    fn take(&self, py: Python<'_>) -> PyResult<Py<ChildJob>> {
        let mut received = lock(&self.received);
        let SlotRequest::Predict(predict) =
            serde_json::from_slice(received.frame()).map_err(|e| {
                PyValueError::new_err(format!("the server sent a message that is not a job: {e}"))
            })?;
        let serial = {
            let mut current = lock(&self.state.current);
            current.serial += 1;
            current.serial
        };
        let job = Py::new(
            py,
            ChildJob::new(py, Arc::clone(&self.state), serial, &predict)?,
        )?;
        // No other thread writes between two jobs, so the lock is free or about to be.
        lock(&self.state.outgoing).open_job = serial;
        let mut current = lock(&self.state.current);
        if current
            .early_cancel
            .take_if(|nth| *nth <= serial)
            .is_some_and(|nth| nth == serial)
        {
            job.get().mark_cancelled();
        }
        current.job = Some(job.clone_ref(py));
        drop(current);
        received.consume();
        Ok(job)
    }
}

/// Ends a fork of the child that has returned from user code: it must not run jobs.
fn exit_if_fork() {
    if crate::control::is_fork() {
        sys::exit_now(0);
    }
}

fn socket_error(error: &io::Error) -> PyErr {
    PyConnectionError::new_err(format!("the socket of the slot failed: {error}"))
}

/// Connects `n` slots, in the order of their numbers.
#[pyfunction]
pub(crate) fn connect_slots(path: &str, n: u32) -> PyResult<Vec<Slot>> {
    (0..n)
        .map(|number| {
            let socket = UnixStream::connect(path).map_err(|e| {
                PyConnectionError::new_err(format!(
                    "failed to connect slot {number} to `{path}`: {e}"
                ))
            })?;
            let state = Arc::new(SlotState {
                number,
                socket,
                outgoing: Mutex::default(),
                current: Mutex::default(),
            });
            lock(&SLOTS).push(Arc::clone(&state));
            Ok(Slot {
                state,
                received: Mutex::default(),
                closed: AtomicBool::new(false),
            })
        })
        .collect()
}

/// Declares that the model runs one job at a time, on the main thread.
#[pyfunction]
pub(crate) fn set_single_job() {
    SINGLE_JOB.store(true, Ordering::Relaxed);
}

/// The running job of a model that runs one job at a time.
pub(crate) fn single_job(py: Python<'_>) -> Option<Py<ChildJob>> {
    if !SINGLE_JOB.load(Ordering::Relaxed) {
        return None;
    }
    let state = lock(&SLOTS).first().map(Arc::clone)?;
    state.job(py)
}

/// All running jobs.
pub(crate) fn jobs(py: Python<'_>) -> Vec<Py<ChildJob>> {
    lock(&SLOTS)
        .iter()
        .filter_map(|state| state.job(py))
        .collect()
}

/// Cancels the `nth` job of slot `number`, if it runs or has not arrived yet.
pub(crate) fn cancel(number: u32, nth: u64) {
    let Some(state) = lock(&SLOTS).get(number as usize).map(Arc::clone) else {
        return;
    };
    Python::attach(|py| {
        let job = {
            let mut current = lock(&state.current);
            match &current.job {
                Some(job) if nth == current.serial => Some(job.clone_ref(py)),
                // The number of a job that has ended never comes again, so this has no effect on it.
                _ => {
                    current.early_cancel = Some(nth);
                    None
                }
            }
        };
        if let Some(job) = job {
            ChildJob::cancel(&job, py);
        }
    });
}

/// Makes every slot reach the end of its socket after the jobs that it has already received. Returns
/// `false` if there are no slots.
pub(crate) fn stop_reading() -> bool {
    let slots = lock(&SLOTS);
    for state in slots.iter() {
        // Fails if the socket is already closed, which has the same effect.
        state.socket.shutdown(Shutdown::Read).ok();
    }
    !slots.is_empty()
}

/// Closes the sockets in a forked copy of the child.
pub(crate) fn close_in_fork() {
    // Another thread may have held the lock at the fork; then the sockets stay open.
    if let Ok(slots) = SLOTS.try_lock() {
        for state in slots.iter() {
            sys::close_in_fork(state.socket.as_raw_fd());
        }
    }
}
