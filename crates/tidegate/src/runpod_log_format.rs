//! The log format of Runpod's console: one JSON object per line, with the id of the job.

use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The maximum length of a message in characters; longer ones lose their middle.
const MAX_MESSAGE: usize = 4096;

/// The target of what the model prints.
const MODEL: &str = "model";

/// Formats events for Runpod's console.
pub(crate) struct RunpodLogFormat;

#[derive(Debug, Clone, Default)]
struct LogFields {
    job: Option<String>,
    batch: Option<String>,
    message: String,
    /// The other fields, after the message.
    other_fields: String,
}

#[derive(Serialize)]
struct LogLine<'a> {
    #[serde(rename = "requestId")]
    job: Option<&'a str>,
    message: &'a str,
    level: &'a str,
}

impl<S, N> FormatEvent<S, N> for RunpodLogFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = LogFields::default();
        event.record(&mut fields);
        let level = *event.metadata().level();
        if event.metadata().target() != MODEL {
            return writeln!(writer, "{}", fields.line(level));
        }
        for part in split_log_lines(&fields.message) {
            match part {
                ModelText::LogLine(line) => writeln!(writer, "{line}")?,
                ModelText::Plain(text) => {
                    let message = text.to_owned();
                    let fields = LogFields {
                        message,
                        ..fields.clone()
                    };
                    writeln!(writer, "{}", fields.line(level))?;
                }
            }
        }
        Ok(())
    }
}

/// A part of what a model printed.
#[derive(Debug, PartialEq, Eq)]
enum ModelText<'a> {
    /// A line of `RunPodLogger`, which has this format already.
    LogLine(&'a str),
    /// One or more other lines.
    Plain(&'a str),
}

/// Splits what a model printed into lines of `RunPodLogger` and the text between them.
fn split_log_lines(text: &str) -> Vec<ModelText<'_>> {
    let (mut parts, mut plain) = (Vec::new(), 0..0);
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let end = at + line.len();
        if is_log_line(line) {
            push_plain(&mut parts, &text[plain]);
            parts.push(ModelText::LogLine(line.trim_end()));
            plain = end..end;
        } else {
            plain.end = end;
        }
        at = end;
    }
    push_plain(&mut parts, &text[plain]);
    if parts.is_empty() {
        // An empty line is logged too.
        parts.push(ModelText::Plain(""));
    }
    parts
}

fn push_plain<'a>(parts: &mut Vec<ModelText<'a>>, text: &'a str) {
    let text = text.trim_end();
    if !text.is_empty() {
        parts.push(ModelText::Plain(text));
    }
}

/// Whether a line is a JSON object with the keys of this format.
fn is_log_line(line: &str) -> bool {
    #[derive(Deserialize)]
    struct Keys {
        #[serde(rename = "requestId")]
        _job: Option<String>,
        #[serde(rename = "message")]
        _message: String,
        #[serde(rename = "level")]
        _level: String,
    }
    line.starts_with('{') && serde_json::from_str::<Keys>(line).is_ok()
}

impl LogFields {
    fn line(&self, level: Level) -> String {
        let batch = self
            .batch
            .as_ref()
            .map(|batch| format!("[batchId={batch}] "))
            .unwrap_or_default();
        let message = truncate_middle(format!("{batch}{}{}", self.message, self.other_fields));
        let level = match level {
            Level::ERROR => "ERROR",
            Level::WARN => "WARN",
            Level::INFO => "INFO",
            Level::DEBUG => "DEBUG",
            Level::TRACE => "TRACE",
        };
        let line = LogLine {
            job: self.job.as_deref(),
            message: &message,
            level,
        };
        serde_json::to_string(&line).expect("strings serialize to JSON")
    }
}

impl Visit for LogFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "job" => self.job = Some(value.to_owned()),
            "batch" => self.batch = Some(value.to_owned()),
            "message" => value.clone_into(&mut self.message),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "job" => self.job = Some(format!("{value:?}")),
            "message" => self.message = format!("{value:?}"),
            name => write!(self.other_fields, " {name}={value:?}")
                .expect("writing to a String cannot fail"),
        }
    }
}

fn truncate_middle(message: String) -> String {
    let length = message.chars().count();
    if length <= MAX_MESSAGE {
        return message;
    }
    let half = |characters: &mut dyn Iterator<Item = char>| {
        characters.take(MAX_MESSAGE / 2).collect::<String>()
    };
    let end: String = half(&mut message.chars().rev()).chars().rev().collect();
    format!(
        "{}\n...TRUNCATED {} CHARACTERS...\n{end}",
        half(&mut message.chars()),
        length - MAX_MESSAGE
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_id_of_its_job() {
        let read = LogFields {
            job: Some("a".to_owned()),
            batch: None,
            message: "Finished.".to_owned(),
            other_fields: " took=1s".to_owned(),
        };
        assert_eq!(
            read.line(Level::INFO),
            r#"{"requestId":"a","message":"Finished. took=1s","level":"INFO"}"#
        );
        let with_batch = LogFields {
            batch: Some("b".to_owned()),
            ..read
        };
        assert_eq!(
            with_batch.line(Level::INFO),
            r#"{"requestId":"a","message":"[batchId=b] Finished. took=1s","level":"INFO"}"#
        );
        let without_job = LogFields {
            message: "x".to_owned(),
            ..LogFields::default()
        };
        assert_eq!(
            without_job.line(Level::WARN),
            r#"{"requestId":null,"message":"x","level":"WARN"}"#
        );
    }

    #[test]
    fn lines_of_the_sdk_are_separated_from_other_text() {
        use ModelText::{LogLine, Plain};
        let line = r#"{"requestId": null, "message": "hi", "level": "INFO"}"#;
        assert_eq!(split_log_lines(line), [LogLine(line)]);
        let text = format!("a\nb\n{line}\n{line}\n{{\"x\": 1}}\n");
        assert_eq!(
            split_log_lines(&text),
            [
                Plain("a\nb"),
                LogLine(line),
                LogLine(line),
                Plain("{\"x\": 1}")
            ]
        );
        assert_eq!(split_log_lines("plain"), [Plain("plain")]);
        assert_eq!(split_log_lines(""), [Plain("")]);
        assert_eq!(
            split_log_lines("{\"message\": 1, \"level\": 2}"),
            [Plain("{\"message\": 1, \"level\": 2}")]
        );
    }

    #[test]
    fn a_long_message_loses_its_middle() {
        let text = truncate_middle(format!(
            "{}{}{}",
            "a".repeat(3000),
            "ü".repeat(100),
            "b".repeat(3000)
        ));
        assert!(text.starts_with(&"a".repeat(2048)) && text.ends_with(&"b".repeat(2048)));
        assert!(text.contains("...TRUNCATED 2004 CHARACTERS..."));
        assert_eq!(
            truncate_middle("ü".repeat(MAX_MESSAGE)),
            "ü".repeat(MAX_MESSAGE)
        );
    }
}
