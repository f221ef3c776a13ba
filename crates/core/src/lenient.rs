//! JSON as Python writes it: with the literals `NaN`, `Infinity` and `-Infinity`, which are not
//! valid JSON.
//!
//! Runpod's platform and clients write it, and Runpod's own worker reads it: a server or worker
//! that rejects it loses jobs.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::value::RawValue;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// How infinities are written as JSON; `NaN` always becomes `null`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InfinityEncoding {
    /// As numbers that are out of the range of a float: Python parses them as infinities again.
    OutOfRange,
    /// As `null`, which every parser accepts.
    Null,
}

/// Converts the text to JSON: removes a byte order mark and replaces the literals that JSON lacks.
/// Returns `None` when the result is not valid JSON.
pub fn as_json(text: &Bytes, infinities: InfinityEncoding) -> Option<Bytes> {
    let text = if text.starts_with(BYTE_ORDER_MARK) {
        text.slice(BYTE_ORDER_MARK.len()..)
    } else {
        text.clone()
    };
    if is_json(&text) {
        return Some(text);
    }
    let replaced = Bytes::from(match String::from_utf8_lossy(&text) {
        Cow::Borrowed(text) => replace_literals(text, infinities),
        Cow::Owned(text) => replace_literals(&text, infinities),
    });
    is_json(&replaced).then_some(replaced)
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(text).is_ok()
}

/// Replaces the literals that JSON lacks, outside of strings.
fn replace_literals(text: &str, infinities: InfinityEncoding) -> String {
    let literals = match infinities {
        InfinityEncoding::OutOfRange => [
            ("-Infinity", "-1e999"),
            ("Infinity", "1e999"),
            ("NaN", "null"),
        ],
        InfinityEncoding::Null => ["-Infinity", "Infinity", "NaN"].map(|name| (name, "null")),
    };
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut in_string) = (text, false);
    while let Some(first) = rest.chars().next() {
        let found = literals
            .iter()
            .find(|(name, _)| !in_string && rest.starts_with(name));
        let len = match found {
            Some((name, json)) => {
                out.push_str(json);
                rest = &rest[name.len()..];
                continue;
            }
            // An escaped quote does not end the string.
            None if in_string && first == '\\' => {
                1 + rest[1..].chars().next().map_or(0, char::len_utf8)
            }
            None => first.len_utf8(),
        };
        in_string ^= first == '"';
        out.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_that_json_lacks_are_replaced_outside_of_strings() {
        let read = |text: &'static [u8]| {
            as_json(&Bytes::from_static(text), InfinityEncoding::OutOfRange)
                .map(|json| String::from_utf8(json.to_vec()).unwrap())
        };
        let all: [(&[u8], &str); 5] = [
            (br#"{"id": 1}"#, r#"{"id": 1}"#),
            (b"\xef\xbb\xbf[]", "[]"),
            (
                b"[NaN, Infinity, -Infinity, -1]",
                "[null, 1e999, -1e999, -1]",
            ),
            (
                br#"{"NaN": "NaN \" NaN", "x": NaN}"#,
                r#"{"NaN": "NaN \" NaN", "x": null}"#,
            ),
            (b"[\"\xff\", NaN]", "[\"\u{fffd}\", null]"),
        ];
        for (text, json) in all {
            assert_eq!(read(text).as_deref(), Some(json));
        }
        for bad in [&b""[..], b"{", b"NaNa", b"{'a': 1}", b"\"\\", b"<html>"] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
        let infinite = Bytes::from_static(br#"["Infinity", Infinity, -Infinity]"#);
        assert_eq!(
            as_json(&infinite, InfinityEncoding::Null).as_deref(),
            Some(&br#"["Infinity", null, null]"#[..])
        );
    }
}
