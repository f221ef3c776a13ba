//! The metrics of an API process of a cluster: the queues, the leases, and the webhooks that are due.
//!
//! What the queue and the store say is the same on every API process; counters are those of this process.

use tidegate_core::leases::ClusterCounts;
use tidegate_service::{ClusterMetrics, ModelQueueUsage};

use super::families::{
    MetricFamily, MetricSnapshot, MetricValue, Sample, counter, gauge, labeled, owned, unlabeled,
};

/// The families.
pub(super) const CLUSTER: &[MetricFamily] = &[
    gauge(
        "tidegate_queue_waiting",
        "Jobs that wait for a director",
        |snapshot| queues(snapshot, |queue| queue.usage.depth.waiting as f64),
    ),
    gauge(
        "tidegate_queue_taken",
        "Jobs that a director has taken from the queue",
        |snapshot| queues(snapshot, |queue| queue.usage.depth.claimed as f64),
    ),
    gauge(
        "tidegate_queue_oldest_wait_seconds",
        "How long the oldest job in the queue has waited for a director; 0 if no job waits",
        |snapshot| {
            queues(snapshot, |queue| {
                queue
                    .usage
                    .oldest_wait
                    .map_or(0.0, |wait| wait.as_secs_f64())
            })
        },
    ),
    gauge(
        "tidegate_dead_letters",
        "Queue entries that no director gets any more",
        |snapshot| {
            let state = snapshot
                .cluster
                .as_ref()
                .filter(|state| state.queues.is_some());
            unlabeled(state.map(|state| MetricValue::Gauge(state.dead_letters as f64)))
        },
    ),
    gauge("tidegate_leases", "Jobs that directors run", |snapshot| {
        counts(snapshot, |counts| counts.leases as f64)
    }),
    gauge(
        "tidegate_directors",
        "Directors that send heartbeats",
        |snapshot| counts(snapshot, |counts| counts.directors as f64),
    ),
    gauge(
        "tidegate_webhook_oldest_due_seconds",
        "How long the webhook that is due the longest has not been sent; 0 if none is due",
        |snapshot| {
            counts(snapshot, |counts| {
                let age = counts.oldest_due_message;
                age.map_or(0.0, |age| age.as_secs_f64())
            })
        },
    ),
    gauge(
        "tidegate_cluster_up",
        "Whether the queue and the store answered",
        |snapshot| {
            let Some(state) = &snapshot.cluster else {
                return Vec::new();
            };
            let parts = [
                ("queue", state.queues.is_some()),
                ("store", state.counts.is_some()),
            ];
            parts
                .map(|(part, is_up)| {
                    let up = MetricValue::Gauge(f64::from(u8::from(is_up)));
                    (vec![owned(("part", part))], up)
                })
                .into()
        },
    ),
    counter(
        "tidegate_lease_requests_total",
        "Requests of directors for the lease of a job, by result",
        |snapshot| {
            let Some(monitor) = &snapshot.sources.cluster else {
                return Vec::new();
            };
            labeled("result", &monitor.metrics().lease_requests)
        },
    ),
    counter(
        "tidegate_jobs_rerun_total",
        "Jobs that a director started again, because another one was lost or gave the job back",
        |snapshot| own(snapshot, |metrics| metrics.reruns.get()),
    ),
    counter(
        "tidegate_leases_lost_total",
        "Leases that expired, because their director was lost",
        |snapshot| own(snapshot, |metrics| metrics.lost_leases.get()),
    ),
    counter(
        "tidegate_jobs_lost_total",
        "Jobs that failed because their director was lost",
        |snapshot| own(snapshot, |metrics| metrics.lost_jobs.get()),
    ),
    counter(
        "tidegate_jobs_requeued_total",
        "Jobs that were queued again from the store",
        |snapshot| own(snapshot, |metrics| metrics.requeued.get()),
    ),
];

fn queues(snapshot: &MetricSnapshot<'_>, level: fn(&ModelQueueUsage) -> f64) -> Vec<Sample> {
    let state = snapshot.cluster.as_ref();
    let queues = state.and_then(|state| state.queues.as_deref());
    let sample = |queue: &ModelQueueUsage| {
        let labels = [
            ("model", queue.model.as_str()),
            ("queue", queue.usage.name.as_str()),
        ];
        (labels.map(owned).to_vec(), MetricValue::Gauge(level(queue)))
    };
    queues.unwrap_or_default().iter().map(sample).collect()
}

fn counts(snapshot: &MetricSnapshot<'_>, level: fn(&ClusterCounts) -> f64) -> Vec<Sample> {
    let counts = snapshot.cluster.as_ref().and_then(|state| state.counts);
    unlabeled(counts.map(|counts| MetricValue::Gauge(level(&counts))))
}

fn own(snapshot: &MetricSnapshot<'_>, count: fn(&ClusterMetrics) -> u64) -> Vec<Sample> {
    let monitor = snapshot.sources.cluster.as_ref();
    unlabeled(monitor.map(|monitor| MetricValue::Counter(count(monitor.metrics()))))
}
