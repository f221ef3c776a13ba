//! `tidegate predict URL`: runs a prediction on a running server.

use anyhow::{Context, bail};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};
use tidegate_net::{SseEvent, SseParser};

use super::PredictionResult;
use super::live_output::LiveOutput;
use crate::cli::PredictArgs;
use crate::inputs;
use crate::models::choose;
use crate::server_connection::ServerConnection;

/// What to do if no server responds.
const REMEDY: &str = "start one with `tidegate serve DIR`, or correct the URL";
/// The status of a refused stream: the model does not stream.
const NOT_STREAMING: u16 = 406;
/// The largest event: the last one contains the whole output, also files.
const MAX_EVENT_SIZE: usize = 1024 * 1024 * 1024;

pub(super) async fn predict(
    args: &PredictArgs,
    live: &LiveOutput,
) -> anyhow::Result<PredictionResult> {
    let server = ServerConnection::new(&args.target, args.token_file.as_deref(), &args.trust)?;
    let (prefix, schema) = find_model(&server, args.model_name.as_deref()).await?;
    let input = inputs::read(
        args.json.as_deref(),
        &args.inputs,
        &schema,
        super::kind(args),
    )?;
    let resource = if args.training {
        "trainings"
    } else {
        "predictions"
    };
    let request = Bytes::from(serde_json::json!({ "input": input }).to_string());
    let prediction = Prediction {
        server: &server,
        path: prefix
            .iter()
            .map(String::as_str)
            .chain([resource])
            .collect(),
        live,
    };
    live.begin("running the prediction");
    let streamed = if args.shows_streamed_text(&schema) && !args.training {
        prediction.stream(request.clone()).await?
    } else {
        None
    };
    let body = match streamed {
        Some(body) => body,
        None => {
            let body = prediction.wait(request).await?;
            live.stop();
            body
        }
    };
    let mut result = PredictionResult::parse(&body, schema)
        .with_context(|| format!("the response of {} is not a prediction", server.base()))?;
    // A stream has shown them already.
    result.logs_shown = live.is_streaming();
    Ok(result)
}

/// The path of the model on the server, and its schema; null, if it is not known yet.
async fn find_model(
    server: &ServerConnection,
    wanted: Option<&str>,
) -> anyhow::Result<(Vec<String>, Value)> {
    let (status, body) = server
        .fetch(&server.at(&["openapi.json"], &[])?, None, REMEDY)
        .await?;
    let schema = |status, body: &Bytes| match status {
        200..300 => serde_json::from_slice(body).unwrap_or_default(),
        _ => Value::Null,
    };
    if status != 404 && wanted.is_none() {
        return Ok((Vec::new(), schema(status, &body)));
    }
    let (_, index) = server.fetch(&server.at(&[], &[])?, None, REMEDY).await?;
    let index: Value = serde_json::from_slice(&index).unwrap_or_default();
    let Some(models) = index.get("models").and_then(Value::as_object) else {
        // A server with one model, which has no path of its own.
        return Ok((Vec::new(), schema(status, &body)));
    };
    let names: Vec<&str> = models.keys().map(String::as_str).collect();
    let name = choose(&names, wanted, &format!("the server at {}", server.base()))?;
    let path: Vec<String> = ["models"]
        .into_iter()
        .chain(name.split('/'))
        .map(str::to_owned)
        .collect();
    let below: Vec<&str> = path
        .iter()
        .map(String::as_str)
        .chain(["openapi.json"])
        .collect();
    let (status, body) = server.fetch(&server.at(&below, &[])?, None, REMEDY).await?;
    Ok((path, schema(status, &body)))
}

/// A prediction that is to be created on the server.
struct Prediction<'a> {
    server: &'a ServerConnection,
    path: Vec<&'a str>,
    live: &'a LiveOutput,
}

/// A part of the output, or of the logs, in an event.
#[derive(Deserialize)]
struct EventPart {
    #[serde(alias = "chunk", alias = "data")]
    text: Value,
}

impl Prediction<'_> {
    /// Runs the prediction, and waits for its end.
    async fn wait(&self, request: Bytes) -> anyhow::Result<Bytes> {
        let url = self.server.at(&self.path, &[])?;
        let (status, body) = self.server.fetch(&url, Some(request), REMEDY).await?;
        self.check(status, &body)?;
        Ok(body)
    }

    /// Runs the prediction, and prints its output and logs as they arrive. `None`, if the model does not
    /// stream; nothing ran then.
    async fn stream(&self, request: Bytes) -> anyhow::Result<Option<Bytes>> {
        let url = self.server.at(&self.path, &[])?;
        let mut response = self
            .server
            .fetch_events(&url, Some(request), REMEDY)
            .await?;
        let base = self.server.base();
        if response.status() == NOT_STREAMING {
            return Ok(None);
        }
        if !(200..300).contains(&response.status()) {
            let mut body = Vec::new();
            while let Some(chunk) = response.chunk().await? {
                body.extend_from_slice(&chunk);
            }
            self.check(response.status(), &body)?;
        }
        self.live.start_streaming();
        let mut events = SseParser::new(MAX_EVENT_SIZE);
        while let Some(chunk) = response
            .chunk()
            .await
            .with_context(|| format!("the connection to {base} was lost"))?
        {
            let mut shown = Ok(None);
            events.push(&chunk, |event| {
                if matches!(shown, Ok(None)) {
                    shown = self.show(event);
                }
            })?;
            if let Some(end) = shown? {
                return Ok(Some(end));
            }
        }
        bail!("the connection to {base} ended before the prediction")
    }

    /// Shows an event. Returns the prediction, if the event is its end.
    fn show(&self, event: SseEvent<'_>) -> anyhow::Result<Option<Bytes>> {
        let part = || {
            serde_json::from_slice::<EventPart>(event.data)
                .ok()
                .and_then(|part| part.text.as_str().map(str::to_owned))
                .unwrap_or_default()
        };
        match event.name {
            b"output" => self.live.text(&part()),
            b"log" => self.live.log(&part()),
            b"completed" => return Ok(Some(Bytes::copy_from_slice(event.data))),
            b"error" => {
                let data = String::from_utf8_lossy(event.data);
                bail!("{} ended the stream: {data}", self.server.base())
            }
            _ => {}
        }
        Ok(None)
    }

    /// Fails if the server refused the prediction.
    fn check(&self, status: u16, body: &[u8]) -> anyhow::Result<()> {
        let base = self.server.base();
        if (200..300).contains(&status) {
            return Ok(());
        }
        let answer: Map<String, Value> = serde_json::from_slice(body)
            .with_context(|| format!("the response of {base} ({status}) is not JSON"))?;
        bail!("{base} responded with {status}: {}", refusal(&answer));
    }
}

/// The error message in the response of a server that refused the job.
fn refusal(answer: &Map<String, Value>) -> String {
    let line = |detail: &Value| {
        let location: Vec<&str> = detail
            .get("loc")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .skip(2)
            .collect();
        format!(
            "{}: {}",
            location.join("."),
            detail
                .get("msg")
                .and_then(Value::as_str)
                .unwrap_or_default()
        )
    };
    match (
        answer.get("error"),
        answer.get("detail").and_then(Value::as_array),
    ) {
        (Some(error), _) => error
            .as_str()
            .map_or_else(|| error.to_string(), str::to_owned),
        (None, Some(details)) => details.iter().map(line).collect::<Vec<_>>().join("; "),
        (None, None) => Value::Object(answer.clone()).to_string(),
    }
}
