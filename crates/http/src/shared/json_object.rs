//! Writes a JSON object around values that are JSON already.
//!
//! A model's output can be many megabytes of JSON. `serde` would parse it again to embed it, so
//! responses with an output are written field by field, in the order of the calls. A large value is not
//! even copied, if the object becomes the body of a response.

use axum::body::Body;
use bytes::Bytes;
use serde::Serialize;

use super::parts_body::PartsBody;

/// A value of this size is a part of its own.
const LARGE: usize = 64 * 1024;

/// Writes one JSON object.
pub(crate) struct JsonObjectWriter {
    /// What comes before `out`.
    parts: Vec<Bytes>,
    out: Vec<u8>,
}

impl JsonObjectWriter {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        // A larger value is probably not copied.
        let mut out = Vec::with_capacity(bytes.min(2 * LARGE) + 128);
        out.push(b'{');
        Self {
            parts: Vec::new(),
            out,
        }
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
            if json.len() < LARGE {
                self.out.extend_from_slice(json);
            } else {
                self.parts.push(std::mem::take(&mut self.out).into());
                self.parts.push(json.clone());
            }
        }
        self
    }

    /// The object in one piece.
    pub(crate) fn finish(&mut self) -> Bytes {
        let parts = self.finish_parts();
        match <[Bytes; 1]>::try_from(parts) {
            Ok([whole]) => whole,
            Err(parts) => parts.concat().into(),
        }
    }

    /// The object as the body of a response.
    pub(crate) fn finish_body(&mut self) -> Body {
        let parts = self.finish_parts();
        match <[Bytes; 1]>::try_from(parts) {
            Ok([whole]) => whole.into(),
            Err(parts) => Body::new(PartsBody::new(parts)),
        }
    }

    fn finish_parts(&mut self) -> Vec<Bytes> {
        self.out.push(b'}');
        self.parts.push(std::mem::take(&mut self.out).into());
        std::mem::take(&mut self.parts)
    }

    fn key(&mut self, key: &'static str) {
        if self.out != b"{" {
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

    #[tokio::test]
    async fn a_large_value_is_written_like_a_small_one() {
        use http_body_util::BodyExt;
        let output = Bytes::from(format!("\"{}\"", "x".repeat(LARGE)));
        let object = || {
            let mut object = JsonObjectWriter::with_capacity(0);
            object.raw("first", Some(&output)).field("n", &1);
            object.raw("second", Some(&output));
            object
        };
        let text = std::str::from_utf8(&output).unwrap();
        let expected = format!(r#"{{"first":{text},"n":1,"second":{text}}}"#);
        assert!(object().finish() == expected);
        let body = object().finish_body().collect().await.unwrap().to_bytes();
        assert!(body == expected);
    }
}
