//! Server-sent events: the progress of a job.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream;
use serde::Serialize;
use tidegate_core::planted;
use tidegate_core::{JobId, MetricMode};
use tidegate_service::{Job, StreamBatch, StreamEvent, StreamReader};

use super::reply;
use crate::replicate::CrossApiView;
use crate::shared::response::event_stream;
use crate::shared::warnings::with_warnings;

/// A comment is sent after this much silence, so that no proxy closes the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The error of a stream whose job runs again.
const RESTARTED: &str = "the process that ran the prediction was lost, and the prediction runs again; GET it to see its result";

/// The response that follows a job to its end. `view` is for a job that another API may have
/// created.
pub(super) fn response(reader: StreamReader, view: Option<CrossApiView>) -> Response {
    if let Some(skipped) = reader.truncated() {
        let body = error_frame(
            "SSE stream replay truncated; events were dropped",
            Some(skipped),
        );
        return event_stream(Body::from(body));
    }
    let warnings = reader.job().warnings();
    let frames = stream::unfold((reader, view), |(mut reader, view)| async move {
        let frames = match tokio::time::timeout(KEEP_ALIVE, reader.next()).await {
            Err(_) => Bytes::from_static(b": keep-alive\n\n"),
            Ok(None) => return None,
            Ok(Some(StreamBatch::Events(events))) => {
                let job = reader.job();
                match &view {
                    None => frames(job.id(), &events, || reply::result_body(&job.snapshot())),
                    Some(view) => frames(job.id(), &render(events, job, view), || {
                        reply::result_body(&view.snapshot(job))
                    }),
                }
            }
            Ok(Some(StreamBatch::Lagged(skipped))) => {
                error_frame("SSE stream lagged; events were dropped", Some(skipped))
            }
            Ok(Some(StreamBatch::Restarted)) => error_frame(RESTARTED, None),
        };
        Some((Ok::<_, std::convert::Infallible>(frames), (reader, view)))
    });
    with_warnings(event_stream(Body::from_stream(frames)), &warnings)
}

fn render(mut events: Vec<StreamEvent>, job: &Job, view: &CrossApiView) -> Vec<StreamEvent> {
    for event in &mut events {
        if let StreamEvent::Output { chunk, .. } = event {
            *chunk = view.value(job, chunk);
        }
    }
    events
}

/// All events that are ready, in one piece: one write to the socket. `result` is called for the
/// event that ends the job.
pub(super) fn frames(job: &JobId, events: &[StreamEvent], result: impl Fn() -> Bytes) -> Bytes {
    let mut out = BytesMut::with_capacity(64 * events.len());
    for event in events {
        planted!(
            LostChunk,
            if matches!(event, StreamEvent::Output { index: 1, .. }) {
                continue;
            }
        );
        match event {
            StreamEvent::Start => frame(
                &mut out,
                "start",
                &StartEvent {
                    id: job,
                    status: "processing",
                },
            ),
            StreamEvent::Output { index, chunk } => {
                out.put_slice(b"event: output\ndata: {\"chunk\":");
                put_one_line(&mut out, chunk);
                out.put_slice(b",\"index\":");
                out.put_slice(index.to_string().as_bytes());
                out.put_slice(b"}\n\n");
            }
            StreamEvent::Log { source, text } => {
                frame(&mut out, "log", &LogEvent { data: text, source })
            }
            StreamEvent::Metric(metric) => frame(
                &mut out,
                "metric",
                &MetricEvent {
                    mode: metric.mode,
                    name: &metric.name,
                    value: &metric.value,
                },
            ),
            StreamEvent::Completed => {
                out.put_slice(b"event: completed\ndata: ");
                put_one_line(&mut out, &result());
                out.put_slice(b"\n\n");
            }
        }
    }
    out.freeze()
}

fn frame(out: &mut BytesMut, event: &str, data: &impl Serialize) {
    out.put_slice(b"event: ");
    out.put_slice(event.as_bytes());
    out.put_slice(b"\ndata: ");
    serde_json::to_writer(out.writer(), data)
        .expect("the events have string keys and writing to memory cannot fail");
    out.put_slice(b"\n\n");
}

/// Replaces line breaks, which would end the data of the event. In JSON they are only white space
/// between tokens.
fn put_one_line(out: &mut BytesMut, json: &[u8]) {
    if json.contains(&b'\n') || json.contains(&b'\r') {
        out.extend(json.iter().map(|byte| {
            if matches!(byte, b'\n' | b'\r') {
                b' '
            } else {
                *byte
            }
        }));
    } else {
        out.put_slice(json);
    }
}

fn error_frame(error: &'static str, skipped: Option<usize>) -> Bytes {
    let mut out = BytesMut::new();
    frame(&mut out, "error", &StreamErrorEvent { error, skipped });
    out.freeze()
}

#[derive(Serialize)]
struct StartEvent<'a> {
    id: &'a JobId,
    status: &'static str,
}

#[derive(Serialize)]
struct LogEvent<'a> {
    data: &'a str,
    source: &'a tidegate_core::LogSource,
}

#[derive(Serialize)]
struct MetricEvent<'a> {
    mode: MetricMode,
    name: &'a str,
    value: &'a serde_json::Value,
}

#[derive(Serialize)]
struct StreamErrorEvent {
    error: &'static str,
    /// The number of events that were dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<usize>,
}
