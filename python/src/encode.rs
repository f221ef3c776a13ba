//! Encodes the model's values as JSON.
//!
//! Plain values (exactly `dict`, `list`, `str`, …) are written here. Any other value is passed once to
//! `tidegate.outputs`, which decides what may be sent and returns a plain value or a [`FileRef`]. A
//! value that contains itself, or one that is nested too deeply, is an error and never a crash.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::config::{Config, config};
use crate::job::ChildJob;
use crate::lifecycle::log;
use crate::spare_buffers::{self, LARGE};

const MAX_DEPTH: usize = 200;
/// The server parses metrics into a tree, and its parser stops at 128 levels.
const MAX_METRIC_DEPTH: usize = 100;
/// No client reads more, and a value that contains the same part many times could grow without bound.
const MAX_JSON_BYTES: usize = 1024 * 1024 * 1024;

/// Whether numbers are encoded as on Runpod; see [`use_runpod_numbers`].
static RUNPOD_NUMBERS: AtomicBool = AtomicBool::new(false);
/// Whether the operator has been warned about numbers that were replaced by `null`.
static NULL_WARNED: AtomicBool = AtomicBool::new(false);

/// Encodes numbers as Runpod does from now on: an integer keeps all its digits, and a number that JSON
/// cannot express becomes `null`. Clients of Cog expect a float and a failed job instead.
#[pyfunction]
pub(crate) fn use_runpod_numbers() {
    RUNPOD_NUMBERS.store(true, Ordering::Relaxed);
}

/// A file that replaces a value in the output; created by `tidegate.outputs`.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct FileRef {
    path: String,
    mime_type: String,
}

#[pymethods]
impl FileRef {
    #[new]
    fn new(path: String, mime_type: String) -> Self {
        Self { path, mime_type }
    }
}

/// A file of an encoded value, and the offset in the JSON where its URL belongs.
pub(crate) struct EncodedFile {
    pub(crate) path: String,
    pub(crate) mime_type: String,
    pub(crate) offset: usize,
}

/// A value as JSON, and its files.
pub(crate) struct Encoded {
    pub(crate) json: Vec<u8>,
    pub(crate) files: Vec<EncodedFile>,
}

/// Encodes one value. `job` provides the folder for output files; metrics and schemas have none.
pub(crate) fn encode<'py>(
    value: &Bound<'py, PyAny>,
    job: Option<&Bound<'py, ChildJob>>,
) -> PyResult<Encoded> {
    let py = value.py();
    let config = config(py)?;
    let encoded = Encoded {
        json: Vec::with_capacity(128),
        files: Vec::new(),
    };
    let mut encoder = Encoder {
        config,
        job,
        runpod_numbers: RUNPOD_NUMBERS.load(Ordering::Relaxed),
        ancestors: Vec::new(),
        encoded,
    };
    match encoder.value(value) {
        Ok(()) => Ok(encoder.encoded),
        Err(EncodeError::UserCode(error)) => Err(error),
        Err(EncodeError::Unsendable { reason, mut path }) => {
            path.reverse();
            Err(config.new_output_error(py, format!("`output{}` {reason}", path.concat())))
        }
    }
}

enum EncodeError {
    /// User code that encoding calls (`model_dump`, an iterator) raised an exception.
    UserCode(PyErr),
    /// The value has no JSON form. `path` says where it is, innermost part first.
    Unsendable { reason: String, path: Vec<String> },
}

impl From<PyErr> for EncodeError {
    fn from(error: PyErr) -> Self {
        EncodeError::UserCode(error)
    }
}

fn unsendable(reason: impl Into<String>) -> EncodeError {
    EncodeError::Unsendable {
        reason: reason.into(),
        path: Vec::new(),
    }
}

impl EncodeError {
    fn within(self, part: impl FnOnce() -> String) -> Self {
        match self {
            EncodeError::UserCode(error) => EncodeError::UserCode(error),
            EncodeError::Unsendable { reason, mut path } => {
                path.push(part());
                EncodeError::Unsendable { reason, path }
            }
        }
    }
}

struct Encoder<'a, 'py> {
    config: &'a Config,
    job: Option<&'a Bound<'py, ChildJob>>,
    runpod_numbers: bool,
    /// Addresses of the values that contain the current one.
    ancestors: Vec<usize>,
    encoded: Encoded,
}

impl<'py> Encoder<'_, 'py> {
    fn value(&mut self, value: &Bound<'py, PyAny>) -> Result<(), EncodeError> {
        if self.plain(value)? {
            return Ok(());
        }
        self.enter(value)?;
        let simple = self
            .config
            .simplify
            .bind(value.py())
            .call1((value, self.job));
        let simple = simple.map_err(|error| self.explain(error, value))?;
        let written = if let Ok(file) = simple.cast_exact::<FileRef>() {
            self.file(file.get());
            true
        } else {
            self.plain(&simple)?
        };
        self.ancestors.pop();
        if written {
            Ok(())
        } else {
            Err(unsendable(format!(
                "is `{}`, which has no JSON form",
                type_name(value)
            )))
        }
    }

    /// Adds the path of the value to an `OutputError` of `tidegate.outputs`.
    fn explain(&self, error: PyErr, value: &Bound<'py, PyAny>) -> EncodeError {
        let py = value.py();
        if error.get_type(py).is(self.config.output_error.bind(py)) {
            unsendable(error.value(py).to_string())
        } else {
            error.into()
        }
    }

    /// Writes a value of a plain type; `false` if it has another type.
    fn plain(&mut self, value: &Bound<'py, PyAny>) -> Result<bool, EncodeError> {
        if let Ok(text) = value.cast_exact::<PyString>() {
            self.text(text)?;
        } else if value.is_none() {
            self.raw(b"null");
        } else if let Ok(truth) = value.cast_exact::<PyBool>() {
            self.raw(if truth.is_true() { b"true" } else { b"false" });
        } else if let Ok(number) = value.cast_exact::<PyInt>() {
            self.integer(number)?;
        } else if let Ok(number) = value.cast_exact::<PyFloat>() {
            self.float(number.value())?;
        } else if let Ok(dict) = value.cast_exact::<PyDict>() {
            self.dict(dict)?;
        } else if let Ok(list) = value.cast_exact::<PyList>() {
            self.list(list)?;
        } else if let Ok(tuple) = value.cast_exact::<PyTuple>() {
            self.list(&tuple.to_list())?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.encoded.json.extend_from_slice(bytes);
    }

    /// Prepares for a large text.
    fn make_room(&mut self, bytes: usize) {
        let json = &mut self.encoded.json;
        if bytes >= LARGE && json.capacity() - json.len() < bytes {
            let mut larger = spare_buffers::take(json.len() + bytes + 128);
            larger.clear();
            larger.extend_from_slice(json);
            spare_buffers::give_back(std::mem::replace(json, larger));
        }
    }

    fn file(&mut self, file: &FileRef) {
        let encoded_file = EncodedFile {
            path: file.path.clone(),
            mime_type: file.mime_type.clone(),
            offset: self.encoded.json.len(),
        };
        self.encoded.files.push(encoded_file);
        self.raw(b"\"\"");
    }

    fn text(&mut self, text: &Bound<'py, PyString>) -> Result<(), EncodeError> {
        let Ok(text) = text.to_str() else {
            return Err(unsendable(
                "contains a lone surrogate, which is not valid text",
            ));
        };
        self.make_room(text.len() + 2);
        quote(&mut self.encoded.json, text);
        Ok(())
    }

    fn integer(&mut self, number: &Bound<'py, PyInt>) -> Result<(), EncodeError> {
        if let Ok(small) = number.extract::<i64>() {
            append(&mut self.encoded.json, &small);
        } else if let Ok(large) = number.extract::<u64>() {
            append(&mut self.encoded.json, &large);
        } else if self.runpod_numbers && self.job.is_some() {
            let digits = number
                .py()
                .get_type::<PyInt>()
                .call_method1("__repr__", (number,));
            // Python refuses to convert integers of more than a few thousand digits.
            let digits =
                digits.map_err(|_| unsendable("is an integer too large for JSON readers"))?;
            self.raw(digits.to_string().as_bytes());
        } else {
            // Most JSON parsers read such numbers as floats, and Cog writes them so.
            match number.extract::<f64>() {
                Ok(value) => self.float(value)?,
                Err(_) => return Err(unsendable("is an integer too large for JSON readers")),
            }
        }
        Ok(())
    }

    fn float(&mut self, number: f64) -> Result<(), EncodeError> {
        if !number.is_finite() {
            return self.non_finite(number);
        }
        append(&mut self.encoded.json, &number);
        Ok(())
    }

    fn non_finite(&mut self, number: f64) -> Result<(), EncodeError> {
        let name = float_name(number);
        if !self.runpod_numbers {
            return Err(unsendable(format!("is {name}, which JSON cannot express")));
        }
        self.raw(b"null");
        if !NULL_WARNED.swap(true, Ordering::Relaxed) {
            let message = format!(
                "an output contains {name}, which JSON cannot express; it is sent as `null`, here and in later jobs"
            );
            log("warn".to_owned(), "handler".to_owned(), message)?;
        }
        Ok(())
    }

    fn list(&mut self, list: &Bound<'py, PyList>) -> Result<(), EncodeError> {
        self.enter(list.as_any())?;
        self.raw(b"[");
        let mut index = 0;
        // By index: user code that is called for an item may change the list.
        while let Ok(item) = list.get_item(index) {
            if index > 0 {
                self.raw(b",");
            }
            self.value(&item)
                .map_err(|e| e.within(|| format!("[{index}]")))?;
            index += 1;
        }
        self.raw(b"]");
        self.leave()
    }

    fn dict(&mut self, dict: &Bound<'py, PyDict>) -> Result<(), EncodeError> {
        self.enter(dict.as_any())?;
        self.raw(b"{");
        // A copy of the pairs: user code that is called for a value may change the dict.
        for (index, pair) in dict.items().iter().enumerate() {
            let (key, value) = pair.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()?;
            if index > 0 {
                self.raw(b",");
            }
            self.key(&key)?;
            self.raw(b":");
            self.value(&value)
                .map_err(|e| e.within(|| format!(".{key}")))?;
        }
        self.raw(b"}");
        self.leave()
    }

    /// Writes a key as `json.dumps` does.
    fn key(&mut self, key: &Bound<'py, PyAny>) -> Result<(), EncodeError> {
        if let Ok(text) = key.cast::<PyString>() {
            return self.text(text);
        }
        let text = if key.is_none() {
            "null".to_owned()
        } else if let Ok(truth) = key.cast::<PyBool>() {
            if truth.is_true() {
                "true".to_owned()
            } else {
                "false".to_owned()
            }
        } else if key.is_instance_of::<PyInt>() {
            key.py()
                .get_type::<PyInt>()
                .call_method1("__repr__", (key,))?
                .to_string()
        } else if let Ok(number) = key.cast::<PyFloat>() {
            if !number.value().is_finite() {
                return Err(unsendable(format!(
                    "has the key {}, which JSON cannot express",
                    float_name(number.value())
                )));
            }
            number
                .py()
                .get_type::<PyFloat>()
                .call_method1("__repr__", (key,))?
                .to_string()
        } else {
            return Err(unsendable(format!(
                "has a key of type `{}`; JSON keys are strings",
                type_name(key)
            )));
        };
        quote(&mut self.encoded.json, &text);
        Ok(())
    }

    fn enter(&mut self, value: &Bound<'py, PyAny>) -> Result<(), EncodeError> {
        let address = value.as_ptr() as usize;
        if self.ancestors.contains(&address) {
            return Err(unsendable("contains itself"));
        }
        let deepest = if self.job.is_some() {
            MAX_DEPTH
        } else {
            MAX_METRIC_DEPTH
        };
        if self.ancestors.len() >= deepest {
            return Err(unsendable(format!(
                "is nested deeper than {deepest} levels"
            )));
        }
        self.ancestors.push(address);
        Ok(())
    }

    fn leave(&mut self) -> Result<(), EncodeError> {
        self.ancestors.pop();
        if self.encoded.json.len() > MAX_JSON_BYTES {
            return Err(unsendable(format!(
                "is larger than {MAX_JSON_BYTES} bytes as JSON"
            )));
        }
        Ok(())
    }
}

/// Appends `text` as a JSON string.
///
/// `serde_json` looks at one byte after the other. Most text needs no escapes, and a block of it is
/// checked at once.
pub(crate) fn quote(out: &mut Vec<u8>, text: &str) {
    const BLOCK: usize = 32;
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    let (mut copied, mut at) = (0, 0);
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest.first_chunk::<BLOCK>().is_some_and(is_plain) {
            at += BLOCK;
            continue;
        }
        let end = at + rest.len().min(BLOCK);
        for (offset, byte) in bytes[at..end].iter().enumerate() {
            if is_escaped(*byte) {
                out.extend_from_slice(&bytes[copied..at + offset]);
                append_escape(out, *byte);
                copied = at + offset + 1;
            }
        }
        at = end;
    }
    out.extend_from_slice(&bytes[copied..]);
    out.push(b'"');
}

/// Whether no byte needs an escape. Without early exit, so that it compiles to vector instructions.
fn is_plain<const N: usize>(block: &[u8; N]) -> bool {
    !block
        .iter()
        .fold(false, |found, byte| found | is_escaped(*byte))
}

fn is_escaped(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

fn append_escape(out: &mut Vec<u8>, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let short = match byte {
        b'"' | b'\\' => byte,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x08 => b'b',
        0x0c => b'f',
        _ => {
            out.extend_from_slice(b"\\u00");
            out.push(HEX[usize::from(byte >> 4)]);
            out.push(HEX[usize::from(byte & 0xf)]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// Appends a number or a string as JSON.
pub(crate) fn append<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value)
        .expect("numbers and strings have a JSON form, and writing to a Vec never fails");
}

fn float_name(number: f64) -> &'static str {
    if number.is_nan() {
        "nan"
    } else if number > 0.0 {
        "inf"
    } else {
        "-inf"
    }
}

fn type_name(value: &Bound<'_, PyAny>) -> String {
    value
        .get_type()
        .fully_qualified_name()
        .map_or_else(|_| "object".to_owned(), |name| name.to_string())
}

/// The JSON of a schema or of a metric.
pub(crate) fn to_json(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    encode(value, None).map(|encoded| encoded.json)
}
