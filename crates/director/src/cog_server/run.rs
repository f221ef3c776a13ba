//! One job on a Cog server: one request, whose response becomes events.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use serde_json::value::RawValue;
use tidegate_core::port::{Admission, Running};
use tidegate_core::{
    Event, JobKind, LogSource, Metric, MetricMode, Outcome, OutputValue, Work, chain,
};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use super::wire::{LogEvent, MetricEvent, OutputEvent, RequestBody, ResultBody};
use super::{Inner, stored_files};

/// The metric that the server measures itself.
const PREDICT_TIME: &str = "predict_time";
/// The pause before a request that the server did not take is sent again. Cog frees a slot a moment after it
/// has responded.
const RETRY_AFTER: Duration = Duration::from_millis(50);
/// The status of a server that has no free slot.
const NO_SLOT: u16 = 409;
/// The status of a server that starts or shuts down.
const NOT_READY: u16 = 503;
/// The status of a model that does not stream.
const NOT_STREAMING: u16 = 406;

/// A free slot of the server.
pub(super) struct CogAdmission {
    server: Arc<Inner>,
    permit: OwnedSemaphorePermit,
}

impl CogAdmission {
    pub(super) fn new(server: Arc<Inner>, permit: OwnedSemaphorePermit) -> Self {
        Self { server, permit }
    }
}

#[async_trait]
impl Admission for CogAdmission {
    async fn start(self: Box<Self>, work: Work) -> Box<dyn Running> {
        let Self { server, permit } = *self;
        let (events, receiver) = mpsc::unbounded_channel();
        let canceled = CancellationToken::new();
        let request = CogRequest {
            server: Arc::clone(&server),
            work,
            events,
        };
        let stopped = canceled.clone();
        server.tasks.spawn(async move {
            // Dropping the request closes its connection, which cancels the job.
            let outcome = tokio::select! {
                outcome = request.run() => outcome,
                () = stopped.cancelled() => Outcome::Canceled,
            };
            // The receiver may be gone: the job was dropped.
            request.events.send(Event::Ended(outcome)).ok();
            drop(permit);
        });
        Box::new(CogRunning { receiver, canceled })
    }
}

/// A job that runs on the server.
struct CogRunning {
    receiver: mpsc::UnboundedReceiver<Event>,
    canceled: CancellationToken,
}

#[async_trait]
impl Running for CogRunning {
    async fn next(&mut self) -> Event {
        match self.receiver.recv().await {
            Some(event) => event,
            None => Event::Ended(failed("the request was aborted".to_owned())),
        }
    }

    fn cancel(&mut self) {
        self.canceled.cancel();
    }
}

impl Drop for CogRunning {
    fn drop(&mut self) {
        self.canceled.cancel();
    }
}

/// The request of one job.
struct CogRequest {
    server: Arc<Inner>,
    work: Work,
    events: mpsc::UnboundedSender<Event>,
}

impl CogRequest {
    async fn run(&self) -> Outcome {
        match self.send().await {
            Ok(outcome) => outcome,
            Err(error) => failed(format!("the Cog server did not run the job: {error}")),
        }
    }

    async fn send(&self) -> Result<Outcome, String> {
        let body = self.body().await?;
        if self.work.kind == JobKind::Prediction
            && self.server.streams.load(Ordering::Relaxed)
            && let Some(outcome) = self.stream(body.clone()).await?
        {
            return Ok(outcome);
        }
        let path = match self.work.kind {
            JobKind::Prediction => "predictions",
            JobKind::Training => "trainings",
        };
        let url = self.server.url(path);
        let (status, body) = loop {
            let response = self.server.net.fetch(&url, None, Some(body.clone())).await;
            let response = response.map(|(status, body)| (status.as_u16(), body));
            if let Some(response) = self.taken(response).await? {
                break response;
            }
        };
        match status {
            200 => self.outcome(&body, true),
            status => Err(refusal(status, &body)),
        }
    }

    /// The response, if the server took the request. One that has no slot, or cannot be reached because it is
    /// started again, has not begun the job: returns `None` when the request can be repeated. An error is one
    /// after which the server may have begun it.
    async fn taken<R>(
        &self,
        response: Result<(u16, R), tidegate_net::Error>,
    ) -> Result<Option<(u16, R)>, String> {
        match response {
            Ok((NO_SLOT, _)) => {}
            Ok((NOT_READY, _)) => self.server.ready_again().await,
            Ok(response) => return Ok(Some(response)),
            Err(error) if error.is_connect() => self.server.ready_again().await,
            Err(error) => return Err(chain(&error).to_string()),
        }
        tokio::time::sleep(RETRY_AFTER).await;
        Ok(None)
    }

    async fn body(&self) -> Result<Bytes, String> {
        let unreadable = |error: serde_json::Error| format!("the input is not JSON: {error}");
        let input = stored_files::inlined(&self.work).await?;
        let input: &RawValue = serde_json::from_slice(&input).map_err(unreadable)?;
        let body = RequestBody {
            id: &self.work.id,
            input,
            context: &self.work.context,
        };
        serde_json::to_vec(&body)
            .map(Bytes::from)
            .map_err(unreadable)
    }

    /// Follows the events of a prediction; `None` if the model does not stream.
    async fn stream(&self, body: Bytes) -> Result<Option<Outcome>, String> {
        let url = self.server.url("predictions");
        let response = loop {
            let net = &self.server.net;
            let response = net.fetch_events(&url, None, Some(body.clone())).await;
            let response = response.map(|response| (response.status(), response));
            if let Some(response) = self.taken(response).await? {
                break response;
            }
        };
        let mut response = match response {
            (200, response) => response,
            (NOT_STREAMING, _) => return Ok(None),
            (status, mut response) => {
                let body = response.chunk().await.ok().flatten().unwrap_or_default();
                return Err(refusal(status, &body));
            }
        };
        let mut frames = SseFrames::default();
        loop {
            let chunk = response.chunk().await;
            let chunk = chunk.map_err(|error| chain(&error).to_string())?;
            let Some(chunk) = chunk else {
                return Err("the stream ended before the job".to_owned());
            };
            frames.push(&chunk);
            // An older server ignores `Accept`, and responds with the result.
            if frames.is_plain_json() {
                while let Some(chunk) = response.chunk().await.ok().flatten() {
                    frames.push(&chunk);
                }
                return self.outcome(&frames.buffer, true).map(Some);
            }
            while let Some((event, data)) = frames.next() {
                if let Some(outcome) = self.apply(&event, &data)? {
                    return Ok(Some(outcome));
                }
            }
        }
    }

    /// Reports one event of the stream; returns the outcome at the end.
    fn apply(&self, event: &str, data: &[u8]) -> Result<Option<Outcome>, String> {
        let unreadable = |error| format!("the event `{event}` cannot be read: {error}");
        let event = match event {
            "output" => {
                let OutputEvent { chunk } = serde_json::from_slice(data).map_err(unreadable)?;
                Event::Output(value(&chunk))
            }
            "log" => {
                let log: LogEvent = serde_json::from_slice(data).map_err(unreadable)?;
                Event::Log {
                    source: log.source,
                    text: log.data,
                }
            }
            "metric" => {
                let metric: MetricEvent = serde_json::from_slice(data).map_err(unreadable)?;
                Event::Metric(Metric {
                    name: metric.name,
                    value: metric.value,
                    mode: metric.mode,
                })
            }
            "completed" => return self.outcome(data, false).map(Some),
            "error" => return Err("the server dropped events of the stream".to_owned()),
            // `start`, and what later versions add.
            _ => return Ok(None),
        };
        self.events.send(event).ok();
        Ok(None)
    }

    /// The outcome that a result says. With `is_whole`, its output, logs and metrics were not reported
    /// before.
    fn outcome(&self, body: &[u8], is_whole: bool) -> Result<Outcome, String> {
        let result: ResultBody = serde_json::from_slice(body)
            .map_err(|error| format!("the result cannot be read: {error}"))?;
        if is_whole {
            self.report(&result);
        }
        Ok(match result.status.as_str() {
            "succeeded" => Outcome::Succeeded {
                output: result
                    .output
                    .filter(|_| is_whole)
                    .map(|output| value(&output)),
            },
            "canceled" => Outcome::Canceled,
            _ => failed(result.error.unwrap_or_else(|| "the job failed".to_owned())),
        })
    }

    fn report(&self, result: &ResultBody) {
        if !result.logs.is_empty() {
            let log = Event::Log {
                source: LogSource::Stdout,
                text: result.logs.clone(),
            };
            self.events.send(log).ok();
        }
        for (name, value) in result
            .metrics
            .iter()
            .filter(|(name, _)| *name != PREDICT_TIME)
        {
            let metric = Metric {
                name: name.clone(),
                value: value.clone(),
                mode: MetricMode::Replace,
            };
            self.events.send(Event::Metric(metric)).ok();
        }
    }
}

fn value(json: &RawValue) -> OutputValue {
    OutputValue {
        json: Bytes::from(json.get().to_owned()),
        files: Vec::new(),
    }
}

fn failed(error: String) -> Outcome {
    Outcome::Failed { error }
}

fn refusal(status: u16, body: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(body).chars().take(500).collect();
    format!("it responded with status {status}: {}", text.trim())
}

/// Splits a stream into events.
#[derive(Default)]
struct SseFrames {
    buffer: BytesMut,
    has_frames: bool,
}

impl SseFrames {
    fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// Whether the response is a JSON object and not a stream.
    fn is_plain_json(&self) -> bool {
        !self.has_frames && self.buffer.first() == Some(&b'{')
    }

    /// The name and the data of the next event.
    fn next(&mut self) -> Option<(String, Vec<u8>)> {
        loop {
            let end = self.buffer.windows(2).position(|pair| pair == b"\n\n")?;
            let frame = self.buffer.split_to(end + 2);
            self.has_frames = true;
            let (mut event, mut data) = (None, Vec::new());
            for line in frame[..].split(|byte| *byte == b'\n') {
                if let Some(name) = line.strip_prefix(b"event: ") {
                    event = Some(String::from_utf8_lossy(name).into_owned());
                } else if let Some(text) = line.strip_prefix(b"data: ") {
                    data.extend_from_slice(text);
                }
            }
            // A frame without a name is a comment.
            if let Some(event) = event {
                return Some((event, data));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_arrive_in_any_pieces() {
        let stream =
            b": keep-alive\n\nevent: log\ndata: {\"a\":1}\n\nevent: completed\ndata: {}\n\n";
        for size in [1, 3, 7, stream.len()] {
            let mut frames = SseFrames::default();
            let mut found = Vec::new();
            for piece in stream.chunks(size) {
                frames.push(piece);
                while let Some(frame) = frames.next() {
                    found.push(frame);
                }
            }
            let expected = [
                ("log".to_owned(), b"{\"a\":1}".to_vec()),
                ("completed".to_owned(), b"{}".to_vec()),
            ];
            assert_eq!(found, expected, "pieces of {size} bytes");
        }
    }
}
