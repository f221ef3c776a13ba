//! Creates, finds and cancels predictions. Trainings use the same functions.

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
    Webhook, WebhookEvent,
};

use super::AppState;
use super::client_profile::{ClientProfile, OutputFileForm};
use super::extract::CreateJobRequest;
use super::file_links::OutputJob;
use super::origin::Origin;
use super::render::OutputStreaming;
use super::reply::ApiError;
use super::trained_versions::split_model_name;
use super::wire::{Create, InvalidField};
use crate::access::Identity;
use crate::shared::body_limit::slice_or_copy;
use crate::shared::cancel_after::cancel_after;
use crate::shared::header_lists::preference;
use crate::shared::response::json;
use crate::shared::trace_headers::trace_headers;
use crate::shared::warnings::{misspelt_input, with_warnings};

/// The longest time, in seconds, that a create request waits for the end of the job; also the
/// default.
const MAX_WAIT_S: u64 = 60;
/// The shortest `Cancel-After`.
const MIN_CANCEL_AFTER: Duration = Duration::from_secs(5);
/// How long a create request waits until the model's schema is known. Python's client gives up
/// after 30 s, and no client retries a refused create request.
const SCHEMA_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a cancel request waits for the model to stop, so that the response has the final
/// status.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// `POST /v1/predictions`
pub(super) async fn create(
    State(state): State<Arc<AppState>>,
    request: CreateJobRequest,
) -> Result<Response, ApiError> {
    let create = request.read()?;
    let service = state.service_for_body(&request.caller, &create).await?;
    state
        .submit(&request, &create, RequestedJob::prediction(service))
        .await
}

/// `POST /v1/models/{owner}/{name}/predictions`
pub(super) async fn create_for_model(
    State(state): State<Arc<AppState>>,
    Path((owner, name)): Path<(String, String)>,
    request: CreateJobRequest,
) -> Result<Response, ApiError> {
    let service = state
        .service_for(&request.caller, (&owner, &name), None)
        .await?
        .ok_or(ApiError::Unknown("model"))?;
    state
        .submit(
            &request,
            &request.read()?,
            RequestedJob::prediction(service),
        )
        .await
}

/// The job that a request asks for.
pub(super) struct RequestedJob {
    /// The service of the model.
    pub(super) service: JobService,
    pub(super) kind: JobKind,
    /// The deployment that the request names.
    pub(super) deployment: Option<DeploymentRef>,
    /// Of a training: the model that gets the new version.
    pub(super) destination: Option<String>,
}

impl RequestedJob {
    /// A prediction without a deployment.
    pub(super) fn prediction(service: JobService) -> Self {
        Self {
            service,
            kind: JobKind::Prediction,
            deployment: None,
            destination: None,
        }
    }
}

impl AppState {
    /// The service of the version that a request body names.
    async fn service_for_body(
        &self,
        caller: &Identity,
        create: &Create<'_>,
    ) -> Result<JobService, ApiError> {
        let service = match named_version(create)? {
            (Some(model), version) => {
                self.service_for(caller, split_model_name(model), version)
                    .await?
            }
            (None, Some(version)) => self.service_of_version(caller, version).await?,
            (None, None) => None,
        };
        service.ok_or(ApiError::UnknownVersion)
    }

    /// A job of the caller; jobs of another kind are not found.
    pub(super) async fn find(
        &self,
        kind: JobKind,
        caller: &Identity,
        id: &str,
    ) -> Result<Arc<Job>, ApiError> {
        let job = match JobId::parse(id) {
            Ok(id) => self.models.lookup().get(&caller.account, &id).await?,
            Err(_) => None,
        };
        job.filter(|job| job.kind() == kind)
            .ok_or(ApiError::Unknown(resource_name(kind)))
    }

    pub(super) async fn cancel(
        &self,
        kind: JobKind,
        id: &str,
        caller: Identity,
        client: ClientProfile,
    ) -> Result<Response, ApiError> {
        let found = self.find(kind, &caller, id).await?;
        let canceled = self
            .models
            .lookup()
            .cancel(&caller.account, found.id())
            .await?;
        let job = if canceled {
            found
        } else {
            // It has ended since it was found, and no client may have waited for that.
            self.find(kind, &caller, id).await?
        };
        // Wait also if there was nothing to cancel: the end of the job may be about to be stored.
        // If the model does not stop in time, the response has the current status.
        tokio::select! {
            _ = tokio::time::timeout(CANCEL_TIMEOUT, job.ended()) => {}
            () = self.models.lookup().leaves_jobs() => {}
        }
        Ok(self.response(StatusCode::OK, &job.snapshot(), &client))
    }

    /// The response with a single job.
    pub(super) fn response(
        &self,
        status: StatusCode,
        job: &Snapshot,
        client: &ClientProfile,
    ) -> Response {
        let files = match (client.output_files, job.kind) {
            (OutputFileForm::DataUri, JobKind::Prediction) => self.config.files.as_deref(),
            (OutputFileForm::Url, _) | (_, JobKind::Training) => None,
        };
        let Some(files) = files.filter(|_| job.output.is_some()) else {
            return with_warnings(json(status, self.render(job, client)), &job.warnings);
        };
        // Without links, the placeholders stay in the output.
        let renderer = client.renderer.clone().with_files(None);
        let body = renderer.prediction(job, &client.origin, self.streaming_of(job));
        let response =
            files.response_with_data_uris(status, &OutputJob::of(job), body, &client.origin);
        with_warnings(response, &job.warnings)
    }

    pub(super) fn render(&self, job: &Snapshot, client: &ClientProfile) -> Bytes {
        client
            .renderer
            .prediction(job, &client.origin, self.streaming_of(job))
    }

    fn streaming_of(&self, job: &Snapshot) -> OutputStreaming {
        self.models
            .service_of(&job.target)
            .map_or(OutputStreaming::No, |service| streams(&service))
    }

    /// Submits a job.
    pub(super) async fn submit(
        &self,
        request: &CreateJobRequest,
        create: &Create<'_>,
        job: RequestedJob,
    ) -> Result<Response, ApiError> {
        let CreateJobRequest {
            caller,
            client,
            headers,
            body,
        } = request;
        let RequestedJob {
            service,
            kind,
            deployment,
            destination,
        } = job;
        // Python's client gives up half a second after the time that it asked to wait.
        let received_at = tokio::time::Instant::now();
        let input = create
            .input
            .filter(|raw| raw.get() != "null")
            .ok_or_else(|| ApiError::Fields(vec![missing_input(body)]))?;
        let deadline = cancel_after(headers)?;
        if deadline.is_some_and(|after| after < MIN_CANCEL_AFTER) {
            return Err(ApiError::DeadlineTooShort);
        }
        service.wait_for_description(SCHEMA_TIMEOUT).await;
        if kind == JobKind::Training
            && service
                .description()
                .is_some_and(|schema| !schema.trainable)
        {
            return Err(ApiError::NotTrainable);
        }
        // The schema of a model that is not loaded is unknown; `submit` refuses the job in that
        // case.
        if create.stream == Some(true)
            && streams(&service) == OutputStreaming::No
            && service.description().is_some()
        {
            return Err(Refusal::NotStreaming.into());
        }
        let wait = requested_wait(headers);
        let submission = Submission {
            account: caller.account.clone(),
            id: None,
            kind,
            input: slice_or_copy(body, input.get()),
            webhook: self.webhook(&service, create, headers, &client.origin)?,
            context: Default::default(),
            // The prediction continues if the client disconnects while it waits.
            response_mode: ResponseMode::Async,
            on_duplicate: OnDuplicateId::Refuse,
            deadline,
            api: Api::Replicate,
            policies: Api::Replicate.policies(),
            deployment,
            destination,
            warnings: Vec::new(),
        };
        let job = match service.submit(submission).await? {
            Submitted::New(ticket) => Arc::clone(ticket.job()),
            Submitted::Running(job) | Submitted::Ended(job) => job,
        };
        if let Some(wait) = wait {
            tokio::time::timeout_at(received_at + wait, service.ended_or_left(&job))
                .await
                .ok();
        }
        let mut response = self.response(StatusCode::CREATED, &as_created(job.snapshot()), client);
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
        service: &JobService,
        create: &Create<'_>,
        headers: &HeaderMap,
        origin: &Origin,
    ) -> Result<Option<Arc<Webhook>>, ApiError> {
        let non_empty = |url: &'_ Option<std::borrow::Cow<'_, str>>| {
            url.as_deref()
                .filter(|url| !url.is_empty())
                .map(str::to_owned)
        };
        let (url, filter) = match (
            non_empty(&create.webhook),
            non_empty(&create.webhook_completed),
        ) {
            (Some(url), _) => (url, filter(create)),
            (None, Some(url)) => (url, EventFilter::only([WebhookEvent::Completed])),
            (None, None) => return Ok(None),
        };
        let streams = streams(service);
        let count = |refusal: &Refusal| service.count_refusal(Api::Replicate, refusal);
        Ok(Some(Arc::new(Webhook {
            url: service.webhook_url(&url).inspect_err(count)?,
            filter,
            headers: trace_headers(headers),
            updates: Api::Replicate.policies().updates,
            origin: Some(origin.as_str().to_owned()),
            streams: streams != OutputStreaming::No,
            streams_files: streams == OutputStreaming::Files,
            renderer: self
                .config
                .renderer
                .webhook_renderer_for(origin.clone(), streams),
        })))
    }
}

/// The error for a body without an input.
fn missing_input(body: &Bytes) -> InvalidField {
    let missing = InvalidField::required("input");
    match misspelt_input(body) {
        Some(warning) => InvalidField {
            description: format!("{}: {warning}", missing.description),
            ..missing
        },
        None => missing,
    }
}

/// Whether the output of a model can be streamed; `No` until the model is loaded.
fn streams(service: &JobService) -> OutputStreaming {
    match service.description() {
        Some(schema) if schema.yields_files => OutputStreaming::Files,
        Some(schema) if schema.streaming || schema.yields_values => OutputStreaming::Values,
        Some(_) | None => OutputStreaming::No,
    }
}

/// The name of a kind of job in URLs and errors.
pub(super) fn resource_name(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Prediction => "prediction",
        JobKind::Training => "training",
    }
}

/// The webhook events: output and completed by default.
fn filter(create: &Create<'_>) -> EventFilter {
    match &create.webhook_events_filter {
        Some(names) => EventFilter::only(names.iter().map(|name| (*name).into())),
        None => EventFilter::only([WebhookEvent::Output, WebhookEvent::Completed]),
    }
}

/// The model and the version that a body names. A body with a `model` field or without a version is
/// refused.
fn named_version<'a>(
    create: &'a Create<'_>,
) -> Result<(Option<&'a str>, Option<&'a str>), ApiError> {
    let mut invalid = Vec::new();
    if create.version.is_none() {
        invalid.push(InvalidField::required("version"));
    }
    if create.model.is_some() {
        let description = "Additional property model is not allowed".to_owned();
        invalid.push(InvalidField {
            kind: "additional_property_not_allowed",
            field: String::new(),
            description,
        });
    }
    if !invalid.is_empty() {
        return Err(ApiError::Fields(invalid));
    }
    let version = create.version.as_deref().unwrap_or_default();
    Ok(match version.split_once(':') {
        Some((model, version)) => (Some(model), Some(version)),
        None if version.contains('/') => (Some(version), None),
        None => (None, Some(version)),
    })
}

/// The time that the client wants to wait for the end. An invalid value is ignored.
fn requested_wait(headers: &HeaderMap) -> Option<Duration> {
    let seconds = match preference(headers, "wait")? {
        "" => MAX_WAIT_S,
        number => number.parse().ok()?,
    };
    Some(Duration::from_secs(seconds.clamp(1, MAX_WAIT_S)))
}

/// The job as the response to its creation shows it. A job that has not ended is always `starting`:
/// clients that wait take every other status for the end, and partial output for the result.
fn as_created(job: Snapshot) -> Snapshot {
    if job.status.is_terminal() {
        return job;
    }
    Snapshot {
        status: Status::Starting,
        output: None,
        logs: String::new(),
        metrics: Default::default(),
        times: None,
        started_at: None,
        ..job
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_can_be_named_in_three_ways() {
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
            assert_eq!(named_version(&create(text)).ok(), Some(expected), "{text}");
        }
        assert!(named_version(&Create::default()).is_err());
    }

    #[test]
    fn a_wait_is_bounded_and_invalid_values_are_ignored() {
        let wait = |value: &'static str| {
            let headers = HeaderMap::from_iter([(
                axum::http::HeaderName::from_static("prefer"),
                HeaderValue::from_static(value),
            )]);
            requested_wait(&headers).map(|wait| wait.as_secs())
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
