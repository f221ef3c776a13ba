//! Leaves out long strings of an input that its schema does not look into, so that they are neither
//! copied nor parsed for validation.

use memchr::memchr2;

/// Shorter strings are parsed with the rest.
const LONG: usize = 16 * 1024;
/// The most bytes that may remain: what this saves is little compared with parsing more.
const MAX_REST: usize = 64 * 1024;

/// The JSON object in `json` with `""` in place of the long strings of fields for which `is_opaque` holds.
/// `None` if nothing is left out, or if parsing all of it is the simpler way.
pub(super) fn without_long_strings(
    json: &[u8],
    is_opaque: impl Fn(&[u8]) -> bool,
) -> Option<Vec<u8>> {
    if json.len() < LONG {
        return None;
    }
    let mut rest = Vec::new();
    let mut copied = 0;
    let mut scanner = Scanner { json, at: 0 };
    scanner.expect(b'{')?;
    loop {
        scanner.expect(b'"')?;
        let name = scanner.string()?;
        scanner.expect(b':')?;
        if scanner.peek()? == b'"' {
            scanner.at += 1;
            let start = scanner.at;
            let text = scanner.string()?;
            if text.len() >= LONG && is_opaque(name) && is_valid(text) {
                rest.extend_from_slice(&json[copied..start]);
                copied = start + text.len();
            }
        } else {
            scanner.skip_value()?;
        }
        match scanner.peek()? {
            b',' => scanner.at += 1,
            b'}' => break,
            _ => return None,
        }
        if scanner.at - copied + rest.len() > MAX_REST {
            return None;
        }
    }
    if copied == 0 || json.len() - copied > MAX_REST {
        return None;
    }
    rest.extend_from_slice(&json[copied..]);
    Some(rest)
}

/// Whether the content of a JSON string is valid, apart from its escapes: serde checks the same.
fn is_valid(text: &[u8]) -> bool {
    // Without early exit, so that it compiles to vector instructions.
    let has_control = text
        .iter()
        .fold(false, |found, byte| found | (*byte < 0x20));
    !has_control && std::str::from_utf8(text).is_ok()
}

/// Finds the ends of JSON values. It does not check them: what it copies is parsed afterwards.
struct Scanner<'a> {
    json: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        while self.json.get(self.at)?.is_ascii_whitespace() {
            self.at += 1;
        }
        Some(self.json[self.at])
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Reads the rest of a string whose opening quote was read. `None` if it has no end, or an escape that
    /// may be invalid: `\u` with half of a character.
    fn string(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        loop {
            self.at += memchr2(b'"', b'\\', &self.json[self.at..])?;
            if self.json[self.at] == b'"' {
                self.at += 1;
                return Some(&self.json[start..self.at - 1]);
            }
            if !b"\"\\/bfnrt".contains(self.json.get(self.at + 1)?) {
                return None;
            }
            self.at += 2;
        }
    }

    /// Skips a value that is not a string, up to the comma or bracket after it.
    fn skip_value(&mut self) -> Option<()> {
        let (start, mut depth) = (self.at, 0_usize);
        while self.at - start <= MAX_REST {
            match *self.json.get(self.at)? {
                b',' | b'}' | b']' if depth == 0 => return Some(()),
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                b'"' => {
                    self.at += 1;
                    self.string()?;
                    continue;
                }
                _ => {}
            }
            self.at += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shortened(json: &str) -> Option<String> {
        let found = without_long_strings(json.as_bytes(), |name| name != b"looked_at");
        found.map(|json| String::from_utf8(json).unwrap())
    }

    #[test]
    fn long_strings_of_opaque_fields_are_left_out() {
        let long = "ä".repeat(LONG);
        for (json, expected) in [
            (
                format!(r#"{{"text":"{long}"}}"#),
                r#"{"text":""}"#.to_owned(),
            ),
            (
                format!(r#" {{ "n" : [1,{{"a":"]"}}], "text" : "{long}" , "b":"{long}","c":"x"}}"#),
                r#" { "n" : [1,{"a":"]"}], "text" : "" , "b":"","c":"x"}"#.to_owned(),
            ),
            (
                format!(r#"{{"a":",\n}}\"","text":"{long}\n\"\\{long}"}}"#),
                r#"{"a":",\n}\"","text":""}"#.to_owned(),
            ),
            (
                format!(r#"{{"looked_at":"{long}","text":"{long}"}}"#),
                format!(r#"{{"looked_at":"{long}","text":""}}"#),
            ),
        ] {
            assert_eq!(shortened(&json), Some(expected));
        }
    }

    #[test]
    fn other_inputs_are_parsed_as_they_are() {
        let long = "x".repeat(LONG);
        for json in [
            r#"{"text":"short"}"#.to_owned(),
            format!(r#"{{"looked_at":"{long}"}}"#),
            format!(r#"{{"text":"{long}\u0041"}}"#),
            format!(r#"{{"text":"{long}\x"}}"#),
            format!(r#"{{"text":"{long}\"#),
            format!("{{\"text\":\"{long}\n\"}}"),
            format!(r#"{{"text":"{long}"#),
            format!(r#"{{"text":"{long}""#),
            format!(r#"{{"list":["{long}"]}}"#),
            format!(r#"["{long}"]"#),
            format!(r#""{long}""#),
            format!(r#"{{"text" "{long}"}}"#),
            format!(r#"{{"text":"{long}","n":[{}0]}}"#, "0,".repeat(MAX_REST)),
        ] {
            assert_eq!(shortened(&json), None, "{}", &json[..json.len().min(40)]);
        }
    }

    #[test]
    fn what_follows_a_long_string_is_kept() {
        let long = "x".repeat(LONG);
        // Not JSON: the parser must see it.
        for end in ["} x", "}}", ",}", "]"] {
            let short = shortened(&format!(r#"{{"text":"{long}"{end}"#));
            assert!(short.is_none_or(|short| short.ends_with(end)), "{end}");
        }
    }
}
