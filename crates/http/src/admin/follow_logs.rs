//! `GET /admin/logs`: the logs of the jobs of a model as server-sent events, of some that have ended, and then of
//! those that run and begin.
//!
//! Each job is followed from its begin, so that no line is lost however many jobs there are and however short
//! they are. A client that reads too slowly gets the number of jobs that it has missed. A job whose director was
//! lost begins again: what it has printed before was sent, and is not sent again.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, FuturesUnordered, StreamExt};
use jiff::Timestamp;
use serde::Serialize;
use tidegate_core::counters::MetricLabel;
use tidegate_core::record::JobSummary;
use tidegate_core::store::JobFilter;
use tidegate_core::{Account, JobId, Status};
use tidegate_service::{BegunJob, BegunJobsFollower, Job, JobService, OutputDelta, ReadPosition};
use tokio::time::Instant;

use super::job_page::find_page;
use super::query::AdminQuery;
use super::reply::ApiError;
use super::{JobServices, scope};
use crate::access::{Identity, TokenCheck};
use crate::shared::response::event_stream;

/// After this much time without an event, a comment is sent, so that proxies keep the connection open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How often a stream without events checks whether its token is still valid.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// The most jobs that are read before what they printed is sent.
const BATCH: usize = 256;

/// `GET /admin/logs?model=&account=&limit=`
pub(super) async fn follow(
    State(job_services): State<JobServices>,
    client: Identity,
    token: TokenCheck,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let (params, scope) = (AdminQuery::parse(query.as_deref()), scope(&client));
    let filter = JobFilter {
        id: None,
        id_prefix: None,
        statuses: Vec::new(),
        ..params.job_filter(scope.clone())?
    };
    let model = filter.model.clone().unwrap_or_default();
    let service = job_services()
        .into_iter()
        .find(|jobs| jobs.target().model == model)
        .filter(|_| !params.is_outside(scope.as_ref()))
        .ok_or(ApiError::UnknownModel(model))?;
    let (running, follower) = service
        .follow_begun(&filter)
        .await
        .map_err(|_| ApiError::Store)?
        .ok_or(ApiError::JobsRunElsewhere)?;
    let mut logs = ModelLogs {
        filter,
        token,
        follower,
        followed: FuturesUnordered::new(),
        written_at_start: HashSet::new(),
        text: String::new(),
        sent_at: Instant::now(),
    };
    logs.begin(&service, running).await?;
    let frames = stream::unfold(logs, |mut logs| async move {
        let frames = logs.next().await?;
        Some((Ok::<_, Infallible>(frames), logs))
    });
    Ok(event_stream(Body::from_stream(frames)))
}

/// The key of a job, and the begin of its run: an id can be used again.
type RunKey = (Account, JobId, Option<Timestamp>);

/// What a job has printed after a position.
struct JobProgress {
    job: Arc<Job>,
    /// The attempt that is followed.
    attempt: u32,
    from: usize,
    delta: OutputDelta,
}

/// Writes the logs of the jobs of a model for one client.
struct ModelLogs {
    filter: JobFilter,
    token: TokenCheck,
    follower: BegunJobsFollower,
    followed: FuturesUnordered<BoxFuture<'static, JobProgress>>,
    /// The jobs that were written when the client came. Those of them that had just begun are announced as well.
    written_at_start: HashSet<RunKey>,
    /// Events that are not sent yet.
    text: String,
    sent_at: Instant,
}

/// Something that a job has printed.
#[derive(Serialize)]
struct PrintedText<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<&'a str>,
    job: &'a str,
    text: &'a str,
    /// Whether the job has ended, and prints nothing more.
    over: bool,
}

#[derive(Serialize)]
struct MissedJobs {
    jobs: u64,
}

#[derive(Serialize)]
struct Nothing {}

impl ModelLogs {
    /// Writes what there is already: of the jobs that have ended, the oldest first, and of those that run.
    async fn begin(
        &mut self,
        service: &JobService,
        running: Vec<Arc<Job>>,
    ) -> Result<(), ApiError> {
        let is_over = |status: &Status| status.is_terminal();
        let ended = JobFilter {
            statuses: Status::ALL.iter().copied().filter(is_over).collect(),
            ..self.filter.clone()
        };
        self.written_at_start = running.iter().map(|job| run_key(&job.summary())).collect();
        let ended = find_page(service, &ended, None).await?.jobs;
        // Jobs that have begun since may be in the list already.
        let mut begun = Vec::new();
        while let Some(job) = self.follower.try_next() {
            begun.push(job);
        }
        let is_job = |begun: &BegunJob, key: &RunKey| match begun {
            BegunJob::Job(job) => run_key(&job.summary()) == *key,
            BegunJob::Missed(_) => false,
        };
        for summary in ended.into_iter().rev() {
            let key = run_key(&summary);
            if self.written_at_start.contains(&key) || begun.iter().any(|job| is_job(job, &key)) {
                continue;
            }
            let found = service.find(&summary.account, &summary.id).await;
            // It may have been removed since it was listed.
            if let Some(job) = found.map_err(|_| ApiError::Store)? {
                let logs = job.snapshot().logs;
                self.write_text(&job, &logs, true);
                self.written_at_start.insert(key);
            }
        }
        for job in running {
            let logs = job.snapshot().logs;
            self.write_text(&job, &logs, false);
            self.follow_from(job, logs.len());
        }
        self.write("live", &Nothing {});
        begun.into_iter().for_each(|job| self.add(job));
        Ok(())
    }

    async fn next(&mut self) -> Option<Vec<u8>> {
        while self.token.is_valid() {
            if !self.text.is_empty() {
                self.sent_at = Instant::now();
                return Some(std::mem::take(&mut self.text).into_bytes());
            }
            if self.sent_at.elapsed() >= KEEP_ALIVE {
                self.text.push_str(": keep-alive\n\n");
                continue;
            }
            if let Ok(false) = tokio::time::timeout(CHECK_INTERVAL, self.read()).await {
                break;
            }
        }
        None
    }

    /// Waits for something, and reads what else is there. `false` when the server stops. Cancel-safe.
    async fn read(&mut self) -> bool {
        tokio::select! {
            Some(progress) = self.followed.next() => self.progressed(progress),
            begun = self.follower.next() => match begun {
                Some(begun) => self.add(begun),
                None => return false,
            },
        }
        for _ in 0..BATCH {
            match self.follower.try_next() {
                Some(begun) => self.add(begun),
                None => break,
            }
        }
        true
    }

    fn add(&mut self, begun: BegunJob) {
        match begun {
            BegunJob::Job(job) => {
                let summary = job.summary();
                if self.filter.matches(&summary)
                    && !self.written_at_start.remove(&run_key(&summary))
                {
                    if job.attempt() > 1 {
                        // The earlier attempts may have ended within a line.
                        self.write_text(&job, "", true);
                    }
                    self.follow_from(job, 0);
                }
            }
            BegunJob::Missed(jobs) => self.write("missed", &MissedJobs { jobs }),
        }
    }

    fn follow_from(&self, job: Arc<Job>, from: usize) {
        self.followed.push(Box::pin(async move {
            // Outputs must not end the wait.
            let seen = ReadPosition {
                outputs: usize::MAX,
                logs: from,
            };
            let attempt = job.attempt();
            let delta = job.progress(seen).await;
            JobProgress {
                job,
                attempt,
                from,
                delta,
            }
        }));
    }

    fn progressed(&mut self, progress: JobProgress) {
        let JobProgress {
            job,
            attempt,
            from,
            delta,
        } = progress;
        // Another attempt has begun, and is announced by itself.
        if job.attempt() != attempt {
            return;
        }
        self.write_text(&job, &delta.logs, delta.ended);
        if !delta.ended {
            self.follow_from(job, from + delta.logs.len());
        }
    }

    fn write_text(&mut self, job: &Job, text: &str, over: bool) {
        if text.is_empty() && !over {
            return;
        }
        let account = job.account();
        let printed = PrintedText {
            account: (!account.is_anonymous()).then(|| account.as_str()),
            job: job.id().as_str(),
            text,
            over,
        };
        self.write("logs", &printed);
    }

    fn write(&mut self, event: &str, data: &impl Serialize) {
        let json = serde_json::to_string(data).expect("the fields have string keys");
        self.text.push_str("event: ");
        self.text.push_str(event);
        self.text.push_str("\ndata: ");
        self.text.push_str(&json);
        self.text.push_str("\n\n");
    }
}

fn run_key(job: &JobSummary) -> RunKey {
    (job.account.clone(), job.id.clone(), job.started_at)
}
