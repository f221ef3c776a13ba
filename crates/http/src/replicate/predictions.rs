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

use super::AppState;
use super::client_profile::ClientProfile;
use super::extract::CreateRequest;
use super::origin::Origin;
use super::render::StreamSupport;
use super::reply::ApiError;
use super::trained_versions::parts;
use super::wire::{Create, InvalidField};
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
pub(super) async fn create(
    State(state): State<Arc<AppState>>,
    order: CreateRequest,
) -> Result<Response, ApiError> {
    let create = order.read()?;
    let desk = state.wanted(&order.caller, &create).await?;
    state
        .submit(&order, &create, RequestedJob::prediction(desk))
        .await
}

/// `POST /v1/models/{owner}/{name}/predictions`
pub(super) async fn create_for_model(
    State(state): State<Arc<AppState>>,
    Path((owner, name)): Path<(String, String)>,
    order: CreateRequest,
) -> Result<Response, ApiError> {
    let desk = state
        .service_for(&order.caller, (&owner, &name), None)
        .await?
        .ok_or(ApiError::Unknown("model"))?;
    state
        .submit(&order, &order.read()?, RequestedJob::prediction(desk))
        .await
}

/// What an order is for.
pub(super) struct RequestedJob {
    /// The desk of the model that it is for.
    pub(super) desk: JobService,
    pub(super) kind: JobKind,
    /// The deployment that it comes through.
    pub(super) deployment: Option<DeploymentRef>,
    /// Of a training: the model that is to have a new version.
    pub(super) destination: Option<String>,
}

impl RequestedJob {
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

impl AppState {
    /// The desk of the version that a body names.
    async fn wanted(&self, caller: &Identity, create: &Create<'_>) -> Result<JobService, ApiError> {
        let desk = match wanted(create)? {
            (Some(model), version) => self.service_for(caller, parts(model), version).await?,
            (None, Some(version)) => self.desk_of_version(caller, version).await?,
            (None, None) => None,
        };
        desk.ok_or(ApiError::UnknownVersion)
    }

    /// A job of the caller's; one of another kind is not known under this name.
    pub(super) async fn find(
        &self,
        kind: JobKind,
        caller: &Identity,
        id: &str,
    ) -> Result<Arc<Job>, ApiError> {
        let job = match JobId::parse(id) {
            Ok(id) => self.models.lookup().get(&caller.account, &id).await,
            Err(_) => None,
        };
        job.filter(|job| job.kind() == kind)
            .ok_or(ApiError::Unknown(noun(kind)))
    }

    pub(super) async fn cancel(
        &self,
        kind: JobKind,
        id: &str,
        caller: Identity,
        reader: ClientProfile,
    ) -> Result<Response, ApiError> {
        let job = self.find(kind, &caller, id).await?;
        self.models.lookup().cancel(&caller.account, job.id()).await;
        // Also when there was nothing to stop any more: its end may just be written down. A model that does not
        // stop is shown as it is.
        tokio::time::timeout(UNTIL_CANCELED, job.ended()).await.ok();
        Ok(json(StatusCode::OK, self.written(&job.snapshot(), &reader)))
    }

    pub(super) fn written(&self, job: &Snapshot, reader: &ClientProfile) -> Bytes {
        let streams = self
            .models
            .service_of(&job.target)
            .map_or(StreamSupport::No, |desk| streams(&desk));
        reader.renderer.prediction(job, &reader.origin, streams)
    }

    /// Makes a job of what an order says.
    pub(super) async fn submit(
        &self,
        order: &CreateRequest,
        create: &Create<'_>,
        wanted: RequestedJob,
    ) -> Result<Response, ApiError> {
        let CreateRequest {
            caller,
            reader,
            headers,
            body,
        } = order;
        let RequestedJob {
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
            .ok_or_else(|| ApiError::Fields(vec![InvalidField::required("input")]))?;
        let deadline = cancel_after(headers)?;
        if deadline.is_some_and(|after| after < SHORTEST_DEADLINE) {
            return Err(ApiError::DeadlineTooShort);
        }
        desk.described(UNTIL_READ).await;
        if kind == JobKind::Training && desk.description().is_some_and(|schema| !schema.trainable) {
            return Err(ApiError::NotTrainable);
        }
        // Of a model that is not loaded nothing is known; it is refused for that below.
        if create.stream == Some(true)
            && streams(&desk) == StreamSupport::No
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
    ) -> Result<Option<Arc<Webhook>>, ApiError> {
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
            streams: streams != StreamSupport::No,
            streams_files: streams == StreamSupport::Files,
            renderer: self.config.renderer.wording_for(origin.clone(), streams),
        })))
    }
}

/// Whether what the model gives can be read as it comes; unknown while it is not loaded.
fn streams(desk: &JobService) -> StreamSupport {
    match desk.description() {
        Some(schema) if schema.iterates_files => StreamSupport::Files,
        Some(schema) if schema.streaming || schema.iterates => StreamSupport::Values,
        Some(_) | None => StreamSupport::No,
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
fn wanted<'a>(create: &'a Create<'_>) -> Result<(Option<&'a str>, Option<&'a str>), ApiError> {
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
        return Err(ApiError::Fields(wrong));
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
