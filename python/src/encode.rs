//! The model's values into JSON bytes.
//!
//! Plain values (exactly `dict`, `list`, `str`, …) are written here. Anything else is handed to the
//! Python half once, which answers with a plain value or a [`FileRef`]; what may be sent at all is
//! decided there (`tidegate.outputs`). A value that holds itself, or one that is too deep, is an error
//! and never a crash.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::config::{Config, config};
use crate::job::Job;
use crate::life::remark;

const DEEPEST: usize = 200;
/// The server reads metrics into trees, and reads no deeper than 128 levels.
const DEEPEST_METRIC: usize = 100;
/// No client reads more, and a value that holds the same part many times grows without bound.
const LARGEST: usize = 1024 * 1024 * 1024;

/// Whether numbers are written as Runpod's users know it; see [`loosen`].
static LOOSE: AtomicBool = AtomicBool::new(false);
/// Whether the operator knows that numbers were left out.
static TOLD: AtomicBool = AtomicBool::new(false);

/// From now on an integer keeps all its digits, and `null` stands for a number that JSON cannot express. Cog's
/// clients know the one as a float and the other as a failure.
#[pyfunction]
pub(crate) fn loosen() {
    LOOSE.store(true, Ordering::Relaxed);
}

/// A file that takes the place of a value; made by the Python half.
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

/// A place in the JSON where a file belongs.
pub(crate) struct FilePlace {
    pub(crate) path: String,
    pub(crate) mime_type: String,
    pub(crate) offset: usize,
}

/// A value as JSON.
pub(crate) struct Encoded {
    pub(crate) json: Vec<u8>,
    pub(crate) files: Vec<FilePlace>,
}

/// Encodes one value. `job` is what the Python half needs to put files somewhere.
pub(crate) fn encode<'py>(
    value: &Bound<'py, PyAny>,
    job: Option<&Bound<'py, Job>>,
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
        loose: LOOSE.load(Ordering::Relaxed),
        ancestors: Vec::new(),
        encoded,
    };
    match encoder.value(value) {
        Ok(()) => Ok(encoder.encoded),
        Err(Trouble::Raised(error)) => Err(error),
        Err(Trouble::Unsendable { what, mut at }) => {
            at.reverse();
            Err(config.unsendable(py, format!("`output{}` {what}", at.concat())))
        }
    }
}

enum Trouble {
    /// User code that we had to call (`model_dump`, an iterator) raised.
    Raised(PyErr),
    /// The value has no JSON form. `at` is its place, innermost part first.
    Unsendable { what: String, at: Vec<String> },
}

impl From<PyErr> for Trouble {
    fn from(error: PyErr) -> Self {
        Trouble::Raised(error)
    }
}

fn unsendable(what: impl Into<String>) -> Trouble {
    Trouble::Unsendable {
        what: what.into(),
        at: Vec::new(),
    }
}

impl Trouble {
    fn inside(self, part: impl FnOnce() -> String) -> Self {
        match self {
            Trouble::Raised(error) => Trouble::Raised(error),
            Trouble::Unsendable { what, mut at } => {
                at.push(part());
                Trouble::Unsendable { what, at }
            }
        }
    }
}

struct Encoder<'a, 'py> {
    config: &'a Config,
    job: Option<&'a Bound<'py, Job>>,
    loose: bool,
    /// Addresses of the values we are inside of.
    ancestors: Vec<usize>,
    encoded: Encoded,
}

impl<'py> Encoder<'_, 'py> {
    fn value(&mut self, value: &Bound<'py, PyAny>) -> Result<(), Trouble> {
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

    /// An `OutputError` of the Python half gets the place where it happened.
    fn explain(&self, error: PyErr, value: &Bound<'py, PyAny>) -> Trouble {
        let py = value.py();
        if error.get_type(py).is(self.config.output_error.bind(py)) {
            unsendable(error.value(py).to_string())
        } else {
            error.into()
        }
    }

    /// Writes a value of one of the plain types; `false` if it is something else.
    fn plain(&mut self, value: &Bound<'py, PyAny>) -> Result<bool, Trouble> {
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

    fn file(&mut self, file: &FileRef) {
        let place = FilePlace {
            path: file.path.clone(),
            mime_type: file.mime_type.clone(),
            offset: self.encoded.json.len(),
        };
        self.encoded.files.push(place);
        self.raw(b"\"\"");
    }

    fn text(&mut self, text: &Bound<'py, PyString>) -> Result<(), Trouble> {
        let Ok(text) = text.to_str() else {
            return Err(unsendable("holds a lone surrogate, which is not text"));
        };
        quote(&mut self.encoded.json, text);
        Ok(())
    }

    fn integer(&mut self, number: &Bound<'py, PyInt>) -> Result<(), Trouble> {
        if let Ok(small) = number.extract::<i64>() {
            append(&mut self.encoded.json, &small);
        } else if let Ok(large) = number.extract::<u64>() {
            append(&mut self.encoded.json, &large);
        } else if self.loose && self.job.is_some() {
            let digits = number
                .py()
                .get_type::<PyInt>()
                .call_method1("__repr__", (number,));
            // Python itself refuses to write more than a few thousand.
            let digits =
                digits.map_err(|_| unsendable("is an integer too large for JSON readers"))?;
            self.raw(digits.to_string().as_bytes());
        } else {
            // JSON readers take such numbers for floats anyway; Cog writes them so.
            match number.extract::<f64>() {
                Ok(value) => self.float(value)?,
                Err(_) => return Err(unsendable("is an integer too large for JSON readers")),
            }
        }
        Ok(())
    }

    fn float(&mut self, number: f64) -> Result<(), Trouble> {
        if !number.is_finite() {
            return self.no_number(number);
        }
        append(&mut self.encoded.json, &number);
        Ok(())
    }

    fn no_number(&mut self, number: f64) -> Result<(), Trouble> {
        let name = python_float(number);
        if !self.loose {
            return Err(unsendable(format!("is {name}, which JSON cannot express")));
        }
        self.raw(b"null");
        if !TOLD.swap(true, Ordering::Relaxed) {
            let message = format!(
                "an output holds {name}, which JSON cannot express; `null` is sent in its place, here and in other jobs"
            );
            remark("warn".to_owned(), "handler".to_owned(), message)?;
        }
        Ok(())
    }

    fn list(&mut self, list: &Bound<'py, PyList>) -> Result<(), Trouble> {
        self.enter(list.as_any())?;
        self.raw(b"[");
        let mut index = 0;
        // By index: code that we call for an item may change the list.
        while let Ok(item) = list.get_item(index) {
            if index > 0 {
                self.raw(b",");
            }
            self.value(&item)
                .map_err(|t| t.inside(|| format!("[{index}]")))?;
            index += 1;
        }
        self.raw(b"]");
        self.leave()
    }

    fn dict(&mut self, dict: &Bound<'py, PyDict>) -> Result<(), Trouble> {
        self.enter(dict.as_any())?;
        self.raw(b"{");
        // A copy of the pairs: code that we call for a value may change the dict.
        for (index, pair) in dict.items().iter().enumerate() {
            let (key, value) = pair.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()?;
            if index > 0 {
                self.raw(b",");
            }
            self.key(&key)?;
            self.raw(b":");
            self.value(&value)
                .map_err(|t| t.inside(|| format!(".{key}")))?;
        }
        self.raw(b"}");
        self.leave()
    }

    /// Keys as `json.dumps` writes them.
    fn key(&mut self, key: &Bound<'py, PyAny>) -> Result<(), Trouble> {
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
                    python_float(number.value())
                )));
            }
            number
                .py()
                .get_type::<PyFloat>()
                .call_method1("__repr__", (key,))?
                .to_string()
        } else {
            return Err(unsendable(format!(
                "has a key of type `{}`; JSON keys are text",
                type_name(key)
            )));
        };
        quote(&mut self.encoded.json, &text);
        Ok(())
    }

    fn enter(&mut self, value: &Bound<'py, PyAny>) -> Result<(), Trouble> {
        let address = value.as_ptr() as usize;
        if self.ancestors.contains(&address) {
            return Err(unsendable("holds itself"));
        }
        let deepest = if self.job.is_some() {
            DEEPEST
        } else {
            DEEPEST_METRIC
        };
        if self.ancestors.len() >= deepest {
            return Err(unsendable(format!(
                "is nested deeper than {deepest} levels"
            )));
        }
        self.ancestors.push(address);
        Ok(())
    }

    fn leave(&mut self) -> Result<(), Trouble> {
        self.ancestors.pop();
        if self.encoded.json.len() > LARGEST {
            return Err(unsendable(format!(
                "takes more than {LARGEST} bytes as JSON"
            )));
        }
        Ok(())
    }
}

/// Appends `text` as a JSON string.
pub(crate) fn quote(out: &mut Vec<u8>, text: &str) {
    append(out, text);
}

/// Appends a number or text as JSON.
pub(crate) fn append<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value)
        .expect("numbers and text are JSON, and a Vec never fails to write");
}

fn python_float(number: f64) -> &'static str {
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

/// JSON text of a value, for the schema and for metrics.
pub(crate) fn to_json(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    encode(value, None).map(|encoded| encoded.json)
}
