//! The metrics of one model. All counters are created up front, so that counting is an atomic
//! addition without a lookup by name.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::counters::{Counter, Counters, Histogram, MetricLabel};
use tidegate_core::ewma::Ewma;
use tidegate_core::latency_histogram::LatencyHistogram;
use tidegate_core::record::Api;
use tidegate_core::{JobKind, Refusal, Status, label};

use crate::open_jobs::OpenJobs;

/// Histogram buckets in seconds between acceptance and begin: mostly none, sometimes hours.
const WAIT_BUCKETS: &[f64] = &[
    0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0,
];
/// Histogram buckets in seconds between begin and end: from a lookup to a training.
const RUN_BUCKETS: &[f64] = &[
    0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
    7200.0,
];
/// Histogram buckets in seconds until a webhook receiver responded.
const DELIVERY_BUCKETS: &[f64] = &[0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0];

/// The metrics of one model since the server started.
#[derive(Debug)]
pub struct JobMetrics {
    /// By API and kind.
    jobs: Box<[JobCounters]>,
    /// By API.
    refused: Box<[Counters<RefusalReason>]>,
    /// Seconds between acceptance and begin.
    pub wait: Histogram,
    /// Seconds between begin and end.
    pub run: Histogram,
    /// The same, for percentiles.
    pub run_times: LatencyHistogram,
    /// Attempts to send a webhook.
    pub attempts: Counters<AttemptResult>,
    /// Seconds until the receiver responded.
    pub attempt_time: Histogram,
    /// Final webhooks of jobs that failed and are not tried again.
    pub given_up: Counter,
    /// The average time between begin and end of recent predictions.
    pub(crate) recent_run_time: Ewma,
    pub(crate) open_jobs: Arc<OpenJobs>,
}

#[derive(Debug, Default)]
struct JobCounters {
    accepted: Counter,
    finished: Counters<Status>,
}

/// Why a job was refused: a [`Refusal`] without the details.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalReason {
    /// [`Refusal::NotReady`]
    NotReady,
    /// [`Refusal::AtCapacity`] and [`Refusal::QueueFull`]
    AtCapacity,
    /// [`Refusal::InvalidInput`]
    InvalidInput,
    /// [`Refusal::IdInUse`]
    IdInUse,
    /// [`Refusal::InputDiffers`]
    InputDiffers,
    /// [`Refusal::NotStreaming`]
    NotStreaming,
    /// [`Refusal::BadWebhook`]
    BadWebhook,
    /// [`Refusal::NoSpace`]
    NoSpace,
    /// [`Refusal::StoreUnavailable`]
    StoreUnavailable,
    /// [`Refusal::Closing`]
    Closing,
}

label!(RefusalReason: NotReady = "not_ready", AtCapacity = "at_capacity", InvalidInput = "invalid_input", IdInUse = "id_in_use",
    InputDiffers = "input_differs", NotStreaming = "not_streaming", BadWebhook = "bad_webhook", NoSpace = "no_space",
    StoreUnavailable = "store_unavailable", Closing = "closing");

/// The result of one attempt to send a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptResult {
    /// The receiver accepted it.
    Delivered,
    /// The receiver responded with another status.
    Rejected,
    /// The receiver did not respond or could not be reached.
    NoAnswer,
    /// The address is not allowed.
    NotAllowed,
}

label!(AttemptResult: Delivered = "delivered", Rejected = "not_taken", NoAnswer = "no_answer", NotAllowed = "not_allowed");

impl From<&Refusal> for RefusalReason {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::NotReady { .. } => Self::NotReady,
            Refusal::AtCapacity | Refusal::QueueFull(_) => Self::AtCapacity,
            Refusal::InvalidInput(_) => Self::InvalidInput,
            Refusal::IdInUse(_) => Self::IdInUse,
            Refusal::InputDiffers(_) => Self::InputDiffers,
            Refusal::NotStreaming => Self::NotStreaming,
            Refusal::BadWebhook { .. } => Self::BadWebhook,
            Refusal::NoSpace => Self::NoSpace,
            Refusal::StoreUnavailable => Self::StoreUnavailable,
            Refusal::Closing => Self::Closing,
        }
    }
}

impl Default for JobMetrics {
    fn default() -> Self {
        Self {
            jobs: (0..Api::ALL.len() * JobKind::ALL.len())
                .map(|_| JobCounters::default())
                .collect(),
            refused: Api::ALL.iter().map(|_| Counters::default()).collect(),
            wait: Histogram::new(WAIT_BUCKETS),
            run: Histogram::new(RUN_BUCKETS),
            run_times: LatencyHistogram::default(),
            attempts: Counters::default(),
            attempt_time: Histogram::new(DELIVERY_BUCKETS),
            given_up: Counter::default(),
            recent_run_time: Ewma::default(),
            open_jobs: Arc::default(),
        }
    }
}

impl JobMetrics {
    pub(crate) fn accepted(&self, api: Api, kind: JobKind) {
        self.jobs(api, kind).accepted.inc();
    }

    pub(crate) fn refused(&self, api: Api, refusal: &Refusal) {
        self.refused[api.index()].of(refusal.into()).inc();
    }

    pub(crate) fn began(&self, queue_time: Duration) {
        self.wait.observe(queue_time.as_secs_f64());
    }

    /// `run_time` is `None` for a job that never began.
    pub(crate) fn finished(
        &self,
        api: Api,
        kind: JobKind,
        status: Status,
        run_time: Option<Duration>,
    ) {
        self.jobs(api, kind).finished.of(status).inc();
        if let Some(run_time) = run_time {
            self.run.observe(run_time.as_secs_f64());
            self.run_times.observe(run_time);
            // A training of hours says nothing about the next prediction.
            if kind == JobKind::Prediction {
                self.recent_run_time.record(run_time);
            }
        }
    }

    pub(crate) fn attempted(&self, result: AttemptResult, duration: Duration) {
        self.attempts.of(result).inc();
        self.attempt_time.observe(duration.as_secs_f64());
    }

    /// The number of accepted jobs by API and kind.
    pub fn accepted_jobs(&self) -> impl Iterator<Item = (Api, JobKind, u64)> {
        self.each()
            .map(|(api, kind, jobs)| (api, kind, jobs.accepted.get()))
    }

    /// The number of ended jobs by API, kind and final status.
    pub fn finished_jobs(&self) -> impl Iterator<Item = (Api, JobKind, Status, u64)> {
        let ends = |(api, kind, jobs): (Api, JobKind, &'_ JobCounters)| {
            let ends: Vec<_> = jobs
                .finished
                .each()
                .filter(|(status, _)| status.is_terminal())
                .collect();
            ends.into_iter()
                .map(move |(status, count)| (api, kind, status, count))
        };
        self.each().flat_map(ends)
    }

    /// The number of refused requests by API and reason.
    pub fn refusals(&self) -> impl Iterator<Item = (Api, RefusalReason, u64)> {
        Api::ALL
            .iter()
            .zip(&self.refused)
            .flat_map(|(api, reasons)| reasons.each().map(|(reason, count)| (*api, reason, count)))
    }

    fn each(&self) -> impl Iterator<Item = (Api, JobKind, &JobCounters)> {
        Api::ALL.iter().flat_map(|api| {
            JobKind::ALL
                .iter()
                .map(|kind| (*api, *kind, self.jobs(*api, *kind)))
        })
    }

    fn jobs(&self, api: Api, kind: JobKind) -> &JobCounters {
        &self.jobs[api.index() * JobKind::ALL.len() + kind.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_counted_by_api_kind_and_final_status() {
        let metrics = JobMetrics::default();
        metrics.accepted(Api::Replicate, JobKind::Training);
        metrics.finished(
            Api::Replicate,
            JobKind::Training,
            Status::Failed,
            Some(Duration::from_secs(2)),
        );
        metrics.finished(Api::Cog, JobKind::Prediction, Status::Canceled, None);
        metrics.refused(Api::Cog, &Refusal::AtCapacity);
        let accepted: Vec<_> = metrics
            .accepted_jobs()
            .filter(|(.., count)| *count > 0)
            .collect();
        assert_eq!(accepted, [(Api::Replicate, JobKind::Training, 1)]);
        let finished: Vec<_> = metrics
            .finished_jobs()
            .filter(|(.., count)| *count > 0)
            .collect();
        assert_eq!(
            finished,
            [
                (Api::Cog, JobKind::Prediction, Status::Canceled, 1),
                (Api::Replicate, JobKind::Training, Status::Failed, 1)
            ]
        );
        let refused: Vec<_> = metrics
            .refusals()
            .filter(|(.., count)| *count > 0)
            .collect();
        assert_eq!(refused, [(Api::Cog, RefusalReason::AtCapacity, 1)]);
        assert_eq!(
            metrics.run.read().count,
            1,
            "a job that never began has no run time"
        );
    }

    #[test]
    fn the_recent_run_time_is_that_of_predictions() {
        let metrics = JobMetrics::default();
        let finished =
            |kind, run_time| metrics.finished(Api::Cog, kind, Status::Succeeded, run_time);
        finished(JobKind::Prediction, None);
        finished(JobKind::Training, Some(Duration::from_secs(3600)));
        assert_eq!(metrics.recent_run_time.get(), None);
        finished(JobKind::Prediction, Some(Duration::from_secs(10)));
        assert_eq!(metrics.recent_run_time.get(), Some(Duration::from_secs(10)));
    }
}
