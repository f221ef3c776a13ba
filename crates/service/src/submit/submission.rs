//! What callers bring to the desk, and what they get for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::port::BoxFuture;
use tidegate_core::record::{Api, DeploymentRef};
use tidegate_core::{Account, JobId, JobKind};
use tokio_util::task::TaskTracker;

use crate::job::Job;
use crate::stream::StreamReader;
use crate::webhook::Webhook;

/// A job that somebody wants done.
pub struct Submission {
    /// Whose it will be.
    pub account: Account,
    /// The caller's own id for it.
    pub id: Option<JobId>,
    /// Which function.
    pub kind: JobKind,
    /// The input, one JSON text.
    pub input: Bytes,
    /// Who else is told.
    pub webhook: Option<Arc<Webhook>>,
    /// Notes for the model.
    pub context: BTreeMap<String, String>,
    /// How the caller gets the answer.
    pub delivery: ResponseMode,
    /// What happens when the id is known already.
    pub replay: OnDuplicateId,
    /// The caller wants nothing of it any more after this time.
    pub deadline: Option<Duration>,
    /// In whose words it came.
    pub api: Api,
    /// The deployment that it came through.
    pub deployment: Option<DeploymentRef>,
    /// Of a training: the model that what it gives becomes a version of, `owner/name`.
    pub destination: Option<String>,
}

impl Submission {
    /// Whether somebody may come back for it: then it is written down.
    pub(crate) fn is_recorded(&self) -> bool {
        self.delivery == ResponseMode::Async || self.id.is_some() || self.webhook.is_some()
    }
}

/// How a caller gets the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseMode {
    /// Waits for it; the job is canceled when it leaves.
    Wait,
    /// Comes back for it, or is told by webhook; the job goes on without it.
    Async,
    /// Follows the job; it is canceled when the last who follows leaves.
    Stream,
}

/// What happens when the id of a submission is known already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDuplicateId {
    /// The same request again: show what became of it.
    Answer,
    /// A new request: refused while the other runs.
    Refuse,
}

/// What became of a submission.
pub enum Submitted {
    /// A new job runs.
    New(Ticket),
    /// A job with this id runs already.
    Running(Arc<Job>),
    /// A job with this id and input is over.
    Over(Arc<Job>),
}

/// A new job in the hands of its caller.
pub struct Ticket {
    pub(crate) job: Arc<Job>,
    /// The job's tracker, when the caller waits: it runs inside [`Ticket::ended`], so that the answer
    /// comes without a change of task.
    pub(crate) tracker: Option<BoxFuture<()>>,
    pub(crate) tasks: TaskTracker,
    /// The caller waits: gone caller, gone job.
    pub(crate) cancel_on_drop: bool,
    pub(crate) reader: Option<StreamReader>,
}

impl Ticket {
    /// The job.
    pub fn job(&self) -> &Arc<Job> {
        &self.job
    }

    /// Waits until the job is over. A job that was submitted with [`ResponseMode::Wait`] runs in this call.
    pub async fn ended(&mut self) {
        if let Some(tracker) = &mut self.tracker {
            tracker.await;
            self.tracker = None;
        }
        self.job.ended().await;
    }

    /// The job, which goes on by itself and whoever leaves.
    pub fn detach(mut self) -> Arc<Job> {
        self.cancel_on_drop = false;
        Arc::clone(&self.job)
    }

    /// The stream of a job that was submitted with [`ResponseMode::Stream`].
    pub fn into_reader(mut self) -> Option<StreamReader> {
        self.reader.take()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.cancel_on_drop {
            // Nothing happens when it is over already, which is nearly always.
            self.job.cancel();
        }
        if let Some(tracker) = self.tracker.take() {
            self.tasks.spawn(tracker);
        }
    }
}
