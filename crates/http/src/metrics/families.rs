//! The metrics: each family once, with what it means and where its numbers come from.
//!
//! `docs/reference/metrics.md` lists the same ones; a test compares the two.

use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::health::{Health, HealthReport};
use tidegate_core::meter::{Histogram, HistogramSnapshot, MetricLabel};
use tidegate_core::pool_status::{PoolStatus, ProcessState};
use tidegate_service::{JobMetrics, JobService, QueueStatus};

use super::Sources;
use super::process::Process;
use super::text::Gathered;

/// A metric by all its labels.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    samples: fn(&Scene<'_>) -> Vec<Sample>,
}

impl std::fmt::Debug for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Labels and a value.
pub(super) type Sample = (Vec<(&'static str, String)>, Value);

#[derive(Debug)]
pub(super) enum Value {
    /// Of a counter.
    Count(u64),
    /// Of a counter of something that is not counted in pieces.
    Sum(f64),
    /// Of a gauge.
    Level(f64),
    /// Of a histogram.
    Spread(HistogramSnapshot),
}

/// Everything at one moment.
struct Scene<'a> {
    models: Vec<Model>,
    process: Process,
    sources: &'a Sources,
    now: Timestamp,
}

struct Model {
    name: String,
    jobs: JobService,
    queue: QueueStatus,
    crew: PoolStatus,
    report: HealthReport,
}

/// Looks at everything.
pub(super) fn gather(sources: &Sources) -> Gathered {
    let mut models: Vec<Model> = Vec::new();
    for jobs in (sources.desks)() {
        // Versions of one model have one meter and one queue, and each its own processes.
        match models
            .iter_mut()
            .find(|model| model.name == jobs.target().model)
        {
            Some(model) => model.crew.join(jobs.pool_status()),
            None => models.push(Model::of(jobs)),
        }
    }
    let scene = Scene {
        models,
        process: Process::look(),
        sources,
        now: Timestamp::now(),
    };
    Gathered(
        FAMILIES
            .iter()
            .map(|family| (family, (family.samples)(&scene)))
            .collect(),
    )
}

const fn counter(
    name: &'static str,
    help: &'static str,
    samples: fn(&Scene<'_>) -> Vec<Sample>,
) -> Family {
    Family {
        name,
        kind: Kind::Counter,
        help,
        samples,
    }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    samples: fn(&Scene<'_>) -> Vec<Sample>,
) -> Family {
    Family {
        name,
        kind: Kind::Gauge,
        help,
        samples,
    }
}

const fn histogram(
    name: &'static str,
    help: &'static str,
    samples: fn(&Scene<'_>) -> Vec<Sample>,
) -> Family {
    Family {
        name,
        kind: Kind::Histogram,
        help,
        samples,
    }
}

/// All of them, in the order in which they are written.
pub(super) const FAMILIES: &[Family] = &[
    counter(
        "tidegate_jobs_accepted_total",
        "Jobs that were taken in",
        |scene| {
            scene.counted(|meter| {
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
        |scene| {
            scene.counted(|meter| {
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
        |scene| {
            scene.counted(|meter| {
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
        |scene| scene.level(|model| Some(model.queue.all.waiting as f64)),
    ),
    gauge("tidegate_jobs_running", "Jobs that have a slot", |scene| {
        scene.level(|model| Some(model.queue.all.running as f64))
    }),
    gauge(
        "tidegate_job_oldest_wait_seconds",
        "How long the oldest of the waiting jobs has waited; 0 if none waits",
        |scene| {
            scene.level(|model| {
                Some(
                    model
                        .queue
                        .all
                        .oldest
                        .map_or(0.0, |oldest| seconds(oldest, scene.now)),
                )
            })
        },
    ),
    histogram(
        "tidegate_job_wait_seconds",
        "From the acceptance of a job to the moment when the model began",
        |scene| scene.spread(|meter| &meter.wait),
    ),
    histogram(
        "tidegate_job_run_seconds",
        "From the moment when the model began to the end of the job",
        |scene| scene.spread(|meter| &meter.run),
    ),
    gauge("tidegate_slots", "Jobs that can run at once now", |scene| {
        scene.level(|model| Some(model.crew.slots as f64))
    }),
    gauge("tidegate_slots_free", "Slots that no job has", |scene| {
        scene.level(|model| Some(model.crew.free as f64))
    }),
    gauge(
        "tidegate_model_health",
        "1 for the state that the model is in, 0 for the others",
        |scene| {
            let states = |model: &Model| {
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
                            Value::Level(is(*state)),
                        )
                    })
                    .collect::<Vec<_>>()
            };
            scene.models.iter().flat_map(states).collect()
        },
    ),
    gauge(
        "tidegate_model_setup_seconds",
        "How long the first setup of the model took; absent until it is over",
        |scene| {
            scene.level(|model| {
                let setup = model.report.setup.as_ref()?;
                Some(seconds(setup.started_at, setup.completed_at?))
            })
        },
    ),
    gauge(
        "tidegate_children",
        "Processes of the model, by how they are",
        |scene| {
            let states = |model: &Model| {
                let count = |state: ProcessState| {
                    model
                        .crew
                        .children
                        .iter()
                        .filter(|child| child.state == state)
                        .count() as f64
                };
                let each = ProcessState::ALL.iter();
                each.map(|state| {
                    (
                        model.labels(&[("state", state.as_str())]),
                        Value::Level(count(*state)),
                    )
                })
                .collect::<Vec<_>>()
            };
            scene.models.iter().flat_map(states).collect()
        },
    ),
    gauge(
        "tidegate_child_memory_bytes",
        "Memory that a process of the model holds, without processes that it has started",
        |scene| {
            let children = |model: &Model| {
                let memory = model
                    .crew
                    .children
                    .iter()
                    .filter_map(|child| Some((child.number.to_string(), child.memory?)));
                memory
                    .map(|(number, bytes)| {
                        (
                            model.labels(&[("child", &number)]),
                            Value::Level(bytes as f64),
                        )
                    })
                    .collect::<Vec<_>>()
            };
            scene.models.iter().flat_map(children).collect()
        },
    ),
    counter(
        "tidegate_child_restarts_total",
        "Processes of the model that were started in the place of another",
        |scene| {
            let restarts =
                |model: &Model| model.crew.children.iter().map(|child| child.restarts).sum();
            scene
                .models
                .iter()
                .map(|model| (model.labels(&[]), Value::Count(restarts(model))))
                .collect()
        },
    ),
    counter(
        "tidegate_child_deaths_total",
        "Processes of the model that died, by the cause",
        |scene| {
            let deaths = |model: &Model| {
                let each = model.crew.deaths.iter();
                each.map(|(cause, n)| {
                    (model.labels(&[("cause", cause.as_str())]), Value::Count(*n))
                })
                .collect::<Vec<_>>()
            };
            scene.models.iter().flat_map(deaths).collect()
        },
    ),
    counter(
        "tidegate_webhook_attempts_total",
        "Times that a webhook was sent, by what came of it",
        |scene| {
            scene.counted(|meter| {
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
        |scene| scene.spread(|meter| &meter.attempt_time),
    ),
    gauge(
        "tidegate_webhooks_waiting",
        "Webhooks that wait to be sent again",
        |scene| scene.level(|model| Some(model.jobs.deliveries_waiting() as f64)),
    ),
    counter(
        "tidegate_webhooks_given_up_total",
        "Last webhooks of jobs that were not taken and are not sent any more",
        |scene| scene.counted(|meter| vec![(vec![], meter.given_up.get())]),
    ),
    histogram(
        "tidegate_store_commit_seconds",
        "How long a commit of the store took, the sync to the disk included",
        |scene| scene.store(|store| &store.commit_seconds),
    ),
    histogram(
        "tidegate_store_commit_changes",
        "Changes that were committed together",
        |scene| scene.store(|store| &store.commit_changes),
    ),
    counter(
        "tidegate_http_responses_total",
        "Requests that were answered, by what they were for and by the class of the status",
        |scene| {
            let labels = |api, resource, status| {
                [("face", api), ("resource", resource), ("status", status)]
                    .map(owned)
                    .to_vec()
            };
            scene
                .sources
                .traffic
                .each()
                .map(|(api, resource, status, n)| (labels(api, resource, status), Value::Count(n)))
                .collect()
        },
    ),
    counter(
        "tidegate_http_refused_total",
        "Requests that were turned away before a model was asked, by the reason",
        |scene| {
            let labels = |reason| vec![owned(("reason", reason))];
            scene
                .sources
                .traffic
                .refusals()
                .map(|(reason, n)| (labels(reason), Value::Count(n)))
                .collect()
        },
    ),
    counter(
        "tidegate_http_full_total",
        "Times that there was no room for another connection, so that others had to wait",
        |scene| alone(Some(Value::Count(scene.sources.traffic.full.get()))),
    ),
    gauge(
        "tidegate_build_info",
        "Always 1; the labels say what was built from what",
        |scene| {
            let build = &scene.sources.build;
            let labels = [
                ("version", build.version),
                ("commit", build.git_sha),
                ("built_at", build.built_at),
            ];
            vec![(labels.map(owned).to_vec(), Value::Level(1.0))]
        },
    ),
    gauge(
        "process_start_time_seconds",
        "When the server was started, in seconds since 1970",
        |scene| {
            alone(Some(Value::Level(
                scene.sources.started_at.as_microsecond() as f64 / 1e6,
            )))
        },
    ),
    gauge(
        "process_resident_memory_bytes",
        "Memory that the server holds, without the processes of the model",
        |scene| alone(scene.process.memory.map(Value::Level)),
    ),
    gauge(
        "process_open_fds",
        "File descriptors that the server has open",
        |scene| alone(scene.process.descriptors.map(Value::Level)),
    ),
    gauge(
        "process_max_fds",
        "File descriptors that the server may have",
        |scene| alone(scene.process.max_descriptors.map(Value::Level)),
    ),
    counter(
        "process_cpu_seconds_total",
        "Processor time that the server has used",
        |scene| alone(scene.process.processor.map(Value::Sum)),
    ),
];

/// Words and a number, of one model.
type Counted = Vec<(Vec<(&'static str, &'static str)>, u64)>;

impl Scene<'_> {
    fn counted(&self, count: impl Fn(&JobMetrics) -> Counted) -> Vec<Sample> {
        let each = |model: &Model| {
            let counted = count(model.jobs.meter());
            counted
                .into_iter()
                .map(|(words, n)| (model.labels(&words), Value::Count(n)))
                .collect::<Vec<_>>()
        };
        self.models.iter().flat_map(each).collect()
    }

    fn level(&self, level: impl Fn(&Model) -> Option<f64>) -> Vec<Sample> {
        self.models
            .iter()
            .filter_map(|model| Some((model.labels(&[]), Value::Level(level(model)?))))
            .collect()
    }

    fn spread(&self, histogram: impl Fn(&JobMetrics) -> &Histogram) -> Vec<Sample> {
        self.models
            .iter()
            .map(|model| {
                (
                    model.labels(&[]),
                    Value::Spread(histogram(model.jobs.meter()).read()),
                )
            })
            .collect()
    }

    fn store(
        &self,
        histogram: impl Fn(&tidegate_core::store::StoreMeter) -> &Histogram,
    ) -> Vec<Sample> {
        alone(
            self.sources
                .store
                .as_deref()
                .map(|store| Value::Spread(histogram(store).read())),
        )
    }
}

impl Model {
    fn of(jobs: JobService) -> Self {
        Self {
            name: jobs.target().model.clone(),
            queue: jobs.queue(),
            crew: jobs.pool_status(),
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

fn alone(value: Option<Value>) -> Vec<Sample> {
    value.map(|value| (Vec::new(), value)).into_iter().collect()
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    Duration::try_from(to.duration_since(from))
        .unwrap_or_default()
        .as_secs_f64()
}
