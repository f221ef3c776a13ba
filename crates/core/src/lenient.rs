//! JSON as Python writes it: `NaN` and the infinities stand in it as they are, and are no JSON.
//!
//! Runpod's platforms and clients write it, and its own worker reads it: whoever does not, loses jobs.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::value::RawValue;

const MARK: &[u8] = "\u{feff}".as_bytes();

/// What infinities become; `NaN` is always `null`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InfinityEncoding {
    /// Numbers that are too large for one: Python reads infinities again.
    OutOfRange,
    /// `null`, which everybody can read.
    Null,
}

/// The text as JSON, or `None` when it is none even so.
pub fn as_json(text: &Bytes, infinities: InfinityEncoding) -> Option<Bytes> {
    let text = if text.starts_with(MARK) {
        text.slice(MARK.len()..)
    } else {
        text.clone()
    };
    if is_json(&text) {
        return Some(text);
    }
    let tamed = Bytes::from(match String::from_utf8_lossy(&text) {
        Cow::Borrowed(text) => tamed(text, infinities),
        Cow::Owned(text) => tamed(&text, infinities),
    });
    is_json(&tamed).then_some(tamed)
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(text).is_ok()
}

/// The text with other words for those numbers, outside of strings.
fn tamed(text: &str, infinities: InfinityEncoding) -> String {
    let numbers = match infinities {
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
        let found = numbers
            .iter()
            .find(|(name, _)| !in_string && rest.starts_with(name));
        let taken = match found {
            Some((name, json)) => {
                out.push_str(json);
                rest = &rest[name.len()..];
                continue;
            }
            // What is escaped is never the end.
            None if in_string && first == '\\' => {
                1 + rest[1..].chars().next().map_or(0, char::len_utf8)
            }
            None => first.len_utf8(),
        };
        in_string ^= first == '"';
        out.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_json_lacks_are_read_and_texts_stay() {
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
