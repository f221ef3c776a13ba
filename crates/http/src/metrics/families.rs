//! The metrics: each family once, with what it means and where its numbers come from.
//!
//! `docs/reference/metrics.md` lists the same ones; a test compares the two.

use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::health::{Health, HealthReport};
use tidegate_core::meter::{Histogram, HistogramSnapshot, MetricLabel};
use tidegate_core::pool_status::{PoolStatus, ProcessState};
use tidegate_service::{JobMetrics, JobService, QueueStatus};

use super::MetricSources;
use super::exposition::CollectedMetrics;
use super::process_stats::ProcessStats;

/// A metric by all its labels.
pub(super) struct MetricFamily {
    pub(super) name: &'static str,
    pub(super) kind: MetricKind,
    pub(super) help: &'static str,
    samples: fn(&MetricSnapshot<'_>) -> Vec<Sample>,
}

impl std::fmt::Debug for MetricFamily {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// Labels and a value.
pub(super) type Sample = (Vec<(&'static str, String)>, MetricValue);

#[derive(Debug)]
pub(super) enum MetricValue {
    /// Of a counter.
    Counter(u64),
    /// Of a counter of something that is not counted in pieces.
    FloatCounter(f64),
    /// Of a gauge.
    Gauge(f64),
    /// Of a histogram.
    Histogram(HistogramSnapshot),
}

/// Everything at one moment.
struct MetricSnapshot<'a> {
    models: Vec<ModelMetrics>,
    process: ProcessStats,
    sources: &'a MetricSources,
    now: Timestamp,
}

struct ModelMetrics {
    name: String,
    jobs: JobService,
    queue: QueueStatus,
    pool: PoolStatus,
    report: HealthReport,
}

/// Looks at everything.
pub(super) fn collect(sources: &MetricSources) -> CollectedMetrics {
    let mut models: Vec<ModelMetrics> = Vec::new();
    for jobs in (sources.job_services)() {
        // Versions of one model have one meter and one queue, and each its own processes.
        match models
            .iter_mut()
            .find(|model| model.name == jobs.target().model)
        {
            Some(model) => model.pool.join(jobs.pool_status()),
            None => models.push(ModelMetrics::of(jobs)),
        }
    }
    let snapshot = MetricSnapshot {
        models,
        process: ProcessStats::read(),
        sources,
        now: Timestamp::now(),
    };
    CollectedMetrics(
        FAMILIES
            .iter()
            .map(|family| (family, (family.samples)(&snapshot)))
            .collect(),
    )
}

const fn counter(
    name: &'static str,
    help: &'static str,
    samples: fn(&MetricSnapshot<'_>) -> Vec<Sample>,
) -> MetricFamily {
    MetricFamily {
        name,
        kind: MetricKind::Counter,
        help,
        samples,
    }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    samples: fn(&MetricSnapshot<'_>) -> Vec<Sample>,
) -> MetricFamily {
    MetricFamily {
        name,
        kind: MetricKind::Gauge,
        help,
        samples,
    }
}

const fn histogram(
    name: &'static str,
    help: &'static str,
    samples: fn(&MetricSnapshot<'_>) -> Vec<Sample>,
) -> MetricFamily {
    MetricFamily {
        name,
        kind: MetricKind::Histogram,
        help,
        samples,
    }
}

/// All of them, in the order in which they are written.
pub(super) const FAMILIES: &[MetricFamily] = &[
    counter(
        "tidegate_jobs_accepted_total",
        "Jobs that were taken in",
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
        "Jobs that are over, by how they ended",
        |snapshot| {
            snapshot.counters(|meter| {
                let words = |api: &'static str, kind, status| {
                    vec![("face", api), ("kind", kind), ("status", status)]
                };
                meter
                    .finished_jobs()
                    .map(|(api, kind, status, n)| {
                        (words(api.as_str(), kind.as_str(), status.as_str()), n)
                    })
                    .collect()
            })
        },
    ),
    counter(
        "tidegate_jobs_refused_total",
        "Requests for a job that were not taken, by the reason",
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
        "Jobs that were accepted and wait for a slot",
        |snapshot| snapshot.gauges(|model| Some(model.queue.all.waiting as f64)),
    ),
    gauge(
        "tidegate_jobs_running",
        "Jobs that have a slot",
        |snapshot| snapshot.gauges(|model| Some(model.queue.all.running as f64)),
    ),
    gauge(
        "tidegate_job_oldest_wait_seconds",
        "How long the oldest of the waiting jobs has waited; 0 if none waits",
        |snapshot| {
            snapshot.gauges(|model| {
                Some(
                    model
                        .queue
                        .all
                        .oldest
                        .map_or(0.0, |oldest| seconds(oldest, snapshot.now)),
                )
            })
        },
    ),
    histogram(
        "tidegate_job_wait_seconds",
        "From the acceptance of a job to the moment when the model began",
        |snapshot| snapshot.histograms(|meter| &meter.wait),
    ),
    histogram(
        "tidegate_job_run_seconds",
        "From the moment when the model began to the end of the job",
        |snapshot| snapshot.histograms(|meter| &meter.run),
    ),
    gauge(
        "tidegate_slots",
        "Jobs that can run at once now",
        |snapshot| snapshot.gauges(|model| Some(model.pool.slots as f64)),
    ),
    gauge("tidegate_slots_free", "Slots that no job has", |snapshot| {
        snapshot.gauges(|model| Some(model.pool.free as f64))
    }),
    gauge(
        "tidegate_model_health",
        "1 for the state that the model is in, 0 for the others",
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
        "How long the first setup of the model took; absent until it is over",
        |snapshot| {
            snapshot.gauges(|model| {
                let setup = model.report.setup.as_ref()?;
                Some(seconds(setup.started_at, setup.completed_at?))
            })
        },
    ),
    gauge(
        "tidegate_children",
        "Processes of the model, by how they are",
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
        "tidegate_child_memory_bytes",
        "Memory that a process of the model holds, without processes that it has started",
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
        "Processes of the model that were started in the place of another",
        |snapshot| {
            let restarts =
                |model: &ModelMetrics| model.pool.children.iter().map(|child| child.restarts).sum();
            snapshot
                .models
                .iter()
                .map(|model| (model.labels(&[]), MetricValue::Counter(restarts(model))))
                .collect()
        },
    ),
    counter(
        "tidegate_child_deaths_total",
        "Processes of the model that died, by the cause",
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
    counter(
        "tidegate_webhook_attempts_total",
        "Times that a webhook was sent, by what came of it",
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
        "How long a receiver took to answer, or was waited for",
        |snapshot| snapshot.histograms(|meter| &meter.attempt_time),
    ),
    gauge(
        "tidegate_webhooks_waiting",
        "Webhooks that wait to be sent again",
        |snapshot| snapshot.gauges(|model| Some(model.jobs.deliveries_waiting() as f64)),
    ),
    counter(
        "tidegate_webhooks_given_up_total",
        "Last webhooks of jobs that were not taken and are not sent any more",
        |snapshot| snapshot.counters(|meter| vec![(vec![], meter.given_up.get())]),
    ),
    histogram(
        "tidegate_store_commit_seconds",
        "How long a commit of the store took, the sync to the disk included",
        |snapshot| snapshot.store(|store| &store.commit_seconds),
    ),
    histogram(
        "tidegate_store_commit_changes",
        "Changes that were committed together",
        |snapshot| snapshot.store(|store| &store.commit_changes),
    ),
    counter(
        "tidegate_http_responses_total",
        "Requests that were answered, by what they were for and by the class of the status",
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
        "Requests that were turned away before a model was asked, by the reason",
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
        "Times that there was no room for another connection, so that others had to wait",
        |snapshot| {
            unlabeled(Some(MetricValue::Counter(
                snapshot.sources.request_metrics.connections_full.get(),
            )))
        },
    ),
    gauge(
        "tidegate_build_info",
        "Always 1; the labels say what was built from what",
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
        "When the server was started, in seconds since 1970",
        |snapshot| {
            unlabeled(Some(MetricValue::Gauge(
                snapshot.sources.started_at.as_microsecond() as f64 / 1e6,
            )))
        },
    ),
    gauge(
        "process_resident_memory_bytes",
        "Memory that the server holds, without the processes of the model",
        |snapshot| unlabeled(snapshot.process.memory.map(MetricValue::Gauge)),
    ),
    gauge(
        "process_open_fds",
        "File descriptors that the server has open",
        |snapshot| unlabeled(snapshot.process.descriptors.map(MetricValue::Gauge)),
    ),
    gauge(
        "process_max_fds",
        "File descriptors that the server may have",
        |snapshot| unlabeled(snapshot.process.max_descriptors.map(MetricValue::Gauge)),
    ),
    counter(
        "process_cpu_seconds_total",
        "Processor time that the server has used",
        |snapshot| unlabeled(snapshot.process.processor.map(MetricValue::FloatCounter)),
    ),
];

/// Words and a number, of one model.
type LabeledCounts = Vec<(Vec<(&'static str, &'static str)>, u64)>;

impl MetricSnapshot<'_> {
    fn counters(&self, count: impl Fn(&JobMetrics) -> LabeledCounts) -> Vec<Sample> {
        let each = |model: &ModelMetrics| {
            let counted = count(model.jobs.metrics());
            counted
                .into_iter()
                .map(|(words, n)| (model.labels(&words), MetricValue::Counter(n)))
                .collect::<Vec<_>>()
        };
        self.models.iter().flat_map(each).collect()
    }

    fn gauges(&self, level: impl Fn(&ModelMetrics) -> Option<f64>) -> Vec<Sample> {
        self.models
            .iter()
            .filter_map(|model| Some((model.labels(&[]), MetricValue::Gauge(level(model)?))))
            .collect()
    }

    fn histograms(&self, histogram: impl Fn(&JobMetrics) -> &Histogram) -> Vec<Sample> {
        self.models
            .iter()
            .map(|model| {
                (
                    model.labels(&[]),
                    MetricValue::Histogram(histogram(model.jobs.metrics()).read()),
                )
            })
            .collect()
    }

    fn store(
        &self,
        histogram: impl Fn(&tidegate_core::store::StoreMeter) -> &Histogram,
    ) -> Vec<Sample> {
        unlabeled(
            self.sources
                .store
                .as_deref()
                .map(|store| MetricValue::Histogram(histogram(store).read())),
        )
    }
}

impl ModelMetrics {
    fn of(jobs: JobService) -> Self {
        Self {
            name: jobs.target().model.clone(),
            queue: jobs.queue(),
            pool: jobs.pool_status(),
            report: jobs.report(),
            jobs,
        }
    }

    fn labels(&self, more: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
        let mut labels = vec![("model", self.name.clone())];
        labels.extend(more.iter().copied().map(owned));
        labels
    }
}

fn owned((name, value): (&'static str, &str)) -> (&'static str, String) {
    (name, value.to_owned())
}

fn unlabeled(value: Option<MetricValue>) -> Vec<Sample> {
    value.map(|value| (Vec::new(), value)).into_iter().collect()
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    Duration::try_from(to.duration_since(from))
        .unwrap_or_default()
        .as_secs_f64()
}
