//! The control channel: three threads that outlive whatever the user's code does.
//!
//! - the *reader* never takes the GIL, so that the end of the server is noticed even when user code
//!   holds it for ever;
//! - the *dispatcher* does what the server asks for and takes the GIL to do it;
//! - the *writer* empties a bounded buffer, so that a `print` never waits for the server. Lines that do
//!   not fit are counted and announced; everything else always fits.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_ipc::control::{Request, Response};
use tidegate_ipc::frame;
use tidegate_ipc::slot::LogSource;

use crate::fd;
use crate::inbox::{Inbox, Progress};
use crate::lines::Lines;
use crate::{health, slot, wake};

/// Lines are thrown away while this much waits to be written.
const FULL: usize = 4 * 1024 * 1024;
/// Enough for our own frames and one call into the interpreter.
const STACK: usize = 1024 * 1024;

static CONTROL: OnceLock<Control> = OnceLock::new();
static FORKED: AtomicBool = AtomicBool::new(false);
/// Whether the model's setup is over. Before that a `print` waits until it is written: the next line
/// may be a crash, and then its last words matter more than its speed.
static SET_UP: AtomicBool = AtomicBool::new(false);
const LAST_WORDS: Duration = Duration::from_millis(200);

/// The channel of this process.
pub(crate) struct Control {
    input: File,
    output: File,
    inbox: Mutex<Inbox>,
    outbox: Mutex<Outbox>,
    changed: Condvar,
    lines: Mutex<[Lines; 2]>,
}

#[derive(Default)]
struct Outbox {
    waiting: Vec<u8>,
    writing: bool,
    dropped: u64,
    dropped_since: Option<Instant>,
}

/// Takes descriptors 0 and 1 for the channel. Once.
pub(crate) fn open() -> io::Result<()> {
    let (input, output) = fd::take_over_stdio()?;
    let control = Control {
        input: input.into(),
        output: output.into(),
        inbox: Mutex::default(),
        outbox: Mutex::default(),
        changed: Condvar::new(),
        lines: Mutex::default(),
    };
    CONTROL
        .set(control)
        .map_err(|_| io::Error::other("the control channel is open already"))
}

/// The channel; an error before `open`.
pub(crate) fn channel() -> io::Result<&'static Control> {
    CONTROL
        .get()
        .ok_or_else(|| io::Error::other("the control channel is not open"))
}

/// Whether this process is a fork of the child: it must not write on channels that it shares.
pub(crate) fn forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// From now on a `print` outside of a job never waits.
pub(crate) fn setup_is_over() {
    SET_UP.store(true, Ordering::Relaxed);
}

/// Cuts a forked copy of the child off from the server.
pub(crate) fn after_fork() {
    FORKED.store(true, Ordering::Relaxed);
    if let Some(control) = CONTROL.get() {
        fd::close_in_fork(control.input.as_raw_fd());
        fd::close_in_fork(control.output.as_raw_fd());
    }
    slot::close_in_fork();
}

/// A lock that a panicking thread has left is still good: every change here is one step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    /// Waits for the next request.
    pub(crate) fn read(&self) -> io::Result<Option<Request>> {
        let mut inbox = lock(&self.inbox);
        loop {
            match inbox.fill(|buffer| (&self.input).read(buffer)) {
                Ok(Progress::Frame) => {
                    let request = serde_json::from_slice(inbox.frame())
                        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
                    inbox.consume();
                    return Ok(Some(request));
                }
                Ok(Progress::End) => return Ok(None),
                Ok(Progress::Nothing) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Queues a message; never waits.
    pub(crate) fn send(&self, message: &Response) {
        frame::append_json(&mut lock(&self.outbox).waiting, message);
        self.changed.notify_all();
    }

    /// Queues what was printed outside of any job.
    pub(crate) fn log(&self, source: LogSource, bytes: &[u8]) {
        lock(&self.lines)[source as usize].push(bytes, |line| self.line(source, line.into_owned()));
    }

    /// Queues what was printed without a line break.
    pub(crate) fn flush_lines(&self, source: LogSource) {
        lock(&self.lines)[source as usize].flush(|line| self.line(source, line.into_owned()));
    }

    fn line(&self, source: LogSource, data: String) {
        let mut outbox = lock(&self.outbox);
        // A line that is longer than that all by itself still goes out when nothing else waits.
        if !outbox.waiting.is_empty() && outbox.waiting.len() + data.len() > FULL {
            outbox.dropped += 1;
            outbox.dropped_since.get_or_insert_with(Instant::now);
            return;
        }
        frame::append_json(&mut outbox.waiting, &Response::Log { source, data });
        drop(outbox);
        self.changed.notify_all();
        if !SET_UP.load(Ordering::Relaxed) {
            self.flush(LAST_WORDS);
        }
    }

    /// Waits until everything is written, but not for ever.
    pub(crate) fn flush(&self, limit: Duration) {
        let outbox = lock(&self.outbox);
        // Too late is all that a timeout tells, and there is nothing to do about it.
        self.changed
            .wait_timeout_while(outbox, limit, |o| o.writing || !o.waiting.is_empty())
            .ok();
    }

    fn write_for_ever(&self) {
        loop {
            let mut outbox = lock(&self.outbox);
            while outbox.waiting.is_empty() {
                outbox = self
                    .changed
                    .wait(outbox)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            let mut batch = std::mem::take(&mut outbox.waiting);
            if let Some(since) = outbox.dropped_since.take() {
                let count = std::mem::take(&mut outbox.dropped);
                let interval_millis = since.elapsed().as_millis() as u64;
                frame::append_json(
                    &mut batch,
                    &Response::DroppedLogs {
                        count,
                        interval_millis,
                    },
                );
            }
            outbox.writing = true;
            drop(outbox);
            // A server that does not read any more is gone; the reader thread sees that too.
            (&self.output).write_all(&batch).ok();
            lock(&self.outbox).writing = false;
            self.changed.notify_all();
        }
    }

    fn read_for_ever(&self, requests: &mpsc::Sender<Request>) {
        while let Ok(Some(request)) = self.read() {
            // The dispatcher lives as long as the process.
            requests.send(request).ok();
        }
        fd::exit_with_group();
    }
}

/// Starts the threads.
pub(crate) fn start() -> io::Result<()> {
    let control = channel()?;
    let (tx, rx) = mpsc::channel();
    spawn("tidegate-write", || control.write_for_ever())?;
    spawn("tidegate-read", move || control.read_for_ever(&tx))?;
    spawn("tidegate-ctl", move || dispatch(control, &rx))
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK)
        .spawn(run)
        .map(drop)
}

fn dispatch(control: &Control, requests: &mpsc::Receiver<Request>) {
    loop {
        wake::again();
        let next = match health::next_deadline()
            .into_iter()
            .chain(wake::next_deadline())
            .min()
        {
            Some(deadline) => {
                requests.recv_timeout(deadline.saturating_duration_since(Instant::now()))
            }
            None => requests.recv().map_err(mpsc::RecvTimeoutError::from),
        };
        match next {
            Ok(Request::Cancel { slot, nth }) => slot::cancel(slot, nth),
            Ok(Request::Healthcheck { id }) => health::check(control, id),
            Ok(Request::Shutdown) => shut_down(control),
            // A second `Init` makes no sense; the server never sends one.
            Ok(Request::Init(_)) => {}
            Err(mpsc::RecvTimeoutError::Timeout) => health::expire(control),
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn shut_down(control: &Control) {
    control.send(&Response::ShuttingDown);
    // Without slots we are still in the user's setup, which cannot be finished in any useful sense.
    if !slot::stop_reading() {
        control.flush(Duration::from_secs(1));
        fd::exit_now(0);
    }
}

/// Ends the process after a while, whatever the user's threads and exit handlers do.
pub(crate) fn exit_after(limit: Duration, code: i32) -> io::Result<()> {
    spawn("tidegate-exit", move || {
        thread::sleep(limit);
        fd::exit_now(code)
    })
}
