//! Creates, looks up and cancels predictions and trainings.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use tidegate_core::planted;
use tidegate_core::record::Api;
use tidegate_core::{Account, JobId, JobKind, Refusal};
use tidegate_service::{
    EventFilter, JobService, OnDuplicateId, ResponseMode, Submission, Submitted, Webhook,
    WebhookRenderer,
};

use super::reply::{self, ApiError};
use super::wire::CreateRequest;
use super::{AppState, stream};
use crate::access::Identity;
use crate::shared::body_limit::{BodyLimit, read_json_body, slice_or_copy};
use crate::shared::cancel_after::cancel_after;
use crate::shared::header_lists::{accepts, prefers};
use crate::shared::trace_headers::trace_headers;
use crate::shared::warnings::{misspelt_input, with_warnings};

/// The id in the path of a request.
pub(super) struct PathId(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for PathId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let id = Path::<String>::from_request_parts(parts, state).await;
        id.map(|Path(id)| Self(id))
            .map_err(|_| ApiError::PathNotUtf8)
    }
}

/// `POST /predictions` and, with an id, `PUT /predictions/{id}`.
pub(super) async fn create(
    State(state): State<Arc<AppState>>,
    kind: JobKind,
    client: Identity,
    url_id: Option<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let (Parts { headers, .. }, body) = request.into_parts();
    let response_mode = response_mode(&headers);
    let limit = BodyLimit::of_flags(state.config.max_body, state.config.body_timeout);
    let body = read_json_body(&headers, body, limit).await?;
    let jobs = state.jobs();
    let submission = parse_submission(
        &jobs,
        &body,
        &headers,
        kind,
        client.account,
        url_id,
        response_mode,
    )?;
    let warnings = submission.warnings.clone();
    let submitted = match jobs.submit(submission).await {
        Ok(submitted) => submitted,
        // The warnings may tell why the input is not valid.
        Err(refusal) => {
            return Ok(with_warnings(
                ApiError::from(refusal).into_response(),
                &warnings,
            ));
        }
    };
    match submitted {
        Submitted::New(mut ticket) => match response_mode {
            ResponseMode::Wait => {
                ticket.ended().await;
                Ok(reply::finished(&ticket.job().snapshot()))
            }
            ResponseMode::Async => Ok(reply::accepted(ticket.job())),
            ResponseMode::Stream => Ok(stream::response(
                ticket.into_reader().ok_or(ApiError::TooManyReaders)?,
                None,
            )),
        },
        // Another API may have created the job.
        Submitted::Running(job) | Submitted::Ended(job)
            if response_mode == ResponseMode::Stream =>
        {
            let reader = job.follow().map_err(|_| ApiError::TooManyReaders)?;
            Ok(stream::response(
                reader,
                Some(state.config.cross_api.for_request(&headers)),
            ))
        }
        Submitted::Running(job) => Ok(reply::snapshot(
            StatusCode::ACCEPTED,
            &state.config.cross_api.for_request(&headers).snapshot(&job),
        )),
        Submitted::Ended(job) => Ok(reply::finished(
            &state.config.cross_api.for_request(&headers).snapshot(&job),
        )),
    }
}

/// `GET /predictions/{id}`
pub(super) async fn show(
    State(state): State<Arc<AppState>>,
    client: Identity,
    PathId(id): PathId,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let job = match JobId::parse(&id) {
        Ok(id) => state.jobs().get(&client.account, &id).await?,
        Err(_) => None,
    };
    let job = job.ok_or(ApiError::UnknownJob(id))?;
    Ok(reply::details(
        &state.config.cross_api.for_request(&headers).snapshot(&job),
    ))
}

/// `POST /predictions/{id}/cancel`
pub(super) async fn cancel(
    State(state): State<Arc<AppState>>,
    client: Identity,
    PathId(id): PathId,
) -> Result<Response, ApiError> {
    let canceled = match JobId::parse(&id) {
        Ok(id) => state.jobs().cancel(&client.account, &id).await?,
        Err(_) => false,
    };
    Ok(reply::empty(if canceled {
        StatusCode::OK
    } else {
        StatusCode::NOT_FOUND
    }))
}

/// `Accept: text/event-stream` takes precedence over `Prefer: respond-async`.
fn response_mode(headers: &HeaderMap) -> ResponseMode {
    if accepts(headers, "text/event-stream") {
        ResponseMode::Stream
    } else if prefers(headers, "respond-async") {
        ResponseMode::Async
    } else {
        ResponseMode::Wait
    }
}

fn parse_submission(
    jobs: &JobService,
    body: &Bytes,
    headers: &HeaderMap,
    kind: JobKind,
    account: Account,
    url_id: Option<String>,
    response_mode: ResponseMode,
) -> Result<Submission, ApiError> {
    let request = CreateRequest::parse(body)?;
    if let (Some(in_url), Some(in_body)) = (&url_id, &request.id)
        && in_url != in_body
    {
        return Err(ApiError::IdMismatch(kind));
    }
    if kind == JobKind::Training && response_mode == ResponseMode::Stream {
        return Err(ApiError::TrainingStream);
    }
    let on_duplicate = if url_id.is_some() {
        OnDuplicateId::Answer
    } else {
        OnDuplicateId::Refuse
    };
    planted!(RepeatedPut, let on_duplicate = OnDuplicateId::Refuse);
    let id = url_id
        .as_deref()
        .or(request.id.as_deref())
        .map(JobId::parse)
        .transpose();
    let id = id.map_err(|error| ApiError::InvalidId {
        error,
        in_url: on_duplicate == OnDuplicateId::Answer,
    })?;
    let input = match request.input {
        Some(raw) if raw.get() != "null" => slice_or_copy(body, raw.get()),
        Some(_) | None => Bytes::from_static(b"{}"),
    };
    let warnings = match request.input {
        Some(_) => Vec::new(),
        None => misspelt_input(body).into_iter().collect(),
    };
    let webhook = request
        .webhook
        .as_deref()
        .filter(|url| !url.is_empty())
        .map(|url| webhook(jobs, url, &request, headers))
        .transpose()?;
    let deadline = cancel_after(headers)?;
    Ok(Submission {
        account,
        id,
        kind,
        input,
        webhook,
        context: request.context.unwrap_or_default(),
        response_mode,
        on_duplicate,
        deadline,
        api: Api::Cog,
        policies: Api::Cog.policies(),
        deployment: None,
        destination: None,
        warnings,
    })
}

fn webhook(
    jobs: &JobService,
    url: &str,
    request: &CreateRequest<'_>,
    headers: &HeaderMap,
) -> Result<Arc<Webhook>, Refusal> {
    let url = jobs
        .webhook_url(url)
        .inspect_err(|refusal| jobs.count_refusal(Api::Cog, refusal))?;
    let filter = EventFilter::only(
        request
            .webhook_events_filter
            .iter()
            .map(|name| (*name).into()),
    );
    let (updates, renderer) = (
        Api::Cog.policies().updates,
        WebhookRenderer::new(reply::result_body),
    );
    Ok(Arc::new(Webhook {
        url,
        filter,
        headers: trace_headers(headers),
        updates,
        origin: None,
        streams: false,
        streams_files: false,
        renderer,
    }))
}
