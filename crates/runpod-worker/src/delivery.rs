//! Delivers the reports of one job to the platform in order: progress, parts and the result.
//!
//! One task per job reads a short queue; when it is full, the model waits. Parts and results are
//! retried until the platform accepts them. Progress is sent once, because it is soon out of date.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::platform_client::{PlatformClient, PostOutcome};
use crate::platform_urls::OutputDelivery;

/// The most reports of one job that wait.
const QUEUE: usize = 256;
/// How long a result waits for progress that was reported before it.
const PROGRESS_BEFORE_RESULT: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// A report about a job.
#[derive(Debug)]
pub(crate) enum Report {
    /// The progress.
    Progress(Bytes),
    /// A part of the output.
    Part(Bytes),
    /// The result, which is the last report.
    Final(FinalReport),
}

/// The result of a job as it is delivered.
#[derive(Debug, Clone)]
pub(crate) struct FinalReport {
    pub(crate) delivered: OutputDelivery,
    pub(crate) body: Bytes,
    pub(crate) at: Instant,
}

/// Sends the reports of one job.
pub(crate) struct ReportSender(mpsc::Sender<Report>);

/// Delivers the reports of one job.
pub(crate) struct ReportDelivery {
    pub(crate) platform: Arc<PlatformClient>,
    pub(crate) job: String,
    pub(crate) stop: CancellationToken,
    reports: mpsc::Receiver<Report>,
}

impl ReportSender {
    /// A sender without a receiver.
    pub(crate) fn disconnected() -> Self {
        Self(mpsc::channel(1).0)
    }

    /// Sends a report; waits while the queue is full.
    pub(crate) async fn send(&self, report: Report) {
        // The receiver ends early only when the job was stopped; its reports are not needed then.
        self.0.send(report).await.ok();
    }
}

impl ReportDelivery {
    pub(crate) fn new(
        platform: Arc<PlatformClient>,
        job: &str,
        stop: CancellationToken,
    ) -> (ReportSender, Self) {
        let (tx, reports) = mpsc::channel(QUEUE);
        (
            ReportSender(tx),
            Self {
                platform,
                job: job.to_owned(),
                stop,
                reports,
            },
        )
    }

    /// Delivers all reports. Ends when the platform accepts or rejects the result, or when the job is
    /// stopped.
    pub(crate) async fn run(mut self) {
        let stop = self.stop.clone();
        stop.run_until_cancelled(self.deliver_all()).await;
    }

    async fn deliver_all(&mut self) {
        let mut batch = Vec::new();
        loop {
            if self.reports.recv_many(&mut batch, QUEUE).await == 0 {
                return;
            }
            let ended_at = batch.last().and_then(|report| {
                if let Report::Final(end) = report {
                    Some(end.at)
                } else {
                    None
                }
            });
            let mut send_progress = true;
            for report in batch.drain(..) {
                match report {
                    Report::Progress(body) => {
                        let late = ended_at.is_some_and(|at| at.elapsed() > PROGRESS_BEFORE_RESULT);
                        if send_progress && !late {
                            send_progress = self.send_progress(body).await;
                        }
                    }
                    Report::Part(body) => self.deliver(ReportKind::Part, body).await,
                    Report::Final(end) => {
                        return self
                            .deliver(ReportKind::Final(end.delivered), end.body)
                            .await;
                    }
                }
            }
        }
    }

    /// Sends progress once. Returns whether more progress should be sent.
    async fn send_progress(&self, body: Bytes) -> bool {
        match self.platform.progress(&self.job, body).await {
            PostOutcome::Accepted => true,
            PostOutcome::Rejected(reason) | PostOutcome::Retry(reason, _) => {
                tracing::warn!(job = self.job, reason, "failed to report progress");
                false
            }
        }
    }

    /// Retries until the platform accepts or rejects the report.
    async fn deliver(&self, kind: ReportKind, body: Bytes) {
        let mut backoff = Backoff::new(FIRST_PAUSE, MAX_PAUSE);
        let mut tries = 0u32;
        loop {
            tries += 1;
            let outcome = match kind {
                ReportKind::Part => self.platform.part(&self.job, body.clone()).await,
                ReportKind::Final(delivered) => {
                    self.platform.end(&self.job, delivered, body.clone()).await
                }
            };
            match outcome {
                PostOutcome::Accepted if tries > 1 => {
                    return tracing::info!(job = self.job, tries, "result delivered after retries");
                }
                PostOutcome::Accepted => return,
                PostOutcome::Rejected(reason) => {
                    return tracing::error!(
                        job = self.job,
                        reason,
                        "the platform rejected the result, which is lost"
                    );
                }
                PostOutcome::Retry(reason, asked) => {
                    let pause = backoff.fail().max(asked.unwrap_or_default());
                    tracing::warn!(
                        job = self.job,
                        reason,
                        tries,
                        ?pause,
                        "failed to deliver result, retrying"
                    );
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum ReportKind {
    Part,
    Final(OutputDelivery),
}
