//! The list of all metric families, each with its help text and the source of its samples.
//!
//! `docs/reference/metrics.md` has the same list; a test compares the two.

use std::sync::Arc;

use jiff::Timestamp;
use tidegate_core::counters::{Counters, Histogram, HistogramSnapshot, MetricLabel};
use tidegate_core::health::HealthReport;
use tidegate_core::pool_status::PoolStatus;
use tidegate_service::{ClusterState, JobMetrics, JobService, QueueStatus};

use super::MetricSources;
use super::cluster_families::CLUSTER;
use super::director_families::DIRECTOR;
use super::exposition::CollectedMetrics;
use super::gpu_families::GPUS;
use super::process_stats::ServerProcessStats;
use super::router_families::ROUTER;
use super::server_families::SERVER;
use crate::gpus::{self, GpuUsage};

/// A metric family: a name and its samples for all label values.
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
    /// The value of a counter.
    Counter(u64),
    /// The value of a counter that is not an integer.
    FloatCounter(f64),
    /// The value of a gauge.
    Gauge(f64),
    /// The value of a histogram.
    Histogram(HistogramSnapshot),
}

/// The state from which all samples of one scrape are computed.
pub(super) struct MetricSnapshot<'a> {
    pub(super) models: Vec<ModelMetrics>,
    pub(super) process: ServerProcessStats,
    pub(super) sources: &'a MetricSources,
    pub(super) cluster: Option<Arc<ClusterState>>,
    pub(super) gpus: Vec<GpuUsage>,
    pub(super) now: Timestamp,
}

pub(super) struct ModelMetrics {
    pub(super) name: String,
    pub(super) jobs: JobService,
    pub(super) queue: QueueStatus,
    pub(super) pool: PoolStatus,
    pub(super) report: HealthReport,
}

/// All families, in the order in which they are written.
pub(super) fn all() -> impl Iterator<Item = &'static MetricFamily> {
    let shared = SERVER.iter().chain(GPUS);
    shared.chain(CLUSTER).chain(DIRECTOR).chain(ROUTER)
}

/// Collects the samples of the families that this process has.
pub(super) fn collect(
    sources: &MetricSources,
    cluster: Option<Arc<ClusterState>>,
) -> CollectedMetrics {
    let mut models: Vec<ModelMetrics> = Vec::new();
    for jobs in (sources.job_services)() {
        // The versions of a model share its counters and its queue; each has its own processes.
        match models
            .iter_mut()
            .find(|model| model.name == jobs.target().model)
        {
            Some(model) => model.pool.merge(jobs.pool_status()),
            None => models.push(ModelMetrics::of(jobs)),
        }
    }
    let gpus = gpu_usage(sources, &models);
    let on_gpus = (!gpus.is_empty()).then_some(GPUS);
    let snapshot = MetricSnapshot {
        gpus,
        models,
        process: ServerProcessStats::read(),
        sources,
        cluster,
        now: Timestamp::now(),
    };
    let cluster = sources.cluster.is_some().then_some(CLUSTER);
    let director = sources.director.is_some().then_some(DIRECTOR);
    let shared = SERVER.iter();
    let router = sources.router.is_some().then_some(ROUTER);
    let own = [on_gpus, cluster, director, router]
        .into_iter()
        .flatten()
        .flatten();
    CollectedMetrics(
        shared
            .chain(own)
            .map(|family| (family, (family.samples)(&snapshot)))
            .collect(),
    )
}

/// The GPUs with the processes of the models, as numbered in the other families.
fn gpu_usage(sources: &MetricSources, models: &[ModelMetrics]) -> Vec<GpuUsage> {
    let children = models.iter().flat_map(|model| {
        let children = model.pool.children.iter();
        children.map(|child| gpus::ModelProcess {
            model: model.name.clone(),
            spare: None,
            process: child.clone(),
        })
    });
    let children: Vec<_> = children.collect();
    gpus::usage(&sources.gpus.report(), &children, gpus::parent_of)
}

pub(super) const fn counter(
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

pub(super) const fn gauge(
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

pub(super) const fn histogram(
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

/// The labels and values of a counter, for one model.
type LabeledCounts = Vec<(Vec<(&'static str, &'static str)>, u64)>;

impl MetricSnapshot<'_> {
    pub(super) fn counters(&self, count: impl Fn(&JobMetrics) -> LabeledCounts) -> Vec<Sample> {
        let each = |model: &ModelMetrics| {
            let counts = count(model.jobs.metrics());
            counts
                .into_iter()
                .map(|(labels, n)| (model.labels(&labels), MetricValue::Counter(n)))
                .collect::<Vec<_>>()
        };
        self.models.iter().flat_map(each).collect()
    }

    pub(super) fn gauges(&self, level: impl Fn(&ModelMetrics) -> Option<f64>) -> Vec<Sample> {
        self.models
            .iter()
            .filter_map(|model| Some((model.labels(&[]), MetricValue::Gauge(level(model)?))))
            .collect()
    }

    pub(super) fn histograms(&self, histogram: impl Fn(&JobMetrics) -> &Histogram) -> Vec<Sample> {
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

    pub(super) fn store(
        &self,
        histogram: impl Fn(&tidegate_core::store::StoreMetrics) -> &Histogram,
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

    pub(super) fn labels(&self, more: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
        let mut labels = vec![("model", self.name.clone())];
        labels.extend(more.iter().copied().map(owned));
        labels
    }
}

pub(super) fn owned((name, value): (&'static str, &str)) -> (&'static str, String) {
    (name, value.to_owned())
}

/// One sample for each value of a label.
pub(super) fn labeled<L: MetricLabel>(name: &'static str, counters: &Counters<L>) -> Vec<Sample> {
    counters
        .each()
        .map(|(label, n)| (vec![owned((name, label.as_str()))], MetricValue::Counter(n)))
        .collect()
}

pub(super) fn unlabeled(value: Option<MetricValue>) -> Vec<Sample> {
    value.map(|value| (Vec::new(), value)).into_iter().collect()
}
