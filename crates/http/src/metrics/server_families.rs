//! The metric families of every process that runs or accepts jobs: jobs, slots, requests, webhooks, the process itself.

use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::counters::MetricLabel;
use tidegate_core::health::Health;
use tidegate_core::pool_status::ProcessState;

use super::families::{
    MetricFamily, MetricValue, ModelMetrics, counter, gauge, histogram, owned, unlabeled,
};

/// The families of every process that runs or accepts jobs.
pub(super) const SERVER: &[MetricFamily] = &[
    counter(
        "tidegate_jobs_accepted_total",
        "Accepted jobs",
        |snapshot| {
            snapshot.counters(|meter| {
                meter
                    .accepted_jobs()
                    .map(|(api, kind, n)| {
                        (vec![("face", api.as_str()), ("kind", kind.as_str())], n)
                    })
                    .collect()
            })
        },
    ),
    counter(
        "tidegate_jobs_finished_total",
        "Ended jobs, by status",
        |snapshot| {
            snapshot.counters(|meter| {
                let labels = |api: &'static str, kind, status| {
                    vec![("face", api), ("kind", kind), ("status", status)]
                };
                meter
                    .finished_jobs()
                    .map(|(api, kind, status, n)| {
                        (labels(api.as_str(), kind.as_str(), status.as_str()), n)
                    })
                    .collect()
            })
        },
    ),
    counter(
        "tidegate_jobs_refused_total",
        "Refused jobs, by reason",
        |snapshot| {
            snapshot.counters(|meter| {
                meter
                    .refusals()
                    .map(|(api, reason, n)| {
                        (vec![("face", api.as_str()), ("reason", reason.as_str())], n)
                    })
                    .collect()
            })
        },
    ),
    gauge(
        "tidegate_jobs_waiting",
        "Accepted jobs that wait for a slot",
        |snapshot| snapshot.gauges(|model| Some(model.queue.total.waiting as f64)),
    ),
    gauge(
        "tidegate_jobs_running",
        "Jobs that have a slot",
        |snapshot| snapshot.gauges(|model| Some(model.queue.total.running as f64)),
    ),
    gauge(
        "tidegate_job_oldest_wait_seconds",
        "How long the oldest waiting job has waited; 0 if no job waits",
        |snapshot| {
            snapshot.gauges(|model| {
                Some(
                    model
                        .queue
                        .total
                        .oldest_waiting_since
                        .map_or(0.0, |oldest| seconds(oldest, snapshot.now)),
                )
            })
        },
    ),
    histogram(
        "tidegate_job_wait_seconds",
        "Time from the acceptance of a job to its begin in the model",
        |snapshot| snapshot.histograms(|meter| &meter.wait),
    ),
    histogram(
        "tidegate_job_run_seconds",
        "Time from the begin of a job in the model to its end",
        |snapshot| snapshot.histograms(|meter| &meter.run),
    ),
    gauge(
        "tidegate_slots",
        "Jobs that can run concurrently now",
        |snapshot| snapshot.gauges(|model| Some(model.pool.slots as f64)),
    ),
    gauge("tidegate_slots_free", "Slots without a job", |snapshot| {
        snapshot.gauges(|model| Some(model.pool.free as f64))
    }),
    gauge(
        "tidegate_model_health",
        "1 for the current state of the model, 0 for the others",
        |snapshot| {
            let states = |model: &ModelMetrics| {
                let is = |state: Health| {
                    if model.report.health == state {
                        1.0
                    } else {
                        0.0
                    }
                };
                Health::ALL
                    .iter()
                    .map(|state| {
                        (
                            model.labels(&[("state", state.as_str())]),
                            MetricValue::Gauge(is(*state)),
                        )
                    })
                    .collect::<Vec<_>>()
            };
            snapshot.models.iter().flat_map(states).collect()
        },
    ),
    gauge(
        "tidegate_model_setup_seconds",
        "Duration of the first setup of the model; absent until it has ended",
        |snapshot| {
            snapshot.gauges(|model| {
                let setup = model.report.setup.as_ref()?;
                Some(seconds(setup.started_at, setup.completed_at?))
            })
        },
    ),
    gauge(
        "tidegate_children",
        "Processes of the model, by state",
        |snapshot| {
            let states = |model: &ModelMetrics| {
                let count = |state: ProcessState| {
                    model
                        .pool
                        .children
                        .iter()
                        .filter(|child| child.state == state)
                        .count() as f64
                };
                let each = ProcessState::ALL.iter();
                each.map(|state| {
                    (
                        model.labels(&[("state", state.as_str())]),
                        MetricValue::Gauge(count(*state)),
                    )
                })
                .collect::<Vec<_>>()
            };
            snapshot.models.iter().flat_map(states).collect()
        },
    ),
    gauge(
        "tidegate_children_wanted",
        "Processes that the load of the model needs; above the maximum of --workers while jobs wait although the maximum runs",
        |snapshot| snapshot.gauges(|model| Some(model.pool.wanted? as f64)),
    ),
    gauge(
        "tidegate_spares",
        "Processes that wait to replace one of the model, by state",
        |snapshot| {
            let states = |model: &ModelMetrics| {
                let spares = &model.pool.spares;
                let count = |state: ProcessState| {
                    let each = spares.iter().filter(|spare| spare.process.state == state);
                    each.count() as f64
                };
                let each = ProcessState::ALL.iter();
                each.map(|state| {
                    (
                        model.labels(&[("state", state.as_str())]),
                        MetricValue::Gauge(count(*state)),
                    )
                })
                .collect::<Vec<_>>()
            };
            snapshot.models.iter().flat_map(states).collect()
        },
    ),
    gauge(
        "tidegate_child_memory_bytes",
        "Resident memory of a process of the model, without the processes that it started",
        |snapshot| {
            let children = |model: &ModelMetrics| {
                let memory = model
                    .pool
                    .children
                    .iter()
                    .filter_map(|child| Some((child.number.to_string(), child.memory?)));
                memory
                    .map(|(number, bytes)| {
                        (
                            model.labels(&[("child", &number)]),
                            MetricValue::Gauge(bytes as f64),
                        )
                    })
                    .collect::<Vec<_>>()
            };
            snapshot.models.iter().flat_map(children).collect()
        },
    ),
    counter(
        "tidegate_child_restarts_total",
        "Processes of the model that were started to replace another",
        |snapshot| {
            let each = snapshot.models.iter();
            each.map(|model| (model.labels(&[]), MetricValue::Counter(model.pool.restarts)))
                .collect()
        },
    ),
    counter(
        "tidegate_child_deaths_total",
        "Processes of the model that died, by cause",
        |snapshot| {
            let deaths = |model: &ModelMetrics| {
                let each = model.pool.deaths.iter();
                each.map(|(cause, n)| {
                    (
                        model.labels(&[("cause", cause.as_str())]),
                        MetricValue::Counter(*n),
                    )
                })
                .collect::<Vec<_>>()
            };
            snapshot.models.iter().flat_map(deaths).collect()
        },
    ),
    histogram(
        "tidegate_batch_size",
        "Number of predictions in one call of a model that batches",
        |snapshot| {
            let models = snapshot.models.iter();
            models
                .filter_map(|model| {
                    let sizes = model.pool.batches.as_ref()?.sizes.clone();
                    Some((model.labels(&[]), MetricValue::Histogram(sizes)))
                })
                .collect()
        },
    ),
    gauge(
        "tidegate_batch_waiting",
        "Predictions that have a place in the next batches of a model and wait for their batch",
        |snapshot| {
            let models = snapshot.models.iter();
            models
                .filter_map(|model| {
                    let waiting = model.pool.batches.as_ref()?.waiting;
                    Some((model.labels(&[]), MetricValue::Gauge(waiting as f64)))
                })
                .collect()
        },
    ),
    counter(
        "tidegate_webhook_attempts_total",
        "Attempts to send a webhook, by result",
        |snapshot| {
            snapshot.counters(|meter| {
                meter
                    .attempts
                    .each()
                    .map(|(result, n)| (vec![("result", result.as_str())], n))
                    .collect()
            })
        },
    ),
    histogram(
        "tidegate_webhook_attempt_seconds",
        "Time until the receiver of a webhook responded or the attempt ended",
        |snapshot| snapshot.histograms(|meter| &meter.attempt_time),
    ),
    gauge(
        "tidegate_webhooks_waiting",
        "Webhooks that wait for a retry",
        |snapshot| snapshot.gauges(|model| Some(model.jobs.pending_webhook_retries() as f64)),
    ),
    counter(
        "tidegate_webhooks_given_up_total",
        "Last webhooks of jobs that were not delivered and are not retried any more",
        |snapshot| snapshot.counters(|meter| vec![(vec![], meter.given_up.get())]),
    ),
    histogram(
        "tidegate_store_commit_seconds",
        "Duration of a commit of the store, including the sync to the disk",
        |snapshot| snapshot.store(|store| &store.commit_seconds),
    ),
    histogram(
        "tidegate_store_commit_changes",
        "Changes per commit of the store",
        |snapshot| snapshot.store(|store| &store.commit_changes),
    ),
    counter(
        "tidegate_http_responses_total",
        "Responses, by requested resource and status class",
        |snapshot| {
            let labels = |api, resource, status| {
                [("face", api), ("resource", resource), ("status", status)]
                    .map(owned)
                    .to_vec()
            };
            snapshot
                .sources
                .request_metrics
                .response_counts()
                .map(|(api, resource, status, n)| {
                    (labels(api, resource, status), MetricValue::Counter(n))
                })
                .collect()
        },
    ),
    counter(
        "tidegate_http_refused_total",
        "Requests that were refused before a model was selected, by reason",
        |snapshot| {
            let labels = |reason| vec![owned(("reason", reason))];
            snapshot
                .sources
                .request_metrics
                .rejection_counts()
                .map(|(reason, n)| (labels(reason), MetricValue::Counter(n)))
                .collect()
        },
    ),
    counter(
        "tidegate_http_full_total",
        "Times that the connection limit was reached, so that new connections had to wait",
        |snapshot| {
            unlabeled(Some(MetricValue::Counter(
                snapshot.sources.request_metrics.connections_full.get(),
            )))
        },
    ),
    gauge(
        "tidegate_build_info",
        "Always 1; the labels identify the build",
        |snapshot| {
            let build = &snapshot.sources.build;
            let labels = [
                ("version", build.version),
                ("commit", build.git_sha),
                ("built_at", build.built_at),
            ];
            vec![(labels.map(owned).to_vec(), MetricValue::Gauge(1.0))]
        },
    ),
    gauge(
        "process_start_time_seconds",
        "Start time of the server, in seconds since 1970",
        |snapshot| {
            unlabeled(Some(MetricValue::Gauge(
                snapshot.sources.started_at.as_microsecond() as f64 / 1e6,
            )))
        },
    ),
    gauge(
        "process_resident_memory_bytes",
        "Resident memory of the server, without the processes of the models",
        |snapshot| unlabeled(snapshot.process.memory.map(MetricValue::Gauge)),
    ),
    gauge(
        "process_open_fds",
        "Open file descriptors of the server",
        |snapshot| unlabeled(snapshot.process.descriptors.map(MetricValue::Gauge)),
    ),
    gauge(
        "process_max_fds",
        "Limit of open file descriptors",
        |snapshot| unlabeled(snapshot.process.max_descriptors.map(MetricValue::Gauge)),
    ),
    counter(
        "process_cpu_seconds_total",
        "Processor time used by the server",
        |snapshot| unlabeled(snapshot.process.cpu_seconds.map(MetricValue::FloatCounter)),
    ),
];

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    Duration::try_from(to.duration_since(from))
        .unwrap_or_default()
        .as_secs_f64()
}
