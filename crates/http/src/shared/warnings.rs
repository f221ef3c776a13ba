//! The `warnings` header: mistakes in a request or a model that did not stop the job.

use std::borrow::Cow;
use std::collections::HashMap;

use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use serde::de::IgnoredAny;
use tidegate_service::closest_name;

const WARNINGS: HeaderName = HeaderName::from_static("warnings");
/// The largest value; clients and proxies limit headers. Further warnings are in the logs only.
const MAX_BYTES: usize = 4096;

/// Adds the header if there are warnings.
pub(crate) fn with_warnings(mut response: Response, warnings: &[String]) -> Response {
    if !warnings.is_empty() {
        response
            .headers_mut()
            .insert(WARNINGS, header_value(warnings));
    }
    response
}

/// A JSON list of strings, in ASCII.
fn header_value(warnings: &[String]) -> HeaderValue {
    let mut list = String::from("[");
    for warning in warnings {
        let text = ascii_json(warning);
        if list.len() + text.len() + 2 > MAX_BYTES {
            break;
        }
        if list.len() > 1 {
            list.push(',');
        }
        list.push_str(&text);
    }
    list.push(']');
    HeaderValue::try_from(list).expect("escaped JSON is printable ASCII")
}

fn ascii_json(text: &str) -> String {
    let json = serde_json::to_string(text).expect("a string serializes");
    let mut ascii = String::with_capacity(json.len());
    for c in json.chars() {
        if matches!(c, ' '..='~') {
            ascii.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                ascii.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    ascii
}

/// The warning about a body without `input` that has a similar key.
pub(crate) fn misspelt_input(body: &[u8]) -> Option<String> {
    let keys: HashMap<Cow<'_, str>, IgnoredAny> = serde_json::from_slice(body).ok()?;
    let similar = keys
        .keys()
        .filter(|key| *key != "input" && closest_name(key, ["input"].into_iter()).is_some());
    let key = similar.min()?;
    Some(format!(
        "unknown key `{key}` was ignored; did you mean `input`?"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_json_in_ascii() {
        let warnings = ["a \"b\" \\".to_owned(), "é\n\u{7f}😀".to_owned()];
        let value = header_value(&warnings);
        let text = value.to_str().unwrap();
        assert_eq!(text, r#"["a \"b\" \\","\u00e9\n\u007f\ud83d\ude00"]"#);
        assert_eq!(serde_json::from_str::<Vec<String>>(text).unwrap(), warnings);
    }

    #[test]
    fn a_value_has_a_limited_size() {
        let warnings: Vec<String> = (0..100)
            .map(|n| format!("{n} {}", "é".repeat(100)))
            .collect();
        let value = header_value(&warnings);
        assert!(value.len() <= MAX_BYTES);
        let listed: Vec<String> = serde_json::from_slice(value.as_bytes()).unwrap();
        assert_eq!(listed, warnings[..listed.len()]);
        assert!(listed.len() > 5);
    }

    #[test]
    fn a_key_that_resembles_input_is_found() {
        for (body, key) in [
            (r#"{"inputs": {"n": 1}}"#, Some("inputs")),
            (r#"{"Input": {}}"#, Some("Input")),
            (r#"{"imput": 1, "inputs": 2}"#, Some("imput")),
            (r#"{"id": "x", "webhook": "y"}"#, None),
            (r#"{"input": null}"#, None),
            ("[1]", None),
            ("", None),
        ] {
            let want =
                key.map(|key| format!("unknown key `{key}` was ignored; did you mean `input`?"));
            assert_eq!(misspelt_input(body.as_bytes()), want, "{body}");
        }
    }
}
