//! The inference event: one line of JSON for each request, for a log forwarder.

use jiff::Timestamp;
use serde::Serialize;

use super::model_metrics::millis;
use super::record::RequestDetails;

/// One request that has ended.
#[derive(Debug, Serialize)]
pub(super) struct InferenceEvent {
    timestamp: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    trace_id: String,
    account_id: String,
    model: String,
    api: &'static str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<u32>,
    attempts: u32,
    // Times.
    request_time_ms: f64,
    inference_time_ms: f64,
    queuing_time_ms: f64,
    time_to_first_token: Option<f64>,
    // Cost.
    neurons: f64,
    cost_metrics: CostMetrics,
    // Routing.
    colo_id: String,
    source_colo_id: String,
    colo_path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream_address: Option<String>,
    // Queue.
    local_queue_size: usize,
    // Flags.
    streamed: bool,
    beta: bool,
    external_endpoint: bool,
    queued_in_colo: bool,
}

/// What the cost of a request is computed from.
#[derive(Debug, Serialize)]
struct CostMetrics {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

impl InferenceEvent {
    /// The event of a request.
    pub(super) fn of(request: &RequestDetails) -> Self {
        let total = request.arrived.elapsed();
        let log = &request.log;
        let usage = request.tokens();
        let cost = &request.model.cost;
        let tokens = usage.map_or(0, |usage| usage.total_tokens);
        let site = request.telemetry.site();
        let source = request.site_path.first().unwrap_or(&site).clone();
        let path = request.site_path.iter().chain([&site]);
        let path: Vec<&str> = path.map(String::as_str).filter(|s| !s.is_empty()).collect();
        Self {
            timestamp: Timestamp::now(),
            request_id: log.request_id.map(|id| id.to_string()),
            trace_id: request.trace_id.clone(),
            account_id: request.account.to_string(),
            model: request.model.name.clone(),
            api: request.api.name(),
            status: request.status.as_u16(),
            error_code: request.error,
            attempts: log.attempts,
            request_time_ms: millis(total),
            inference_time_ms: millis(total.saturating_sub(log.waited)),
            queuing_time_ms: millis(log.waited),
            time_to_first_token: request.first_byte.map(millis),
            neurons: cost.neurons_per_request + cost.neurons_per_token * tokens as f64,
            cost_metrics: CostMetrics {
                input_tokens: usage.map(|usage| usage.prompt_tokens),
                output_tokens: usage.map(|usage| usage.completion_tokens),
            },
            colo_id: site.clone(),
            source_colo_id: source,
            colo_path: path.join(","),
            upstream_address: log.endpoint.as_ref().map(ToString::to_string),
            local_queue_size: request.queue_len,
            streamed: request.is_stream,
            beta: false,
            external_endpoint: !log.is_local && log.endpoint.is_some(),
            queued_in_colo: !log.waited.is_zero(),
        }
    }
}
