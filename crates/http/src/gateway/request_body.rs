//! Reads the body of a request as far as the router needs it: to its end if it is small enough to be
//! repeated, otherwise until the model is known.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use bytes::{Bytes, BytesMut};
use futures_util::future::poll_fn;
use hyper::body::{Body as _, Frame, SizeHint};
use tidegate_net::upstream::{BoxError, UpstreamRequestBody};
use tidegate_router::body_scan::{BodyScanner, InvalidBody, ScannedBody};
use tokio::time::Sleep;

use super::error::GatewayError;
use super::form_model::FormModel;

/// The longest time without a byte while a body is read.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The body of a request.
pub(super) enum RequestBody {
    /// All of it.
    Kept(Bytes),
    /// It is too large to be kept. It can be sent once.
    Arriving(Option<Box<ArrivingBody>>),
}

/// A body that is still arriving.
pub(super) struct ArrivingBody {
    read: Option<Bytes>,
    rest: Body,
    /// Reads the rest of a JSON body that has not named its model yet.
    scanner: Option<BodyScanner>,
    /// What the rest may name: the model that was admitted, as the backend calls it.
    expected_model: String,
    /// Ends a body whose client sends nothing.
    timer: Option<Pin<Box<Sleep>>>,
}

/// Why the rest of a body does not reach the backend.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub(super) enum RefusedRest {
    /// It names the model, and the backend has another name for it.
    #[error(
        "the body is larger than `limits.buffer`, and its `model` comes too late to be replaced by the name that the backend has: send `model` first"
    )]
    LateModel,
    /// It is not JSON.
    #[error(transparent)]
    Invalid(InvalidBody),
}

impl RefusedRest {
    /// The one that has made a request fail.
    pub(super) fn find(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut causes = std::iter::successors(Some(error), |cause| Error::source(*cause));
        causes.find_map(|cause| cause.downcast_ref().copied())
    }
}

/// A body and what was found in it.
pub(super) struct ReadRequest {
    pub(super) body: RequestBody,
    /// `None` if it is not JSON.
    pub(super) scan: Option<ScannedBody>,
    /// The model of a form.
    pub(super) form_model: Option<FormModel>,
}

impl RequestBody {
    /// The number of bytes that are kept.
    pub(super) fn kept_len(&self) -> usize {
        match self {
            Self::Kept(bytes) => bytes.len(),
            Self::Arriving(_) => 0,
        }
    }

    /// The bytes that are known: all of them, or the beginning.
    pub(super) fn known_bytes(&self) -> &[u8] {
        match self {
            Self::Kept(bytes) => bytes,
            Self::Arriving(body) => {
                let read = body.as_ref().and_then(|body| body.read.as_ref());
                read.map_or(&[], |read| read)
            }
        }
    }

    /// The body for an attempt, with other bytes in place of the known ones.
    pub(super) fn with_known_bytes(&mut self, changed: Bytes) -> UpstreamRequestBody {
        match self {
            Self::Kept(_) => UpstreamRequestBody::Full(changed),
            Self::Arriving(body) => {
                if let Some(body) = body {
                    body.read = Some(changed);
                }
                self.for_attempt()
            }
        }
    }

    /// Lets the rest of a body name only this model.
    pub(super) fn expect_model(&mut self, name: &str) {
        if let Self::Arriving(Some(body)) = self {
            name.clone_into(&mut body.expected_model);
        }
    }

    /// The body for an attempt. An arriving body is there once.
    pub(super) fn for_attempt(&mut self) -> UpstreamRequestBody {
        match self {
            Self::Kept(bytes) if bytes.is_empty() => UpstreamRequestBody::Empty,
            Self::Kept(bytes) => UpstreamRequestBody::Full(bytes.clone()),
            Self::Arriving(body) => body.take().map_or(UpstreamRequestBody::Empty, |body| {
                UpstreamRequestBody::Stream(Box::into_pin(body))
            }),
        }
    }
}

/// Reads a body of up to `limit` bytes. Of a larger one, only as much as is needed to find the model,
/// unless the path names it.
pub(super) async fn read(
    mut body: Body,
    headers: &HeaderMap,
    limit: usize,
    names_model: bool,
) -> Result<ReadRequest, GatewayError> {
    let mut scanner = is_json(headers)?.then(BodyScanner::default);
    let mut read = ReadBytes::default();
    let mut has_searched_form = false;
    loop {
        let Some(data) = next_data(&mut body).await? else {
            break;
        };
        if let Some(scanner) = &mut scanner {
            scanner.push(&data).map_err(GatewayError::from_scan)?;
        }
        read.push(data);
        if read.len() <= limit {
            continue;
        }
        // Searched once: clients send the model before the file.
        let form_model = match has_searched_form {
            true => None,
            false => read.with_bytes(|bytes| FormModel::find(headers, bytes)),
        };
        has_searched_form = true;
        let in_json = scanner
            .as_ref()
            .map(|scanner| scanner.found().model.is_some());
        if names_model || form_model.is_some() || in_json.unwrap_or(false) {
            let scan = scanner.as_ref().map(|scanner| scanner.found().clone());
            return Ok(ReadRequest {
                body: RequestBody::Arriving(Some(Box::new(ArrivingBody {
                    read: Some(read.into_bytes()),
                    rest: body,
                    scanner: scanner.filter(|scanner| scanner.found().model.is_none()),
                    expected_model: String::new(),
                    timer: None,
                }))),
                scan,
                form_model,
            });
        }
        if read.len() > limit.saturating_mul(2) {
            return Err(GatewayError::ModelTooLate { limit });
        }
    }
    let bytes = read.into_bytes();
    let scan = match scanner {
        Some(_) if bytes.is_empty() => None,
        Some(scanner) => Some(scanner.finish().map_err(GatewayError::from_scan)?),
        None => None,
    };
    Ok(ReadRequest {
        form_model: FormModel::find(headers, &bytes),
        body: RequestBody::Kept(bytes),
        scan,
    })
}

/// Whether the body is JSON. A compressed one cannot be read.
fn is_json(headers: &HeaderMap) -> Result<bool, GatewayError> {
    if let Some(encoding) = headers.get(CONTENT_ENCODING)
        && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        return Err(GatewayError::CompressedBody);
    }
    let Some(content_type) = headers.get(CONTENT_TYPE) else {
        return Ok(true);
    };
    let content_type = content_type.as_bytes();
    let essence = content_type.split(|byte| *byte == b';').next();
    let essence = essence.unwrap_or_default().trim_ascii();
    Ok(essence.eq_ignore_ascii_case(b"application/json")
        || essence.to_ascii_lowercase().ends_with(b"+json")
        || essence.eq_ignore_ascii_case(b"text/plain")
        || essence.eq_ignore_ascii_case(b"application/x-www-form-urlencoded"))
}

async fn next_data(body: &mut Body) -> Result<Option<Bytes>, GatewayError> {
    loop {
        if body.is_end_stream() {
            return Ok(None);
        }
        let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx));
        match tokio::time::timeout(BODY_TIMEOUT, frame).await {
            Err(_) => return Err(GatewayError::SlowBody(BODY_TIMEOUT)),
            Ok(None) => return Ok(None),
            Ok(Some(Err(error))) => return Err(GatewayError::BrokenBody(error.to_string())),
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data()
                    && !data.is_empty()
                {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// The bytes that were read. A body of one piece is not copied.
#[derive(Default)]
struct ReadBytes {
    first: Option<Bytes>,
    joined: BytesMut,
}

impl ReadBytes {
    fn len(&self) -> usize {
        self.first.as_ref().map_or(self.joined.len(), Bytes::len)
    }

    fn with_bytes<T>(&self, read: impl FnOnce(&[u8]) -> T) -> T {
        match &self.first {
            Some(first) => read(first),
            None => read(&self.joined),
        }
    }

    fn push(&mut self, data: Bytes) {
        if self.first.is_none() && self.joined.is_empty() {
            self.first = Some(data);
            return;
        }
        if let Some(first) = self.first.take() {
            self.joined.reserve((first.len() + data.len()) * 2);
            self.joined.extend_from_slice(&first);
        }
        self.joined.extend_from_slice(&data);
    }

    fn into_bytes(self) -> Bytes {
        self.first.unwrap_or_else(|| self.joined.freeze())
    }
}

impl ArrivingBody {
    /// Passes a part of the rest, unless it names the model by another name than the backend's: the length of
    /// the body, which the backend knows, cannot change any more.
    fn check(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, BoxError> {
        if let (Some(scanner), Some(data)) = (&mut self.scanner, frame.data_ref()) {
            scanner.push(data).map_err(RefusedRest::Invalid)?;
            let model = scanner.found().model.as_ref();
            if model.is_some_and(|model| model.name() != self.expected_model) {
                return Err(RefusedRest::LateModel.into());
            }
        }
        Ok(frame)
    }
}

impl hyper::body::Body for ArrivingBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if let Some(read) = this.read.take() {
            return Poll::Ready(Some(Ok(Frame::data(read))));
        }
        if let Poll::Ready(frame) = Pin::new(&mut this.rest).poll_frame(cx) {
            this.timer = None;
            return Poll::Ready(frame.map(|frame| this.check(frame?)));
        }
        let timer = this
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(BODY_TIMEOUT)));
        std::task::ready!(timer.as_mut().poll(cx));
        Poll::Ready(Some(Err(BoxError::from("the client sent nothing"))))
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.size_hint();
        let read = self.read.as_ref().map_or(0, Bytes::len) as u64;
        match rest.exact() {
            Some(rest) => SizeHint::with_exact(rest + read),
            None => SizeHint::default(),
        }
    }
}
