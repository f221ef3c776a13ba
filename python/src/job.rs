//! One job: the input of user code, its cancelation, and the messages that it sends.
//!
//! A job belongs to one slot and ends exactly once, with `done`, `failed` or `cancelled`. The package
//! `tidegate` (`run_sync`, `run_async`) decides which, and with which text; this file ensures that no
//! message of a job is sent after its end and that a cancel interrupts nothing but user code.

mod batch_call;
mod cancel;
mod messages;

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tidegate_ipc::slot::{PredictRequest, SlotResponse, WireJobKind};

pub(crate) use batch_call::{begin_batch_call, end_batch_call, report_batch_call};

use crate::config::config;
use crate::control::lock;
use crate::encode::{append, encode, quote, to_json};
use crate::gpu_check::{self, EndsOn};
use crate::line_buffer::LineBuffer;
use crate::slot::{self, AfterSend, SlotState};
use crate::{decode, spare_buffers};

/// Larger outputs are sent as a file: a frame must stay below `frame::MAX`.
const SPILL_ABOVE: usize = 32 * 1024 * 1024;

/// Longer error texts are truncated.
const MAX_ERROR_BYTES: usize = 1024 * 1024;

/// One job on one slot.
#[pyclass(frozen, name = "Job", module = "tidegate._native")]
pub(crate) struct ChildJob {
    slot: Arc<SlotState>,
    serial: u64,
    /// The position in the batch that the job arrived with.
    item: Option<u32>,
    /// For a job that stands for one call with several items: the items. Such a job is unknown to the
    /// server and sends nothing.
    members: Vec<Py<ChildJob>>,
    /// For an item, while user code runs for several at once: the job that stands for the call.
    batch_call: Mutex<Option<Py<ChildJob>>>,
    id: String,
    kind: WireJobKind,
    /// Dropped when the job ends: a thread that outlives the job keeps the job alive, but not its input.
    input: Mutex<Option<PyResult<Py<PyAny>>>>,
    files: Option<Py<PyDict>>,
    context: Py<PyDict>,
    output_dir: PathBuf,
    n_files: AtomicU64,
    /// Whether the output is a stream of values.
    streaming: AtomicBool,
    cancel_requested: AtomicBool,
    /// Whether the cancelation has been raised in user code.
    cancel_raised: AtomicBool,
    ended: AtomicBool,
    /// The thread that is inside user code; zero between calls. Written with the GIL held.
    user_thread: AtomicU64,
    /// The task of an asynchronous job, and the function that schedules a call on its event loop.
    task: Mutex<Option<(Py<PyAny>, Py<PyAny>)>>,
    line_buffers: Mutex<[LineBuffer; 2]>,
    /// Number of printed bytes.
    log_bytes: AtomicUsize,
    /// These two refer to the job in turn. The cycle is broken when the job ends; Python's garbage
    /// collector cannot see it.
    context_vars: Mutex<Option<Py<PyAny>>>,
    scope: Mutex<Option<Py<PyAny>>>,
    started: Instant,
    nanos_in_user_code: AtomicU64,
}

impl ChildJob {
    /// Creates a job from a message. An invalid input is an error of the job, raised by `input`.
    pub(crate) fn new(
        py: Python<'_>,
        slot: Arc<SlotState>,
        serial: u64,
        item: Option<u32>,
        predict: &PredictRequest<'_>,
    ) -> PyResult<Self> {
        let files = PyDict::new(py);
        for (pointer, path) in &predict.files {
            files.set_item(pointer, path)?;
        }
        let context = PyDict::new(py);
        for (key, value) in &predict.context {
            context.set_item(key, value)?;
        }
        Ok(Self {
            slot,
            serial,
            item,
            members: Vec::new(),
            batch_call: Mutex::new(None),
            id: predict.id.to_string(),
            kind: predict.kind,
            input: Mutex::new(Some(read_input(py, predict, item).map(Bound::unbind))),
            files: (!predict.files.is_empty()).then(|| files.unbind()),
            context: context.unbind(),
            output_dir: PathBuf::from(predict.output_dir.as_ref()),
            n_files: AtomicU64::new(0),
            streaming: AtomicBool::new(false),
            cancel_requested: AtomicBool::new(false),
            cancel_raised: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            user_thread: AtomicU64::new(0),
            task: Mutex::new(None),
            line_buffers: Mutex::default(),
            log_bytes: AtomicUsize::new(0),
            context_vars: Mutex::new(None),
            scope: Mutex::new(None),
            started: Instant::now(),
            nanos_in_user_code: AtomicU64::new(0),
        })
    }

    /// The serial number of the job on its slot.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// Whether the job stands for a call with several items.
    fn is_batch_call(&self) -> bool {
        !self.members.is_empty()
    }

    /// The job's own context variables, copied from the thread at the first call.
    fn context_vars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if let Some(existing) = &*lock(&slf.get().context_vars) {
            return Ok(existing.bind(py).clone());
        }
        let config = config(py)?;
        let vars = config.copy_context.bind(py).call0()?;
        vars.call_method1(pyo3::intern!(py, "run"), (config.current_set.bind(py), slf))?;
        *lock(&slf.get().context_vars) = Some(vars.clone().unbind());
        Ok(vars)
    }

    fn new_file(&self, name: &str) -> std::io::Result<PathBuf> {
        let n = self.n_files.fetch_add(1, Ordering::Relaxed);
        let folder = self.output_dir.join(n.to_string());
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)?;
        Ok(folder.join(name))
    }

    /// Ends the job: sends unfinished lines and `message` in one write.
    fn end(&self, py: Python<'_>, frames: Vec<u8>, message: impl FnOnce(&mut Vec<u8>)) {
        self.end_around(py, frames, b"", message, |_| {});
    }

    /// Ends the job with a message that is `head`, `value` and `tail`.
    fn end_around(
        &self,
        py: Python<'_>,
        mut frames: Vec<u8>,
        value: &[u8],
        head: impl FnOnce(&mut Vec<u8>),
        tail: impl FnOnce(&mut Vec<u8>),
    ) {
        if self.ended.swap(true, Ordering::Relaxed) {
            return;
        }
        let ends_on = if lock(&self.task).is_some() {
            EndsOn::EventLoop
        } else {
            EndsOn::JobThread
        };
        let broken = gpu_check::before_end(py, ends_on);
        let mut last = Vec::with_capacity(256);
        self.take_unfinished_lines(&mut last);
        if let Some(reason) = broken {
            slot::refuse_batches();
            let reason = reason.into();
            self.append_response(&mut last, &SlotResponse::Broken { reason });
        }
        last.append(&mut frames);
        let position = self.append_frame_around(&mut last, value, head, tail);
        let task = lock(&self.task).take();
        let vars = lock(&self.context_vars).take();
        let scope = lock(&self.scope).take();
        let input = lock(&self.input).take();
        let job = self.slot.take_job(self.serial);
        self.send_around(py, &last, (position, value), AfterSend::Close);
        // After the message and without holding locks: destructors of user code may run here.
        drop((task, vars, scope, input, job));
    }
}

#[pymethods]
impl ChildJob {
    /// The job's id.
    #[getter(id)]
    fn py_id(&self) -> &str {
        &self.id
    }

    /// Whether the job is for `train`.
    #[getter]
    fn is_training(&self) -> bool {
        self.kind == WireJobKind::Training
    }

    /// The input object. Raises `ValueError` if it cannot be represented.
    #[getter]
    fn input(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match &*lock(&self.input) {
            Some(Ok(input)) => Ok(input.clone_ref(py)),
            Some(Err(error)) => Err(error.clone_ref(py)),
            None => Err(PyValueError::new_err("the job has ended")),
        }
    }

    /// Whether the job is an item of a batch.
    #[getter]
    fn is_item(&self) -> bool {
        self.item.is_some()
    }

    /// For an item, while user code runs for several at once: the job that stands for the call.
    #[getter]
    fn batch_call(&self, py: Python<'_>) -> Option<Py<Self>> {
        lock(&self.batch_call)
            .as_ref()
            .map(|call| call.clone_ref(py))
    }

    /// The items of a job that stands for a call with several items; otherwise empty.
    #[getter]
    fn members(&self, py: Python<'_>) -> Vec<Py<Self>> {
        self.members.iter().map(|job| job.clone_ref(py)).collect()
    }

    /// Downloaded input files by JSON pointer, or `None`.
    #[getter]
    fn files_by_pointer(&self, py: Python<'_>) -> Option<Py<PyDict>> {
        self.files.as_ref().map(|files| files.clone_ref(py))
    }

    /// The `context` of the client's request.
    #[getter]
    fn context(&self, py: Python<'_>) -> Py<PyDict> {
        self.context.clone_ref(py)
    }

    /// Whether the job has been canceled.
    #[getter]
    fn cancel_requested(&self) -> bool {
        self.cancel_requested.load(Ordering::Relaxed)
    }

    /// Whether the output is a stream of values.
    #[getter]
    fn streaming(&self) -> bool {
        self.streaming.load(Ordering::Relaxed)
    }

    /// Whether the last message of the job has been sent.
    #[getter]
    fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// The job's scope, created by `make` at the first call.
    fn scope(slf: &Bound<'_, Self>, make: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        if let Some(existing) = &*lock(&slf.get().scope) {
            return Ok(existing.clone_ref(py));
        }
        let scope = make.call1((slf,))?.unbind();
        if !slf.get().ended() {
            *lock(&slf.get().scope) = Some(scope.clone_ref(py));
        }
        Ok(scope)
    }

    /// Calls user code so that a cancel interrupts it.
    fn call(
        slf: &Bound<'_, Self>,
        function: &Bound<'_, PyAny>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let run = Self::context_vars(slf)?.getattr(pyo3::intern!(py, "run"))?;
        slf.get()
            .run_interruptible(py, || run.call((function,), kwargs).map(Bound::unbind))
    }

    /// The next item of a user iterator, or `end` after the last.
    fn next(
        slf: &Bound<'_, Self>,
        iterator: &Bound<'_, PyAny>,
        end: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let vars = Self::context_vars(slf)?;
        let step = iterator.getattr(pyo3::intern!(py, "__next__"))?;
        let item = slf.get().run_interruptible(py, || {
            vars.call_method1(pyo3::intern!(py, "run"), (step,))
                .map(Bound::unbind)
        });
        match item {
            Err(error) if error.is_instance_of::<pyo3::exceptions::PyStopIteration>(py) => {
                Ok(end.clone().unbind())
            }
            item => item,
        }
    }

    /// Closes a user iterator in the context where it ran, so that its `finally` blocks see their
    /// variables. A cancel does not interrupt it.
    fn close(slf: &Bound<'_, Self>, iterator: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let close = iterator.getattr(pyo3::intern!(py, "close"))?;
        Self::context_vars(slf)?
            .call_method1(pyo3::intern!(py, "run"), (close,))
            .map(drop)
    }

    /// Registers the task that runs the job; `schedule` schedules a call on its event loop.
    fn set_task(&self, py: Python<'_>, task: Py<PyAny>, schedule: Py<PyAny>) -> PyResult<()> {
        *lock(&self.task) = Some((task, schedule));
        if self.cancel_requested() {
            Err(config(py)?.new_cancelation(py))
        } else {
            Ok(())
        }
    }

    /// A new path for an output file, in a folder of its own.
    fn new_file_path(&self, name: &str) -> PyResult<PathBuf> {
        let name = Path::new(name).file_name().unwrap_or("output".as_ref());
        Ok(self.new_file(&name.to_string_lossy())?)
    }

    /// Sends one value of a stream.
    fn output(slf: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, job) = (slf.py(), slf.get());
        job.streaming.store(true, Ordering::Relaxed);
        let encoded = job.run_interruptible(py, || encode(value, Some(slf)))?;
        let mut frames = Vec::new();
        let spilled = job.append_file_frames(&mut frames, &encoded)?;
        let value: &[u8] = if spilled { b"null" } else { &encoded.json };
        let position = job.append_frame_around(
            &mut frames,
            value,
            |out| out.extend_from_slice(b"{\"output\":{\"output\":"),
            |out| out.extend_from_slice(b"}}"),
        );
        job.send_around(py, &frames, (position, value), AfterSend::KeepOpen);
        spare_buffers::give_back(encoded.json);
        Ok(())
    }

    /// Ends the job with a value.
    fn done(slf: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, job) = (slf.py(), slf.get());
        let seconds = job.predict_seconds();
        let encoded = job.run_interruptible(py, || encode(value, Some(slf)))?;
        let mut frames = Vec::new();
        let spilled = job.append_file_frames(&mut frames, &encoded)?;
        let value: &[u8] = if spilled { b"null" } else { &encoded.json };
        job.end_around(
            py,
            frames,
            value,
            |out| write_done_head(out, &job.id),
            |out| write_done_tail(out, seconds, false),
        );
        spare_buffers::give_back(encoded.json);
        Ok(())
    }

    /// Ends a job whose values were sent with `output`.
    fn done_streaming(&self, py: Python<'_>) {
        self.end(py, Vec::new(), |out| {
            write_done_head(out, &self.id);
            out.extend_from_slice(b"null");
            write_done_tail(out, self.predict_seconds(), true);
        });
    }

    /// Ends the job with an error; the traceback becomes the last part of its logs. Long texts are
    /// truncated: they must fit into a frame.
    #[pyo3(signature = (error, traceback = None))]
    fn failed(&self, py: Python<'_>, error: &str, traceback: Option<&str>) {
        let error = &error[..error.floor_char_boundary(MAX_ERROR_BYTES)];
        let mut frames = Vec::new();
        if let Some(traceback) = traceback {
            self.append_traceback(&mut frames, traceback);
        }
        self.end(py, frames, |out| {
            append(
                out,
                &SlotResponse::Failed {
                    id: self.id.as_str().into(),
                    error: error.into(),
                },
            );
        });
    }

    /// Ends the job as canceled.
    fn cancelled(&self, py: Python<'_>) {
        self.end(py, Vec::new(), |out| {
            append(
                out,
                &SlotResponse::Cancelled {
                    id: self.id.as_str().into(),
                },
            )
        });
    }

    /// Asks the server to replace this child after the job. Only before the job's end.
    fn retire(&self, py: Python<'_>) {
        slot::refuse_batches();
        let mut frames = Vec::new();
        self.append_response(&mut frames, &SlotResponse::Retire);
        self.send(py, &frames, AfterSend::KeepOpen);
    }

    /// Tells the server that this process can no longer use its GPU. Only before the job's end.
    fn broken(&self, py: Python<'_>, reason: &str) {
        slot::refuse_batches();
        let reason = reason[..reason.floor_char_boundary(MAX_ERROR_BYTES)].into();
        let mut frames = Vec::new();
        self.append_response(&mut frames, &SlotResponse::Broken { reason });
        self.send(py, &frames, AfterSend::KeepOpen);
    }

    /// Sends a metric. `mode` is `replace`, `increment` or `append`.
    fn metric(
        &self,
        py: Python<'_>,
        name: &str,
        value: &Bound<'_, PyAny>,
        mode: &str,
    ) -> PyResult<()> {
        let json = to_json(value)?;
        if json.len() > SPILL_ABOVE {
            return Err(PyValueError::new_err(format!(
                "metric `{name}` has {} bytes, more than the maximum of {SPILL_ABOVE}",
                json.len()
            )));
        }
        let mut frames = Vec::with_capacity(json.len() + 64);
        self.append_frame(&mut frames, |out| {
            out.extend_from_slice(b"{\"metric\":{\"name\":");
            quote(out, name);
            out.extend_from_slice(b",\"value\":");
            out.extend_from_slice(&json);
            out.extend_from_slice(b",\"mode\":");
            quote(out, mode);
            out.extend_from_slice(b"}}");
        });
        self.send(py, &frames, AfterSend::KeepOpen);
        Ok(())
    }
}

impl ChildJob {
    /// Time spent in user code. For a task, which shares its thread, the time since the job arrived.
    fn predict_seconds(&self) -> f64 {
        if lock(&self.task).is_some() {
            return self.started.elapsed().as_secs_f64();
        }
        self.nanos_in_user_code.load(Ordering::Relaxed) as f64 / 1e9
    }
}

/// The last message of a job up to its output. Written by hand, because a `RawValue` would parse again
/// what was just encoded.
fn write_done_head(out: &mut Vec<u8>, id: &str) {
    out.extend_from_slice(b"{\"done\":{\"id\":");
    quote(out, id);
    out.extend_from_slice(b",\"output\":");
}

/// The rest of the last message of a job.
fn write_done_tail(out: &mut Vec<u8>, seconds: f64, is_stream: bool) {
    out.extend_from_slice(b",\"predict_time\":");
    append(out, &seconds);
    out.extend_from_slice(b",\"is_stream\":");
    append(out, &is_stream);
    out.extend_from_slice(b"}}");
}

fn read_input<'py>(
    py: Python<'py>,
    predict: &PredictRequest<'_>,
    item: Option<u32>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(path) = &predict.input_file {
        let text = std::fs::read_to_string(path.as_ref())?;
        // An item may be sent again to another child. The server removes what is left.
        if item.is_none() {
            std::fs::remove_file(path.as_ref()).ok();
        }
        return decode::decode(py, &text);
    }
    match predict.input {
        Some(input) => decode::decode(py, input.get()),
        None => Ok(PyDict::new(py).into_any()),
    }
}
