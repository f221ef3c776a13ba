//! The metrics of a director. Its slots and jobs are in the metrics of its models.

use tidegate_core::director_metrics::{DirectorMetrics, DirectorState};

use super::families::{
    MetricFamily, MetricSnapshot, MetricValue, Sample, counter, gauge, labeled, unlabeled,
};

/// The families.
pub(super) const DIRECTOR: &[MetricFamily] = &[
    gauge(
        "tidegate_director_connected",
        "1 if an API process replied to the last heartbeat, otherwise 0",
        |snapshot| state(snapshot, |state| f64::from(u8::from(state.is_connected))),
    ),
    gauge(
        "tidegate_director_isolated",
        "1 if no API process replied for the length of a lease, otherwise 0",
        |snapshot| state(snapshot, |state| f64::from(u8::from(state.is_isolated))),
    ),
    gauge(
        "tidegate_director_leases",
        "Jobs that the director holds the lease of",
        |snapshot| state(snapshot, |state| state.leases as f64),
    ),
    gauge(
        "tidegate_director_messages",
        "Queue entries that the director has taken and not acknowledged",
        |snapshot| state(snapshot, |state| state.messages as f64),
    ),
    counter(
        "tidegate_director_messages_taken_total",
        "Queue entries that the director has taken",
        |snapshot| count(snapshot, |metrics| metrics.taken.get()),
    ),
    counter(
        "tidegate_director_messages_returned_total",
        "Queue entries that the director has put back",
        |snapshot| count(snapshot, |metrics| metrics.returned.get()),
    ),
    counter(
        "tidegate_director_leases_total",
        "Requests for leases, by result",
        |snapshot| labels(snapshot, |metrics| labeled("result", &metrics.leases)),
    ),
    counter(
        "tidegate_director_runs_total",
        "Jobs that the director has leased, by the result",
        |snapshot| labels(snapshot, |metrics| labeled("result", &metrics.runs)),
    ),
    counter(
        "tidegate_director_heartbeats_total",
        "Heartbeats, by result",
        |snapshot| labels(snapshot, |metrics| labeled("result", &metrics.heartbeats)),
    ),
    counter(
        "tidegate_director_updates_total",
        "Interim webhook messages that the API has accepted",
        |snapshot| count(snapshot, |metrics| metrics.updates.get()),
    ),
    counter(
        "tidegate_director_events_total",
        "Events of running jobs that the API has accepted",
        |snapshot| count(snapshot, |metrics| metrics.events.get()),
    ),
    counter(
        "tidegate_director_isolations_total",
        "Times that no API process replied for the length of a lease",
        |snapshot| count(snapshot, |metrics| metrics.isolations.get()),
    ),
];

fn state(snapshot: &MetricSnapshot<'_>, level: fn(&DirectorState) -> f64) -> Vec<Sample> {
    let director = snapshot.sources.director.as_ref();
    unlabeled(director.map(|director| MetricValue::Gauge(level(&(director.state)()))))
}

fn count(snapshot: &MetricSnapshot<'_>, count: fn(&DirectorMetrics) -> u64) -> Vec<Sample> {
    let director = snapshot.sources.director.as_ref();
    unlabeled(director.map(|director| MetricValue::Counter(count(&director.metrics))))
}

fn labels(
    snapshot: &MetricSnapshot<'_>,
    samples: fn(&DirectorMetrics) -> Vec<Sample>,
) -> Vec<Sample> {
    let director = snapshot.sources.director.as_ref();
    director.map_or_else(Vec::new, |director| samples(&director.metrics))
}
