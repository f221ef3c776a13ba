//! Log lines as Runpod's console reads them: one object per line, with the job that it is about.

use std::fmt::{self, Write};

use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The longest message in characters; of a longer one the middle is left out.
const LONGEST: usize = 4096;

/// Writes events in Runpod's words.
pub(crate) struct RunpodLogFormat;

#[derive(Debug, Default)]
struct LogFields {
    job: Option<String>,
    batch: Option<String>,
    message: String,
    /// What else was said, behind the message.
    more: String,
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
        let mut read = LogFields::default();
        event.record(&mut read);
        writeln!(writer, "{}", read.line(*event.metadata().level()))
    }
}

impl LogFields {
    fn line(&self, level: Level) -> String {
        let batch = self
            .batch
            .as_ref()
            .map(|batch| format!("[batchId={batch}] "))
            .unwrap_or_default();
        let message = cut(format!("{batch}{}{}", self.message, self.more));
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
        serde_json::to_string(&line).expect("texts are JSON")
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
            name => write!(self.more, " {name}={value:?}").expect("a String never fails to write"),
        }
    }
}

fn cut(message: String) -> String {
    let length = message.chars().count();
    if length <= LONGEST {
        return message;
    }
    let half = |characters: &mut dyn Iterator<Item = char>| {
        characters.take(LONGEST / 2).collect::<String>()
    };
    let end: String = half(&mut message.chars().rev()).chars().rev().collect();
    format!(
        "{}\n...TRUNCATED {} CHARACTERS...\n{end}",
        half(&mut message.chars()),
        length - LONGEST
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_its_job() {
        let read = LogFields {
            job: Some("a".to_owned()),
            batch: None,
            message: "Finished.".to_owned(),
            more: " took=1s".to_owned(),
        };
        assert_eq!(
            read.line(Level::INFO),
            r#"{"requestId":"a","message":"Finished. took=1s","level":"INFO"}"#
        );
        let of_a_batch = LogFields {
            batch: Some("b".to_owned()),
            ..read
        };
        assert_eq!(
            of_a_batch.line(Level::INFO),
            r#"{"requestId":"a","message":"[batchId=b] Finished. took=1s","level":"INFO"}"#
        );
        let nobodys = LogFields {
            message: "x".to_owned(),
            ..LogFields::default()
        };
        assert_eq!(
            nobodys.line(Level::WARN),
            r#"{"requestId":null,"message":"x","level":"WARN"}"#
        );
    }

    #[test]
    fn of_a_long_message_the_middle_is_left_out() {
        let text = cut(format!(
            "{}{}{}",
            "a".repeat(3000),
            "ü".repeat(100),
            "b".repeat(3000)
        ));
        assert!(text.starts_with(&"a".repeat(2048)) && text.ends_with(&"b".repeat(2048)));
        assert!(text.contains("...TRUNCATED 2004 CHARACTERS..."));
        assert_eq!(cut("ü".repeat(LONGEST)), "ü".repeat(LONGEST));
    }
}
