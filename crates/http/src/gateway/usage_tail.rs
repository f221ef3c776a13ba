//! Finds the number of tokens in a response that passes unchanged: OpenAI-style answers and streams end
//! with `"usage": {…}`.

use bytes::Bytes;
use memchr::memmem;
use serde::Deserialize;
use tidegate_core::text_generation::Usage;

/// How much of the end of a response is searched.
const TAIL: usize = 1024;

/// The end of a response.
#[derive(Debug, Default)]
pub(super) struct UsageTail {
    /// A long piece, as it is.
    long: Bytes,
    /// The short pieces after it, whose last `TAIL` bytes count. They are copied: a piece of a few bytes
    /// keeps the whole buffer alive that it was read into, as long as a stream is silent.
    short: Vec<u8>,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}

impl UsageTail {
    /// Adds a piece. A long one is kept without a copy.
    pub(super) fn push(&mut self, bytes: &Bytes) {
        if bytes.len() >= TAIL {
            self.short.clear();
            self.long = bytes.clone();
            return;
        }
        if self.short.len() + bytes.len() > 2 * TAIL {
            // Every byte is moved at most once.
            self.short.drain(..self.short.len() - TAIL);
            self.long = Bytes::new();
        }
        self.short.extend_from_slice(bytes);
    }

    /// The last usage in the response.
    pub(super) fn find(&self) -> Option<Usage> {
        if let Some(usage) = last_usage(last_bytes(&self.short)) {
            return Some(usage);
        }
        if self.long.is_empty() {
            return None;
        }
        let joined = [last_bytes(&self.long), self.short.as_slice()].concat();
        last_usage(&joined)
    }
}

fn last_bytes(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.len().saturating_sub(TAIL)..]
}

fn last_usage(text: &[u8]) -> Option<Usage> {
    let key = memmem::rfind_iter(text, b"\"usage\"");
    key.filter_map(|at| parse_usage(&text[at + b"\"usage\"".len()..]))
        .next()
}

/// Parses `: {…}` and ignores what follows.
fn parse_usage(text: &[u8]) -> Option<Usage> {
    let text = text.trim_ascii_start().strip_prefix(b":")?;
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<WireUsage>();
    let usage = values.next()?.ok()?;
    Some(Usage::new(usage.prompt_tokens, usage.completion_tokens))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(pieces: &[&str]) -> Option<(u64, u64)> {
        let mut tail = UsageTail::default();
        for piece in pieces {
            tail.push(&Bytes::copy_from_slice(piece.as_bytes()));
        }
        let usage = tail.find()?;
        Some((usage.prompt_tokens, usage.completion_tokens))
    }

    #[test]
    fn the_last_usage_is_found_across_pieces() {
        let usage = r#""usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}}"#;
        assert_eq!(find(&[&format!("{{\"id\": 1, {usage}")]), Some((3, 4)));
        let stream = format!("data: {{\"usage\":null}}\n\ndata: {{{usage}\n\n");
        assert_eq!(find(&[&stream, "data: [DONE]\n\n"]), Some((3, 4)));
        let pieces: Vec<String> = stream.chars().map(String::from).collect();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        assert_eq!(find(&pieces), Some((3, 4)));
        let long = format!("{}{usage}", "x".repeat(10_000));
        assert_eq!(find(&[&long]), Some((3, 4)));
        let pieces: Vec<&str> = std::iter::repeat_n("data: {}\n\n", 500)
            .chain([&*stream])
            .collect();
        assert_eq!(find(&pieces), Some((3, 4)));
        assert_eq!(find(&[&"x".repeat(5000), &stream]), Some((3, 4)));
        let (begin, end) = long.split_at(long.len() - 20);
        assert_eq!(find(&[begin, end]), Some((3, 4)), "in both");
        assert_eq!(find(&["{}"]), None);
        assert_eq!(find(&[r#"{"usage": null}"#]), None);
    }
}
