//! A waiting job that is in the store only: what the server must know of it without reading the store.

use std::sync::Arc;

use jiff::Timestamp;
use tidegate_core::queue::{EntryDetails, Priority, QueueEntry};
use tidegate_core::record::{Api, JobRecord, JobSummary, Target, WebhookSpec};
use tidegate_core::store::JobHead;
use tidegate_core::{JobKind, Status};

use super::waiting_jobs::JobKey;
use crate::job::Job;
use crate::submit::PreparedJob;

/// The index entry of a waiting job. There may be a million, so it is small.
pub(crate) struct StoredJob {
    pub(super) target: Arc<Target>,
    /// When it was accepted, in microseconds since 1970, as in the store.
    created_at: i64,
    /// The same for its last begin; 0 if it never began.
    began_at: i64,
    /// The same for its deadline; 0 if it has none.
    deadline: i64,
    /// The job, if its state was changed: a cancel was requested.
    pub(super) changed: Option<Arc<Job>>,
    /// The webhook as JSON, to report a job whose record cannot be read.
    hook: Option<Box<str>>,
    /// The memory that its input takes once it is read.
    pub(super) weight: u32,
    /// How often it was started before.
    pub(super) attempt: u32,
    pub(super) kind: JobKind,
    pub(super) api: Api,
    pub(super) priority: Priority,
    /// Whether it is about to start or to end.
    pub(super) is_taken: bool,
    /// Whether a previous server process accepted it.
    pub(super) is_from_previous_run: bool,
}

impl StoredJob {
    /// A job that was just recorded.
    pub(crate) fn of_prepared(prepared: &PreparedJob) -> Self {
        let job = &prepared.job;
        Self {
            target: job.shared_target(),
            created_at: job.created_at().as_microsecond(),
            began_at: 0,
            deadline: job.deadline().map_or(0, Timestamp::as_microsecond),
            changed: None,
            hook: job.hook().and_then(hook_json),
            weight: weight(prepared.checked.weight()),
            attempt: 0,
            kind: job.kind(),
            api: job.api(),
            priority: Priority::from_context(&prepared.context),
            is_taken: false,
            is_from_previous_run: false,
        }
    }

    /// A job that a previous server process accepted.
    pub(crate) fn of_record(record: &JobRecord) -> Self {
        let spec = &record.spec;
        Self {
            target: Arc::new(spec.target.clone()),
            created_at: spec.created_at.as_microsecond(),
            began_at: record.started_at.map_or(0, Timestamp::as_microsecond),
            deadline: spec.deadline.map_or(0, Timestamp::as_microsecond),
            changed: None,
            hook: spec.hook.as_ref().and_then(hook_json),
            weight: weight(spec.input.len()),
            attempt: record.attempt,
            kind: spec.kind,
            api: spec.api,
            priority: Priority::from_context(&spec.context),
            is_taken: false,
            is_from_previous_run: true,
        }
    }

    /// The same with an input of this size, which was not read.
    pub(crate) fn with_input_bytes(self, bytes: usize) -> Self {
        let weight = weight(bytes);
        Self { weight, ..self }
    }

    /// When it was accepted.
    pub(super) fn created_at(&self) -> Timestamp {
        Timestamp::from_microsecond(self.created_at).unwrap_or_default()
    }

    /// When it last began, as far as that is recorded.
    pub(super) fn began_at(&self) -> Option<Timestamp> {
        let began = (self.began_at != 0).then_some(self.began_at)?;
        Timestamp::from_microsecond(began).ok()
    }

    /// Its queue entry.
    pub(super) fn entry(&self, (account, id): &JobKey) -> QueueEntry {
        let deadline = (self.deadline != 0).then_some(self.deadline);
        QueueEntry {
            account: account.clone(),
            id: id.clone(),
            priority: self.priority,
            deadline: deadline.and_then(|at| Timestamp::from_microsecond(at).ok()),
            details: Some(Arc::new(EntryDetails {
                kind: self.kind,
                target: Arc::clone(&self.target),
                stream_publish_url: None,
            })),
        }
    }

    /// The receiver of its webhooks.
    pub(super) fn hook(&self) -> Option<WebhookSpec> {
        serde_json::from_str(self.hook.as_deref()?).ok()
    }

    pub(super) fn head<'a>(&'a self, (account, id): &'a JobKey) -> JobHead<'a> {
        JobHead {
            account,
            id,
            target: &self.target,
            status: Status::Queued,
            created_at: self.created_at(),
        }
    }

    pub(super) fn summary(&self, (account, id): &JobKey) -> JobSummary {
        JobSummary {
            id: id.clone(),
            account: account.clone(),
            kind: self.kind,
            target: (*self.target).clone(),
            api: self.api,
            status: Status::Queued,
            created_at: self.created_at(),
            started_at: None,
            completed_at: None,
            error: None,
        }
    }
}

fn weight(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn hook_json(hook: &WebhookSpec) -> Option<Box<str>> {
    serde_json::to_string(hook).ok().map(String::into_boxed_str)
}
