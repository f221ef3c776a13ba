//! Measures how deep a JSON text is nested without parsing it. Fields that an API does not use are
//! not parsed, so the parser does not check them.

/// The deepest accepted nesting; the parser has the same limit.
pub(crate) const MAX_DEPTH: usize = 127;

/// Whether arrays and objects are nested deeper than [`MAX_DEPTH`]. The result for a text that is
/// not JSON is arbitrary.
pub(crate) fn is_too_deep(json: &[u8]) -> bool {
    let (mut depth, mut rest) = (0usize, json);
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => rest = after_string(after),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return true;
        }
    }
    false
}

/// The text after the string whose opening quote has been read.
fn after_string(mut text: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', text) {
        let escaped = usize::from(text[at] == b'\\');
        text = text.get(at + 1 + escaped..).unwrap_or_default();
        if escaped == 0 {
            return text;
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_brackets_outside_of_strings_count() {
        let nested = |n: usize| format!("{}0{}", "[".repeat(n), "]".repeat(n));
        assert!(!is_too_deep(nested(MAX_DEPTH).as_bytes()));
        assert!(is_too_deep(nested(MAX_DEPTH + 1).as_bytes()));
        assert!(is_too_deep("{\"a\":".repeat(MAX_DEPTH + 1).as_bytes()));
        let wide = format!("[{}]", vec!["[[]]"; 1000].join(","));
        let in_strings = format!(r#"["{}", "\\", "\"{}"]"#, "[".repeat(500), "{".repeat(500));
        for fine in [wide.as_str(), &in_strings, "", "\"", "\"\\", "]]]]"] {
            assert!(!is_too_deep(fine.as_bytes()), "{fine}");
        }
    }
}
