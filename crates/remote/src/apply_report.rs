//! Applies the reports of workers, and waits until they are published or committed.

use tidegate_core::JobId;
use tokio::time::Instant;

use crate::dispatch_state::AppliedReport;
use crate::event_queue::ReportPlace;
use crate::executor::RemoteExecutor;
use crate::reports::{JobReport, ReportOutcome, ReportRejection};
use crate::worker::WorkerId;

impl RemoteExecutor {
    /// Applies a worker's report about a job, and waits until every reader sees it; if it is a result,
    /// until the end of the job is committed. The worker may send the same result any number of times.
    pub async fn apply_report(
        &self,
        worker: &WorkerId,
        id: &JobId,
        report: JobReport,
    ) -> Result<ReportOutcome, ReportRejection> {
        let now = Instant::now();
        self.with(|state| state.worker(worker, now).record_request(now));
        let place = match &report {
            JobReport::Progress(_) | JobReport::Part(_) => self.report_place(id).await?,
            JobReport::Done(_) | JobReport::StreamDone(_) => None,
        };
        let (applied, waiting) = self.with(|state| {
            let config = &self.inner.config;
            let applied = state.apply_report(worker, id, report, place, config, Instant::now());
            (applied, state.has_waiting())
        });
        // The report may have cost the worker its job.
        if waiting {
            self.inner.job_waiting.notify_one();
        }
        match applied {
            AppliedReport::Published(seen) => {
                // Without a timeout: a part that is sent again would be a second part. Fails when the
                // job has ended, and then there is nothing to see.
                seen.await.ok();
                Ok(ReportOutcome::Applied)
            }
            AppliedReport::Ended(commit) => {
                self.until_committed(commit.wait()).await?;
                Ok(ReportOutcome::Applied)
            }
            AppliedReport::EndedBefore(commit) => {
                self.until_committed(commit.wait()).await?;
                Ok(ReportOutcome::Ignored)
            }
            AppliedReport::Buffered => Ok(ReportOutcome::Buffered),
            AppliedReport::Ignored => Ok(ReportOutcome::Ignored),
        }
    }

    /// Waits until the job of a [`Buffered`](ReportOutcome::Buffered) result is started, and its end
    /// committed. Call it only for a job that will be started.
    pub async fn buffered_result_committed(&self, id: &JobId) -> Result<(), ReportRejection> {
        self.until_committed(async {
            loop {
                let mut started = std::pin::pin!(self.inner.job_started.notified());
                started.as_mut().enable();
                let (waiting, commit) = self.with(|state| {
                    let results = &state.early_results;
                    (results.is_waiting(id), results.end_commit(id))
                });
                match commit {
                    _ if waiting => started.await,
                    Some(commit) => return commit.wait().await,
                    // Removed, because too many other results wait.
                    None => return false,
                }
            }
        })
        .await
    }

    /// A place for a report about a job that runs here. `None` when it does not.
    async fn report_place(&self, id: &JobId) -> Result<Option<ReportPlace>, ReportRejection> {
        let places = self.with(|state| state.jobs.get(id).map(|job| job.events.places()));
        match places {
            Some(places) => {
                tokio::time::timeout(self.inner.config.commit_timeout, places.acquire())
                    .await
                    .map_err(|_| ReportRejection::TooManyReports)
            }
            None => Ok(None),
        }
    }

    async fn until_committed(
        &self,
        committed: impl Future<Output = bool>,
    ) -> Result<(), ReportRejection> {
        match tokio::time::timeout(self.inner.config.commit_timeout, committed).await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(ReportRejection::NotCommitted),
        }
    }
}
