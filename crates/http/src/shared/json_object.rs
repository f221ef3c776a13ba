//! Writes a JSON object around values that are JSON already.
//!
//! A model's output can be many megabytes of JSON. `serde` would parse it again to embed it, so
//! responses with an output are written field by field, in the order of the calls.

use bytes::Bytes;
use serde::Serialize;

/// Writes one JSON object.
pub(crate) struct JsonObjectWriter {
    out: Vec<u8>,
}

impl JsonObjectWriter {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        let mut out = Vec::with_capacity(bytes + 128);
        out.push(b'{');
        Self { out }
    }

    /// Adds a field with a value to serialize.
    pub(crate) fn field(
        &mut self,
        key: &'static str,
        value: &(impl Serialize + ?Sized),
    ) -> &mut Self {
        self.key(key);
        serde_json::to_writer(&mut self.out, value)
            .expect("the values have string keys and writing to a Vec cannot fail");
        self
    }

    /// Adds a field with a value to serialize, if there is one.
    pub(crate) fn maybe(
        &mut self,
        key: &'static str,
        value: Option<&(impl Serialize + ?Sized)>,
    ) -> &mut Self {
        if let Some(value) = value {
            self.field(key, value);
        }
        self
    }

    /// Adds a field with a value that is JSON already, if there is one.
    pub(crate) fn raw(&mut self, key: &'static str, json: Option<&Bytes>) -> &mut Self {
        if let Some(json) = json {
            self.key(key);
            self.out.extend_from_slice(json);
        }
        self
    }

    pub(crate) fn finish(&mut self) -> Bytes {
        self.out.push(b'}');
        std::mem::take(&mut self.out).into()
    }

    fn key(&mut self, key: &'static str) {
        if self.out.len() > 1 {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_json() {
        let output = Bytes::from_static(b"[1, 2]");
        let mut object = JsonObjectWriter::with_capacity(0);
        object
            .field("id", "a\"b")
            .maybe("none", None::<&str>)
            .raw("output", Some(&output))
            .field("n", &1.5);
        assert_eq!(
            object.finish(),
            &br#"{"id":"a\"b","output":[1, 2],"n":1.5}"#[..]
        );
    }
}
