//! Create, look up and cancel predictions; trainings are the same machinery under another name.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use tidegate_core::record::{Api, DeploymentRef};
use tidegate_core::{JobId, JobKind, Refusal, Status};
use tidegate_service::{
    EventFilter, Job, JobService, OnDuplicateId, ResponseMode, Snapshot, Submission, Submitted,
    UpdatePolicy, Webhook, WebhookEvent,
};

use super::order::Order;
use super::origin::Origin;
use super::reader::Reader;
use super::reply::Trouble;
use super::trained::parts;
use super::voice::Streams;
use super::wire::{Create, InvalidField};
use super::{Face, Shared};
use crate::access::Identity;
use crate::shared::body_limit::slice_or_copy;
use crate::shared::cancel_after::cancel_after;
use crate::shared::header_lists::preference;
use crate::shared::response::json;
use crate::shared::trace_headers::trace_headers;

/// The longest that a caller is kept waiting, and how long it is when it does not say.
const LONGEST_WAIT: u64 = 60;
/// The shortest `Cancel-After`.
const SHORTEST_DEADLINE: Duration = Duration::from_secs(5);
/// How long a caller is held until the model's code has been read. Python's client gives up after 30 s, and
/// neither tries a create again that was refused.
const UNTIL_READ: Duration = Duration::from_secs(20);
/// How long a cancel waits for the model to stop, so that the answer says how it ended.
const UNTIL_CANCELED: Duration = Duration::from_secs(5);

/// `POST /v1/predictions`
pub(super) async fn create(State(face): State<Shared>, order: Order) -> Result<Response, Trouble> {
    let create = order.read()?;
    let desk = face.wanted(&order.caller, &create).await?;
    face.submit(&order, &create, Wanted::prediction(desk)).await
}

/// `POST /v1/models/{owner}/{name}/predictions`
pub(super) async fn create_for_model(
    State(face): State<Shared>,
    Path((owner, name)): Path<(String, String)>,
    order: Order,
) -> Result<Response, Trouble> {
    let desk = face
        .desk_for(&order.caller, (&owner, &name), None)
        .await?
        .ok_or(Trouble::Unknown("model"))?;
    face.submit(&order, &order.read()?, Wanted::prediction(desk))
        .await
}

/// What an order is for.
pub(super) struct Wanted {
    /// The desk of the model that it is for.
    pub(super) desk: JobService,
    pub(super) kind: JobKind,
    /// The deployment that it comes through.
    pub(super) deployment: Option<DeploymentRef>,
    /// Of a training: the model that is to have a new version.
    pub(super) destination: Option<String>,
}

impl Wanted {
    /// A prediction, not through a deployment.
    pub(super) fn prediction(desk: JobService) -> Self {
        Self {
            desk,
            kind: JobKind::Prediction,
            deployment: None,
            destination: None,
        }
    }
}

impl Face {
    /// The desk of the version that a body names.
    async fn wanted(&self, caller: &Identity, create: &Create<'_>) -> Result<JobService, Trouble> {
        let desk = match wanted(create)? {
            (Some(model), version) => self.desk_for(caller, parts(model), version).await?,
            (None, Some(version)) => self.desk_of_version(caller, version).await?,
            (None, None) => None,
        };
        desk.ok_or(Trouble::UnknownVersion)
    }

    /// A job of the caller's; one of another kind is not known under this name.
    pub(super) async fn find(
        &self,
        kind: JobKind,
        caller: &Identity,
        id: &str,
    ) -> Result<Arc<Job>, Trouble> {
        let job = match JobId::parse(id) {
            Ok(id) => self.models.lookup().get(&caller.account, &id).await,
            Err(_) => None,
        };
        job.filter(|job| job.kind() == kind)
            .ok_or(Trouble::Unknown(noun(kind)))
    }

    pub(super) async fn cancel(
        &self,
        kind: JobKind,
        id: &str,
        caller: Identity,
        reader: Reader,
    ) -> Result<Response, Trouble> {
        let job = self.find(kind, &caller, id).await?;
        self.models.lookup().cancel(&caller.account, job.id()).await;
        // Also when there was nothing to stop any more: its end may just be written down. A model that does not
        // stop is shown as it is.
        tokio::time::timeout(UNTIL_CANCELED, job.ended()).await.ok();
        Ok(json(StatusCode::OK, self.written(&job.snapshot(), &reader)))
    }

    pub(super) fn written(&self, job: &Snapshot, reader: &Reader) -> Bytes {
        let streams = self
            .models
            .desk_of(&job.target)
            .map_or(Streams::No, |desk| streams(&desk));
        reader.voice.prediction(job, &reader.origin, streams)
    }

    /// Makes a job of what an order says.
    pub(super) async fn submit(
        &self,
        order: &Order,
        create: &Create<'_>,
        wanted: Wanted,
    ) -> Result<Response, Trouble> {
        let Order {
            caller,
            reader,
            headers,
            body,
        } = order;
        let Wanted {
            desk,
            kind,
            deployment,
            destination,
        } = wanted;
        // Python's client gives up half a second after the time that it wants to wait.
        let came = tokio::time::Instant::now();
        let input = create
            .input
            .filter(|raw| raw.get() != "null")
            .ok_or_else(|| Trouble::Fields(vec![InvalidField::required("input")]))?;
        let deadline = cancel_after(headers)?;
        if deadline.is_some_and(|after| after < SHORTEST_DEADLINE) {
            return Err(Trouble::DeadlineTooShort);
        }
        desk.described(UNTIL_READ).await;
        if kind == JobKind::Training && desk.description().is_some_and(|schema| !schema.trainable) {
            return Err(Trouble::NotTrainable);
        }
        // Of a model that is not loaded nothing is known; it is refused for that below.
        if create.stream == Some(true)
            && streams(&desk) == Streams::No
            && desk.description().is_some()
        {
            return Err(Refusal::NotStreaming.into());
        }
        let wait = wanted_wait(headers);
        let submission = Submission {
            account: caller.account.clone(),
            id: None,
            kind,
            input: slice_or_copy(body, input.get()),
            webhook: self.webhook(&desk, create, headers, &reader.origin)?,
            context: Default::default(),
            // A caller that waits may leave, and the prediction goes on.
            delivery: ResponseMode::Async,
            replay: OnDuplicateId::Refuse,
            deadline,
            api: Api::Replicate,
            deployment,
            destination,
        };
        let job = match desk.submit(submission).await? {
            Submitted::New(ticket) => Arc::clone(ticket.job()),
            Submitted::Running(job) | Submitted::Over(job) => job,
        };
        if let Some(wait) = wait {
            tokio::time::timeout_at(came + wait, desk.over(&job))
                .await
                .ok();
        }
        let mut response = json(
            StatusCode::CREATED,
            self.written(&at_first(job.snapshot()), reader),
        );
        let Some(wait) = wait else {
            return Ok(response);
        };
        if let Ok(applied) = HeaderValue::try_from(format!("wait={}", wait.as_secs())) {
            response.headers_mut().insert("preference-applied", applied);
        }
        Ok(response)
    }

    fn webhook(
        &self,
        desk: &JobService,
        create: &Create<'_>,
        headers: &HeaderMap,
        origin: &Origin,
    ) -> Result<Option<Arc<Webhook>>, Trouble> {
        let given = |url: &'_ Option<std::borrow::Cow<'_, str>>| {
            url.as_deref()
                .filter(|url| !url.is_empty())
                .map(str::to_owned)
        };
        let (url, filter) = match (given(&create.webhook), given(&create.webhook_completed)) {
            (Some(url), _) => (url, filter(create)),
            (None, Some(url)) => (url, EventFilter::only([WebhookEvent::Completed])),
            (None, None) => return Ok(None),
        };
        let streams = streams(desk);
        let counted = |refusal: &Refusal| desk.count_refusal(Api::Replicate, refusal);
        Ok(Some(Arc::new(Webhook {
            url: desk.webhook_url(&url).inspect_err(counted)?,
            filter,
            headers: trace_headers(headers),
            pace: UpdatePolicy::of(Api::Replicate),
            origin: Some(origin.as_str().to_owned()),
            streams: streams != Streams::No,
            streams_files: streams == Streams::Files,
            renderer: self.config.voice.wording_for(origin.clone(), streams),
        })))
    }
}

/// Whether what the model gives can be read as it comes; unknown while it is not loaded.
fn streams(desk: &JobService) -> Streams {
    match desk.description() {
        Some(schema) if schema.iterates_files => Streams::Files,
        Some(schema) if schema.streaming || schema.iterates => Streams::Values,
        Some(_) | None => Streams::No,
    }
}

/// What a job is called in addresses and errors.
pub(super) fn noun(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Prediction => "prediction",
        JobKind::Training => "training",
    }
}

/// Which webhooks are wanted: values and the end, unless the caller says otherwise.
fn filter(create: &Create<'_>) -> EventFilter {
    match &create.webhook_events_filter {
        Some(names) => EventFilter::only(names.iter().map(|name| (*name).into())),
        None => EventFilter::only([WebhookEvent::Output, WebhookEvent::Completed]),
    }
}

/// The model and the version that are wanted, as far as they are named. Bodies that name a model and no
/// version are refused.
fn wanted<'a>(create: &'a Create<'_>) -> Result<(Option<&'a str>, Option<&'a str>), Trouble> {
    let mut wrong = Vec::new();
    if create.version.is_none() {
        wrong.push(InvalidField::required("version"));
    }
    if create.model.is_some() {
        let description = "Additional property model is not allowed".to_owned();
        wrong.push(InvalidField {
            kind: "additional_property_not_allowed",
            field: String::new(),
            description,
        });
    }
    if !wrong.is_empty() {
        return Err(Trouble::Fields(wrong));
    }
    let version = create.version.as_deref().unwrap_or_default();
    Ok(match version.split_once(':') {
        Some((model, version)) => (Some(model), Some(version)),
        None if version.contains('/') => (Some(version), None),
        None => (None, Some(version)),
    })
}

/// How long the caller wants to wait for the end; what cannot be read is no wish.
fn wanted_wait(headers: &HeaderMap) -> Option<Duration> {
    let seconds = match preference(headers, "wait")? {
        "" => LONGEST_WAIT,
        number => number.parse().ok()?,
    };
    Some(Duration::from_secs(seconds.clamp(1, LONGEST_WAIT)))
}

/// A prediction as who has just made it is told of it. One that is not over is always `starting`: clients that
/// waited take every other word for the end, and what came so far for the result.
fn at_first(job: Snapshot) -> Snapshot {
    if job.status.is_terminal() {
        return job;
    }
    Snapshot {
        status: Status::Starting,
        output: None,
        logs: String::new(),
        metrics: Default::default(),
        predict_time: None,
        started_at: None,
        ..job
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_three_names() {
        let create = |version: &str| Create {
            version: Some(version.to_owned().into()),
            ..Create::default()
        };
        for (text, expected) in [
            ("abc", (None, Some("abc"))),
            ("ann/echo", (Some("ann/echo"), None)),
            ("ann/echo:abc", (Some("ann/echo"), Some("abc"))),
            ("ann/echo:", (Some("ann/echo"), Some(""))),
            ("", (None, Some(""))),
        ] {
            assert_eq!(wanted(&create(text)).ok(), Some(expected), "{text}");
        }
        assert!(wanted(&Create::default()).is_err());
    }

    #[test]
    fn a_wait_is_bounded_and_nonsense_is_no_wish() {
        let wait = |value: &'static str| {
            let headers = HeaderMap::from_iter([(
                axum::http::HeaderName::from_static("prefer"),
                HeaderValue::from_static(value),
            )]);
            wanted_wait(&headers).map(|wait| wait.as_secs())
        };
        let cases = [
            ("wait", Some(60)),
            ("wait=5", Some(5)),
            ("Wait=\"7\"", Some(7)),
            ("respond-async, wait=0", Some(1)),
        ];
        for (value, want) in cases.into_iter().chain([
            ("wait=900", Some(60)),
            ("wait=soon", None),
            ("respond-async", None),
        ]) {
            assert_eq!(wait(value), want, "{value}");
        }
    }
}
