//! Reads the counters and levels of the server, for the history and the overview.

use std::collections::HashSet;

use jiff::Timestamp;
use tidegate_core::Status;
use tidegate_service::{ClusterState, JobMetrics, JobService, RefusalReason};

use super::UiState;
use super::history::LoadSample;
use crate::metrics::RouterMetricSource;

impl UiState {
    /// The current counters of this process, and the levels of the server or its cluster.
    pub(super) fn load_sample(&self, cluster: Option<&ClusterState>) -> LoadSample {
        let mut sample = LoadSample {
            at: Timestamp::now(),
            ..LoadSample::default()
        };
        for jobs in one_per_model(self.job_services()) {
            // The jobs of a cluster wait in queues that its processes share; those of an endpoint do not.
            if cluster.is_none() || jobs.target().is_endpoint() {
                let queue = jobs.queue().total;
                sample.waiting += queue.waiting;
                sample.running += queue.running;
            }
            add_jobs(&mut sample, jobs.metrics());
        }
        for queue in cluster
            .iter()
            .flat_map(|state| state.queues.iter().flatten())
        {
            sample.waiting += queue.usage.depth.waiting;
            sample.running += queue.usage.depth.claimed;
        }
        if let Some(router) = &self.sources.router {
            add_routed(&mut sample, router);
        }
        sample
    }
}

/// One job service for each model: its versions share their counters and their queue.
pub(super) fn one_per_model(mut services: Vec<JobService>) -> Vec<JobService> {
    let mut seen = HashSet::new();
    services.retain(|jobs| seen.insert(jobs.target().model.clone()));
    services
}

fn add_jobs(sample: &mut LoadSample, metrics: &JobMetrics) {
    let accepted: u64 = metrics.accepted_jobs().map(|(_, _, count)| count).sum();
    sample.requests += accepted;
    for (_, reason, count) in metrics.refusals() {
        sample.requests += count;
        if is_server_error(reason) {
            sample.errors += count;
        }
    }
    let failed = metrics
        .finished_jobs()
        .filter(|(_, _, status, _)| *status == Status::Failed);
    sample.errors += failed.map(|(_, _, _, count)| count).sum::<u64>();
    sample.latency.add(&metrics.run_times);
}

/// Whether a job was refused for a reason that its client cannot change.
fn is_server_error(reason: RefusalReason) -> bool {
    match reason {
        RefusalReason::NotReady
        | RefusalReason::AtCapacity
        | RefusalReason::NoSpace
        | RefusalReason::StoreUnavailable
        | RefusalReason::Closing => true,
        RefusalReason::InvalidInput
        | RefusalReason::IdInUse
        | RefusalReason::InputDiffers
        | RefusalReason::NotStreaming
        | RefusalReason::BadWebhook => false,
    }
}

fn add_routed(sample: &mut LoadSample, router: &RouterMetricSource) {
    for model in router.telemetry.models().values() {
        for (status, count) in model.labeled().by_status {
            sample.requests += count;
            if status >= 500 {
                sample.errors += count;
            }
        }
        sample.latency.add(&model.durations);
    }
    for group in router.registry.table().groups() {
        let statistics = group.statistics();
        sample.waiting += statistics.queue_size;
        sample.running += statistics.used_permits;
    }
}
