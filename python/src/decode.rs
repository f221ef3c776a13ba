//! Decodes the client's JSON into Python objects, without an intermediate tree.
//!
//! There are two decoders. The fast one is a serde visitor that builds Python objects as it reads. It
//! cannot tell a very large integer from a float, and it rejects deep nesting. For those rare inputs
//! the slow one ([`decode_exact`]) reads level by level and keeps every digit.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyList, PyString};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The slow decoder recurses, and user code cannot do much with deeper values either.
const MAX_DEPTH: usize = 500;
/// From this value on, a float may be an integer that did not fit.
const FIRST_INEXACT: f64 = 9_223_372_036_854_775_808.0;

/// Parses `json`. The error is meant for the client: its input cannot be represented.
pub(crate) fn decode<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    let inexact = Cell::new(false);
    let mut reader = serde_json::Deserializer::from_str(json);
    match (PyValueBuilder {
        py,
        inexact: &inexact,
    })
    .deserialize(&mut reader)
    {
        Ok(value) if !inexact.get() => Ok(value),
        // Checked first: the slow decoder reads everything inside a level again for each level.
        _ if depth(json) > MAX_DEPTH => Err(PyValueError::new_err(format!(
            "the input is nested deeper than {MAX_DEPTH} levels"
        ))),
        _ => decode_exact(py, json),
    }
}

/// The nesting depth: counts brackets outside of strings.
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
struct PyValueBuilder<'a, 'py> {
    py: Python<'py>,
    inexact: &'a Cell<bool>,
}

impl<'de, 'py> DeserializeSeed<'de> for PyValueBuilder<'_, 'py> {
    type Value = Bound<'py, PyAny>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_any(self)
    }
}

/// Building a Python object fails only when memory is exhausted.
fn built<'py, E: serde::de::Error>(
    value: PyResult<Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>, E> {
    value.map_err(E::custom)
}

impl<'de, 'py> Visitor<'de> for PyValueBuilder<'_, 'py> {
    type Value = Bound<'py, PyAny>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Self::Value, E> {
        built(value.into_bound_py_any(self.py))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Self::Value, E> {
        built(value.into_bound_py_any(self.py))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Self::Value, E> {
        built(value.into_bound_py_any(self.py))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Self::Value, E> {
        if value.abs() >= FIRST_INEXACT {
            self.inexact.set(true);
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
        built(PyList::new(self.py, items).map(Bound::into_any))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
        let dict = PyDict::new(self.py);
        while let Some(JsonKey(key)) = from.next_key()? {
            let value = from.next_value_seed(self)?;
            dict.set_item(PyString::new(self.py, &key), value)
                .map_err(A::Error::custom)?;
        }
        Ok(dict.into_any())
    }
}

/// A key that borrows from the input unless it contains escapes; a bare `Cow` would always copy.
struct JsonKey<'de>(Cow<'de, str>);

impl<'de> serde::Deserialize<'de> for JsonKey<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = JsonKey<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Self::Value, E> {
                Ok(JsonKey(Cow::Borrowed(value)))
            }

            fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
                Ok(JsonKey(Cow::Owned(value.to_owned())))
            }
        }
        from.deserialize_str(KeyVisitor)
    }
}

/// The pairs of one object, in order, with their values as raw JSON.
struct JsonPairs<'de>(Vec<(Cow<'de, str>, &'de RawValue)>);

impl<'de> serde::Deserialize<'de> for JsonPairs<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = JsonPairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some((JsonKey(key), value)) = from.next_entry()? {
                    pairs.push((key, value));
                }
                Ok(JsonPairs(pairs))
            }
        }
        from.deserialize_map(PairsVisitor)
    }
}

fn decode_exact<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    let json = json.trim_ascii();
    match json.as_bytes().first() {
        Some(b'{') => {
            let JsonPairs(pairs) = serde_json::from_str(json).map_err(not_json)?;
            let dict = PyDict::new(py);
            for (key, value) in pairs {
                dict.set_item(key.as_ref(), decode_exact(py, value.get())?)?;
            }
            Ok(dict.into_any())
        }
        Some(b'[') => {
            let list = PyList::empty(py);
            for item in serde_json::from_str::<Vec<&RawValue>>(json).map_err(not_json)? {
                list.append(decode_exact(py, item.get())?)?;
            }
            Ok(list.into_any())
        }
        Some(b'-' | b'0'..=b'9') => decode_number(py, json),
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

fn decode_number<'py>(py: Python<'py>, digits: &str) -> PyResult<Bound<'py, PyAny>> {
    if digits.bytes().any(|b| matches!(b, b'.' | b'e' | b'E')) {
        let value: f64 = digits
            .parse()
            .map_err(|_| PyValueError::new_err("the input contains a malformed number"))?;
        return Ok(PyFloat::new(py, value).into_any());
    }
    py.get_type::<PyInt>().call1((digits,))
}

fn not_json(error: serde_json::Error) -> PyErr {
    PyValueError::new_err(format!("the input is not valid JSON: {error}"))
}
