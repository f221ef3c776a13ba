//! The tables of `tidegate ps`, as text. A table without rows is empty.

use indicatif::BinaryBytes;
use jiff::Timestamp;
use serde::Deserialize;
use tidegate_core::health::error_line;
use tidegate_core::record::Target;

use super::gpus;
use super::status::{ModelRow, ServerStatus};
use crate::admin_client::JobRow;
use crate::commands::error_cause;
use crate::commands::table::{columns, short_duration};

/// The most characters of an error in a table.
const MAX_ERROR: usize = 60;
/// What a cell without a value has.
const NONE: &str = "-";

/// Which rows are shown: those of a model and of an account, or all.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RowFilter<'a> {
    pub(super) model: Option<&'a str>,
    pub(super) account: Option<&'a str>,
}

impl RowFilter<'_> {
    pub(super) fn has_model(&self, name: &str) -> bool {
        self.model.is_none_or(|model| model == name)
    }

    /// Whether rows of this account are shown; `None` is the anonymous account.
    fn has_account(&self, name: Option<&str>) -> bool {
        let name = name.unwrap_or(crate::admin_client::ANONYMOUS);
        self.account.is_none_or(|account| account == name)
    }
}

impl ModelRow {
    /// Its name as the jobs have it.
    pub(crate) fn job_model(&self) -> String {
        match self.kind.as_str() {
            "endpoint" => Target::of_endpoint(&self.name).model,
            _ => self.name.clone(),
        }
    }
}

/// The models, their processes, the queues, and what else runs jobs, each with the tables that have rows.
pub(super) fn status_tables(
    status: &ServerStatus,
    filter: RowFilter<'_>,
    now: Timestamp,
) -> Vec<String> {
    let tables = [
        models(status, filter),
        processes(status, filter, now),
        gpus::cards(status),
        gpus::holders(status, filter),
        shares(status, filter),
        workers(status, filter),
        backends(status, filter),
        directors(status, filter),
        replicas(status),
    ];
    tables
        .into_iter()
        .filter(|table| !table.is_empty())
        .collect()
}

fn models(status: &ServerStatus, filter: RowFilter<'_>) -> String {
    let shown = status.models.iter();
    let shown = shown.filter(|model| filter.has_model(&model.job_model()));
    let row = |model: &ModelRow| {
        let mut queues = status.queues.iter();
        let queue = queues.find(|queue| queue.model == model.job_model());
        let oldest = queue.and_then(|queue| queue.oldest_wait_s);
        vec![
            model.name.clone(),
            model.state.health.clone(),
            busy(model.slots - model.slots_free.min(model.slots), model.slots),
            model.waiting.to_string(),
            model.running.to_string(),
            or_none(oldest.map(short_duration)),
            or_none(model.state.detail.as_deref().map(short_error)),
        ]
    };
    table(
        &[
            "MODEL", "STATE", "SLOTS", "WAITING", "RUNNING", "OLDEST", "DETAIL",
        ],
        shown.map(row),
    )
}

fn processes(status: &ServerStatus, filter: RowFilter<'_>, now: Timestamp) -> String {
    let shown = status.children.iter();
    let shown = shown.filter(|process| filter.has_model(&process.name.model));
    table(
        &[
            "PROCESS", "PID", "STATE", "SINCE", "SLOTS", "MEMORY", "RESTARTS", "LAST END",
        ],
        shown.map(|process| {
            let since = now.duration_since(process.since).as_secs_f64();
            let memory = process.memory_bytes;
            vec![
                process.name.to_string(),
                or_none(process.pid.map(|pid| pid.to_string())),
                process.state.clone(),
                short_duration(since),
                busy(process.jobs, process.slots),
                or_none(memory.map(|bytes| BinaryBytes(bytes).to_string())),
                process.restarts.to_string(),
                or_none(
                    process
                        .last_end
                        .as_deref()
                        .and_then(error_line)
                        .map(short_error),
                ),
            ]
        }),
    )
}

/// The shares of the accounts. The models have the totals, so without accounts there is nothing to add.
fn shares(status: &ServerStatus, filter: RowFilter<'_>) -> String {
    let queues = status.queues.iter();
    let shown = queues.filter(|queue| filter.has_model(&queue.model));
    let shares = shown.flat_map(|queue| queue.accounts.iter().map(move |share| (queue, share)));
    let shares: Vec<_> = shares
        .filter(|(_, share)| filter.has_account(share.account.as_deref()))
        .collect();
    if shares.iter().all(|(_, share)| share.account.is_none()) {
        return String::new();
    }
    table(
        &["QUEUE", "ACCOUNT", "WAITING", "RUNNING", "OLDEST"],
        shares.iter().map(|(queue, share)| {
            vec![
                queue.model.clone(),
                or_none(share.account.clone()),
                share.waiting.to_string(),
                share.running.to_string(),
                or_none(share.oldest_wait_s.map(short_duration)),
            ]
        }),
    )
}

fn workers(status: &ServerStatus, filter: RowFilter<'_>) -> String {
    let endpoints = status.endpoints.iter();
    let shown = endpoints.filter(|endpoint| {
        let model = Target::of_endpoint(&endpoint.name).model;
        filter.has_model(&model)
    });
    let each = shown.flat_map(|endpoint| endpoint.workers.iter().map(move |one| (endpoint, one)));
    table(
        &["ENDPOINT", "WORKER", "STATE", "JOBS", "SEEN"],
        each.map(|(endpoint, worker)| {
            vec![
                endpoint.name.clone(),
                worker.id.clone(),
                worker.state.clone(),
                worker.jobs.to_string(),
                ago(worker.last_seen_s),
            ]
        }),
    )
}

fn backends(status: &ServerStatus, filter: RowFilter<'_>) -> String {
    let models = status.router.models.iter();
    let shown = models.filter(|model| filter.has_model(&model.name));
    let each = shown.flat_map(|model| model.endpoints.iter().map(move |backend| (model, backend)));
    table(
        &["MODEL", "BACKEND", "KIND", "STATE", "PERMITS", "LATENCY"],
        each.map(|(model, backend)| {
            vec![
                model.name.clone(),
                backend.url.clone(),
                backend.kind.clone(),
                backend.health.clone(),
                busy(backend.used, backend.permits),
                or_none(backend.latency_ms.map(|ms| format!("{ms}ms"))),
            ]
        }),
    )
}

fn directors(status: &ServerStatus, filter: RowFilter<'_>) -> String {
    let shown = status.directors.iter();
    let shown = shown.filter(|director| {
        filter.model.is_none() || director.models.iter().any(|model| filter.has_model(model))
    });
    table(
        &["DIRECTOR", "STATE", "SLOTS", "SEEN", "MODELS"],
        shown.map(|director| {
            let state = if director.draining {
                "draining"
            } else {
                "ready"
            };
            vec![
                director.id.clone(),
                state.to_owned(),
                busy(director.running, director.slots),
                ago(director.last_seen_s),
                director.models.join(", "),
            ]
        }),
    )
}

fn replicas(status: &ServerStatus) -> String {
    table(
        &["API PROCESS", "SEEN"],
        status
            .replicas
            .iter()
            .map(|replica| vec![replica.id.clone(), ago(replica.last_seen_s)]),
    )
}

/// The jobs.
pub(super) fn jobs(jobs: &[JobRow], now: Timestamp) -> String {
    table(
        &[
            "ID", "MODEL", "STATUS", "ACCOUNT", "AGE", "WAIT", "RUN", "ERROR",
        ],
        jobs.iter().map(|job| {
            let age = now.duration_since(job.created_at).as_secs_f64();
            vec![
                job.id.clone(),
                job.model.clone(),
                job.status.clone(),
                or_none(job.account.clone()),
                short_duration(age),
                short_duration(job.waited_s),
                or_none(job.ran_s.map(short_duration)),
                or_none(job.error.as_deref().map(short_error)),
            ]
        }),
    )
}

/// A line with the names of the columns, then the rows; empty without rows.
pub(super) fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut lines = vec![head.iter().map(|&name| name.to_owned()).collect()];
    lines.extend(rows);
    match lines.len() {
        1 => String::new(),
        _ => columns(&lines),
    }
}

pub(super) fn or_none(value: Option<String>) -> String {
    value.unwrap_or_else(|| NONE.to_owned())
}

/// Used slots or permits among all.
fn busy(used: usize, all: usize) -> String {
    format!("{used}/{all}")
}

fn ago(seconds: f64) -> String {
    format!("{} ago", short_duration(seconds))
}

/// The error of a Runpod handler's exception, which is a JSON object.
#[derive(Deserialize)]
struct HandlerException {
    /// `<class 'ValueError'>`
    error_type: String,
    error_message: String,
}

impl HandlerException {
    /// `ValueError: message`
    fn text(&self) -> String {
        let class = self.error_type.strip_prefix("<class '");
        let class = class.and_then(|class| class.strip_suffix("'>"));
        let class = class.unwrap_or(&self.error_type);
        format!("{class}: {}", self.error_message)
    }
}

/// The first line of an error, without the words that the status column says already.
fn short_error(error: &str) -> String {
    let exception = serde_json::from_str(error);
    let exception = exception.map(|exception: HandlerException| exception.text());
    let error = exception.as_deref().unwrap_or(error);
    let line = error_cause(error).lines().next().unwrap_or_default();
    match line.char_indices().nth(MAX_ERROR) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_700_000_000).unwrap()
    }

    fn model(name: &str) -> serde_json::Value {
        json!({ "kind": "model", "name": name, "state": { "health": "BUSY", "detail": null },
            "slots": 2, "slots_free": 0, "waiting": 3, "running": 2 })
    }

    #[test]
    fn a_server_with_accounts() {
        let share = json!({ "account": "ann", "waiting": 3, "running": 2, "oldest_wait_s": 61.0 });
        let status: ServerStatus = serde_json::from_value(json!({
            "server": { "command": "serve" }, "scope": "all",
            "models": [model("local/echo"), model("local/other")],
            "queues": [{ "model": "local/echo", "waiting": 3, "running": 2, "oldest_wait_s": 61.0, "accounts": [share] }],
            "children": [{ "model": "local/echo", "number": 0, "pid": 71, "state": "ready", "slots": 2, "jobs": 2,
                "since": "2023-11-14T22:13:00Z", "memory_bytes": 12_582_912, "restarts": 1, "last_end": "killed by SIGKILL" },
                { "model": "local/echo", "number": 0, "spare": "loaded", "pid": 72, "state": "ready", "slots": 0, "jobs": 0,
                "since": "2023-11-14T22:13:00Z", "restarts": 2,
                "last_end": "Traceback (most recent call last):\n  File \"x\"\nImportError: no\n  try: y" }],
            "new_section": {},
        }))
        .unwrap();
        assert_eq!(
            status_tables(&status, RowFilter::default(), now()).join("\n"),
            "\
MODEL        STATE  SLOTS  WAITING  RUNNING  OLDEST  DETAIL
local/echo   BUSY   2/2    3        2        1m01s   -
local/other  BUSY   2/2    3        2        -       -

PROCESS           PID  STATE  SINCE  SLOTS  MEMORY     RESTARTS  LAST END
local/echo#0      71   ready  20s    2/2    12.00 MiB  1         killed by SIGKILL
local/echo spare  72   ready  20s    0/0    -          2         ImportError: no

QUEUE       ACCOUNT  WAITING  RUNNING  OLDEST
local/echo  ann      3        2        1m01s
"
        );
        let filter = RowFilter {
            model: Some("local/other"),
            account: Some("ann"),
        };
        let [only] = &status_tables(&status, filter, now())[..] else {
            panic!("the other model has no processes and no jobs")
        };
        assert!(only.contains("local/other") && !only.contains("local/echo"));
        let filter = RowFilter {
            account: Some("bob"),
            ..RowFilter::default()
        };
        assert_eq!(status_tables(&status, filter, now()).len(), 2, "no shares");
    }

    #[test]
    fn what_the_other_commands_show() {
        let mut endpoint = model("echo");
        endpoint["kind"] = json!("endpoint");
        let status: ServerStatus = serde_json::from_value(json!({
            "server": { "command": "api" }, "scope": "all",
            "models": [endpoint],
            "queues": [{ "model": "runpod/echo", "waiting": 3, "running": 2, "oldest_wait_s": 1.0, "accounts": [] }],
            "endpoints": [{ "name": "echo", "waiting": 3, "running": 2,
                "workers": [{ "id": "w1", "state": "busy", "jobs": 2, "last_seen_s": 0.3 }] }],
            "directors": [{ "id": "d1", "models": ["a/b", "a/c"], "slots": 4, "running": 1, "draining": true, "last_seen_s": 2.0 }],
            "replicas": [{ "id": "api-1", "last_seen_s": 4.0 }],
            "router": { "models": [{ "name": "llama", "waiting": 0, "endpoints": [
                { "url": "http://gpu:8000", "kind": "openai", "health": "ready", "permits": 8, "used": 3, "latency_ms": 12.5, "draining": false }] }] },
        }))
        .unwrap();
        assert_eq!(
            status_tables(&status, RowFilter::default(), now()).join("\n"),
            "\
MODEL  STATE  SLOTS  WAITING  RUNNING  OLDEST  DETAIL
echo   BUSY   2/2    3        2        1.0s    -

ENDPOINT  WORKER  STATE  JOBS  SEEN
echo      w1      busy   2     0.3s ago

MODEL  BACKEND          KIND    STATE  PERMITS  LATENCY
llama  http://gpu:8000  openai  ready  3/8      12.5ms

DIRECTOR  STATE     SLOTS  SEEN      MODELS
d1        draining  1/4    2.0s ago  a/b, a/c

API PROCESS  SEEN
api-1        4.0s ago
"
        );
    }

    #[test]
    fn errors_are_short() {
        assert_eq!(
            short_error("Prediction failed: ValueError: no\nsecond line"),
            "ValueError: no"
        );
        let exception = r#"{"error_type": "<class 'ValueError'>", "error_message": "hx", "error_traceback": "t"}"#;
        assert_eq!(short_error(exception), "ValueError: hx");
        assert_eq!(short_error(r#"{"error": "x"}"#), r#"{"error": "x"}"#);
        let long = "é".repeat(100);
        assert_eq!(short_error(&long), format!("{}…", "é".repeat(MAX_ERROR)));
    }

    #[test]
    fn columns_are_aligned() {
        let job = |id: &str, account: Option<&str>, ran_s| JobRow {
            account: account.map(str::to_owned),
            id: id.to_owned(),
            model: "local/echo".to_owned(),
            status: "processing".to_owned(),
            waited_s: 0.5,
            ran_s,
            created_at: now(),
            error: (id == "a").then(|| "Worker crashed".to_owned()),
        };
        let table = jobs(
            &[
                job("a", None, None),
                job("a-long-one", Some("ann"), Some(75.0)),
            ],
            now(),
        );
        assert_eq!(
            table,
            "ID          MODEL       STATUS      ACCOUNT  AGE   WAIT  RUN    ERROR\n\
             a           local/echo  processing  -        0.0s  0.5s  -      Worker crashed\n\
             a-long-one  local/echo  processing  ann      0.0s  0.5s  1m15s  -\n"
        );
        assert_eq!(jobs(&[], now()), "");
    }
}
