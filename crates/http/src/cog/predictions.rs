//! Create, look up and cancel predictions and trainings.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use tidegate_core::planted::{Planted, planted};
use tidegate_core::record::Api;
use tidegate_core::{Account, JobId, JobKind, Refusal};
use tidegate_service::{
    EventFilter, JobService, OnDuplicateId, ResponseMode, Submission, Submitted, UpdatePolicy,
    Webhook, WebhookRenderer,
};

use super::reply::{self, ApiError};
use super::wire::Envelope;
use super::{Shared, stream};
use crate::access::Identity;
use crate::shared::body_limit::{BodyLimit, read_json_body, slice_or_copy};
use crate::shared::cancel_after::cancel_after;
use crate::shared::header_lists::{accepts, prefers};
use crate::shared::trace_headers::trace_headers;

/// The id in a path.
pub(super) struct PathId(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for PathId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let id = Path::<String>::from_request_parts(parts, state).await;
        id.map(|Path(id)| Self(id))
            .map_err(|_| ApiError::UnreadablePath)
    }
}

/// `POST /predictions` and, with an id, `PUT /predictions/{id}`.
pub(super) async fn create(
    State(face): State<Shared>,
    kind: JobKind,
    caller: Identity,
    url_id: Option<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let (Parts { headers, .. }, body) = request.into_parts();
    let delivery = wanted(&headers);
    let bounds = BodyLimit {
        max_bytes: face.config.max_body,
        stall_timeout: face.config.body_timeout,
    };
    let body = read_json_body(&headers, body, bounds).await?;
    let jobs = face.jobs();
    let submission = read(
        &jobs,
        &body,
        &headers,
        kind,
        caller.account,
        url_id,
        delivery,
    )?;
    match jobs.submit(submission).await? {
        Submitted::New(mut ticket) => match delivery {
            ResponseMode::Wait => {
                ticket.ended().await;
                Ok(reply::finished(&ticket.job().snapshot()))
            }
            ResponseMode::Async => Ok(reply::accepted(ticket.job().id())),
            ResponseMode::Stream => Ok(stream::answer(
                ticket.into_reader().ok_or(ApiError::TooManyReaders)?,
                None,
            )),
        },
        // It may have come by another face.
        Submitted::Running(job) | Submitted::Over(job) if delivery == ResponseMode::Stream => {
            let reader = job.follow().map_err(|_| ApiError::TooManyReaders)?;
            Ok(stream::answer(
                reader,
                Some(face.config.cross_api.for_request(&headers)),
            ))
        }
        Submitted::Running(job) => Ok(reply::snapshot(
            StatusCode::ACCEPTED,
            &face.config.cross_api.for_request(&headers).snapshot(&job),
        )),
        Submitted::Over(job) => Ok(reply::finished(
            &face.config.cross_api.for_request(&headers).snapshot(&job),
        )),
    }
}

/// `GET /predictions/{id}`
pub(super) async fn show(
    State(face): State<Shared>,
    caller: Identity,
    PathId(id): PathId,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let job = match JobId::parse(&id) {
        Ok(id) => face.jobs().get(&caller.account, &id).await,
        Err(_) => None,
    };
    let job = job.ok_or(ApiError::Unknown(id))?;
    Ok(reply::details(
        &face.config.cross_api.for_request(&headers).snapshot(&job),
    ))
}

/// `POST /predictions/{id}/cancel`
pub(super) async fn cancel(
    State(face): State<Shared>,
    caller: Identity,
    PathId(id): PathId,
) -> Response {
    let canceled = match JobId::parse(&id) {
        Ok(id) => face.jobs().cancel(&caller.account, &id).await,
        Err(_) => false,
    };
    reply::empty(if canceled {
        StatusCode::OK
    } else {
        StatusCode::NOT_FOUND
    })
}

/// A stream before a promise before an answer.
fn wanted(headers: &HeaderMap) -> ResponseMode {
    if accepts(headers, "text/event-stream") {
        ResponseMode::Stream
    } else if prefers(headers, "respond-async") {
        ResponseMode::Async
    } else {
        ResponseMode::Wait
    }
}

fn read(
    jobs: &JobService,
    body: &Bytes,
    headers: &HeaderMap,
    kind: JobKind,
    account: Account,
    url_id: Option<String>,
    delivery: ResponseMode,
) -> Result<Submission, ApiError> {
    let envelope = Envelope::read(body)?;
    if let (Some(in_url), Some(in_body)) = (&url_id, &envelope.id)
        && in_url != in_body
    {
        return Err(ApiError::IdMismatch(kind));
    }
    if kind == JobKind::Training && delivery == ResponseMode::Stream {
        return Err(ApiError::TrainingStream);
    }
    let replay = if url_id.is_some() && !planted(Planted::RepeatedPut) {
        OnDuplicateId::Answer
    } else {
        OnDuplicateId::Refuse
    };
    let id = url_id
        .as_deref()
        .or(envelope.id.as_deref())
        .map(JobId::parse)
        .transpose();
    let id = id.map_err(|error| ApiError::BadId {
        error,
        in_url: replay == OnDuplicateId::Answer,
    })?;
    let input = match envelope.input {
        Some(raw) if raw.get() != "null" => slice_or_copy(body, raw.get()),
        Some(_) | None => Bytes::from_static(b"{}"),
    };
    let webhook = envelope
        .webhook
        .as_deref()
        .filter(|url| !url.is_empty())
        .map(|url| webhook(jobs, url, &envelope, headers))
        .transpose()?;
    let deadline = cancel_after(headers)?;
    Ok(Submission {
        account,
        id,
        kind,
        input,
        webhook,
        context: envelope.context.unwrap_or_default(),
        delivery,
        replay,
        deadline,
        api: Api::Cog,
        deployment: None,
        destination: None,
    })
}

fn webhook(
    jobs: &JobService,
    url: &str,
    envelope: &Envelope<'_>,
    headers: &HeaderMap,
) -> Result<Arc<Webhook>, Refusal> {
    let url = jobs
        .webhook_url(url)
        .inspect_err(|refusal| jobs.count_refusal(Api::Cog, refusal))?;
    let filter = EventFilter::only(
        envelope
            .webhook_events_filter
            .iter()
            .map(|name| (*name).into()),
    );
    let (pace, renderer) = (
        UpdatePolicy::of(Api::Cog),
        WebhookRenderer::new(reply::result_body),
    );
    Ok(Arc::new(Webhook {
        url,
        filter,
        headers: trace_headers(headers),
        pace,
        origin: None,
        streams: false,
        streams_files: false,
        renderer,
    }))
}
