//! Parses the body of `/v1/embeddings`.

use serde::Deserialize;
use serde_json::{Map, Value};
use tidegate_core::inference::EmbeddingRequest;

use super::error::OpenAiError;
use super::parse_text::{field, fields_except, model, parse_fields};

/// The most texts of a request.
pub(crate) const MAX_TEXTS: usize = 2048;

/// A request for embeddings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenAiEmbeddingRequest {
    /// The model as the client names it.
    pub(crate) model: String,
    pub(crate) request: EmbeddingRequest,
    pub(crate) encoding: VectorEncoding,
    /// The fields that are no parameters of this API. A model may have inputs with their names.
    pub(crate) extra: Map<String, Value>,
}

/// The parameters that are read here.
const PARAMETERS: [&str; 4] = ["model", "input", "dimensions", "encoding_format"];

/// How vectors are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum VectorEncoding {
    /// A list of numbers.
    #[default]
    Float,
    /// The bytes of little-endian 32-bit numbers; the default of the official clients.
    Base64,
}

/// Parses the body of `/v1/embeddings`.
pub(crate) fn parse_embeddings(body: &[u8]) -> Result<OpenAiEmbeddingRequest, OpenAiError> {
    let fields = parse_fields(body)?;
    let input: Value = field(&fields, "input")?.ok_or_else(|| OpenAiError::missing("input"))?;
    let dimensions: Option<u32> = field(&fields, "dimensions")?;
    if dimensions == Some(0) {
        return Err(OpenAiError::invalid(
            "dimensions",
            "`dimensions` must be at least 1",
        ));
    }
    Ok(OpenAiEmbeddingRequest {
        model: model(&fields)?,
        request: EmbeddingRequest {
            texts: texts(input)?,
            dimensions,
        },
        encoding: field(&fields, "encoding_format")?.unwrap_or_default(),
        extra: fields_except(&PARAMETERS, &fields),
    })
}

fn texts(input: Value) -> Result<Vec<String>, OpenAiError> {
    let invalid = |message: &str| OpenAiError::invalid("input", message);
    let list = match input {
        Value::String(text) => return Ok(vec![text]),
        Value::Array(list) => list,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            return Err(invalid("`input` must be a text or a list of texts"));
        }
    };
    if list.is_empty() {
        return Err(invalid("`input` is empty"));
    }
    if list.len() > MAX_TEXTS {
        return Err(invalid(&format!("`input` has more than {MAX_TEXTS} texts")));
    }
    let text = |value: Value| match value {
        Value::String(text) => Ok(text),
        Value::Number(_) | Value::Array(_) => Err(invalid(
            "`input` has lists of tokens, which cannot be read without the tokenizer of the client; send texts",
        )),
        Value::Null | Value::Bool(_) | Value::Object(_) => {
            Err(invalid("`input` must be a text or a list of texts"))
        }
    };
    list.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(input: Value) -> Result<OpenAiEmbeddingRequest, OpenAiError> {
        parse_embeddings(json!({"model": "m", "input": input}).to_string().as_bytes())
    }

    #[test]
    fn one_text_or_a_list_is_read() {
        assert_eq!(parse(json!("a")).unwrap().request.texts, ["a"]);
        assert_eq!(parse(json!(["a", "b"])).unwrap().request.texts, ["a", "b"]);
        assert_eq!(parse(json!("a")).unwrap().encoding, VectorEncoding::Float);
        let body = br#"{"model":"m","input":"a","encoding_format":"base64","dimensions":3}"#;
        let parsed = parse_embeddings(body).unwrap();
        assert_eq!(parsed.encoding, VectorEncoding::Base64);
        assert_eq!(parsed.request.dimensions, Some(3));
        assert!(parsed.extra.is_empty());
        let body = br#"{"model":"m","input":"a","normalize":true}"#;
        let parsed = parse_embeddings(body).unwrap();
        assert_eq!(Value::Object(parsed.extra), json!({"normalize": true}));
    }

    #[test]
    fn other_inputs_are_refused() {
        for wrong in [
            json!([1, 2]),
            json!([[1, 2]]),
            json!([]),
            json!(1),
            json!(null),
            json!(["a", null]),
            json!(vec!["a"; MAX_TEXTS + 1]),
        ] {
            assert_eq!(parse(wrong).unwrap_err().param.as_deref(), Some("input"));
        }
        let error = parse_embeddings(br#"{"model":"m","input":"a","encoding_format":"int8"}"#);
        assert_eq!(error.unwrap_err().param.as_deref(), Some("encoding_format"));
    }
}
