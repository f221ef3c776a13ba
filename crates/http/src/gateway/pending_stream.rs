//! A stream that was promised to the client before its first byte: comments keep the connection open until
//! a backend answers, and a failure is an event of the stream.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Frame;
use tidegate_router::forward::{ForwardFailure, Forwarded, ForwardedBodyError};
use tokio::time::{Instant, Sleep};

use super::error::GatewayError;
use super::inference::{AnswerContext, ForwardResult, is_event_stream};
use super::record::RequestRecord;
use super::relay_body::{COMMENT, KEEP_ALIVE, RelayBody};
use super::reply;
use super::route::ClientApi;
use super::translate;
use super::translated_body::TranslatedBody;
use crate::shared::response::event_stream;

/// A request that is being forwarded.
pub(super) type PendingStream = Pin<Box<dyn Future<Output = ForwardResult> + Send>>;

/// A body that begins with comments.
struct PendingBody {
    api: ClientApi,
    state: PendingState,
}

enum PendingState {
    Waiting {
        request: PendingStream,
        timer: Pin<Box<Sleep>>,
        /// Whether the first comment was sent.
        has_begun: bool,
    },
    Relaying(Box<RelayBody>),
    Translating(Box<TranslatedBody>),
    /// The answer is not a stream and is read as a whole.
    Reading(Pin<Box<dyn Future<Output = Bytes> + Send>>),
    Ended,
}

/// A response with status 200 for a request without an answer yet.
pub(super) fn response(api: ClientApi, request: PendingStream) -> Response {
    let state = PendingState::Waiting {
        request,
        timer: Box::pin(tokio::time::sleep(KEEP_ALIVE)),
        has_begun: false,
    };
    event_stream(Body::new(PendingBody { api, state }))
}

impl PendingBody {
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let PendingState::Waiting {
            request,
            timer,
            has_begun,
        } = &mut self.state
        else {
            return Poll::Ready(None);
        };
        if !*has_begun {
            *has_begun = true;
            return Poll::Ready(Some(Bytes::from_static(COMMENT)));
        }
        if let Poll::Ready((result, record)) = request.as_mut().poll(cx) {
            return Poll::Ready(self.begin(result, record));
        }
        ready!(timer.as_mut().poll(cx));
        timer.as_mut().reset(Instant::now() + KEEP_ALIVE);
        Poll::Ready(Some(Bytes::from_static(COMMENT)))
    }

    /// Continues with the answer of a backend. Returns the event of an error.
    fn begin(
        &mut self,
        result: Result<(Forwarded, AnswerContext), Box<ForwardFailure>>,
        mut record: RequestRecord,
    ) -> Option<Bytes> {
        self.state = PendingState::Ended;
        let reply = match result {
            Err(failure) => {
                let failure = *failure;
                let reply = GatewayError::Forward(failure.error).reply();
                record.answered(axum::http::StatusCode::OK, failure.log);
                reply
            }
            Ok((forwarded, context)) => {
                record.answered(axum::http::StatusCode::OK, forwarded.log.clone());
                let is_success = forwarded.head.status.is_success();
                let is_stream = is_success && is_event_stream(&forwarded.head.headers);
                self.state = match forwarded.answer.clone() {
                    None if is_stream => {
                        let body = RelayBody::events(forwarded.body, record, self.api);
                        PendingState::Relaying(Box::new(body))
                    }
                    Some(format) if is_stream => {
                        let api = self.api;
                        let body = translate::stream_body(api, format, forwarded, &context, record);
                        PendingState::Translating(Box::new(body))
                    }
                    Some(_) | None => {
                        let api = self.api;
                        let read = translate::promised_events(api, forwarded, context, record);
                        PendingState::Reading(Box::pin(read))
                    }
                };
                return None;
            }
        };
        record.failed(axum::http::StatusCode::OK, reply.number);
        Some(reply::error_event(self.api, &reply))
    }
}

impl hyper::body::Body for PendingBody {
    type Data = Bytes;
    type Error = ForwardedBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ForwardedBodyError>>> {
        let this = self.get_mut();
        if let PendingState::Waiting { .. } = this.state
            && let Some(bytes) = ready!(this.poll_waiting(cx))
        {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        match &mut this.state {
            PendingState::Relaying(body) => Pin::new(&mut **body).poll_frame(cx),
            PendingState::Translating(body) => Pin::new(&mut **body).poll_frame(cx),
            PendingState::Reading(read) => {
                let events = ready!(read.as_mut().poll(cx));
                this.state = PendingState::Ended;
                Poll::Ready(Some(Ok(Frame::data(events))))
            }
            PendingState::Waiting { .. } | PendingState::Ended => Poll::Ready(None),
        }
    }
}
