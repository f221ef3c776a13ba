//! Every response of the local API: status codes and bodies of results and refusals.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, Bytes, BytesMut};
use tidegate_core::{Refusal, Status};
use tidegate_service::Snapshot;

use super::render::capacity;
use super::wire::Fault;
use crate::runpod::status::status_name;
use crate::shared::body_limit::BodyError;
use crate::shared::json_object::JsonObjectWriter;
use crate::shared::response::{json, retry_soon};

/// The result of a job in the format of Runpod's own server, which omits null values.
pub(super) fn outcome(job: &Snapshot) -> Response {
    let mut body = JsonObjectWriter::with_capacity(capacity(job));
    body.field("id", &job.id)
        .field("status", status_name(job.status));
    match job.status {
        Status::Succeeded => body.raw(
            "output",
            job.output
                .as_ref()
                .filter(|output| ***output != b"null"[..]),
        ),
        _ => body.maybe("error", job.error.as_deref()),
    };
    json(StatusCode::OK, body.finish())
}

/// The parts of a job's output, each wrapped as `{"output": …}`.
pub(super) fn parts(job: &Snapshot, parts: &[Bytes]) -> Response {
    let stream = wrap_parts(parts);
    let mut body = JsonObjectWriter::with_capacity(stream.len() + 512);
    body.field("id", &job.id)
        .field("status", status_name(job.status))
        .raw("stream", Some(&stream));
    json(
        StatusCode::OK,
        body.maybe("error", job.error.as_deref()).finish(),
    )
}

fn wrap_parts(parts: &[Bytes]) -> Bytes {
    let mut list =
        BytesMut::with_capacity(parts.iter().map(|part| part.len() + 16).sum::<usize>() + 2);
    list.put_u8(b'[');
    for (n, part) in parts.iter().enumerate() {
        list.put_slice(if n > 0 {
            b",{\"output\":"
        } else {
            b"{\"output\":"
        });
        list.put_slice(part);
        list.put_u8(b'}');
    }
    list.put_u8(b']');
    list.freeze()
}

/// The metric by which a handler asks for a new process; see `tidegate.handler.calls`.
const STOP_POD: &str = "stop_pod";
/// The metric with the values that a handler returned besides `error`.
const BESIDE_ERROR: &str = "beside_error";

/// The response of `realtime`: only the result. As in Runpod's own server, an empty object is no
/// output.
pub(super) fn realtime_result(job: &Snapshot) -> Response {
    let mut body = JsonObjectWriter::with_capacity(capacity(job));
    match job.status {
        Status::Succeeded => body.raw(
            "output",
            job.output.as_ref().filter(|output| ***output != b"{}"[..]),
        ),
        Status::Canceled | Status::Aborted => body.field("error", "the job was canceled"),
        _ => body
            .maybe("output", job.metrics.get(BESIDE_ERROR))
            .maybe("error", job.error.as_deref()),
    };
    if job.metrics.contains_key(STOP_POD) {
        body.field("stopPod", &true);
    }
    json(StatusCode::OK, body.finish())
}

/// A job's id and status.
pub(super) fn job_status(id: &str, status: &str) -> Response {
    json(
        StatusCode::OK,
        JsonObjectWriter::with_capacity(64)
            .field("id", id)
            .field("status", status)
            .finish(),
    )
}

/// The response for a job that cannot be shown; Runpod reports it as failed.
pub(super) fn failed(id: &str, error: &str) -> Response {
    let mut body = JsonObjectWriter::with_capacity(128);
    json(
        StatusCode::OK,
        body.field("id", id)
            .field("status", "FAILED")
            .field("error", error)
            .finish(),
    )
}

/// The response to a method that the path does not support. `Allow` lists the supported ones.
pub(super) async fn no_such_method() -> Response {
    detail(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")
}

fn detail(status: StatusCode, text: &str) -> Response {
    json(
        status,
        JsonObjectWriter::with_capacity(text.len())
            .field("detail", text)
            .finish(),
    )
}

/// Every error of a request to the local API.
pub(super) enum ApiError {
    Body(BodyError),
    Invalid(Vec<Fault>),
    Refused(Refusal),
}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> Self {
        Self::Body(error)
    }
}

impl From<Vec<Fault>> for ApiError {
    fn from(faults: Vec<Fault>) -> Self {
        Self::Invalid(faults)
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        match self {
            Self::Body(error) => error
                .reason()
                .tag(detail(error.status(), &error.to_string())),
            Self::Invalid(faults) => json(
                StatusCode::UNPROCESSABLE_ENTITY,
                JsonObjectWriter::with_capacity(256)
                    .field("detail", &faults)
                    .finish(),
            ),
            Self::Refused(refusal @ Refusal::StoreUnavailable) => {
                retry_soon(detail(status_of(&refusal), &refusal.to_string()))
            }
            Self::Refused(refusal) => detail(status_of(&refusal), &refusal.to_string()),
        }
    }
}

fn status_of(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::NotReady { .. } | Refusal::Closing | Refusal::StoreUnavailable => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Refusal::AtCapacity | Refusal::QueueFull(_) => StatusCode::TOO_MANY_REQUESTS,
        Refusal::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        Refusal::IdInUse(_) | Refusal::InputDiffers(_) => StatusCode::CONFLICT,
        Refusal::InvalidInput(_) | Refusal::NotStreaming | Refusal::BadWebhook { .. } => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
    }
}
