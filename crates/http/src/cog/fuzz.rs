//! Fuzz targets for the Cog API.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_core::{JobId, LogSource, Metric, MetricMode};
use tidegate_fuzzing::parts;
use tidegate_service::StreamEvent;

use super::stream::frames;
use super::wire::CreateRequest;
use crate::shared::parse_body::WebhookEventName;

/// An accepted request has the values that any other JSON parser finds in it, and a rejected one
/// has an error message.
pub fn envelope(input: &[u8]) {
    let request = match CreateRequest::parse(input) {
        Ok(request) => request,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let fields = fields(&request);
    let written = serialize(&request);
    let again = CreateRequest::parse(written.as_bytes()).expect("a serialized request is accepted");
    assert_eq!(self::fields(&again), fields);
    // A field that the API does not parse may not be a `Value`, for example because of its depth.
    if let Ok(value) = serde_json::from_slice::<Value>(input) {
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        assert_eq!(request.id.as_deref().map(str::to_owned), text("id"));
        assert_eq!(
            request.webhook.as_deref().map(str::to_owned),
            text("webhook")
        );
        let read = request
            .input
            .map(|raw| serde_json::from_str(raw.get()).expect("a part of JSON is JSON"));
        assert_eq!(
            read.filter(|input: &Value| !input.is_null()).as_ref(),
            value.get("input").filter(|input| !input.is_null())
        );
        assert_eq!(
            json!(request.context),
            value.get("context").cloned().unwrap_or(Value::Null)
        );
    }
}

fn fields(request: &CreateRequest<'_>) -> String {
    let input = request
        .input
        .map(|raw| raw.get())
        .filter(|text| *text != "null");
    format!(
        "{:?} {input:?} {:?} {:?} {:?}",
        request.id, request.webhook, request.webhook_events_filter, request.context
    )
}

fn serialize(request: &CreateRequest<'_>) -> String {
    let filter: Vec<&str> = request
        .webhook_events_filter
        .iter()
        .map(|name| match name {
            WebhookEventName::Start => "start",
            WebhookEventName::Output => "output",
            WebhookEventName::Logs => "logs",
            WebhookEventName::Completed => "completed",
        })
        .collect();
    let others =
        json!({"id": request.id, "webhook": request.webhook, "webhook_events_filter": filter, "context": request.context}).to_string();
    let input = request.input.map_or("null", |raw| raw.get());
    format!(
        "{},\"input\":{input}}}",
        others
            .strip_suffix('}')
            .expect("an object ends with a brace")
    )
}

/// A client reads exactly the events that were written, whatever they contain.
///
/// A part is an event: `s` starts a job with this id, `o` and JSON is an output, `l` or `e` and
/// text is a log line, `m` and a name, a line break and JSON is a metric, `c` and JSON is the
/// result.
pub fn events(input: &[u8]) {
    let mut id = JobId::from_random(7);
    let mut result = Bytes::from_static(b"{}");
    let mut events = Vec::new();
    for part in parts(input) {
        let Some((kind, rest)) = part.split_first() else {
            continue;
        };
        let Ok(text) = std::str::from_utf8(rest) else {
            continue;
        };
        match kind {
            b's' => {
                id = JobId::parse(text).unwrap_or(id);
                events.push(StreamEvent::Start);
            }
            b'o' if value(text).is_some() => {
                events.push(StreamEvent::Output {
                    index: events.len(),
                    chunk: Bytes::copy_from_slice(rest),
                });
            }
            b'l' => events.push(StreamEvent::Log {
                source: LogSource::Stdout,
                text: text.into(),
            }),
            b'e' => events.push(StreamEvent::Log {
                source: LogSource::Stderr,
                text: text.into(),
            }),
            b'm' => {
                let Some((name, json)) = text.split_once('\n') else {
                    continue;
                };
                let Some(value) = value(json) else { continue };
                events.push(StreamEvent::Metric(Arc::new(Metric {
                    name: name.to_owned(),
                    value,
                    mode: MetricMode::Append,
                })));
            }
            b'c' if value(text).is_some() => {
                result = Bytes::copy_from_slice(rest);
                events.push(StreamEvent::Completed);
            }
            _ => {}
        }
    }
    let written = frames(&id, &events, || result.clone());
    let expected: Vec<_> = events
        .iter()
        .map(|event| expected(event, &id, &result))
        .collect();
    assert_eq!(
        read(std::str::from_utf8(&written).expect("events are text")),
        expected
    );
}

/// JSON that can also be parsed inside of another value.
fn value(json: &str) -> Option<Value> {
    serde_json::from_str::<Value>(&format!("[[{json}]]")).ok()?;
    serde_json::from_str(json).ok()
}

fn expected(event: &StreamEvent, id: &JobId, result: &Bytes) -> (String, Value) {
    let parsed =
        |json: &Bytes| serde_json::from_slice::<Value>(json).expect("the events contain JSON");
    let (name, data) = match event {
        StreamEvent::Start => ("start", json!({"id": id.as_str(), "status": "processing"})),
        StreamEvent::Output { index, chunk } => {
            ("output", json!({"chunk": parsed(chunk), "index": index}))
        }
        StreamEvent::Log {
            source: LogSource::Stdout,
            text,
        } => ("log", json!({"data": &**text, "source": "stdout"})),
        StreamEvent::Log {
            source: LogSource::Stderr,
            text,
        } => ("log", json!({"data": &**text, "source": "stderr"})),
        StreamEvent::Metric(metric) => (
            "metric",
            json!({"mode": "append", "name": metric.name, "value": metric.value}),
        ),
        StreamEvent::Completed => ("completed", parsed(result)),
    };
    (name.to_owned(), data)
}

/// The events of a stream as a client reads them, with all three kinds of line breaks. Stricter
/// than clients: every line must be one that the server writes.
fn read(stream: &str) -> Vec<(String, Value)> {
    let (mut events, mut name, mut data) = (Vec::new(), None, None);
    let lines = stream.replace("\r\n", "\n").replace('\r', "\n");
    assert!(
        lines.is_empty() || lines.ends_with("\n\n"),
        "the last event has no end"
    );
    for line in lines.lines() {
        if let Some(value) = line.strip_prefix("event: ") {
            assert_eq!(
                name.replace(value.to_owned()),
                None,
                "an event with two names"
            );
        } else if let Some(value) = line.strip_prefix("data: ") {
            assert_eq!(
                data.replace(serde_json::from_str(value).expect("data is JSON")),
                None,
                "an event with two lines of data"
            );
        } else {
            assert_eq!(line, "", "unexpected line");
            events.push((
                name.take().expect("an event has a name"),
                data.take().expect("an event has data"),
            ));
        }
    }
    events
}
