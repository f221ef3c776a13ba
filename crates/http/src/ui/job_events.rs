//! `GET /ui/api/jobs/{account}/{id}/events`: a job as server-sent events, from its first value to its end.
//!
//! The id of an event says how much of the job has been sent, so that a page that was hidden or reloaded gets
//! the rest. It also names the server process: what another one has sent may belong to an earlier run of the
//! job, unless directors count the attempts.

use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use serde::Serialize;
use serde_json::value::RawValue;
use tidegate_core::Status;
use tidegate_service::{
    Job, JobChange, JobRestarted, OutputCursor, OutputEvent, OutputEvents, ReadPosition,
};
use tokio::time::Instant;

use super::UiState;
use super::jobs::JobView;
use super::wire::{LogText, OutputValue};
use crate::access::{Identity, TokenCheck};
use crate::admin::{ApiError, find_job};
use crate::replicate::CrossApiView;
use crate::shared::response::event_stream;

/// After this much time without an event, a comment is sent, so that proxies keep the connection open.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How often a stream without events checks whether its token is still valid.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// `GET /ui/api/jobs/{account}/{id}/events`
pub(super) async fn follow(
    State(ui): State<Arc<UiState>>,
    client: Identity,
    token: TokenCheck,
    Path(names): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let (_, job) = find_job(&ui.job_services(), &client, &names).await?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let (cursor, is_restarted) = match last.and_then(EventId::parse) {
        None => (OutputCursor::default(), false),
        Some(id) if id.epoch == ui.epoch || job.can_continue_elsewhere() => (id.cursor, false),
        Some(_) => (OutputCursor::default(), true),
    };
    let files = ui.sources.files.as_ref();
    let events = JobEvents {
        files: files.map(|files| files.for_request(&headers)),
        epoch: ui.epoch.clone(),
        job,
        client,
        token,
        cursor,
        is_restarted,
        shown: None,
        sent_at: Instant::now(),
        ended: false,
    };
    let frames = stream::unfold(events, |mut events| async move {
        let frames = events.next().await?;
        Some((Ok::<_, Infallible>(frames), events))
    });
    Ok(event_stream(Body::from_stream(frames)))
}

/// Writes the events of a job for one client.
struct JobEvents {
    job: Arc<Job>,
    client: Identity,
    token: TokenCheck,
    files: Option<CrossApiView>,
    epoch: String,
    /// What was sent.
    cursor: OutputCursor,
    /// Whether the client has to forget what it has received, which it does not know yet.
    is_restarted: bool,
    /// The status that was sent last.
    shown: Option<Status>,
    sent_at: Instant,
    ended: bool,
}

impl JobEvents {
    async fn next(&mut self) -> Option<Bytes> {
        while !self.ended && self.token.is_valid() {
            let change = self.job.next_change(self.shown, self.cursor);
            let change = tokio::time::timeout(CHECK_INTERVAL, change).await;
            if !self.token.is_valid() {
                break;
            }
            let text = match change {
                Ok(Ok(change)) => self.render(&change),
                Ok(Err(JobRestarted)) => {
                    self.is_restarted = true;
                    self.cursor = OutputCursor::default();
                    self.shown = None;
                    continue;
                }
                Err(_) if self.sent_at.elapsed() >= KEEP_ALIVE => ": keep-alive\n\n".to_owned(),
                Err(_) => continue,
            };
            // Nothing is shown of the output of another account's job.
            if !text.is_empty() {
                self.sent_at = Instant::now();
                return Some(text.into());
            }
        }
        None
    }

    fn render(&mut self, change: &JobChange) -> String {
        let mut out = String::new();
        if std::mem::take(&mut self.is_restarted) {
            out.push_str("event: restarted\ndata: {}\n\n");
        }
        let ended = change.events.as_ref().is_some_and(|events| events.ended);
        // The end has an event of its own, after the last value.
        let is_first = self.shown.is_none();
        if is_first || (self.shown != Some(change.status) && !ended) {
            self.shown = Some(change.status);
            self.write_document(&mut out, "job");
        }
        if let Some(events) = &change.events {
            self.write_events(&mut out, events);
        }
        if ended {
            self.ended = true;
            self.write_document(&mut out, "end");
        }
        out
    }

    fn write_events(&mut self, out: &mut String, events: &OutputEvents) {
        for event in &events.events {
            self.cursor = OutputCursor {
                position: event.position(),
                attempt: events.attempt,
            };
            match event {
                OutputEvent::Logs { text, .. } => self.write(out, "logs", &LogText { text }),
                OutputEvent::Output { json, position } => {
                    self.write_output(out, json, *position);
                }
            }
        }
    }

    /// Writes a value for the account that owns the job; its outputs are private.
    fn write_output(&self, out: &mut String, json: &Bytes, position: ReadPosition) {
        if *self.job.account() != self.client.account {
            return;
        }
        let json = match &self.files {
            Some(files) => files.value(&self.job, json),
            None => json.clone(),
        };
        if let Ok(value) = serde_json::from_slice::<&RawValue>(&json) {
            let index = position.outputs.saturating_sub(1);
            self.write(out, "output", &OutputValue { index, value });
        }
    }

    fn write_document(&self, out: &mut String, event: &str) {
        let snapshot = self.job.snapshot_without_output();
        let view = JobView::of(&self.job, &self.client);
        self.write(out, event, &view.document(&snapshot));
    }

    fn write(&self, out: &mut String, event: &str, data: &impl Serialize) {
        let id = EventId {
            epoch: &self.epoch,
            cursor: self.cursor,
        };
        write_event(out, event, Some(&id.to_string()), data);
    }
}

/// Writes a server-sent event with JSON as its data.
pub(super) fn write_event(out: &mut String, event: &str, id: Option<&str>, data: &impl Serialize) {
    let json = serde_json::to_string(data).expect("events have string keys");
    // Values of models may contain line breaks between their parts, which would end the data.
    let json = match memchr::memchr2(b'\n', b'\r', json.as_bytes()) {
        Some(_) => json.replace(['\n', '\r'], " "),
        None => json,
    };
    if let Some(id) = id {
        writeln!(out, "id: {id}").expect("a string grows");
    }
    writeln!(out, "event: {event}\ndata: {json}\n").expect("a string grows");
}

/// The id of an event: the server process, and the position after the event.
#[derive(Debug, PartialEq)]
struct EventId<'a> {
    epoch: &'a str,
    cursor: OutputCursor,
}

impl<'a> EventId<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (epoch, rest) = text.split_once(':')?;
        let mut numbers = rest.split('.');
        let position = ReadPosition {
            outputs: numbers.next()?.parse().ok()?,
            logs: numbers.next()?.parse().ok()?,
        };
        let attempt = numbers.next().map(str::parse).transpose().ok()?;
        Some(Self {
            epoch,
            cursor: OutputCursor { position, attempt },
        })
    }
}

impl std::fmt::Display for EventId<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ReadPosition { outputs, logs } = self.cursor.position;
        write!(f, "{}:{outputs}.{logs}", self.epoch)?;
        match self.cursor.attempt {
            Some(attempt) => write!(f, ".{attempt}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_id_is_read_as_it_was_written() {
        for attempt in [None, Some(2)] {
            let position = ReadPosition {
                outputs: 3,
                logs: 17,
            };
            let id = EventId {
                epoch: "abc",
                cursor: OutputCursor { position, attempt },
            };
            assert_eq!(EventId::parse(&id.to_string()), Some(id));
        }
        for invalid in ["", "abc", "abc:", "abc:1", "abc:1.x", "abc:1.2.x"] {
            assert_eq!(EventId::parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn a_value_with_line_breaks_is_one_line_of_data() {
        let value: &RawValue = serde_json::from_str("[1,\r\n 2]").unwrap();
        let mut out = String::new();
        write_event(
            &mut out,
            "output",
            Some("a:1.0"),
            &OutputValue { index: 0, value },
        );
        assert_eq!(
            out,
            "id: a:1.0\nevent: output\ndata: {\"index\":0,\"value\":[1,   2]}\n\n"
        );
    }
}
