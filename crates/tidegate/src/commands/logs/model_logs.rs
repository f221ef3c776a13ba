//! The logs of models: the setup, then the jobs, each line with the name of its source.
//!
//! The server streams the logs of jobs. For an endpoint that another process of the cluster owns, and on servers of
//! earlier versions, the newest jobs are listed again and again, which misses jobs if more begin and end than a
//! list has.

use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::future::pending;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::future::select_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use jiff::Timestamp;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::job_logs::{JobLogs, LogUpdate};
use super::log_stream::LogStream;
use super::log_writer::{LogLines, ReaderGone, tail, write};
use super::setup_logs::SetupLogs;
use crate::admin_client::{AdminClient, JobList, JobRow};
use crate::cli::LogsArgs;
use crate::commands::ps::{ModelRow, STATUS};

/// How many of the newest jobs of a model are printed at the begin.
const EARLIER_JOBS: usize = 20;
/// How many running and how many ended jobs are listed at once while a model is followed.
const PAGE: usize = 200;
/// The time between two requests for new jobs, or for a new setup.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// With more followed jobs than this, no new ones are requested.
const MAX_FOLLOWED: usize = 64;
/// How many jobs are remembered as printed.
const MAX_KNOWN: usize = 10_000;
/// The status of a job that runs.
const RUNNING: &str = "processing";

/// `tidegate logs MODEL`: `shows_setup` is whether the account may see the logs of setups.
pub(super) async fn print(
    server: &AdminClient,
    models: &[&ModelRow],
    args: &LogsArgs,
    shows_setup: bool,
) -> anyhow::Result<ExitCode> {
    let sources: Vec<ModelSource<'_>> = models
        .iter()
        .map(|model| ModelSource {
            server,
            args,
            model: model.job_model(),
            label: (models.len() > 1).then_some(model.name.as_str()),
            has_setup: shows_setup && matches!(model.kind.as_str(), "model" | "trained"),
        })
        .collect();
    let (mut text, mut starts) = (String::new(), Vec::new());
    for source in &sources {
        let (earlier, start) = source.earlier().await?;
        text.push_str(&earlier);
        starts.push(start);
    }
    if write(tail(&text, args.tail)).is_err() || !args.follow {
        return Ok(ExitCode::SUCCESS);
    }
    let all = sources.iter().zip(starts);
    let all = all.map(|(source, start)| Box::pin(source.follow(start)));
    let (Err(end), ..) = select_all(all).await;
    match end {
        FollowEnd::ReaderGone => Ok(ExitCode::SUCCESS),
        FollowEnd::Failed(error) => Err(error),
    }
}

/// A model whose logs are printed.
struct ModelSource<'a> {
    server: &'a AdminClient,
    args: &'a LogsArgs,
    /// The name in its jobs.
    model: String,
    /// The name before each line, if there are several models.
    label: Option<&'a str>,
    has_setup: bool,
}

/// Where following a model begins.
struct FollowStart<'a> {
    setup: Option<SetupLogs<'a>>,
    jobs: JobSource<'a>,
}

/// Where the logs of jobs come from.
enum JobSource<'a> {
    /// The server streams them.
    Stream(Box<LogStream<'a>>),
    /// Each job is read by itself.
    Lists(ListedJobs<'a>),
}

/// The jobs that were in a list of the server.
#[derive(Default)]
struct ListedJobs<'a> {
    known: NewJobs,
    running: Vec<FollowedJob<'a>>,
}

/// Why following ends: it has no end of its own.
enum FollowEnd {
    ReaderGone,
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for FollowEnd {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<ReaderGone> for FollowEnd {
    fn from(ReaderGone: ReaderGone) -> Self {
        Self::ReaderGone
    }
}

impl ModelSource<'_> {
    /// What the setup and the newest jobs have printed, the oldest job first.
    async fn earlier(&self) -> anyhow::Result<(String, FollowStart<'_>)> {
        let mut text = String::new();
        let mut setup = SetupLogs::of(self.server, &self.model).filter(|_| self.has_setup);
        if let Some(setup) = &mut setup {
            let mut lines = LogLines::named(self.label, "setup");
            text.push_str(&lines.add(&setup.read().await?.text));
            text.push_str(&lines.finish());
        }
        let stream = match self.args.follow {
            true => self.open_stream().await?,
            false => None,
        };
        let jobs = match stream {
            Some(mut stream) => {
                text.push_str(&stream.earlier().await?);
                JobSource::Stream(Box::new(stream))
            }
            None => {
                let (earlier, listed) = self.earlier_jobs().await?;
                text.push_str(&earlier);
                JobSource::Lists(listed)
            }
        };
        Ok((text, FollowStart { setup, jobs }))
    }

    async fn open_stream(&self) -> anyhow::Result<Option<LogStream<'_>>> {
        let limit = EARLIER_JOBS.to_string();
        let mut query = vec![("model", self.model.as_str()), ("limit", limit.as_str())];
        let account = self.args.account.as_deref();
        query.extend(account.map(|account| ("account", account)));
        LogStream::open(self.server, &query, self.label).await
    }

    /// What the newest jobs of the list have printed.
    async fn earlier_jobs(&self) -> anyhow::Result<(String, ListedJobs<'_>)> {
        let (mut text, mut listed) = (String::new(), ListedJobs::default());
        let jobs = self.begun_jobs(EARLIER_JOBS).await?;
        let oldest = jobs.len().saturating_sub(EARLIER_JOBS);
        for (n, job) in listed.known.add(jobs).into_iter().enumerate() {
            let is_running = job.status == RUNNING;
            if n < oldest && !is_running {
                continue;
            }
            let mut followed = FollowedJob {
                lines: LogLines::named(self.label, &job.id),
                logs: JobLogs::new(self.server, job),
            };
            text.push_str(&followed.lines.add(&followed.logs.read().await?));
            match is_running {
                true => listed.running.push(followed),
                false => text.push_str(&followed.lines.finish()),
            }
        }
        Ok((text, listed))
    }

    /// Prints what the setup and the jobs print from now on.
    async fn follow(&self, start: FollowStart<'_>) -> Result<Infallible, FollowEnd> {
        let setup = async {
            match start.setup {
                Some(setup) => self.follow_setup(setup).await,
                None => pending().await,
            }
        };
        let jobs = async {
            match start.jobs {
                JobSource::Stream(stream) => self.follow_stream(*stream).await,
                JobSource::Lists(listed) => self.follow_lists(listed).await,
            }
        };
        tokio::select! {
            end = setup => end,
            end = jobs => end,
        }
    }

    async fn follow_stream(&self, mut stream: LogStream<'_>) -> Result<Infallible, FollowEnd> {
        while let Some(text) = stream.next().await? {
            write(&text)?;
        }
        // The error of a request says why.
        drop(self.server.get_raw(&STATUS, &[]).await?);
        Err(FollowEnd::Failed(anyhow::anyhow!(
            "the server has ended the stream of logs; it was restarted, or the token was revoked"
        )))
    }

    async fn follow_setup(&self, mut setup: SetupLogs<'_>) -> Result<Infallible, FollowEnd> {
        let mut lines = LogLines::named(self.label, "setup");
        loop {
            let more = setup.follow().await?;
            write(&lines.add(&more.text))?;
            if more.is_over {
                write(&lines.finish())?;
                sleep(LOOK_EVERY).await;
            }
        }
    }

    async fn follow_lists(&self, listed: ListedJobs<'_>) -> Result<Infallible, FollowEnd> {
        let ListedJobs {
            known: mut jobs,
            running,
        } = listed;
        let mut running: FuturesUnordered<_> = running.into_iter().map(FollowedJob::run).collect();
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(ended) = running.next() => ended?,
                _ = ticks.tick(), if running.len() < MAX_FOLLOWED => {
                    for job in jobs.add(self.begun_jobs(PAGE).await?) {
                        let followed = FollowedJob {
                            lines: LogLines::named(self.label, &job.id),
                            logs: JobLogs::new(self.server, job),
                        };
                        running.push(followed.run());
                    }
                }
            }
        }
    }

    /// The newest jobs that run or have ended, the oldest first. Waiting jobs have printed nothing.
    async fn begun_jobs(&self, limit: usize) -> anyhow::Result<Vec<JobRow>> {
        let limit = limit.to_string();
        let mut begun = Vec::new();
        for status in ["over", RUNNING] {
            let mut query = vec![
                ("model", self.model.as_str()),
                ("status", status),
                ("limit", limit.as_str()),
            ];
            let account = self.args.account.as_deref();
            query.extend(account.map(|account| ("account", account)));
            let JobList { jobs, .. } = self.server.get(&["admin", "jobs"], &query).await?;
            begun.extend(jobs);
        }
        begun.sort_by_key(|job| job.created_at);
        Ok(begun)
    }
}

/// A job whose logs are printed until it ends.
struct FollowedJob<'a> {
    logs: JobLogs<'a>,
    lines: LogLines,
}

impl FollowedJob<'_> {
    async fn run(mut self) -> Result<(), FollowEnd> {
        while let LogUpdate::Text(text) = self.logs.follow().await? {
            write(&self.lines.add(&text))?;
        }
        Ok(write(&self.lines.finish())?)
    }
}

/// Finds the jobs of a list that were not in an earlier one.
#[derive(Default)]
struct NewJobs {
    known: HashSet<JobKey>,
    /// The same, oldest first, to forget the oldest.
    order: VecDeque<JobKey>,
    /// When the oldest job of the first list was created: what is older appears when newer ones are removed.
    since: Option<Timestamp>,
}

/// The account and the id of a job.
type JobKey = (Option<String>, String);

impl NewJobs {
    /// The new jobs among these, which are sorted by their creation.
    fn add(&mut self, jobs: Vec<JobRow>) -> Vec<JobRow> {
        let first = jobs.first().map(|job| job.created_at);
        let since = *self.since.get_or_insert(first.unwrap_or(Timestamp::MIN));
        let is_new = |job: &JobRow| {
            let key = (job.account.clone(), job.id.clone());
            let is_new = job.created_at >= since && self.known.insert(key.clone());
            if is_new {
                self.order.push_back(key);
            }
            is_new
        };
        let new: Vec<JobRow> = jobs.into_iter().filter(is_new).collect();
        while self.order.len() > MAX_KNOWN {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: &str, second: i64) -> JobRow {
        JobRow {
            account: None,
            id: id.to_owned(),
            model: String::new(),
            status: RUNNING.to_owned(),
            waited_s: 0.0,
            ran_s: None,
            created_at: Timestamp::from_second(second).unwrap(),
            error: None,
        }
    }

    fn ids(jobs: &[JobRow]) -> String {
        jobs.iter().map(|job| job.id.as_str()).collect()
    }

    #[test]
    fn each_job_is_new_once() {
        let mut jobs = NewJobs::default();
        assert_eq!(ids(&jobs.add(vec![job("b", 2), job("c", 3)])), "bc");
        let next = vec![job("a", 1), job("c", 3), job("d", 4)];
        assert_eq!(
            ids(&jobs.add(next)),
            "d",
            "`a` is older than the first list"
        );
        for n in 0..2 * MAX_KNOWN {
            jobs.add(vec![job(&n.to_string(), 10)]);
        }
        assert_eq!((jobs.known.len(), jobs.order.len()), (MAX_KNOWN, MAX_KNOWN));
    }
}
