//! JSON as Python writes it: `NaN` and the infinities stand in it as they are, and are no JSON.

use bytes::Bytes;
use serde_json::value::RawValue;

/// The text as JSON, with `null` for numbers that JSON does not have; `None` when it is none otherwise either.
pub(super) fn as_json(text: &Bytes) -> Option<Bytes> {
    if is_json(text) {
        return Some(text.clone());
    }
    let tamed = Bytes::from(tamed(text));
    is_json(&tamed).then_some(tamed)
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(text).is_ok()
}

/// The text with `null` for every number that is none, outside of strings.
fn tamed(text: &[u8]) -> Vec<u8> {
    const NONE: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];
    let mut out = Vec::with_capacity(text.len());
    let (mut rest, mut in_string) = (text, false);
    while let Some(&byte) = rest.first() {
        let found = if in_string { None } else { NONE.iter().find(|name| rest.starts_with(name)) };
        let taken = match found {
            Some(name) => {
                out.extend_from_slice(b"null");
                name.len()
            }
            // What is escaped is never the end.
            None if in_string && byte == b'\\' => 2.min(rest.len()),
            None => 1,
        };
        if found.is_none() {
            in_string ^= byte == b'"';
            out.extend_from_slice(&rest[..taken]);
        }
        rest = &rest[taken..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_none_become_null_and_texts_stay() {
        let read = |text: &'static str| as_json(&Bytes::from_static(text.as_bytes())).map(|json| String::from_utf8(json.to_vec()).unwrap());
        for (text, json) in [
            (r#"{"output": 1}"#, r#"{"output": 1}"#),
            (r#"{"output": [NaN, Infinity, -Infinity, -1]}"#, r#"{"output": [null, null, null, -1]}"#),
            (r#"{"NaN": "NaN \" NaN", "x": NaN}"#, r#"{"NaN": "NaN \" NaN", "x": null}"#),
        ] {
            assert_eq!(read(text).as_deref(), Some(json));
        }
        for bad in ["", "{", "NaNa", "{'a': 1}", "\"\\"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
