//! Runs one job and delivers its reports until the platform has the result.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::delivery::{FinalReport, Report, ReportDelivery, ReportSender};
use crate::execute::{ExecutionContext, RunResult};
use crate::in_flight::InFlightJobs;
use crate::platform_client::PlatformClient;
use crate::platform_urls::OutputDelivery;
use crate::wire::Job;

/// Runs the jobs of a worker.
pub(crate) struct JobRunner {
    pub(crate) execution: ExecutionContext,
    pub(crate) platform: Arc<PlatformClient>,
    pub(crate) in_flight: InFlightJobs,
}

impl JobRunner {
    /// Runs a job that was added to `in_flight`.
    pub(crate) async fn run(self: Arc<Self>, job: Job, stop: CancellationToken) {
        let (reports, delivery) =
            ReportDelivery::new(Arc::clone(&self.platform), &job.id, stop.clone());
        tokio::join!(delivery.run(), self.execute(&job, &stop, reports));
        if stop.is_cancelled() {
            tracing::info!(job = job.id, "Stopped.");
        }
        self.done(&job.id);
    }

    /// Delivers a result that is already known.
    pub(crate) async fn deliver(
        self: Arc<Self>,
        id: String,
        stop: CancellationToken,
        delivered: OutputDelivery,
        body: Bytes,
    ) {
        self.in_flight.mark_finished(&id);
        let (reports, delivery) = ReportDelivery::new(Arc::clone(&self.platform), &id, stop);
        tokio::join!(
            delivery.run(),
            reports.send(Report::Final(FinalReport {
                delivered,
                body,
                at: Instant::now()
            }))
        );
        self.done(&id);
    }

    async fn execute(&self, job: &Job, stop: &CancellationToken, reports: ReportSender) {
        if let RunResult::Finished(end) = self.execution.execute(job, stop, &reports).await {
            self.execution
                .journal
                .record_finished(&job.id, end.delivered, &end.body);
            self.in_flight.mark_finished(&job.id);
            reports.send(Report::Final(end)).await;
        }
    }

    fn done(&self, id: &str) {
        self.execution.journal.remove(id);
        self.in_flight.remove(id);
    }
}
