//! The metrics of a router: requests, permits, queues and endpoints by model.

use std::sync::Arc;

use tidegate_core::counters::{Counter, Histogram};
use tidegate_router::FleetRegistry;
use tidegate_router::control::FleetControl;
use tidegate_router::statistics::{EndpointStatistics, ModelStatistics};
use tokio::time::Instant;

use super::families::{
    MetricFamily, MetricSnapshot, MetricValue, Sample, counter, gauge, histogram, unlabeled,
};
use crate::gateway::model_metrics::{LabeledCounts, RoutedModelMetrics};
use crate::gateway::telemetry::GatewayTelemetry;

/// Where the metrics of a router come from.
#[derive(Clone)]
pub struct RouterMetricSource {
    pub(crate) registry: Arc<FleetRegistry>,
    pub(crate) telemetry: Arc<GatewayTelemetry>,
    pub(crate) control: FleetControl,
}

/// The families.
pub(super) const ROUTER: &[MetricFamily] = &[
    counter(
        "tidegate_router_requests_total",
        "Requests for inferences that have ended, by model and HTTP status",
        |snapshot| {
            labeled(snapshot, |counts| {
                let by_status = counts.by_status.iter();
                by_status
                    .map(|(status, n)| (vec![("status", status.to_string())], *n))
                    .collect()
            })
        },
    ),
    counter(
        "tidegate_router_api_requests_total",
        "Requests for inferences that have ended, by model and API of the client",
        |snapshot| {
            labeled(snapshot, |counts| {
                let by_api = counts.by_api.iter();
                by_api
                    .map(|(api, n)| (vec![("api", (*api).to_owned())], *n))
                    .collect()
            })
        },
    ),
    counter(
        "tidegate_router_errors_total",
        "Requests for inferences that failed, by model, internal error code and HTTP status",
        |snapshot| {
            labeled(snapshot, |counts| {
                let errors = counts.errors.iter();
                errors
                    .map(|((code, status), n)| {
                        let labels =
                            vec![("code", code.to_string()), ("status", status.to_string())];
                        (labels, *n)
                    })
                    .collect()
            })
        },
    ),
    counter(
        "tidegate_router_infer_per_backend_total",
        "Requests by model and the endpoint of their last attempt",
        |snapshot| {
            labeled(snapshot, |counts| {
                let by_backend = counts.by_backend.iter();
                by_backend
                    .map(|((kind, endpoint), n)| {
                        let kind = (*kind).to_owned();
                        (vec![("kind", kind), ("endpoint", endpoint.clone())], *n)
                    })
                    .collect()
            })
        },
    ),
    counter(
        "tidegate_router_infer_per_health_state_total",
        "Requests by model and the health of the endpoint of their last attempt when it was chosen",
        |snapshot| {
            labeled(snapshot, |counts| {
                let by_health = counts.by_health.iter();
                by_health
                    .map(|(state, n)| (vec![("state", (*state).to_owned())], *n))
                    .collect()
            })
        },
    ),
    counter(
        "tidegate_router_retries_total",
        "Attempts after the first one of a request, by model",
        |snapshot| count(snapshot, |metrics| &metrics.retries),
    ),
    counter(
        "tidegate_router_cut_responses_total",
        "Responses that ended before they were complete, after the first byte, by model",
        |snapshot| count(snapshot, |metrics| &metrics.cuts),
    ),
    counter(
        "tidegate_router_prompt_tokens_total",
        "Tokens of prompts, as far as backends report them, by model",
        |snapshot| count(snapshot, |metrics| &metrics.prompt_tokens),
    ),
    counter(
        "tidegate_router_completion_tokens_total",
        "Tokens of generated texts, as far as backends report them, by model",
        |snapshot| count(snapshot, |metrics| &metrics.completion_tokens),
    ),
    histogram(
        "tidegate_router_request_seconds",
        "Time from the arrival of a request to the last byte of its response, by model",
        |snapshot| times(snapshot, |metrics| &metrics.duration),
    ),
    histogram(
        "tidegate_router_first_byte_seconds",
        "Time from the arrival of a request to the first byte of its response, by model",
        |snapshot| times(snapshot, |metrics| &metrics.first_byte),
    ),
    histogram(
        "tidegate_router_queue_seconds",
        "Time of requests in the queue of their model",
        |snapshot| times(snapshot, |metrics| &metrics.queue_time),
    ),
    histogram(
        "tidegate_router_overhead_seconds",
        "Time to the first byte that is neither queue nor backend, by model",
        |snapshot| times(snapshot, |metrics| &metrics.overhead),
    ),
    gauge(
        "tidegate_router_total_permits",
        "Permits of the endpoints of a model",
        |snapshot| model(snapshot, |model| f64::from(model.total_permits)),
    ),
    gauge(
        "tidegate_router_used_permits",
        "Permits in use by requests of a model",
        |snapshot| model(snapshot, |model| model.used_permits as f64),
    ),
    gauge(
        "tidegate_router_queue_size",
        "Requests that wait in the queue of a model",
        |snapshot| model(snapshot, |model| model.queue_size as f64),
    ),
    gauge(
        "tidegate_router_mean_used_permits",
        "Average of the permits in use over the last minute, by model",
        |snapshot| model(snapshot, |model| model.mean_used_permits),
    ),
    gauge(
        "tidegate_router_mean_queue_size",
        "Average of the waiting requests over the last minute, by model",
        |snapshot| model(snapshot, |model| model.mean_queue_size),
    ),
    gauge(
        "tidegate_router_full_fraction",
        "Part of the requests of the last minute that found neither a permit nor a place in the queue, by model",
        |snapshot| model(snapshot, |model| model.full_fraction),
    ),
    gauge(
        "tidegate_router_endpoint_used_permits",
        "Permits in use at an endpoint",
        |snapshot| endpoint(snapshot, |endpoint| f64::from(endpoint.used)),
    ),
    gauge(
        "tidegate_router_endpoint_permits",
        "Permits of an endpoint",
        |snapshot| endpoint(snapshot, |endpoint| f64::from(endpoint.limit)),
    ),
    gauge(
        "tidegate_router_endpoint_state",
        "1 for the current health of an endpoint",
        endpoint_states,
    ),
    counter(
        "tidegate_router_endpoint_failures_total",
        "Attempts that failed at an endpoint",
        |snapshot| endpoint_count(snapshot, |endpoint| endpoint.failures),
    ),
    counter(
        "tidegate_router_backoff_removed_endpoints_total",
        "Times that an endpoint was avoided for a while because it was busy, silent or failing",
        |snapshot| endpoint_count(snapshot, |endpoint| endpoint.backoffs),
    ),
    counter(
        "tidegate_router_forward_failures_total",
        "Requests that another site did not serve, by site",
        |snapshot| {
            let source = snapshot.sources.router.as_ref();
            let failures = source.map(|source| source.telemetry.forward_failures());
            failures
                .unwrap_or_default()
                .into_iter()
                .map(|(site, n)| (vec![("site", site)], MetricValue::Counter(n)))
                .collect()
        },
    ),
    gauge(
        "tidegate_router_waiting_memory_bytes",
        "Bytes of the bodies of waiting requests",
        |snapshot| {
            let source = snapshot.sources.router.as_ref();
            unlabeled(
                source.map(|source| MetricValue::Gauge(source.registry.waiting_memory() as f64)),
            )
        },
    ),
    counter(
        "tidegate_router_dropped_events_total",
        "Inference events that were dropped because the socket was not read",
        |snapshot| {
            let source = snapshot.sources.router.as_ref();
            unlabeled(
                source.map(|source| MetricValue::Counter(source.telemetry.dropped_events.get())),
            )
        },
    ),
    gauge(
        "tidegate_router_config_version",
        "Number of the configuration in force, from 1",
        |snapshot| {
            let source = snapshot.sources.router.as_ref();
            unlabeled(
                source.map(|source| MetricValue::Gauge(source.control.status().version as f64)),
            )
        },
    ),
    counter(
        "tidegate_router_config_reload_failed_total",
        "Reloads that failed and left the old configuration in force",
        |snapshot| {
            let source = snapshot.sources.router.as_ref();
            unlabeled(
                source.map(|source| MetricValue::Counter(source.control.status().failed_reloads)),
            )
        },
    ),
];

/// The samples of each model.
fn each_model(
    snapshot: &MetricSnapshot<'_>,
    samples: impl Fn(&str, &RoutedModelMetrics) -> Vec<Sample>,
) -> Vec<Sample> {
    let Some(source) = &snapshot.sources.router else {
        return Vec::new();
    };
    let models = source.telemetry.models();
    let mut names: Vec<&String> = models.keys().collect();
    names.sort();
    names
        .into_iter()
        .flat_map(|name| samples(name, &models[name]))
        .collect()
}

type LabeledCount = (Vec<(&'static str, String)>, u64);

fn labeled(
    snapshot: &MetricSnapshot<'_>,
    counts: fn(&LabeledCounts) -> Vec<LabeledCount>,
) -> Vec<Sample> {
    each_model(snapshot, |name, metrics| {
        let with_model = |(mut labels, n): LabeledCount| {
            labels.insert(0, ("model", name.to_owned()));
            (labels, MetricValue::Counter(n))
        };
        counts(&metrics.labeled())
            .into_iter()
            .map(with_model)
            .collect()
    })
}

fn count(
    snapshot: &MetricSnapshot<'_>,
    counter: fn(&RoutedModelMetrics) -> &Counter,
) -> Vec<Sample> {
    each_model(snapshot, |name, metrics| {
        let value = MetricValue::Counter(counter(metrics).get());
        vec![(vec![("model", name.to_owned())], value)]
    })
}

fn times(
    snapshot: &MetricSnapshot<'_>,
    histogram: fn(&RoutedModelMetrics) -> &Histogram,
) -> Vec<Sample> {
    each_model(snapshot, |name, metrics| {
        let value = MetricValue::Histogram(histogram(metrics).read());
        vec![(vec![("model", name.to_owned())], value)]
    })
}

fn model(snapshot: &MetricSnapshot<'_>, level: fn(&ModelStatistics) -> f64) -> Vec<Sample> {
    let Some(source) = &snapshot.sources.router else {
        return Vec::new();
    };
    let table = source.registry.table();
    let groups = table.groups().iter();
    groups
        .map(|group| {
            let labels = vec![("model", group.model().to_owned())];
            (labels, MetricValue::Gauge(level(&group.statistics())))
        })
        .collect()
}

fn endpoints(snapshot: &MetricSnapshot<'_>) -> Vec<EndpointStatistics> {
    let Some(source) = &snapshot.sources.router else {
        return Vec::new();
    };
    let now = Instant::now();
    let endpoints = source.registry.endpoints();
    let mut statistics: Vec<_> = endpoints.iter().map(|e| e.statistics(now)).collect();
    statistics.sort_by(|a, b| a.key.cmp(&b.key));
    statistics
}

fn endpoint_label(endpoint: &EndpointStatistics) -> Vec<(&'static str, String)> {
    vec![("endpoint", endpoint.key.to_string())]
}

fn endpoint(snapshot: &MetricSnapshot<'_>, level: fn(&EndpointStatistics) -> f64) -> Vec<Sample> {
    let sample = |endpoint: &EndpointStatistics| {
        (
            endpoint_label(endpoint),
            MetricValue::Gauge(level(endpoint)),
        )
    };
    endpoints(snapshot).iter().map(sample).collect()
}

fn endpoint_count(
    snapshot: &MetricSnapshot<'_>,
    count: fn(&EndpointStatistics) -> u64,
) -> Vec<Sample> {
    let sample = |endpoint: &EndpointStatistics| {
        (
            endpoint_label(endpoint),
            MetricValue::Counter(count(endpoint)),
        )
    };
    endpoints(snapshot).iter().map(sample).collect()
}

fn endpoint_states(snapshot: &MetricSnapshot<'_>) -> Vec<Sample> {
    let sample = |endpoint: &EndpointStatistics| {
        let mut labels = endpoint_label(endpoint);
        labels.push(("state", endpoint.state.name().to_owned()));
        (labels, MetricValue::Gauge(1.0))
    };
    endpoints(snapshot).iter().map(sample).collect()
}
