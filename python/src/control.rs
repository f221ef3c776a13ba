//! The control channel: three threads that keep running whatever user code does.
//!
//! - The *reader* never takes the GIL, so that it detects the end of the server even when user code
//!   holds the GIL forever.
//! - The *dispatcher* executes the server's requests and takes the GIL to do so.
//! - The *writer* empties a bounded buffer, so that a `print` never waits for the server. Log lines
//!   that do not fit are dropped, counted and reported; all other messages are always accepted.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_ipc::control::{ControlRequest, ControlResponse};
use tidegate_ipc::frame;
use tidegate_ipc::slot::WireLogSource;

use crate::frame_buffer::{FillStatus, FrameBuffer};
use crate::line_buffer::LineBuffer;
use crate::{cancel_signal, descendants, health, slot, stdio, sys};

/// Log lines are dropped while this many bytes wait to be written.
const MAX_PENDING_BYTES: usize = 4 * 1024 * 1024;
/// Enough for our own stack frames and one call into the interpreter.
const STACK_SIZE: usize = 1024 * 1024;

static CONTROL: OnceLock<Control> = OnceLock::new();
static IS_FORK: AtomicBool = AtomicBool::new(false);
/// Whether the model's setup has ended. Until then a `print` waits until it is written: the process
/// may crash next, and then its last output matters more than speed.
static SETUP_DONE: AtomicBool = AtomicBool::new(false);
const SETUP_FLUSH_LIMIT: Duration = Duration::from_millis(200);

/// The environment variables of the server's request to set up a model that is imported.
static SETUP_REQUEST: (Mutex<Option<BTreeMap<String, String>>>, Condvar) =
    (Mutex::new(None), Condvar::new());

/// The control channel of this process.
pub(crate) struct Control {
    input: File,
    output: File,
    received: Mutex<FrameBuffer>,
    pending: Mutex<WriteBuffer>,
    changed: Condvar,
    line_buffers: Mutex<[LineBuffer; 2]>,
}

/// Messages that wait to be written.
#[derive(Default)]
struct WriteBuffer {
    bytes: Vec<u8>,
    /// Whether the writer is writing a batch that is no longer in `bytes`.
    writing: bool,
    /// Number of dropped log lines that have not been reported yet.
    dropped: u64,
    dropped_since: Option<Instant>,
}

/// Opens the channel on descriptors 0 and 1. Must be called once.
pub(crate) fn open() -> io::Result<()> {
    let (input, output) = stdio::take_over_stdio()?;
    let control = Control {
        input: input.into(),
        output: output.into(),
        received: Mutex::default(),
        pending: Mutex::default(),
        changed: Condvar::new(),
        line_buffers: Mutex::default(),
    };
    CONTROL
        .set(control)
        .map_err(|_| io::Error::other("the control channel is already open"))
}

/// The open channel; an error before `open`.
pub(crate) fn channel() -> io::Result<&'static Control> {
    CONTROL
        .get()
        .ok_or_else(|| io::Error::other("the control channel is not open"))
}

/// Whether this process is a fork of the child. A fork must not write to the channels that it shares.
pub(crate) fn is_fork() -> bool {
    IS_FORK.load(Ordering::Relaxed)
}

/// Ends the setup phase: from now on a `print` outside of a job never waits.
pub(crate) fn mark_setup_done() {
    SETUP_DONE.store(true, Ordering::Relaxed);
}

/// Waits until the server asks for the setup. Returns environment variables to set before.
pub(crate) fn wait_for_setup_request() -> BTreeMap<String, String> {
    let (request, changed) = &SETUP_REQUEST;
    let mut request = changed
        .wait_while(lock(request), |request| request.is_none())
        .unwrap_or_else(PoisonError::into_inner);
    request.take().unwrap_or_default()
}

fn request_setup(env: BTreeMap<String, String>) {
    let (request, changed) = &SETUP_REQUEST;
    *lock(request) = Some(env);
    changed.notify_all();
}

/// Disconnects a forked copy of the child from the server.
pub(crate) fn after_fork() {
    IS_FORK.store(true, Ordering::Relaxed);
    if let Some(control) = CONTROL.get() {
        sys::close_in_fork(control.input.as_raw_fd());
        sys::close_in_fork(control.output.as_raw_fd());
    }
    slot::close_in_fork();
}

/// Locks `mutex`. A poisoned lock is still valid: every change here is a single step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    /// Waits for the next request.
    pub(crate) fn read(&self) -> io::Result<Option<ControlRequest>> {
        let mut received = lock(&self.received);
        loop {
            match received.fill(|buffer| (&self.input).read(buffer)) {
                Ok(FillStatus::Frame) => {
                    let request = serde_json::from_slice(received.frame())
                        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
                    received.consume();
                    return Ok(Some(request));
                }
                Ok(FillStatus::End) => return Ok(None),
                Ok(FillStatus::Incomplete) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Queues a message without waiting.
    pub(crate) fn send(&self, message: &ControlResponse) {
        frame::append_json(&mut lock(&self.pending).bytes, message);
        self.changed.notify_all();
    }

    /// Queues output that was printed outside of any job.
    pub(crate) fn log(&self, source: WireLogSource, bytes: &[u8]) {
        lock(&self.line_buffers)[source as usize]
            .push(bytes, |line| self.send_line(source, line.into_owned()));
    }

    /// Queues output that has no line break yet.
    pub(crate) fn flush_lines(&self, source: WireLogSource) {
        lock(&self.line_buffers)[source as usize]
            .flush(|line| self.send_line(source, line.into_owned()));
    }

    fn send_line(&self, source: WireLogSource, data: String) {
        let mut pending = lock(&self.pending);
        // A single line above the limit is still sent when nothing else waits.
        if !pending.bytes.is_empty() && pending.bytes.len() + data.len() > MAX_PENDING_BYTES {
            pending.dropped += 1;
            pending.dropped_since.get_or_insert_with(Instant::now);
            return;
        }
        frame::append_json(&mut pending.bytes, &ControlResponse::Log { source, data });
        drop(pending);
        self.changed.notify_all();
        if !SETUP_DONE.load(Ordering::Relaxed) {
            self.flush(SETUP_FLUSH_LIMIT);
        }
    }

    /// Waits up to `limit` until everything is written.
    pub(crate) fn flush(&self, limit: Duration) {
        let pending = lock(&self.pending);
        // A timeout is ignored: there is nothing to do about it.
        self.changed
            .wait_timeout_while(pending, limit, |o| o.writing || !o.bytes.is_empty())
            .ok();
    }

    fn run_writer(&self) {
        loop {
            let mut pending = lock(&self.pending);
            while pending.bytes.is_empty() {
                pending = self
                    .changed
                    .wait(pending)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            let mut batch = std::mem::take(&mut pending.bytes);
            if let Some(since) = pending.dropped_since.take() {
                let count = std::mem::take(&mut pending.dropped);
                let interval_millis = since.elapsed().as_millis() as u64;
                frame::append_json(
                    &mut batch,
                    &ControlResponse::DroppedLogs {
                        count,
                        interval_millis,
                    },
                );
            }
            pending.writing = true;
            drop(pending);
            // A server that no longer reads is gone; the reader thread detects that too.
            (&self.output).write_all(&batch).ok();
            lock(&self.pending).writing = false;
            self.changed.notify_all();
        }
    }

    fn run_reader(&self, requests: &mpsc::Sender<ControlRequest>) {
        while let Ok(Some(request)) = self.read() {
            // The dispatcher lives as long as the process.
            requests.send(request).ok();
        }
        descendants::kill_all();
        sys::exit_process_group();
    }
}

/// Starts the reader, the dispatcher and the writer.
pub(crate) fn start() -> io::Result<()> {
    let control = channel()?;
    let (tx, rx) = mpsc::channel();
    spawn("tidegate-write", || control.run_writer())?;
    spawn("tidegate-read", move || control.run_reader(&tx))?;
    spawn("tidegate-ctl", move || run_dispatcher(control, &rx))
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK_SIZE)
        .spawn(run)
        .map(drop)
}

fn run_dispatcher(control: &Control, requests: &mpsc::Receiver<ControlRequest>) {
    loop {
        cancel_signal::resend_if_due();
        let next = match health::next_deadline()
            .into_iter()
            .chain(cancel_signal::next_resend())
            .min()
        {
            Some(deadline) => {
                requests.recv_timeout(deadline.saturating_duration_since(Instant::now()))
            }
            None => requests.recv().map_err(mpsc::RecvTimeoutError::from),
        };
        match next {
            Ok(ControlRequest::Cancel { slot, nth }) => slot::cancel(slot, nth),
            Ok(ControlRequest::Healthcheck { id }) => health::check(control, id),
            Ok(ControlRequest::SetUp { env }) => request_setup(env),
            Ok(ControlRequest::Shutdown) => shut_down(control),
            // The server sends `Init` only once.
            Ok(ControlRequest::Init(_)) => {}
            Err(mpsc::RecvTimeoutError::Timeout) => health::expire(control),
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn shut_down(control: &Control) {
    control.send(&ControlResponse::ShuttingDown);
    // Without slots the model's setup still runs, and it cannot be finished in a useful way.
    if !slot::stop_reading() {
        control.flush(Duration::from_secs(1));
        descendants::kill_all();
        sys::exit_now(0);
    }
}

/// Ends the process after `limit`, even if user threads or exit handlers still run.
pub(crate) fn exit_after(limit: Duration, code: i32) -> io::Result<()> {
    spawn("tidegate-exit", move || {
        thread::sleep(limit);
        descendants::kill_all();
        sys::exit_now(code)
    })
}
