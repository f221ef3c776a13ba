//! The logs of a job: what the server has, and what the job prints next.

use std::io::Write;
use std::process::ExitCode;

use serde::Deserialize;

use super::log_writer::{ReaderGone, tail, write};
use crate::admin_client::{AdminClient, JobRow};
use crate::cli::LogsArgs;
use crate::commands::error_cause;
use crate::exit;

/// How long one request waits for new logs.
const WAIT_S: &str = "20";

#[derive(Debug, Deserialize)]
struct LogChunk {
    logs: String,
    next: usize,
    over: bool,
    status: String,
}

#[derive(Debug, Deserialize)]
struct JobResult {
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct AttemptList {
    attempts: Vec<AttemptRow>,
}

/// One time that the job was given to a model.
#[derive(Debug, Deserialize)]
struct AttemptRow {
    number: u32,
    started_at: Option<jiff::Timestamp>,
    ended_at: Option<jiff::Timestamp>,
    end: Option<String>,
    runner: Option<String>,
}

/// Reads the logs of a job from the begin on.
pub(super) struct JobLogs<'a> {
    server: &'a AdminClient,
    pub(super) job: JobRow,
    next: usize,
}

/// What a job has printed since the last time.
pub(super) enum LogUpdate {
    Text(String),
    /// Nothing: it has ended with this status.
    Ended(String),
}

impl<'a> JobLogs<'a> {
    pub(super) fn new(server: &'a AdminClient, job: JobRow) -> Self {
        let next = 0;
        Self { server, job, next }
    }

    /// What the job has printed, without waiting for more.
    pub(super) async fn read(&mut self) -> anyhow::Result<String> {
        Ok(self.request("0").await?.logs)
    }

    /// What the job prints next. May be empty after some time.
    pub(super) async fn follow(&mut self) -> anyhow::Result<LogUpdate> {
        let chunk = self.request(WAIT_S).await?;
        // One more request after the end, because the last response may lack the last lines.
        Ok(match chunk.over && chunk.logs.is_empty() {
            true => LogUpdate::Ended(chunk.status),
            false => LogUpdate::Text(chunk.logs),
        })
    }

    async fn request(&mut self, wait: &str) -> anyhow::Result<LogChunk> {
        let from = self.next.to_string();
        let path = ["admin", "jobs", self.job.owner(), &self.job.id, "logs"];
        let query = [("from", from.as_str()), ("wait", wait)];
        let chunk: LogChunk = self.server.get(&path, &query).await?;
        self.next = chunk.next;
        Ok(chunk)
    }
}

/// `tidegate logs ID`
pub(super) async fn print(
    server: &AdminClient,
    job: JobRow,
    args: &LogsArgs,
) -> anyhow::Result<ExitCode> {
    let mut logs = JobLogs::new(server, job);
    note_attempts(&logs).await;
    let mut text = tail(&logs.read().await?, args.tail).to_owned();
    loop {
        if let Err(ReaderGone) = write(&text) {
            return Ok(ExitCode::SUCCESS);
        }
        if !args.follow {
            return Ok(ExitCode::SUCCESS);
        }
        match logs.follow().await? {
            LogUpdate::Text(more) => text = more,
            LogUpdate::Ended(status) => return Ok(report_end(&logs, &status).await),
        }
    }
}

/// Says on stderr that the job was run again, if it was: its logs are those of the last attempt.
async fn note_attempts(JobLogs { server, job, .. }: &JobLogs<'_>) {
    let path = ["admin", "jobs", job.owner(), &job.id, "attempts"];
    // A server of an earlier version does not know the path.
    let Ok(AttemptList { attempts }) = server.get(&path, &[]).await else {
        return;
    };
    if attempts.len() < 2 {
        return;
    }
    let mut err = std::io::stderr().lock();
    for attempt in attempts {
        // Ignored, because stderr may be closed.
        writeln!(err, "{}", describe(&attempt)).ok();
    }
}

/// An attempt as one line: `attempt 1 on d1: lost after 2.5 s`.
fn describe(attempt: &AttemptRow) -> String {
    let mut line = format!("attempt {}", attempt.number);
    if let Some(runner) = &attempt.runner {
        line.push_str(&format!(" on {runner}"));
    }
    let took = attempt.started_at.zip(attempt.ended_at);
    let took = took.map(|(start, end)| end.duration_since(start).as_secs_f64());
    match (&attempt.end, took) {
        (Some(end), Some(took)) => line.push_str(&format!(": {end} after {took:.1} s")),
        (Some(end), None) => line.push_str(&format!(": {end}")),
        (None, _) => line.push_str(": running"),
    }
    line
}

/// Prints why the job did not succeed, and returns the exit code.
async fn report_end(JobLogs { server, job, .. }: &JobLogs<'_>, status: &str) -> ExitCode {
    if status == "succeeded" {
        return ExitCode::SUCCESS;
    }
    let path = ["admin", "jobs", job.owner(), &job.id];
    let error = server
        .get::<JobResult>(&path, &[])
        .await
        .ok()
        .and_then(|ended| ended.error);
    // Ignored, because stderr may be closed.
    let mut err = std::io::stderr().lock();
    match error {
        Some(error) => writeln!(err, "the job {status}: {}", error_cause(&error)).ok(),
        None => writeln!(err, "the job was {status}").ok(),
    };
    ExitCode::from(exit::FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_one_line() {
        let lost = r#"{"number": 1, "started_at": "2024-01-01T00:00:00Z", "ended_at": "2024-01-01T00:00:02.5Z", "end": "lost", "runner": "d1"}"#;
        let running = r#"{"number": 2, "started_at": "2024-01-01T00:00:03Z"}"#;
        let lines = [lost, running].map(|json| describe(&serde_json::from_str(json).unwrap()));
        assert_eq!(
            lines,
            ["attempt 1 on d1: lost after 2.5 s", "attempt 2: running"]
        );
    }
}
