//! Turns a job into Replicate's JSON: the same for responses and webhooks.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use jiff::Timestamp;
use ring::hmac;
use serde_json::{Map, Value};
use tidegate_core::record::{JobSpec, WebhookSpec};
use tidegate_core::{Account, JobId, JobKind, Status};
use tidegate_service::{Snapshot, WebhookRenderer};

use super::file_links::{FileLinks, OutputJob};
use super::origin::Origin;
use super::predictions::resource_name;
use super::wire::Urls;
use crate::shared::json_object::JsonObjectWriter;

/// Separates account and id in a stream token; neither can contain it.
const SEPARATOR: char = '\0';

/// Renders jobs as Replicate's JSON. Clones share their state.
#[derive(Clone)]
pub struct PredictionRenderer {
    key: Arc<hmac::Key>,
    aborted: RenderAborted,
    files: Option<Arc<FileLinks>>,
}

/// The status of a job that was ended before it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenderAborted {
    /// `aborted`, which is what Replicate returns today.
    AsIs,
    /// `canceled`, for clients that do not know `aborted`: Python's up to 1.0.7 raises an error,
    /// npm's waits forever.
    AsCanceled,
}

/// Whether a client can stream the output of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputStreaming {
    No,
    /// The stream has text or other JSON values.
    Values,
    /// The stream has URLs of files.
    Files,
}

impl OutputStreaming {
    fn of_hook(hook: &WebhookSpec) -> Self {
        match (hook.streams, hook.streams_files) {
            (false, _) => Self::No,
            (true, false) => Self::Values,
            (true, true) => Self::Files,
        }
    }
}

impl PredictionRenderer {
    /// `secret` signs stream tokens: anyone who has it can read the output of every job.
    pub fn new(secret: &[u8], aborted: RenderAborted) -> Self {
        Self {
            key: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, secret)),
            aborted,
            files: None,
        }
    }

    /// Adds download URLs for files in outputs.
    pub fn with_files(self, files: Option<Arc<FileLinks>>) -> Self {
        Self { files, ..self }
    }

    /// Replaces the rendering of aborted jobs.
    pub(super) fn with_aborted(self, aborted: RenderAborted) -> Self {
        Self { aborted, ..self }
    }

    /// The renderer of a stored webhook.
    pub fn webhook_renderer(&self, hook: &WebhookSpec) -> WebhookRenderer {
        let streams = OutputStreaming::of_hook(hook);
        match hook.origin.as_deref().and_then(Origin::parse) {
            Some(origin) => {
                let (renderer, stream_url) = (self.clone(), hook.stream_url.clone());
                WebhookRenderer::new(move |job| {
                    let signed =
                        || renderer.stream_url(&job.account, &job.id, job.kind, &origin, streams);
                    let stream_url = stream_url.clone().or_else(signed);
                    renderer.render(job, &origin, stream_url)
                })
            }
            // The server stored the origin itself. If it is invalid, no URL can be rendered.
            None => WebhookRenderer::new(|_| Bytes::from_static(b"{}")),
        }
    }

    /// The URL of the output stream in the webhooks of a job, which a director renders without the secret.
    pub fn webhook_stream_url(&self, job: &JobSpec) -> Option<String> {
        let hook = job.hook.as_ref()?;
        let origin = Origin::parse(hook.origin.as_deref()?)?;
        let streams = OutputStreaming::of_hook(hook);
        self.stream_url(&job.account, &job.id, job.kind, &origin, streams)
    }

    pub(super) fn webhook_renderer_for(
        &self,
        origin: Origin,
        streams: OutputStreaming,
    ) -> WebhookRenderer {
        let renderer = self.clone();
        WebhookRenderer::new(move |job| renderer.prediction(job, &origin, streams))
    }

    /// A job as its owner sees it.
    pub(super) fn prediction(
        &self,
        job: &Snapshot,
        origin: &Origin,
        streams: OutputStreaming,
    ) -> Bytes {
        let stream_url = self.stream_url(&job.account, &job.id, job.kind, origin, streams);
        self.render(job, origin, stream_url)
    }

    /// The keys are in Replicate's order.
    fn render(&self, job: &Snapshot, origin: &Origin, stream_url: Option<String>) -> Bytes {
        let output = match &job.output {
            Some(output) => self.output(&OutputJob::of(job), output, origin),
            None => Bytes::from_static(b"null"),
        };
        let capacity = output.len() + job.logs.len() + job.input.len() + 1024;
        let mut body = JsonObjectWriter::with_capacity(capacity);
        body.field("id", &job.id)
            .field("model", &job.target.model)
            .field("version", &job.target.version);
        // Removed data is rendered as `null`, which differs from an empty input.
        let null = Bytes::from_static(b"null");
        let (input, logs) = if job.data_removed {
            (&null, None)
        } else {
            (&job.input, Some(with_newlines(&job.logs)))
        };
        body.raw("input", Some(input))
            .field("logs", &logs)
            .raw("output", Some(&output));
        body.field("data_removed", &job.data_removed)
            .field("error", &job.error)
            .field("source", "api");
        body.field("status", self.status(job.status));
        body.field("created_at", &timestamp(job.created_at));
        body.field("started_at", &job.started_at.map(timestamp))
            .field("completed_at", &job.completed_at.map(timestamp));
        body.maybe("deadline", job.deadline.map(timestamp).as_deref());
        let deployment = job.target.deployment.as_ref();
        body.maybe(
            "deployment",
            deployment.map(|deployment| &deployment.deployment),
        );
        body.maybe(
            "deployment_release",
            deployment
                .and_then(|deployment| deployment.release)
                .as_ref(),
        );
        body.maybe("webhook", job.hook.as_ref().map(|hook| &hook.url));
        body.maybe(
            "webhook_events_filter",
            job.hook.as_ref().map(|hook| &hook.events),
        );
        body.field("urls", &urls(job, origin, stream_url))
            .field("metrics", &metrics(job));
        body.finish()
    }

    /// An output or a part of it, with download URLs for the files in it.
    pub(super) fn output(&self, job: &OutputJob<'_>, json: &Bytes, origin: &Origin) -> Bytes {
        match &self.files {
            Some(links) => links.output_with_urls(job, json, origin),
            None => json.clone(),
        }
    }

    fn status(&self, status: Status) -> &'static str {
        match (status, self.aborted) {
            (Status::Queued | Status::Starting, _) => "starting",
            (Status::Processing, _) => "processing",
            (Status::Succeeded, _) => "succeeded",
            (Status::Failed, _) => "failed",
            (Status::Canceled, _) | (Status::Aborted, RenderAborted::AsCanceled) => "canceled",
            (Status::Aborted, RenderAborted::AsIs) => "aborted",
        }
    }

    /// The URL of the output stream. npm's client decides by the path whether the stream has files.
    fn stream_url(
        &self,
        account: &Account,
        id: &JobId,
        kind: JobKind,
        origin: &Origin,
        streams: OutputStreaming,
    ) -> Option<String> {
        let token = || self.token(account, id);
        match (kind, streams) {
            (JobKind::Training, _) | (_, OutputStreaming::No) => None,
            (JobKind::Prediction, OutputStreaming::Values) => {
                Some(origin.to(&["v1", "streams", &token()]))
            }
            (JobKind::Prediction, OutputStreaming::Files) => {
                Some(origin.to(&["v1", "files", "streams", &token()]))
            }
        }
    }

    /// The token of a job's stream: account and id, with a signature.
    fn token(&self, account: &Account, id: &JobId) -> String {
        let name = if account.is_anonymous() {
            ""
        } else {
            account.as_str()
        };
        let payload = format!("{name}{SEPARATOR}{id}");
        let signature = hmac::sign(&self.key, payload.as_bytes());
        format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(&payload),
            URL_SAFE_NO_PAD.encode(signature)
        )
    }

    /// The job of a stream token; `None` if this server did not sign it.
    pub(super) fn read_token(&self, token: &str) -> Option<(Account, JobId)> {
        let (payload, signature) = token.split_once('.')?;
        let (payload, signature) = (
            URL_SAFE_NO_PAD.decode(payload).ok()?,
            URL_SAFE_NO_PAD.decode(signature).ok()?,
        );
        hmac::verify(&self.key, &payload, &signature).ok()?;
        let payload = String::from_utf8(payload).ok()?;
        let (name, id) = payload.split_once(SEPARATOR)?;
        let account = if name.is_empty() {
            Account::ANONYMOUS
        } else {
            Account::parse(name).ok()?
        };
        Some((account, JobId::parse(id).ok()?))
    }
}

fn urls(job: &Snapshot, origin: &Origin, stream: Option<String>) -> Urls {
    let resource = format!("{}s", resource_name(job.kind));
    let get = ["v1", &resource, job.id.as_str()];
    Urls {
        cancel: origin.to(&[&get[..], &["cancel"]].concat()),
        get: origin.to(&get),
        stream,
    }
}

/// Clients split logs at newlines. A progress bar uses carriage returns instead, and both clients
/// would show only its first state.
fn with_newlines(logs: &str) -> Cow<'_, str> {
    if logs.contains('\r') {
        logs.replace("\r\n", "\n").replace('\r', "\n").into()
    } else {
        logs.into()
    }
}

/// The metrics that the model recorded. A job that has ended also has the time that it ran (without
/// its time in the queue) and the total time.
fn metrics(job: &Snapshot) -> Map<String, Value> {
    let mut metrics = job.metrics.clone();
    metrics.remove("predict_time");
    if let Some(completed_at) = job.completed_at {
        let since =
            |from: Timestamp| Value::from(completed_at.duration_since(from).as_secs_f64().max(0.0));
        if let Some(started_at) = job.started_at {
            metrics.insert("predict_time".to_owned(), since(started_at));
        }
        metrics.insert("total_time".to_owned(), since(job.created_at));
    }
    metrics
}

pub(super) fn timestamp(at: Timestamp) -> String {
    at.to_string()
}

#[cfg(test)]
mod tests {
    use tidegate_core::record::Target;

    use super::*;

    fn renderer(aborted: RenderAborted) -> PredictionRenderer {
        PredictionRenderer::new(b"secret", aborted)
    }

    fn job(status: Status) -> Snapshot {
        let at = |second: i64| Timestamp::from_second(1_700_000_000 + second).unwrap();
        Snapshot {
            id: JobId::parse("abc").unwrap(),
            account: Account::parse("ann").unwrap(),
            target: Arc::new(Target {
                model: "ann/echo".to_owned(),
                version: "0".repeat(64),
                deployment: None,
            }),
            kind: JobKind::Prediction,
            status,
            logs: "one\n".to_owned(),
            warnings: Vec::new(),
            output: Some(Bytes::from_static(b"[1,2]")),
            error: None,
            metrics: Map::from_iter([("tokens".to_owned(), Value::from(3))]),
            remote: None,
            times: None,
            input: Bytes::from_static(b"{\"n\":1}"),
            created_at: at(0),
            started_at: Some(at(2)),
            completed_at: Some(at(5)),
            deadline: None,
            hook: None,
            data_removed: false,
        }
    }

    #[test]
    fn job_as_replicate_json() {
        let origin = Origin::parse("http://h:5000").unwrap();
        let body = renderer(RenderAborted::AsIs).prediction(
            &job(Status::Succeeded),
            &origin,
            OutputStreaming::No,
        );
        insta::assert_snapshot!(String::from_utf8(body.to_vec()).unwrap());
    }

    #[test]
    fn old_clients_get_canceled_instead_of_aborted() {
        assert_eq!(
            renderer(RenderAborted::AsIs).status(Status::Aborted),
            "aborted"
        );
        assert_eq!(
            renderer(RenderAborted::AsCanceled).status(Status::Aborted),
            "canceled"
        );
    }

    #[test]
    fn a_token_opens_one_job_and_cannot_be_forged() {
        let (renderer, id) = (renderer(RenderAborted::AsIs), JobId::parse("a b").unwrap());
        for account in [Account::ANONYMOUS, Account::parse("anonymous").unwrap()] {
            let token = renderer.token(&account, &id);
            assert_eq!(renderer.read_token(&token), Some((account, id.clone())));
            assert_eq!(
                PredictionRenderer::new(b"other", RenderAborted::AsIs).read_token(&token),
                None
            );
        }
        for bad in ["", ".", "AGE.AGE", "x", "é.é"] {
            assert_eq!(renderer.read_token(bad), None, "{bad}");
        }
    }
}
