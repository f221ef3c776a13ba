//! The responses of the admin API.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tidegate_core::gpu::GpuId;
use tidegate_core::health::{Health, HealthReport, SetupReport, SetupStatus};
use tidegate_core::job_attempt::JobAttempt;
use tidegate_core::pool_status::{PoolStatus, ProcessState, ProcessStatus, SpareKind};
use tidegate_core::record::{Api, JobSummary, Target};
use tidegate_core::{Account, JobKind, Status};
use tidegate_service::{Attempt, DeliveryRecord, DeliveryState, QueueCounts, Snapshot};

/// How much of the end of the setup logs is shown, in bytes; the health check shows all.
const MAX_SETUP_LOGS: usize = 4096;

#[derive(Debug, Serialize)]
pub(super) struct Error {
    pub(super) error: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Models {
    pub(super) models: Vec<Model>,
}

/// One model and its health.
#[derive(Debug, Serialize)]
pub(super) struct Model {
    /// The number of processes that the load needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    children_wanted: Option<usize>,
    /// The error of its health check, or how its last process died.
    #[serde(skip_serializing_if = "Option::is_none")]
    health_error: Option<String>,
    health: Health,
    model: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    python: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    setup: Option<Setup>,
    slots: usize,
    slots_free: usize,
    version: String,
}

#[derive(Debug, Serialize)]
struct Setup {
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<String>,
    /// The end of the logs.
    logs: String,
    started_at: String,
    status: SetupStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    took_s: Option<f64>,
}

impl Model {
    pub(super) fn of(target: &Target, report: HealthReport, pool: PoolStatus) -> Self {
        let setup = report.setup.map(|setup| Setup {
            completed_at: setup.completed_at.map(text),
            logs: tail(&setup.logs).to_owned(),
            started_at: text(setup.started_at),
            status: setup.status,
            took_s: setup.completed_at.map(|end| seconds(setup.started_at, end)),
        });
        Self {
            children_wanted: pool.wanted,
            health_error: report.health_error,
            health: report.health,
            model: target.model.clone(),
            python: report.python,
            setup,
            slots: pool.slots,
            slots_free: pool.free,
            version: target.version.clone(),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Queues<'a> {
    pub(super) queues: Vec<Queue<'a>>,
}

/// The waiting and running jobs of a model.
#[derive(Debug, Serialize)]
pub(crate) struct Queue<'a> {
    accounts: Vec<Share>,
    model: &'a str,
    #[serde(flatten)]
    all: Share,
}

#[derive(Debug, Serialize)]
struct Share {
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_wait_s: Option<f64>,
    running: usize,
    waiting: usize,
}

impl<'a> Queue<'a> {
    pub(crate) fn of(
        target: &'a Target,
        queue: &tidegate_service::QueueStatus,
        now: Timestamp,
    ) -> Self {
        let part = |account: Option<&Account>, share: &QueueCounts| Share {
            account: account
                .filter(|account| !account.is_anonymous())
                .map(ToString::to_string),
            oldest_wait_s: share
                .oldest_waiting_since
                .map(|oldest| seconds(oldest, now)),
            running: share.running,
            waiting: share.waiting,
        };
        let accounts = queue
            .accounts
            .iter()
            .map(|(account, share)| part(Some(account), share))
            .collect();
        Self {
            accounts,
            model: &target.model,
            all: part(None, &queue.total),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Children {
    pub(super) children: Vec<Child>,
}

/// One process of a model.
#[derive(Debug, Serialize)]
pub(crate) struct Child {
    /// The GPUs that it was given, as in `CUDA_VISIBLE_DEVICES`.
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu: Option<String>,
    jobs: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_end: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
    model: String,
    number: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    restarts: u64,
    since: String,
    slots: usize,
    /// For a process that waits to replace another: how much of the model it has loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    spare: Option<SpareKind>,
    state: ProcessState,
}

impl Child {
    /// The processes of a model, and those that wait to replace one of them.
    pub(crate) fn all(model: &str, pool: PoolStatus) -> Vec<Self> {
        let children = pool
            .children
            .into_iter()
            .map(|child| Self::of(model, child));
        let spares = pool.spares.into_iter().map(|spare| Self {
            spare: Some(spare.kind),
            ..Self::of(model, spare.process)
        });
        children.chain(spares).collect()
    }

    fn of(model: &str, child: ProcessStatus) -> Self {
        let gpus: Vec<&str> = child.gpus.iter().map(GpuId::as_str).collect();
        Self {
            gpu: (!gpus.is_empty()).then(|| gpus.join(",")),
            spare: None,
            jobs: child.jobs,
            last_end: child.last_end,
            memory_bytes: child.memory,
            model: model.to_owned(),
            number: child.number,
            pid: child.pid,
            restarts: child.restarts,
            since: text(child.since),
            slots: child.slots,
            state: child.state,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Jobs<'a> {
    pub(super) jobs: Vec<Job<'a>>,
    /// The value of `before` for the next page; `null` on the last one.
    pub(super) next: Option<String>,
    pub(super) scope: &'static str,
}

/// A summary of a job.
#[derive(Debug, Serialize)]
pub(super) struct Job<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<String>,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(rename = "face")]
    api: Api,
    id: &'a str,
    kind: JobKind,
    model: &'a str,
    /// Until now, or until the end of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    ran_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<String>,
    status: Status,
    version: &'a str,
    /// Until now, or until the model began.
    waited_s: f64,
}

impl<'a> Job<'a> {
    pub(super) fn of(summary: &'a JobSummary, now: Timestamp) -> Self {
        let end = summary.completed_at.unwrap_or(now);
        Self {
            account: account_name(&summary.account),
            completed_at: summary.completed_at.map(text),
            created_at: text(summary.created_at),
            error: summary.error.as_deref(),
            api: summary.api,
            id: summary.id.as_str(),
            kind: summary.kind,
            model: &summary.target.model,
            ran_s: summary.started_at.map(|began| seconds(began, end)),
            started_at: summary.started_at.map(text),
            status: summary.status,
            version: &summary.target.version,
            waited_s: seconds(summary.created_at, summary.started_at.unwrap_or(end)),
        }
    }
}

/// A job with its logs. Inputs and outputs are private to its account.
#[derive(Debug, Serialize)]
pub(super) struct Details<'a> {
    #[serde(flatten)]
    job: Job<'a>,
    data_removed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<String>,
    /// The whole error.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    logs: String,
    metrics: serde_json::Map<String, serde_json::Value>,
}

impl<'a> Details<'a> {
    pub(super) fn of(summary: &'a JobSummary, job: Snapshot, now: Timestamp) -> Self {
        Self {
            job: Job {
                error: None,
                ..Job::of(summary, now)
            },
            data_removed: job.data_removed,
            deadline: job.deadline.map(text),
            error: job.error,
            logs: job.logs,
            metrics: job.metrics,
        }
    }
}

/// The attempts of a job.
#[derive(Debug, Serialize)]
pub(super) struct JobAttempts {
    pub(super) attempts: Vec<JobAttempt>,
}

/// The logs of a job from a position on.
#[derive(Debug, Serialize)]
pub(super) struct Logs {
    pub(super) logs: String,
    pub(super) next: usize,
    pub(super) over: bool,
    pub(super) status: Status,
}

/// The logs of the setup of a model from a position on.
#[derive(Debug, Serialize)]
pub(super) struct SetupLogs {
    logs: String,
    next: usize,
    over: bool,
    /// Another time is another setup, whose logs begin at zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<SetupStatus>,
}

impl SetupLogs {
    /// The logs after the first `from` bytes of a setup; `None` is a model that is not loaded.
    pub(super) fn of(setup: Option<SetupReport>, from: usize) -> Self {
        let Some(setup) = setup else {
            return Self {
                logs: String::new(),
                next: 0,
                over: true,
                started_at: None,
                status: None,
            };
        };
        // A position in another setup, or inside a character, has no logs.
        let logs = setup.logs.get(from..).unwrap_or_default().to_owned();
        Self {
            next: from + logs.len(),
            logs,
            over: setup.status != SetupStatus::Starting,
            started_at: Some(text(setup.started_at)),
            status: Some(setup.status),
        }
    }
}

/// A webhook that is replayed.
#[derive(Debug, Serialize)]
pub(super) struct Replayed<'a> {
    pub(super) id: &'a str,
}

#[derive(Debug, Serialize)]
pub(super) struct Deliveries<'a> {
    pub(super) deliveries: Vec<Delivery<'a>>,
}

/// One webhook message.
#[derive(Debug, Serialize)]
pub(super) struct Delivery<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<&'a str>,
    attempts: Vec<DeliveryAttempt<'a>>,
    created_at: String,
    #[serde(skip_serializing_if = "is_zero")]
    earlier_attempts: u32,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    given_up: Option<&'a str>,
    host: &'a str,
    id: &'a str,
    job: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_at: Option<String>,
    state: &'static str,
}

/// One attempt to send it: the status, or the error.
#[derive(Debug, Serialize)]
struct DeliveryAttempt<'a> {
    at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    took_s: f64,
}

impl<'a> From<&'a DeliveryRecord> for Delivery<'a> {
    fn from(record: &'a DeliveryRecord) -> Self {
        Self {
            account: account_name(&record.account),
            attempts: record.attempts.iter().map(Into::into).collect(),
            created_at: text(record.created_at),
            earlier_attempts: record.earlier_attempts,
            event: record.event.name(),
            given_up: record.given_up.as_deref(),
            host: &record.host,
            id: &record.id,
            job: record.job.as_str(),
            model: Some(record.model.as_str()).filter(|model| !model.is_empty()),
            next_attempt_at: record.next_attempt_at.map(text),
            state: state(record.state),
        }
    }
}

impl<'a> From<&'a Attempt> for DeliveryAttempt<'a> {
    fn from(attempt: &'a Attempt) -> Self {
        Self {
            at: attempt.at.to_string(),
            error: attempt.result.as_ref().err().map(String::as_str),
            status: attempt.result.as_ref().ok().copied(),
            took_s: attempt.took.as_secs_f64(),
        }
    }
}

/// The name of an account; the anonymous account has none.
fn account_name(account: &Account) -> Option<&str> {
    (!account.is_anonymous()).then(|| account.as_str())
}

fn text(time: Timestamp) -> String {
    time.to_string()
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    Duration::try_from(to.duration_since(from))
        .unwrap_or_default()
        .as_secs_f64()
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

fn tail(logs: &str) -> &str {
    let from = logs.len().saturating_sub(MAX_SETUP_LOGS);
    (from..)
        .find_map(|from| logs.get(from..))
        .unwrap_or_default()
}

fn state(state: DeliveryState) -> &'static str {
    match state {
        DeliveryState::Sending => "sending",
        DeliveryState::Delivered => "delivered",
        DeliveryState::Retrying => "retrying",
        DeliveryState::Failed => "failed",
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::JobId;
    use tidegate_service::WebhookEvent;

    use super::*;

    #[test]
    fn a_message_with_its_attempts() {
        let at = Timestamp::from_second(1_700_000_000).unwrap();
        let record = DeliveryRecord {
            id: "msg_1".to_owned(),
            account: Account::parse("team").unwrap(),
            job: JobId::parse("a").unwrap(),
            model: "ann/echo".to_owned(),
            event: WebhookEvent::Completed,
            host: "example.com:8080".to_owned(),
            created_at: at,
            state: DeliveryState::Retrying,
            given_up: None,
            earlier_attempts: 2,
            attempts: vec![
                Attempt {
                    at,
                    took: Duration::from_millis(1500),
                    result: Ok(500),
                },
                Attempt {
                    at,
                    took: Duration::from_secs(30),
                    result: Err("could not reach `example.com:8080`".to_owned()),
                },
            ],
            next_attempt_at: Some(at),
        };
        insta::assert_json_snapshot!(Delivery::from(&record));
    }
}
