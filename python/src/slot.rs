//! One slot: a socket that receives jobs one after the other.
//!
//! The thread that runs user code reads the socket itself, so that a small job costs one read and one
//! write. Every write goes through [`SlotState::send`], which knows the open job of the slot: a thread
//! that prints after its job has ended cannot write to the log of the next job.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pyo3::exceptions::{PyConnectionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use tidegate_ipc::frame;
use tidegate_ipc::slot::{BatchPredictRequest, PredictRequest, SlotRequest, SlotResponse};

use crate::control::lock;
use crate::encode::append;
use crate::frame_buffer::{FillStatus, FrameBuffer};
use crate::job::ChildJob;
use crate::sys::{self, Wait};

/// How many bytes of messages are collected at most.
const CORKED_BYTES: usize = 1024 * 1024;

static SLOTS: Mutex<Vec<Arc<SlotState>>> = Mutex::new(Vec::new());
/// Whether the model is synchronous with one slot: output without a job then belongs to the running job.
static SINGLE_JOB: AtomicBool = AtomicBool::new(false);
/// Whether this process can run no more jobs. A batch that the server sent before it knew is refused.
static REFUSES_BATCHES: AtomicBool = AtomicBool::new(false);

/// The state that the slot's reader, its writers and the control channel share.
pub(crate) struct SlotState {
    pub(crate) number: u32,
    socket: UnixStream,
    outgoing: Mutex<SendBuffer>,
    /// Only locked with the GIL held, and never across a call into Python.
    current: Mutex<CurrentJobs>,
}

#[derive(Default)]
struct SendBuffer {
    /// Serial numbers of the jobs that were received last: one, or those of a batch.
    received: Range<u64>,
    /// How many of them are open.
    open: u64,
    /// Bytes that the socket did not accept yet.
    backlog: Vec<u8>,
    /// Whether bytes are collected instead of sent.
    corked: bool,
}

#[derive(Default)]
struct CurrentJobs {
    /// The running job, or the items of the running batch.
    jobs: Vec<Py<ChildJob>>,
    /// The job that stands for a call with several items of the batch.
    batch_call: Option<Py<ChildJob>>,
    /// The serial number of the job that was received last.
    serial: u64,
    /// The numbers of jobs whose cancel arrived before the job itself.
    early_cancels: Vec<u64>,
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
            if !outgoing.is_open(serial) {
                return Ok(false);
            }
            outgoing.push(&self.socket, frames, after)?;
            if outgoing.may_wait() {
                return Ok(true);
            }
            queued = true;
        }
        py.detach(|| {
            let mut outgoing = lock(&self.outgoing);
            if !queued {
                if !outgoing.is_open(serial) {
                    return Ok(false);
                }
                outgoing.push(&self.socket, frames, after)?;
                if outgoing.may_wait() {
                    return Ok(true);
                }
            }
            outgoing.drain(&self.socket)?;
            Ok(true)
        })
    }

    /// Sends one frame of the job `serial`, in parts, of which at least one is large. Returns `false` if
    /// that job has ended.
    ///
    /// Nothing is copied: the socket does not accept all of it at once, so the GIL is released anyway.
    pub(crate) fn send_large(
        &self,
        py: Python<'_>,
        serial: u64,
        parts: &[&[u8]],
        after: AfterSend,
    ) -> io::Result<bool> {
        py.detach(|| {
            let mut outgoing = lock(&self.outgoing);
            if !outgoing.is_open(serial) {
                return Ok(false);
            }
            outgoing.count(after);
            outgoing.drain(&self.socket)?;
            let mut parts: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
            let mut rest = &mut parts[..];
            while !rest.is_empty() {
                match sys::send_parts(&self.socket, rest) {
                    Ok(n) => IoSlice::advance_slices(&mut rest, n),
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
            Ok(true)
        })
    }

    /// Removes a current job of the slot; a later cancel of this job has no effect.
    pub(crate) fn take_job(&self, serial: u64) -> Option<Py<ChildJob>> {
        let jobs = &mut lock(&self.current).jobs;
        let found = jobs.iter().position(|job| job.get().serial() == serial)?;
        Some(jobs.swap_remove(found))
    }

    /// Sets the job that stands for the running call with several items; `None` after the call.
    pub(crate) fn set_batch_call(&self, job: Option<Py<ChildJob>>) {
        let previous = std::mem::replace(&mut lock(&self.current).batch_call, job);
        drop(previous);
    }

    /// The running job. Output of a batch with several items belongs to none of them.
    fn only_job(&self, py: Python<'_>) -> Option<Py<ChildJob>> {
        match &*lock(&self.current).jobs {
            [job] => Some(job.clone_ref(py)),
            _ => None,
        }
    }

    fn with_user_code(&self, py: Python<'_>) -> Vec<Py<ChildJob>> {
        let current = lock(&self.current);
        let jobs = current.jobs.iter().chain(&current.batch_call);
        jobs.map(|job| job.clone_ref(py)).collect()
    }
}

impl SendBuffer {
    /// Opens the jobs with these serial numbers.
    fn open(&mut self, serials: Range<u64>) {
        self.open = serials.end - serials.start;
        self.received = serials;
    }

    /// Whether a message of the job may be sent. For an item of a batch that has ended before the
    /// others, the answer may be yes; the server ignores such a message.
    fn is_open(&self, serial: u64) -> bool {
        self.open > 0 && self.received.contains(&serial)
    }

    /// Counts the open jobs after a message.
    fn count(&mut self, after: AfterSend) {
        if after == AfterSend::Close {
            self.open -= 1;
        }
    }

    /// Whether the backlog may stay as it is for now.
    fn may_wait(&self) -> bool {
        self.backlog.is_empty() || (self.corked && self.backlog.len() < CORKED_BYTES)
    }

    fn push(&mut self, socket: &UnixStream, mut frames: &[u8], after: AfterSend) -> io::Result<()> {
        self.count(after);
        while !self.corked && self.backlog.is_empty() && !frames.is_empty() {
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
        self.wait_for_frame(py)?.then(|| self.take(py)).transpose()
    }

    /// The next job, if it has been received completely. Does not wait.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<Py<ChildJob>>> {
        self.poll_frame()?.then(|| self.take(py)).transpose()
    }

    /// Like `recv`, for a model that batches: returns the list of the items of a batch, or a job.
    fn recv_batch(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        while self.wait_for_frame(py)? {
            if !self.refuse(py) {
                return self.take_batch(py).map(Some);
            }
        }
        Ok(None)
    }

    /// Like `poll`, for a model that batches.
    fn poll_batch(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        while self.poll_frame()? {
            if !self.refuse(py) {
                return self.take_batch(py).map(Some);
            }
        }
        Ok(None)
    }

    /// Collects messages until `uncork`, so that the results of a batch need one write.
    fn cork(&self, py: Python<'_>) {
        py.detach(|| lock(&self.state.outgoing).corked = true);
    }

    /// Sends the collected messages.
    fn uncork(&self, py: Python<'_>) {
        py.detach(|| {
            let mut outgoing = lock(&self.state.outgoing);
            outgoing.corked = false;
            // An error means that the server is gone; the reader of the slot detects that as well.
            outgoing.drain(&self.state.socket).ok();
        });
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
    /// Waits for a frame, without the GIL. `false` when the server has closed the slot.
    fn wait_for_frame(&self, py: Python<'_>) -> PyResult<bool> {
        exit_if_fork();
        loop {
            match py.detach(|| self.fill(Wait::Block)) {
                Ok(status) => return Ok(matches!(status, FillStatus::Frame)),
                // Signal handlers of the model run here; an exception in one ends the child.
                Err(e) if e.kind() == io::ErrorKind::Interrupted => py.check_signals()?,
                Err(e) => return Err(socket_error(&e)),
            }
        }
    }

    /// Whether a frame has been received completely. Does not wait.
    fn poll_frame(&self) -> PyResult<bool> {
        exit_if_fork();
        loop {
            match self.fill(Wait::Never) {
                Ok(FillStatus::Frame) => return Ok(true),
                Ok(FillStatus::Incomplete) => return Ok(false),
                Ok(FillStatus::End) => {
                    self.closed.store(true, Ordering::Relaxed);
                    return Ok(false);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(socket_error(&e)),
            }
        }
    }

    fn fill(&self, wait: Wait) -> io::Result<FillStatus> {
        lock(&self.received).fill(|buffer| sys::recv(&self.state.socket, buffer, wait))
    }

    /// Removes the received frame if this process can run no more jobs, and tells the server, which gives
    /// the items to another process.
    fn refuse(&self, py: Python<'_>) -> bool {
        let refuses = REFUSES_BATCHES.load(Ordering::Relaxed);
        if refuses {
            lock(&self.received).consume();
            let mut answer = Vec::new();
            frame::append(&mut answer, |out| append(out, &SlotResponse::Refused));
            py.detach(|| {
                let mut outgoing = lock(&self.state.outgoing);
                let sent = outgoing.push(&self.state.socket, &answer, AfterSend::KeepOpen);
                // An error means that the server is gone; the reader of the slot detects that as well.
                sent.and_then(|()| outgoing.drain(&self.state.socket)).ok();
            });
        }
        refuses
    }

    /// Turns the received frame into the slot's current job.
    fn take(&self, py: Python<'_>) -> PyResult<Py<ChildJob>> {
        let mut received = lock(&self.received);
        let SlotRequest::Predict(predict) = parse(received.frame())? else {
            return Err(PyValueError::new_err(
                "the server sent a batch to a model that does not batch",
            ));
        };
        let job = self.open_job(py, &predict)?;
        received.consume();
        Ok(job)
    }

    /// Turns the received frame into the slot's current job or batch.
    fn take_batch(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let mut received = lock(&self.received);
        let opened = match parse(received.frame())? {
            SlotRequest::Predict(predict) => self.open_job(py, &predict)?.into_any(),
            SlotRequest::Batch(batch) => self.open_batch(py, &batch)?.into_any().unbind(),
        };
        received.consume();
        Ok(opened)
    }

    fn open_job(&self, py: Python<'_>, predict: &PredictRequest<'_>) -> PyResult<Py<ChildJob>> {
        let serial = lock(&self.state.current).serial + 1;
        let job = ChildJob::new(py, Arc::clone(&self.state), serial, None, predict)?;
        let job = Py::new(py, job)?;
        // No other thread writes between two jobs, so the lock is free or about to be.
        lock(&self.state.outgoing).open(serial..serial + 1);
        lock(&self.state.current).receive(job.clone_ref(py), serial);
        Ok(job)
    }

    fn open_batch<'py>(
        &self,
        py: Python<'py>,
        batch: &BatchPredictRequest<'_>,
    ) -> PyResult<Bound<'py, PyList>> {
        let first = lock(&self.state.current).serial + 1;
        let jobs = PyList::empty(py);
        for (n, predict) in batch.items.iter().enumerate() {
            let serial = first + n as u64;
            let state = Arc::clone(&self.state);
            let job = ChildJob::new(py, state, serial, Some(n as u32), predict)?;
            let job = Py::new(py, job)?;
            jobs.append(job.clone_ref(py))?;
            lock(&self.state.current).receive(job, serial);
        }
        lock(&self.state.outgoing).open(first..first + jobs.len() as u64);
        Ok(jobs)
    }
}

impl CurrentJobs {
    /// Adds a job that has arrived, perhaps after its cancel.
    fn receive(&mut self, job: Py<ChildJob>, serial: u64) {
        if self.early_cancels.contains(&serial) {
            job.get().mark_cancelled();
        }
        self.early_cancels.retain(|nth| *nth > serial);
        self.serial = serial;
        self.jobs.push(job);
    }
}

fn parse(frame: &[u8]) -> PyResult<SlotRequest<'_>> {
    serde_json::from_slice(frame).map_err(|e| {
        PyValueError::new_err(format!("the server sent a message that is not a job: {e}"))
    })
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

/// Refuses the batches that arrive from now on. Must be called before the server learns that this process
/// can run no more jobs.
pub(crate) fn refuse_batches() {
    REFUSES_BATCHES.store(true, Ordering::Relaxed);
}

/// The running job of a model that runs one job at a time.
pub(crate) fn single_job(py: Python<'_>) -> Option<Py<ChildJob>> {
    if !SINGLE_JOB.load(Ordering::Relaxed) {
        return None;
    }
    let state = lock(&SLOTS).first().map(Arc::clone)?;
    state.only_job(py)
}

/// All jobs whose user code may run.
pub(crate) fn jobs(py: Python<'_>) -> Vec<Py<ChildJob>> {
    lock(&SLOTS)
        .iter()
        .flat_map(|state| state.with_user_code(py))
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
            let found = current.jobs.iter().find(|job| job.get().serial() == nth);
            let found = found.map(|job| job.clone_ref(py));
            // The number of a job that has ended never comes again.
            if found.is_none() && nth > current.serial {
                current.early_cancels.push(nth);
            }
            found
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
