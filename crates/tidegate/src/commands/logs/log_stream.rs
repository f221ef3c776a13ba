//! The logs of the jobs of a model as the server streams them: every line of every job.

use std::collections::HashMap;
use std::io::Write;

use anyhow::Context;
use serde::Deserialize;
use tidegate_net::{SseEvent, SseParser, StreamedResponse};

use super::log_writer::LogLines;
use crate::admin_client::AdminClient;

/// The most bytes of an event: more than the logs of a job can have.
const MAX_EVENT_SIZE: usize = 256 * 1024 * 1024;

/// The events of one model.
pub(super) struct LogStream<'a> {
    response: StreamedResponse,
    events: SseParser,
    lines: StreamedLines<'a>,
}

/// What a job has printed.
#[derive(Debug, Deserialize)]
struct PrintedText {
    account: Option<String>,
    job: String,
    text: String,
    over: bool,
}

/// Jobs that began while this command could not keep up.
#[derive(Debug, Deserialize)]
struct MissedJobs {
    jobs: u64,
}

/// The lines of the jobs that have not ended.
struct StreamedLines<'a> {
    /// The name before each line, if there are several models.
    label: Option<&'a str>,
    jobs: HashMap<(Option<String>, String), LogLines>,
    /// Lines that are complete.
    text: String,
    is_live: bool,
}

impl<'a> LogStream<'a> {
    /// `None` if the server has no such stream: it is of an earlier version, or another process of the cluster
    /// owns the endpoint.
    pub(super) async fn open(
        server: &AdminClient,
        query: &[(&str, &str)],
        label: Option<&'a str>,
    ) -> anyhow::Result<Option<Self>> {
        let response = server.get_events(&["admin", "logs"], query).await?;
        Ok(response.map(|response| Self {
            response,
            events: SseParser::new(MAX_EVENT_SIZE),
            lines: StreamedLines {
                label,
                jobs: HashMap::new(),
                text: String::new(),
                is_live: false,
            },
        }))
    }

    /// What the jobs had printed when the stream was opened.
    pub(super) async fn earlier(&mut self) -> anyhow::Result<String> {
        while !self.lines.is_live && self.read().await? {}
        Ok(std::mem::take(&mut self.lines.text))
    }

    /// What the jobs print next, which may be empty; `None` when the server has ended the stream.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<String>> {
        if self.lines.text.is_empty() && !self.read().await? {
            return Ok(None);
        }
        Ok(Some(std::mem::take(&mut self.lines.text)))
    }

    /// Reads some events; `false` at the end of the stream, also of one that breaks off.
    async fn read(&mut self) -> anyhow::Result<bool> {
        let Ok(Some(chunk)) = self.response.chunk().await else {
            return Ok(false);
        };
        let mut added = Ok(());
        let lines = &mut self.lines;
        self.events.push(&chunk, |event| {
            if added.is_ok() {
                added = lines.add(event);
            }
        })?;
        added.map(|()| true)
    }
}

impl StreamedLines<'_> {
    fn add(&mut self, event: SseEvent<'_>) -> anyhow::Result<()> {
        let invalid = "the server sent an event that is not of this version";
        match event.name {
            b"logs" => self.print(serde_json::from_slice(event.data).context(invalid)?),
            b"live" => self.is_live = true,
            b"missed" => {
                let missed: MissedJobs = serde_json::from_slice(event.data).context(invalid)?;
                let MissedJobs { jobs } = missed;
                // Ignored, because stderr may be closed.
                writeln!(std::io::stderr().lock(), "the logs of {jobs} jobs are missing: this command did not keep up; `tidegate logs ID` prints them").ok();
            }
            _ => {}
        }
        Ok(())
    }

    fn print(&mut self, printed: PrintedText) {
        let key = (printed.account, printed.job);
        let new = || LogLines::named(self.label, &key.1);
        if printed.over {
            let mut lines = self.jobs.remove(&key).unwrap_or_else(new);
            self.text.push_str(&lines.add(&printed.text));
            self.text.push_str(&lines.finish());
        } else {
            let new = new();
            let lines = self.jobs.entry(key).or_insert(new);
            self.text.push_str(&lines.add(&printed.text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_belong_to_their_job() {
        let mut lines = StreamedLines {
            label: None,
            jobs: HashMap::new(),
            text: String::new(),
            is_live: false,
        };
        let mut add = |name: &'static [u8], data: &str| {
            let data = data.as_bytes();
            lines.add(SseEvent { name, data }).unwrap();
        };
        add(b"logs", r#"{"job": "a", "text": "one\ntw", "over": false}"#);
        add(b"logs", r#"{"job": "b", "text": "x\n", "over": true}"#);
        add(b"live", "{}");
        add(
            b"logs",
            r#"{"job": "a", "account": "ann", "text": "y", "over": true}"#,
        );
        add(b"logs", r#"{"job": "a", "text": "o", "over": true}"#);
        assert_eq!(lines.text, "a | one\nb | x\na | y\na | two\n");
        assert!(lines.is_live && lines.jobs.is_empty());
    }
}
