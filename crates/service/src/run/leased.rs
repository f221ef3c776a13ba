//! Runs a job that another process accepted and recorded, and that is leased to this process.
//!
//! This process has no record of the job: what the job needs comes with the lease, and what it produces
//! goes through the ports of [`LeasedRun`]. The same tracker runs it, with the same rules.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::lease::Fence;
use tidegate_core::port::{Admitted, BoxFuture};
use tidegate_core::record::JobSpec;
use tidegate_core::store::JobRecords;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::finish::RunOutcome;
use super::recorder::JobRecorder;
use super::tracker::Tracker;
use crate::files::{InputDownloads, OutputUploads};
use crate::job::Job;
use crate::job_service::JobService;
use crate::models::trained::VersionCreation;
use crate::submit::PreparedJob;
use crate::webhook::{InterimMessages, InterimTarget, MessageFactory, WebhookSender};

/// A job of another process, and what it runs with.
pub struct LeasedRun {
    /// What the client requested.
    pub spec: JobSpec,
    /// The fencing token of the lease.
    pub fence: Fence,
    /// When the lease was granted.
    pub began_at: Timestamp,
    /// The time until the job expires. The clock of the other process may differ, so the deadline in
    /// `spec` does not count here.
    pub remaining: Option<Duration>,
    /// The capacity for the job.
    pub admitted: Admitted,
    /// What happens if the capacity is refused.
    pub on_refused: OnRefused,
    /// Records the end of the job.
    pub records: Arc<dyn JobRecords>,
    /// Takes the interim webhook messages.
    pub interim: Arc<dyn InterimMessages>,
    /// Takes the output files that belong in the file store.
    pub uploads: Option<Arc<dyn OutputUploads>>,
    /// Provides the input files that are in the file store.
    pub downloads: Option<Arc<dyn InputDownloads>>,
    /// Creates the version of a training.
    pub versions: Option<Arc<dyn VersionCreation>>,
    /// When it is cancelled, the job is stopped and left: its lease is lost, or another process will run
    /// it. A job whose end is decided is not left any more.
    pub abandon: CancellationToken,
}

/// What happens to a leased job that the executor refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnRefused {
    /// It is left: another process may be able to run it.
    Leave,
    /// It fails: no other process could run it either.
    Fail,
}

/// What the tracker of a leased job has besides.
pub(crate) struct LeasedParts {
    pub(crate) abandon: CancellationToken,
    pub(crate) uploads: Option<Arc<dyn OutputUploads>>,
    pub(crate) downloads: Option<Arc<dyn InputDownloads>>,
    pub(crate) versions: Option<Arc<dyn VersionCreation>>,
    pub(crate) on_refused: OnRefused,
}

impl JobService {
    /// Runs a leased job. The future must be polled to its end; [`JobService::request_stop`] cancels the
    /// job meanwhile.
    pub fn run_leased(&self, run: LeasedRun) -> (Arc<Job>, BoxFuture<RunOutcome>) {
        let LeasedRun {
            spec,
            fence,
            began_at,
            remaining,
            admitted,
            on_refused,
            records,
            interim,
            uploads,
            downloads,
            versions,
            abandon,
        } = run;
        let job = Arc::new(self.job_of_spec(&spec));
        self.shared().registry.put(Arc::clone(&job));
        job.count_in(&self.model.metrics.open_jobs);
        let mut prepared = PreparedJob {
            deadline: remaining.and_then(|time| Instant::now().checked_add(time)),
            ..self.prepared_from_spec(spec, Arc::clone(&job))
        };
        let senders = &self.model.senders;
        let messages = MessageFactory {
            retry_for: senders.retry_for,
            claim: None,
        };
        let webhook = prepared.webhook.take();
        let recorder = JobRecorder::leased(records, webhook.as_ref(), fence, began_at)
            .with_messages(Some(messages.clone()));
        let sender = webhook.map(|webhook| {
            let target = InterimTarget::Relay(messages, interim);
            WebhookSender::spawn(senders, webhook, Arc::clone(&job), target)
        });
        let tracker = Tracker {
            recorder: Some(Box::new(recorder)),
            webhook: sender,
            leased: Some(LeasedParts {
                abandon,
                uploads,
                downloads,
                versions,
                on_refused,
            }),
            ..self.tracker(prepared, None, None)
        };
        // Closing the service waits for the job.
        let counted = self.model.tasks.token();
        let run = async move {
            let outcome = tracker.run_to_outcome(admitted).await;
            drop(counted);
            outcome
        };
        (job, Box::pin(run))
    }
}
