//! What is known about one request of the router, collected until its response has ended: then it is
//! counted, and its inference event is sent.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;
use tidegate_core::Account;
use tidegate_core::text_generation::Usage;
use tidegate_router::accounts::AccountGuard;
use tidegate_router::fleet::FleetModel;
use tidegate_router::forward::{AttemptLog, ForwardedBodyError};
use tokio::time::Instant;

use super::event::InferenceEvent;
use super::model_metrics::RoutedModelMetrics;
use super::route::ClientApi;
use super::telemetry::GatewayTelemetry;
use super::usage_tail::UsageTail;

/// One request, from its arrival to the last byte of its response. Dropping it ends it: the client has
/// gone.
pub(super) struct RequestRecord(Option<Box<RequestDetails>>);

/// What is known about a request.
pub(super) struct RequestDetails {
    pub(super) telemetry: Arc<GatewayTelemetry>,
    pub(super) metrics: Arc<RoutedModelMetrics>,
    pub(super) arrived: Instant,
    pub(super) model: Arc<FleetModel>,
    pub(super) account: Account,
    pub(super) api: ClientApi,
    pub(super) is_stream: bool,
    /// The number of waiting requests when it arrived.
    pub(super) queue_len: usize,
    /// The sites that it has passed.
    pub(super) site_path: Vec<String>,
    pub(super) trace_id: String,
    pub(super) log: AttemptLog,
    pub(super) status: StatusCode,
    /// The number of the error that the client received.
    pub(super) error: Option<u32>,
    pub(super) first_byte: Option<Duration>,
    pub(super) usage: UsageTail,
    /// The usage that a translation has found.
    pub(super) known_usage: Option<Usage>,
    /// Given back at the end of the request.
    pub(super) _account: AccountGuard,
}

impl RequestRecord {
    /// Begins a record.
    pub(super) fn new(details: RequestDetails) -> Self {
        Self(Some(Box::new(details)))
    }

    /// The details, until the record has ended.
    pub(super) fn details(&mut self) -> Option<&mut RequestDetails> {
        self.0.as_deref_mut()
    }

    /// The head of the response is known.
    pub(super) fn answered(&mut self, status: StatusCode, log: AttemptLog) {
        if let Some(details) = self.details() {
            details.status = status;
            details.log = log;
        }
    }

    /// The client receives an error.
    pub(super) fn failed(&mut self, status: StatusCode, number: u32) {
        if let Some(details) = self.details() {
            details.status = status;
            details.error = Some(number);
        }
    }

    /// Bytes of the response pass to the client.
    pub(super) fn bytes(&mut self, bytes: &Bytes) {
        if let Some(details) = self.details() {
            if details.first_byte.is_none() {
                details.first_byte = Some(details.arrived.elapsed());
            }
            details.usage.push(bytes);
        }
    }

    /// A translation has found the number of tokens.
    pub(super) fn usage(&mut self, usage: Option<Usage>) {
        if let Some(details) = self.details() {
            details.known_usage = usage;
        }
    }

    /// The response was cut.
    pub(super) fn cut(&mut self, error: &ForwardedBodyError) {
        if let Some(details) = self.details() {
            tracing::warn!(model = details.model.name, endpoint = ?details.log.endpoint, %error, "response was cut");
            details.error = Some(3050);
            details.metrics.count_cut();
        }
        self.end();
    }

    /// The last byte has passed.
    pub(super) fn complete(&mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(details) = self.0.take() {
            details.metrics.count(&details);
            if details.telemetry.has_event_sink() {
                details.telemetry.send(InferenceEvent::of(&details));
            }
        }
    }
}

impl RequestDetails {
    /// The number of tokens, if the response says so.
    pub(super) fn tokens(&self) -> Option<Usage> {
        self.known_usage.or_else(|| self.usage.find())
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        if let Some(details) = self.details()
            && details.error.is_none()
        {
            // 3008: the request was aborted.
            details.error = Some(3008);
        }
        self.end();
    }
}
