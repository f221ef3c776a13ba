//! Text that contains U+0000, which PostgreSQL cannot store.
//!
//! U+0000 becomes U+0001 U+0001, and U+0001 becomes U+0001 U+0002. The order of the bytes and prefixes are
//! preserved: a text begins with another exactly if its escaped form does.

use std::borrow::Cow;

const ESCAPE: char = '\u{1}';

/// The form in which a text is stored.
pub(super) fn escape(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte <= 1) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\u{0}' => escaped.push_str("\u{1}\u{1}"),
            ESCAPE => escaped.push_str("\u{1}\u{2}"),
            other => escaped.push(other),
        }
    }
    Cow::Owned(escaped)
}

/// The text of its stored form. An escape sequence that was cut off is ignored.
pub(super) fn unescape(stored: String) -> String {
    if !stored.contains(ESCAPE) {
        return stored;
    }
    let mut text = String::with_capacity(stored.len());
    let mut chars = stored.chars();
    while let Some(c) = chars.next() {
        match (c, c == ESCAPE) {
            (other, false) => text.push(other),
            (_, true) => match chars.next() {
                Some('\u{1}') => text.push('\u{0}'),
                Some('\u{2}') => text.push(ESCAPE),
                Some(other) => text.push(other),
                None => {}
            },
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_texts_keep_their_order_and_contain_no_nul() {
        let mut texts = vec![
            "", "\0", "\0\0", "\0a", "\u{1}", "\u{1}\0", "\u{2}", "a", "a\0", "a\0b", "a\u{1}",
            "ab", "é\0",
        ];
        texts.sort_unstable();
        let escaped: Vec<_> = texts.iter().map(|text| escape(text)).collect();
        assert!(escaped.is_sorted());
        for (text, escaped) in texts.iter().zip(&escaped) {
            assert!(!escaped.contains('\0'));
            assert_eq!(unescape(escaped.to_string()), *text);
        }
        for (prefix, escaped_prefix) in texts.iter().zip(&escaped) {
            for (text, escaped) in texts.iter().zip(&escaped) {
                assert_eq!(
                    text.starts_with(prefix),
                    escaped.starts_with(&**escaped_prefix),
                    "{prefix:?} {text:?}"
                );
            }
        }
    }
}
