//! The output of a prediction as server-sent events.
//!
//! The id of an event says how much of the job has been sent. A client that reconnects gets the
//! rest, also from another server that has loaded the job from the store.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::http::header::USER_AGENT;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use serde::Serialize;
use tidegate_core::Status;
use tidegate_service::{Job, JobRestarted, OutputCursor, OutputEvent, OutputEvents, ReadPosition};

use super::AppState;
use super::file_links::OutputJob;
use super::origin::Origin;
use super::reply::ApiError;
use crate::shared::response::event_stream;

/// After this much time without an event, a comment is sent, so that proxies keep the connection
/// open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The attempt that ids of events do not name.
const FIRST_ATTEMPT: u32 = 1;
/// The error of a stream whose prediction runs again.
const RESTARTED: &str = "The director that ran the prediction was lost, and the prediction runs again from the beginning. Get the prediction to see its output.";

/// `GET /v1/streams/{token}`
pub(super) async fn follow(
    State(state): State<Arc<AppState>>,
    Path(token): Path<String>,
    origin: Origin,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let (account, id) = state
        .config
        .renderer
        .read_token(&token)
        .ok_or(ApiError::Unknown("stream"))?;
    let job = state
        .models
        .lookup()
        .get(&account, &id)
        .await?
        .ok_or(ApiError::Unknown("stream"))?;
    let seen = headers
        .get("last-event-id")
        .and_then(|id| id.to_str().ok())
        .and_then(parse_event_id)
        .unwrap_or_default();
    let breaks = LineBreaks::of(&headers);
    let writer = SseWriter {
        second: job.snapshot_without_output().created_at.as_second(),
        seen,
        ended: false,
        job,
        state,
        origin,
        breaks,
    };
    let frames = stream::unfold(writer, |mut writer| async move {
        let frames = writer.next().await?;
        Some((frames, writer))
    });
    Ok(event_stream(Body::from_stream(frames)))
}

/// Breaks the connection of a stream that this process can no longer follow. A browser continues it at another
/// process, and a client that cannot do that has an error: an orderly end would look like that of the prediction.
#[derive(Debug, thiserror::Error)]
#[error("the process shuts down before the prediction has ended")]
struct LeftOpen;

/// Writes the events of a job for one client.
struct SseWriter {
    job: Arc<Job>,
    state: Arc<AppState>,
    origin: Origin,
    second: i64,
    seen: OutputCursor,
    ended: bool,
    breaks: LineBreaks,
}

impl SseWriter {
    async fn next(&mut self) -> Option<Result<Bytes, LeftOpen>> {
        if self.ended {
            return None;
        }
        let next = tokio::select! {
            biased;
            next = tokio::time::timeout(KEEP_ALIVE, self.job.output_events(self.seen)) => next,
            () = self.state.models.lookup().ends_streams() => {
                self.ended = true;
                return Some(Err(LeftOpen));
            }
        };
        Some(Ok(match next {
            Ok(Ok(next)) => self.render(&next).into(),
            Ok(Err(JobRestarted)) => self.render_restarted().into(),
            // No empty line follows, because it would end an event.
            Err(_) => Bytes::from_static(b": keep-alive\n"),
        }))
    }

    fn render(&mut self, next: &OutputEvents) -> String {
        let mut out = String::new();
        for event in &next.events {
            self.seen = OutputCursor {
                position: event.position(),
                attempt: next.attempt,
            };
            match event {
                OutputEvent::Logs { text, .. } => self.frame(&mut out, "logs", text),
                OutputEvent::Output { json, .. } => {
                    let job = OutputJob {
                        account: self.job.account(),
                        id: self.job.id(),
                        completed_at: None,
                    };
                    let json = self.state.config.renderer.output(&job, json, &self.origin);
                    self.frame(&mut out, "output", &event_data(&json));
                }
            }
        }
        if next.ended {
            self.ended = true;
            self.end(&mut out);
        }
        out
    }

    /// Ends the stream of a prediction that runs again: clients cannot take back what they have received.
    fn render_restarted(&mut self) -> String {
        let mut out = String::new();
        self.ended = true;
        self.error(&mut out, RESTARTED);
        out
    }

    fn error(&self, out: &mut String, detail: &str) {
        self.json_frame(out, "error", &ErrorEvent { detail });
        let reason = Some("error");
        self.json_frame(out, "done", &DoneEvent { reason });
    }

    fn end(&self, out: &mut String) {
        let job = self.job.snapshot_without_output();
        match job.status {
            Status::Failed => self.error(out, job.error.as_deref().unwrap_or_default()),
            Status::Canceled | Status::Aborted => self.json_frame(
                out,
                "done",
                &DoneEvent {
                    reason: Some("canceled"),
                },
            ),
            Status::Succeeded | Status::Queued | Status::Starting | Status::Processing => {
                self.json_frame(out, "done", &DoneEvent { reason: None });
            }
        }
    }

    /// Writes one of the last events. The position does not change any more, so the event's name
    /// makes the id unique.
    fn json_frame(&self, out: &mut String, event: &str, data: &impl Serialize) {
        let id = format!("{}.{event}", self.event_id());
        let json = serde_json::to_string(data).expect("events have string keys");
        write_frame(
            out,
            event,
            &id,
            lines(&escape_line_breaks(json), self.breaks),
        );
    }

    fn frame(&self, out: &mut String, event: &str, data: &str) {
        write_frame(out, event, &self.event_id(), lines(data, self.breaks));
    }

    /// The position after the event, the same for every client; [`parse_event_id`] reads it.
    fn event_id(&self) -> String {
        let ReadPosition { outputs, logs } = self.seen.position;
        let id = format!("{}:{outputs}.{logs}", self.second);
        match self.seen.attempt {
            Some(attempt) if attempt != FIRST_ATTEMPT => format!("{id}.{attempt}"),
            Some(_) | None => id,
        }
    }
}

fn write_frame<'a>(out: &mut String, event: &str, id: &str, data: impl Iterator<Item = &'a str>) {
    out.push_str(&format!("event: {event}\nid: {id}\n"));
    for line in data {
        out.push_str("data: ");
        out.push_str(line);
        out.push('\n');
    }
    out.push('\n');
}

#[derive(Serialize)]
struct ErrorEvent<'a> {
    detail: &'a str,
}

#[derive(Serialize)]
struct DoneEvent {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

/// The position of the client, from the id of the last event that it received.
fn parse_event_id(id: &str) -> Option<OutputCursor> {
    let mut parts = id.split_once(':')?.1.split('.');
    let position = ReadPosition {
        outputs: parts.next()?.parse().ok()?,
        logs: parts.next()?.parse().ok()?,
    };
    // The last events have their name here.
    let attempt = parts.next().and_then(|attempt| attempt.parse().ok());
    Some(OutputCursor {
        position,
        attempt: Some(attempt.unwrap_or(FIRST_ATTEMPT)),
    })
}

/// The data of an event: strings as they are, other values as JSON.
fn event_data(json: &Bytes) -> String {
    serde_json::from_slice(json)
        .unwrap_or_else(|_| escape_line_breaks(String::from_utf8_lossy(json).into_owned()))
}

/// Escapes the characters in JSON that clients take for line breaks.
fn escape_line_breaks(json: String) -> String {
    const BREAKS: [(char, &str); 3] = [
        ('\u{85}', "\\u0085"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
    ];
    BREAKS.iter().fold(json, |json, (c, escaped)| {
        if json.contains(*c) {
            json.replace(*c, escaped)
        } else {
            json
        }
    })
}

/// The characters that end a line for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineBreaks {
    /// As in the specification of server-sent events.
    Standard,
    /// Also those that Python's `splitlines` knows. Python's client would lose the text after them.
    Python,
}

impl LineBreaks {
    fn of(headers: &HeaderMap) -> Self {
        let is_python = headers
            .get(USER_AGENT)
            .is_some_and(|client| client.as_bytes().starts_with(b"replicate-python/"));
        if is_python {
            Self::Python
        } else {
            Self::Standard
        }
    }

    fn has(self, c: char) -> bool {
        match c {
            '\r' | '\n' => true,
            '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}' => {
                self == Self::Python
            }
            _ => false,
        }
    }
}

/// Splits at line breaks into lines of data; the client joins them with `\n`.
fn lines(text: &str, breaks: LineBreaks) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some((at, end)) = text.char_indices().find(|(_, c)| breaks.has(*c)) else {
            rest = None;
            return Some(text);
        };
        let skip = if text[at..].starts_with("\r\n") {
            2
        } else {
            end.len_utf8()
        };
        rest = Some(&text[at + skip..]);
        Some(&text[..at])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_break_starts_a_line_of_data() {
        let cases: [(&str, &[&str]); 5] = [
            ("", &[""]),
            ("a", &["a"]),
            ("a\n", &["a", ""]),
            ("a\r\nb\rc\n\nd", &["a", "b", "c", "", "d"]),
            ("\r\n", &["", ""]),
        ];
        for (text, want) in cases {
            assert_eq!(
                lines(text, LineBreaks::Standard).collect::<Vec<_>>(),
                want,
                "{text:?}"
            );
        }
    }

    #[test]
    fn python_clients_know_more_line_breaks() {
        let text = "a\u{2028}b\u{c}c\u{85}d\r\ne";
        assert_eq!(
            lines(text, LineBreaks::Python).collect::<Vec<_>>(),
            ["a", "b", "c", "d", "e"]
        );
        assert_eq!(
            lines(text, LineBreaks::Standard).collect::<Vec<_>>(),
            ["a\u{2028}b\u{c}c\u{85}d", "e"]
        );
    }

    #[test]
    fn event_ids_are_parsed_and_invalid_ones_ignored() {
        for (id, attempt) in [
            ("1700000000:3.17", 1),
            ("1700000000:3.17.done", 1),
            ("1700000000:3.17.2", 2),
            ("1700000000:3.17.2.done", 2),
        ] {
            let position = ReadPosition {
                outputs: 3,
                logs: 17,
            };
            let attempt = Some(attempt);
            let cursor = OutputCursor { position, attempt };
            assert_eq!(parse_event_id(id), Some(cursor), "{id}");
        }
        for foreign in ["", "1", "1690212292:0", "a:b.c", ":.", "1:-1.0"] {
            assert_eq!(parse_event_id(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn strings_are_sent_as_text_and_other_values_as_json() {
        for (json, text) in [
            ("\"a\\nb\"", "a\nb"),
            ("[1, 2]", "[1, 2]"),
            ("null", "null"),
            ("[\"\u{2028}\"]", "[\"\\u2028\"]"),
            ("\"\u{2028}\"", "\u{2028}"),
        ] {
            assert_eq!(event_data(&Bytes::from_static(json.as_bytes())), text);
        }
    }
}
