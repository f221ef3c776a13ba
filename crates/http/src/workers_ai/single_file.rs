//! The file of an output: one file is the body of the response, not a text in its JSON.

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The file of an output.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SingleFile {
    media_type: String,
    content: Vec<u8>,
}

impl SingleFile {
    /// The only file of an output, which has it as a data URI.
    pub(crate) fn of(output: &Value) -> Option<Self> {
        let uri = match output {
            Value::String(uri) => uri,
            Value::Array(list) => match list.as_slice() {
                [Value::String(uri)] => uri,
                _ => return None,
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return None,
        };
        let (media_type, content) = uri.strip_prefix("data:")?.split_once(";base64,")?;
        Some(Self {
            media_type: media_type.to_owned(),
            content: STANDARD.decode(content).ok()?,
        })
    }
}

impl IntoResponse for SingleFile {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.content));
        let octets = HeaderValue::from_static("application/octet-stream");
        let media_type = HeaderValue::from_str(&self.media_type).unwrap_or(octets);
        response.headers_mut().insert(CONTENT_TYPE, media_type);
        response
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_single_file_is_decoded() {
        let uri = "data:image/png;base64,AAE=";
        for output in [json!(uri), json!([uri])] {
            let file = SingleFile::of(&output).unwrap();
            assert_eq!(
                (&*file.media_type, &*file.content),
                ("image/png", &[0, 1][..])
            );
        }
        for other in [
            json!([uri, uri]),
            json!("https://x/y.png"),
            json!(1),
            json!([]),
        ] {
            assert_eq!(SingleFile::of(&other), None, "{other}");
        }
    }
}
