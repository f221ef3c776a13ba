//! What one desk counts, for whoever watches the server. Every counter is made with the desk, so that
//! counting is an atomic addition and nothing is looked up by name.

use std::time::Duration;

use tidegate_core::meter::{Counter, Counters, Histogram, MetricLabel};
use tidegate_core::record::Api;
use tidegate_core::{JobKind, Refusal, Status, label};

/// Seconds between acceptance and begin: mostly nothing, at times hours.
const WAIT: &[f64] = &[
    0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0,
];
/// Seconds that the model works: from a lookup to a training.
const RUN: &[f64] = &[
    0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
    7200.0,
];
/// Seconds until a receiver has answered.
const DELIVERY: &[f64] = &[0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0];

/// What one desk has counted since the start.
#[derive(Debug)]
pub struct JobMetrics {
    /// By face and kind.
    jobs: Box<[JobCounters]>,
    /// By face.
    refused: Box<[Counters<RefusalReason>]>,
    /// Seconds between acceptance and begin.
    pub wait: Histogram,
    /// Seconds between begin and end.
    pub run: Histogram,
    /// Each time that a webhook was sent.
    pub attempts: Counters<AttemptResult>,
    /// Seconds until the receiver had answered.
    pub attempt_time: Histogram,
    /// Last messages about jobs that were not taken and are not sent any more.
    pub given_up: Counter,
}

#[derive(Debug, Default)]
struct JobCounters {
    accepted: Counter,
    finished: Counters<Status>,
}

/// Why a job was not taken in, without the details.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalReason {
    /// [`Refusal::NotReady`]
    NotReady,
    /// [`Refusal::AtCapacity`]
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

/// What came of sending a webhook once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptResult {
    /// The receiver took it.
    Delivered,
    /// The receiver answered something else.
    Rejected,
    /// The receiver did not answer, or could not be reached.
    NoAnswer,
    /// The address may not be called.
    NotAllowed,
}

label!(AttemptResult: Delivered = "delivered", Rejected = "not_taken", NoAnswer = "no_answer", NotAllowed = "not_allowed");

impl From<&Refusal> for RefusalReason {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::NotReady { .. } => Self::NotReady,
            Refusal::AtCapacity => Self::AtCapacity,
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
            wait: Histogram::new(WAIT),
            run: Histogram::new(RUN),
            attempts: Counters::default(),
            attempt_time: Histogram::new(DELIVERY),
            given_up: Counter::default(),
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

    pub(crate) fn began(&self, waited: Duration) {
        self.wait.observe(waited.as_secs_f64());
    }

    /// `ran` is absent for a job that never began.
    pub(crate) fn finished(&self, api: Api, kind: JobKind, status: Status, ran: Option<Duration>) {
        self.jobs(api, kind).finished.of(status).inc();
        if let Some(ran) = ran {
            self.run.observe(ran.as_secs_f64());
        }
    }

    pub(crate) fn attempted(&self, result: AttemptResult, took: Duration) {
        self.attempts.of(result).inc();
        self.attempt_time.observe(took.as_secs_f64());
    }

    /// How many jobs came by each face.
    pub fn accepted_jobs(&self) -> impl Iterator<Item = (Api, JobKind, u64)> {
        self.each()
            .map(|(api, kind, jobs)| (api, kind, jobs.accepted.get()))
    }

    /// How many jobs ended how; only in ends, a job that goes on has none.
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

    /// How many requests were refused by each face.
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
    fn each_face_kind_and_end_is_counted_apart() {
        let meter = JobMetrics::default();
        meter.accepted(Api::Replicate, JobKind::Training);
        meter.finished(
            Api::Replicate,
            JobKind::Training,
            Status::Failed,
            Some(Duration::from_secs(2)),
        );
        meter.finished(Api::Cog, JobKind::Prediction, Status::Canceled, None);
        meter.refused(Api::Cog, &Refusal::AtCapacity);
        let accepted: Vec<_> = meter
            .accepted_jobs()
            .filter(|(.., count)| *count > 0)
            .collect();
        assert_eq!(accepted, [(Api::Replicate, JobKind::Training, 1)]);
        let finished: Vec<_> = meter
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
        let refused: Vec<_> = meter.refusals().filter(|(.., count)| *count > 0).collect();
        assert_eq!(refused, [(Api::Cog, RefusalReason::AtCapacity, 1)]);
        assert_eq!(meter.run.read().count, 1, "what never began has not run");
    }
}
