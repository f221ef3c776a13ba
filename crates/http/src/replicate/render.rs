//! A job in Replicate's words: the same in answers and in webhooks.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use jiff::Timestamp;
use ring::hmac;
use serde_json::{Map, Value};
use tidegate_core::record::WebhookSpec;
use tidegate_core::{Account, JobId, JobKind, Status};
use tidegate_service::{Snapshot, WebhookRenderer};

use super::file_links::{FileLinks, JobRef};
use super::origin::Origin;
use super::predictions::noun;
use super::wire::Urls;
use crate::shared::json_object::JsonObjectWriter;

/// Between account and id in a token; neither can hold it.
const PART: char = '\0';

/// How jobs are written. Cloning gives another handle.
#[derive(Clone)]
pub struct PredictionRenderer {
    key: Arc<hmac::Key>,
    aborted: RenderAborted,
    files: Option<Arc<FileLinks>>,
}

/// What a job is called that the platform ended before it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenderAborted {
    /// `aborted`, as Replicate says today.
    AsIs,
    /// `canceled`, for clients that do not know the word: Python's up to 1.0.7 fails on it, npm's waits
    /// for ever.
    AsCanceled,
}

/// Whether the output of a job can be read as it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamSupport {
    No,
    /// Texts, or whatever the model gives.
    Values,
    /// Addresses of files.
    Files,
}

impl PredictionRenderer {
    /// Whoever knows the secret can read every stream.
    pub fn new(secret: &[u8], aborted: RenderAborted) -> Self {
        Self {
            key: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, secret)),
            aborted,
            files: None,
        }
    }

    /// The same, for jobs whose files are kept here.
    pub fn with_files(self, files: Option<Arc<FileLinks>>) -> Self {
        Self { files, ..self }
    }

    /// The same with another word.
    pub(super) fn saying(self, aborted: RenderAborted) -> Self {
        Self { aborted, ..self }
    }

    /// How webhooks are written for a receiver that was written down.
    pub fn renderer(&self, hook: &WebhookSpec) -> WebhookRenderer {
        let streams = match (hook.streams, hook.streams_files) {
            (false, _) => StreamSupport::No,
            (true, false) => StreamSupport::Values,
            (true, true) => StreamSupport::Files,
        };
        match hook.origin.as_deref().and_then(Origin::parse) {
            Some(origin) => self.wording_for(origin, streams),
            // We wrote it down ourselves; without it nothing useful can be said.
            None => WebhookRenderer::new(|_| Bytes::from_static(b"{}")),
        }
    }

    pub(super) fn wording_for(&self, origin: Origin, streams: StreamSupport) -> WebhookRenderer {
        let renderer = self.clone();
        WebhookRenderer::new(move |job| renderer.prediction(job, &origin, streams))
    }

    /// A job as its owner sees it. Keys are in Replicate's order.
    pub(super) fn prediction(
        &self,
        job: &Snapshot,
        origin: &Origin,
        streams: StreamSupport,
    ) -> Bytes {
        let output = match &job.output {
            Some(output) => self.output(
                &JobRef {
                    account: &job.account,
                    id: &job.id,
                    completed_at: job.completed_at,
                },
                output,
                origin,
            ),
            None => Bytes::from_static(b"null"),
        };
        let room = output.len() + job.logs.len() + job.input.len() + 1024;
        let mut body = JsonObjectWriter::with_capacity(room);
        body.field("id", &job.id)
            .field("model", &job.target.model)
            .field("version", &job.target.version);
        // What was removed is shown as nothing, which is not the same as an empty input.
        let null = Bytes::from_static(b"null");
        let (input, logs) = if job.data_removed {
            (&null, None)
        } else {
            (&job.input, Some(in_lines(&job.logs)))
        };
        body.raw("input", Some(input))
            .field("logs", &logs)
            .raw("output", Some(&output));
        body.field("data_removed", &job.data_removed)
            .field("error", &job.error)
            .field("source", "api");
        body.field("status", self.word(job.status));
        body.field("created_at", &moment(job.created_at));
        body.field("started_at", &job.started_at.map(moment))
            .field("completed_at", &job.completed_at.map(moment));
        body.maybe("deadline", job.deadline.map(moment).as_deref());
        let through = job.target.deployment.as_ref();
        body.maybe("deployment", through.map(|through| &through.deployment));
        body.maybe(
            "deployment_release",
            through.and_then(|through| through.release).as_ref(),
        );
        body.maybe("webhook", job.hook.as_ref().map(|hook| &hook.url));
        body.maybe(
            "webhook_events_filter",
            job.hook.as_ref().map(|hook| &hook.events),
        );
        body.field("urls", &self.urls(job, origin, streams))
            .field("metrics", &metrics(job));
        body.finish()
    }

    /// What a job gave, or some of it, with addresses of the files in it.
    pub(super) fn output(&self, job: &JobRef<'_>, json: &Bytes, origin: &Origin) -> Bytes {
        match &self.files {
            Some(links) => links.told(job, json, origin),
            None => json.clone(),
        }
    }

    fn word(&self, status: Status) -> &'static str {
        match (status, self.aborted) {
            (Status::Queued | Status::Starting, _) => "starting",
            (Status::Processing, _) => "processing",
            (Status::Succeeded, _) => "succeeded",
            (Status::Failed, _) => "failed",
            (Status::Canceled, _) | (Status::Aborted, RenderAborted::AsCanceled) => "canceled",
            (Status::Aborted, RenderAborted::AsIs) => "aborted",
        }
    }

    fn urls(&self, job: &Snapshot, origin: &Origin, streams: StreamSupport) -> Urls {
        let resource = format!("{}s", noun(job.kind));
        let get = ["v1", &resource, job.id.as_str()];
        Urls {
            cancel: origin.to(&[&get[..], &["cancel"]].concat()),
            get: origin.to(&get),
            stream: self.stream_url(job, origin, streams),
        }
    }

    /// Where the output can be read as it comes. npm's client looks at the path to know whether it reads files.
    fn stream_url(
        &self,
        job: &Snapshot,
        origin: &Origin,
        streams: StreamSupport,
    ) -> Option<String> {
        let token = || self.token(&job.account, &job.id);
        match (job.kind, streams) {
            (JobKind::Training, _) | (_, StreamSupport::No) => None,
            (JobKind::Prediction, StreamSupport::Values) => {
                Some(origin.to(&["v1", "streams", &token()]))
            }
            (JobKind::Prediction, StreamSupport::Files) => {
                Some(origin.to(&["v1", "files", "streams", &token()]))
            }
        }
    }

    /// What opens the stream of a job: who it is, and a proof that we said so.
    fn token(&self, account: &Account, id: &JobId) -> String {
        let name = if account.is_anonymous() {
            ""
        } else {
            account.as_str()
        };
        let whose = format!("{name}{PART}{id}");
        let proof = hmac::sign(&self.key, whose.as_bytes());
        format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(&whose),
            URL_SAFE_NO_PAD.encode(proof)
        )
    }

    /// The job that a token of ours is for.
    pub(super) fn read_token(&self, token: &str) -> Option<(Account, JobId)> {
        let (whose, proof) = token.split_once('.')?;
        let (whose, proof) = (
            URL_SAFE_NO_PAD.decode(whose).ok()?,
            URL_SAFE_NO_PAD.decode(proof).ok()?,
        );
        hmac::verify(&self.key, &whose, &proof).ok()?;
        let whose = String::from_utf8(whose).ok()?;
        let (name, id) = whose.split_once(PART)?;
        let account = if name.is_empty() {
            Account::ANONYMOUS
        } else {
            Account::parse(name).ok()?
        };
        Some((account, JobId::parse(id).ok()?))
    }
}

/// Logs as clients read them, line by line. A bar of progress goes back to the begin of its line instead; both
/// clients would see only its first state.
fn in_lines(logs: &str) -> Cow<'_, str> {
    if logs.contains('\r') {
        logs.replace("\r\n", "\n").replace('\r', "\n").into()
    } else {
        logs.into()
    }
}

/// What the model noted. At the end also how long it worked, which is without the time in the line, and
/// how long everything took.
fn metrics(job: &Snapshot) -> Map<String, Value> {
    let mut metrics = job.metrics.clone();
    metrics.remove("predict_time");
    if let Some(completed_at) = job.completed_at {
        let since = |moment: Timestamp| {
            Value::from(completed_at.duration_since(moment).as_secs_f64().max(0.0))
        };
        if let Some(started_at) = job.started_at {
            metrics.insert("predict_time".to_owned(), since(started_at));
        }
        metrics.insert("total_time".to_owned(), since(job.created_at));
    }
    metrics
}

pub(super) fn moment(at: Timestamp) -> String {
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
            output: Some(Bytes::from_static(b"[1,2]")),
            error: None,
            metrics: Map::from_iter([("tokens".to_owned(), Value::from(3))]),
            predict_time: Some(9.0),
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
    fn a_job_in_replicates_words() {
        let origin = Origin::parse("http://h:5000").unwrap();
        let body = renderer(RenderAborted::AsIs).prediction(
            &job(Status::Succeeded),
            &origin,
            StreamSupport::No,
        );
        insta::assert_snapshot!(String::from_utf8(body.to_vec()).unwrap());
    }

    #[test]
    fn old_clients_are_spared_a_word_they_do_not_know() {
        assert_eq!(
            renderer(RenderAborted::AsIs).word(Status::Aborted),
            "aborted"
        );
        assert_eq!(
            renderer(RenderAborted::AsCanceled).word(Status::Aborted),
            "canceled"
        );
    }

    #[test]
    fn a_token_opens_one_job_and_cannot_be_made_up() {
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
