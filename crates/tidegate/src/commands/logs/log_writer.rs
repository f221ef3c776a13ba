//! Writes logs to stdout; those of several sources in whole lines, with the name of their source.

use std::io::{self, Write};

/// The reader has closed the pipe, so there is nothing left to do.
#[derive(Debug)]
pub(super) struct ReaderGone;

/// The lines of one of several sources.
#[derive(Debug)]
pub(super) struct LogLines {
    /// What stands before each line.
    prefix: String,
    /// The begin of a line whose end is not known yet.
    partial: String,
}

impl LogLines {
    /// The lines of a setup or a job, of one of several models or of the only one.
    pub(super) fn named(model: Option<&str>, source: &str) -> Self {
        let prefix = match model {
            Some(model) => format!("{model} {source} | "),
            None => format!("{source} | "),
        };
        Self {
            prefix,
            partial: String::new(),
        }
    }

    /// What can be printed after `text` has arrived: whole lines only, because those of several sources must
    /// not be mixed.
    pub(super) fn add(&mut self, text: &str) -> String {
        self.partial.push_str(text);
        let end = self.partial.rfind('\n').map_or(0, |end| end + 1);
        let rest = self.partial.split_off(end);
        let lines = std::mem::replace(&mut self.partial, rest);
        lines
            .split_inclusive('\n')
            .map(|line| format!("{}{line}", self.prefix))
            .collect()
    }

    /// What is left when no more can arrive.
    pub(super) fn finish(&mut self) -> String {
        match self.partial.is_empty() {
            true => String::new(),
            false => self.add("\n"),
        }
    }
}

/// Writes to stdout at once.
pub(super) fn write(text: &str) -> Result<(), ReaderGone> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|_| ReaderGone)
}

/// The last `count` lines of a text; all without a count.
pub(super) fn tail(text: &str, count: Option<usize>) -> &str {
    let Some(count) = count else { return text };
    if count == 0 {
        return "";
    }
    let body = text.strip_suffix('\n').unwrap_or(text);
    let start = body.rmatch_indices('\n').nth(count - 1);
    start.map_or(text, |(at, _)| &text[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_several_sources_are_whole() {
        let mut lines = LogLines::named(None, "a");
        assert_eq!(lines.add("one\ntw"), "a | one\n");
        assert_eq!(lines.add("o\nthree"), "a | two\n");
        assert_eq!(lines.finish(), "a | three\n");
        assert_eq!(lines.finish(), "");
        assert_eq!(
            LogLines::named(Some("ann/b"), "c").add("x\n"),
            "ann/b c | x\n"
        );
    }

    #[test]
    fn the_tail_has_the_last_lines() {
        let text = "one\ntwo\nthree\n";
        for (count, expected) in [
            (None, text),
            (Some(0), ""),
            (Some(1), "three\n"),
            (Some(2), "two\nthree\n"),
            (Some(3), text),
            (Some(9), text),
        ] {
            assert_eq!(tail(text, count), expected);
        }
        assert_eq!(tail("one\ntwo", Some(1)), "two");
        assert_eq!(tail("", Some(1)), "");
    }
}
