//! A request for a job, and what the caller gets for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::policy::JobPolicies;
use tidegate_core::port::BoxFuture;
use tidegate_core::record::{Api, DeploymentRef};
use tidegate_core::{Account, JobId, JobKind};
use tokio_util::task::TaskTracker;

use crate::job::Job;
use crate::stream::StreamReader;
use crate::webhook::Webhook;

/// A request for a job.
pub struct Submission {
    /// The account that will own the job.
    pub account: Account,
    /// The id chosen by the client, if any.
    pub id: Option<JobId>,
    /// Which function of the model to call.
    pub kind: JobKind,
    /// The input, one JSON text.
    pub input: Bytes,
    /// The webhook of the job.
    pub webhook: Option<Arc<Webhook>>,
    /// Values passed to the model beside the input.
    pub context: BTreeMap<String, String>,
    /// How the client gets the result.
    pub response_mode: ResponseMode,
    /// What happens when the id exists already.
    pub on_duplicate: OnDuplicateId,
    /// The job is stopped when it has not ended after this time.
    pub deadline: Option<Duration>,
    /// The API that accepted the request, for metrics and rendering.
    pub api: Api,
    /// How the job is treated where the APIs differ.
    pub policies: JobPolicies,
    /// The deployment that the request names.
    pub deployment: Option<DeploymentRef>,
    /// For a training: the model that gets a new version from its output, `owner/name`.
    pub destination: Option<String>,
    /// What the client should know about the request, for the logs of the job.
    pub warnings: Vec<String>,
}

impl Submission {
    /// Whether the client may ask for the job later: then it is recorded in the store.
    pub(crate) fn is_recorded(&self) -> bool {
        self.response_mode == ResponseMode::Async || self.id.is_some() || self.webhook.is_some()
    }
}

/// How a client gets the result of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseMode {
    /// It waits; the job is canceled when it disconnects.
    Wait,
    /// It polls or gets a webhook; the job runs without it.
    Async,
    /// It reads the stream; the job is canceled when the last reader disconnects.
    Stream,
}

/// What happens when the id of a submission exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDuplicateId {
    /// The same request again: the caller gets the existing job.
    Answer,
    /// A new request: refused while the other job runs.
    Refuse,
}

/// The result of a submission.
pub enum Submitted {
    /// A new job was accepted.
    New(Ticket),
    /// A job with this id is running.
    Running(Arc<Job>),
    /// A job with this id and input has ended.
    Ended(Arc<Job>),
}

/// A new job, held by its caller.
pub struct Ticket {
    pub(crate) job: Arc<Job>,
    /// The job's tracker, when the caller waits: it runs inside [`Ticket::ended`], so that the result
    /// arrives without a task switch.
    pub(crate) tracker: Option<BoxFuture<()>>,
    pub(crate) tasks: TaskTracker,
    /// Whether the job is canceled when the caller drops the ticket.
    pub(crate) cancel_on_drop: bool,
    pub(crate) reader: Option<StreamReader>,
}

impl Ticket {
    /// The job.
    pub fn job(&self) -> &Arc<Job> {
        &self.job
    }

    /// Waits until the job has ended. A job submitted with [`ResponseMode::Wait`] runs in this call.
    pub async fn ended(&mut self) {
        if let Some(tracker) = &mut self.tracker {
            tracker.await;
            self.tracker = None;
        }
        self.job.ended().await;
    }

    /// The same ticket, whose job runs in a task of its own: for a caller that reads the output at its own
    /// pace. The job is still canceled when the ticket is dropped.
    pub fn run_in_task(mut self) -> Self {
        if let Some(tracker) = self.tracker.take() {
            self.tasks.spawn(tracker);
        }
        self
    }

    /// The job, which now runs independently of the caller.
    pub fn detach(mut self) -> Arc<Job> {
        self.cancel_on_drop = false;
        Arc::clone(&self.job)
    }

    /// The stream of a job submitted with [`ResponseMode::Stream`].
    pub fn into_reader(mut self) -> Option<StreamReader> {
        self.reader.take()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.cancel_on_drop {
            // Has no effect on a job that has ended, which is the usual case.
            self.job.cancel();
        }
        if let Some(tracker) = self.tracker.take() {
            self.tasks.spawn(tracker);
        }
    }
}
