//! The caller's JSON into Python objects, without a tree in between.
//!
//! Two ways: the quick one is a serde visitor that builds Python objects as it reads. It cannot tell a
//! very large integer from a float, and it refuses deep nesting; for those rare inputs the slow one
//! reads level by level and keeps every digit.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyList, PyString};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The slow way recurses; user code cannot do much with anything deeper either.
const DEEPEST: usize = 500;
/// From here on a float may have been an integer that did not fit.
const SUSPECT: f64 = 9_223_372_036_854_775_808.0;

/// Parses `json`. The error is for the caller: its input cannot be represented.
pub(crate) fn decode<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    let suspect = Cell::new(false);
    let mut reader = serde_json::Deserializer::from_str(json);
    match (Builder {
        py,
        suspect: &suspect,
    })
    .deserialize(&mut reader)
    {
        Ok(value) if !suspect.get() => Ok(value),
        // Looked at first: reading level by level would read all that is inside again at each of them.
        _ if depth(json) > DEEPEST => Err(PyValueError::new_err(format!(
            "the input is nested deeper than {DEEPEST} levels"
        ))),
        _ => exact(py, json),
    }
}

/// How many levels the brackets outside of texts make.
fn depth(json: &str) -> usize {
    let (mut now, mut deepest, mut in_text, mut escaped) = (0_usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                now += 1;
                deepest = deepest.max(now);
            }
            b']' | b'}' if !in_text => now = now.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[derive(Clone, Copy)]
struct Builder<'a, 'py> {
    py: Python<'py>,
    suspect: &'a Cell<bool>,
}

impl<'de, 'py> DeserializeSeed<'de> for Builder<'_, 'py> {
    type Value = Bound<'py, PyAny>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_any(self)
    }
}

/// Python objects can only fail to be made when memory is out.
fn made<'py, E: serde::de::Error>(
    value: PyResult<Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>, E> {
    value.map_err(E::custom)
}

impl<'de, 'py> Visitor<'de> for Builder<'_, 'py> {
    type Value = Bound<'py, PyAny>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Self::Value, E> {
        made(value.into_bound_py_any(self.py))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Self::Value, E> {
        made(value.into_bound_py_any(self.py))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Self::Value, E> {
        made(value.into_bound_py_any(self.py))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Self::Value, E> {
        if value.abs() >= SUSPECT {
            self.suspect.set(true);
        }
        Ok(PyFloat::new(self.py, value).into_any())
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(PyString::new(self.py, value).into_any())
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(self.py.None().into_bound(self.py))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::with_capacity(from.size_hint().unwrap_or(0));
        while let Some(item) = from.next_element_seed(self)? {
            items.push(item);
        }
        made(PyList::new(self.py, items).map(Bound::into_any))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
        let dict = PyDict::new(self.py);
        while let Some(Key(key)) = from.next_key()? {
            let value = from.next_value_seed(self)?;
            dict.set_item(PyString::new(self.py, &key), value)
                .map_err(A::Error::custom)?;
        }
        Ok(dict.into_any())
    }
}

/// A key that borrows from the input unless it holds escapes; a bare `Cow` would always copy.
struct Key<'de>(Cow<'de, str>);

impl<'de> serde::Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Borrowed(value)))
            }

            fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Owned(value.to_owned())))
            }
        }
        from.deserialize_str(Reader)
    }
}

/// The pairs of one object, in order, with their values still text.
struct Pairs<'de>(Vec<(Cow<'de, str>, &'de RawValue)>);

impl<'de> serde::Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some((Key(key), value)) = from.next_entry()? {
                    pairs.push((key, value));
                }
                Ok(Pairs(pairs))
            }
        }
        from.deserialize_map(Reader)
    }
}

fn exact<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    let json = json.trim_ascii();
    match json.as_bytes().first() {
        Some(b'{') => {
            let Pairs(pairs) = serde_json::from_str(json).map_err(not_json)?;
            let dict = PyDict::new(py);
            for (key, value) in pairs {
                dict.set_item(key.as_ref(), exact(py, value.get())?)?;
            }
            Ok(dict.into_any())
        }
        Some(b'[') => {
            let list = PyList::empty(py);
            for item in serde_json::from_str::<Vec<&RawValue>>(json).map_err(not_json)? {
                list.append(exact(py, item.get())?)?;
            }
            Ok(list.into_any())
        }
        Some(b'-' | b'0'..=b'9') => number(py, json),
        _ => {
            let plain: serde_json::Value = serde_json::from_str(json).map_err(not_json)?;
            match plain {
                serde_json::Value::String(text) => text.into_bound_py_any(py),
                serde_json::Value::Bool(value) => value.into_bound_py_any(py),
                _ => Ok(py.None().into_bound(py)),
            }
        }
    }
}

fn number<'py>(py: Python<'py>, digits: &str) -> PyResult<Bound<'py, PyAny>> {
    if digits.bytes().any(|b| matches!(b, b'.' | b'e' | b'E')) {
        let value: f64 = digits
            .parse()
            .map_err(|_| PyValueError::new_err("the input holds a malformed number"))?;
        return Ok(PyFloat::new(py, value).into_any());
    }
    py.get_type::<PyInt>().call1((digits,))
}

fn not_json(error: serde_json::Error) -> PyErr {
    PyValueError::new_err(format!("the input is not JSON: {error}"))
}
