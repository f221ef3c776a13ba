//! The task of one running job, and the only writer of its state (except for a job whose task is lost).
//!
//! Admission → input files → the model → output files → the end. Whatever happens, a job that gets here
//! reaches one terminal state, and its slot is free before a client sees the end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::health::{Health, LoadSpan};
use tidegate_core::planted;
use tidegate_core::port::{Admission, Admitted, BoxFuture, OnCommitted, WaitPolicy};
use tidegate_core::{Event, LogSource, Refusal, Work};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::deadlines::{Deadlines, StopReason};
use super::finish::{EndedJob, RunOutcome, TerminalWebhook};
use super::job_spans::JobSpans;
use super::leased::{LeasedParts, OnRefused};
use super::outputs::has_files;
use super::recorder::{JobRecorder, LeaseDecision, OnStoreError};
use super::started::{StartedRun, TrackerResult, abandon, next_event};
use crate::files::InputOwner;
use crate::job::{Job, JobTimes, now};
use crate::job_service::JobService;
use crate::snapshot::TerminalState;
use crate::waiting::claims::ClaimGuard;
use crate::webhook::WebhookSender;

/// The pause before a job that the executor turned away is admitted again.
const READMIT_AFTER: Duration = Duration::from_secs(1);
/// How long a job runs before its lease is committed. Most jobs have ended by then, and one commit
/// records lease and end.
const COMMIT_LEASE_AFTER: Duration = Duration::from_millis(25);
/// The error that clients see of a job that another server ended, if its record cannot be read.
const ENDED_ELSEWHERE: &str =
    "another server has run or ended the job, and its record cannot be read; request the job again";
/// After this many values of a generator, other tasks get to run.
const VALUES_PER_YIELD: usize = 64;

/// Everything a job needs to run.
pub(crate) struct Tracker {
    pub(crate) job: Arc<Job>,
    /// The service of the job's model.
    pub(crate) service: JobService,
    pub(crate) work: Work,
    /// The URLs of files in the input, by JSON pointer.
    pub(crate) input_files: Vec<(String, String)>,
    /// For a training: the model that gets a new version from its output.
    pub(crate) destination: Option<String>,
    pub(crate) webhook: Option<WebhookSender>,
    /// Records the job in the store; absent for jobs in memory only.
    pub(crate) recorder: Option<Box<JobRecorder>>,
    pub(crate) deadlines: Deadlines,
    /// Whether the scratch directory has to be removed.
    pub(crate) scratch_used: bool,
    /// The job's queue entry, if it was queued.
    pub(crate) claim: Option<ClaimGuard>,
    /// Resolves when the insert of the job is committed, if the job starts during it; the sender is
    /// dropped when the insert fails.
    pub(crate) insert: Option<oneshot::Receiver<()>>,
    /// When it began, if a remote worker has it since a previous server process.
    pub(crate) began_at: Option<Timestamp>,
    /// What the executor wants to have called when the end is committed; set when
    /// the run has ended.
    pub(crate) on_committed: Option<OnCommitted>,
    /// Resolves when the files of the job are no longer in use.
    pub(crate) files_in_use: Option<BoxFuture<()>>,
    pub(crate) clock: RunClock,
    pub(crate) spans: JobSpans,
    /// What a job of another process runs with besides.
    pub(crate) leased: Option<LeasedParts>,
}

/// Measures how long a job waits and how long the model runs it.
#[derive(Default)]
pub(crate) struct RunClock {
    /// The times before the model began.
    waits: JobTimes,
    began: Option<Instant>,
    run_time: Option<Duration>,
}

impl RunClock {
    fn start(&mut self) {
        self.began = Some(Instant::now());
    }

    /// Stops the clock if this is the last event of the run.
    fn observe(&mut self, event: &Event) {
        if matches!(event, Event::Ended(_)) && self.run_time.is_none() {
            self.run_time = self.began.map(|began| began.elapsed());
        }
    }
}

impl Tracker {
    pub(crate) async fn run(self, admitted: Admitted) {
        self.run_to_outcome(admitted).await;
    }

    pub(crate) async fn run_to_outcome(mut self, admitted: Admitted) -> RunOutcome {
        let abandoned = match &self.leased {
            Some(leased) => Some(leased.abandon.clone()),
            None => self.service.shared().abandoned.clone(),
        };
        let result = tokio::select! {
            biased;
            result = self.run_to_end(admitted) => result,
            () = cancelled(abandoned) => TrackerResult::Left,
        };
        let terminal = match result {
            TrackerResult::Ended(terminal) if self.is_inserted().await => terminal,
            TrackerResult::Ended(_) | TrackerResult::Left => {
                remove_scratch(self.work.scratch.clone()).await;
                self.service.shared().registry.forget(&self.job);
                return RunOutcome::Left;
            }
            TrackerResult::NotOurs => {
                remove_scratch(self.work.scratch.clone()).await;
                let unknown = TerminalState::Failed(ENDED_ELSEWHERE.to_owned());
                if let Some(end) = self.job.decide_end(unknown) {
                    self.service
                        .publish_recorded_end(&self.job, self.claim, end)
                        .await;
                }
                return RunOutcome::ByAnother;
            }
        };
        // Settled first: from here on a cancel is no longer accepted.
        let succeeded = matches!(terminal, TerminalState::Succeeded);
        tracing::debug!(job = %self.job.id(), ?terminal, "job ended");
        let RunClock {
            waits, run_time, ..
        } = self.clock;
        let settled = self.job.decide_end(terminal);
        if let Some(end) = &settled {
            self.spans.end(end.status);
        }
        let settled = settled.map(|end| end.with_times(waits, run_time));
        // A job that failed may have left files that are not in its output. With `--run-as`, the
        // directory was created before the job started.
        let has_owner = self.service.shared().deps.files.owner.is_some();
        if self.scratch_used || has_owner || !succeeded {
            let scratch = self.work.scratch.clone();
            match self.files_in_use.take() {
                None => remove_scratch(scratch).await,
                Some(unused) => {
                    let closing = self.service.shared().closing.clone();
                    self.service.model.tasks.spawn(async move {
                        closing.run_until_cancelled(unused).await;
                        remove_scratch(scratch).await;
                    });
                }
            }
        }
        let Some(end) = settled else {
            return RunOutcome::ByAnother;
        };
        let job = Arc::clone(&self.job);
        let ended = EndedJob {
            job: self.job,
            end,
            recorder: self.recorder.map(|recorder| *recorder),
            claim: self.claim,
            webhook: TerminalWebhook::Sender(self.webhook),
            on_error: OnStoreError::Retry,
        };
        let outcome = self
            .service
            .finish_job(ended)
            .await
            .expect("store errors are retried");
        // A server that shuts down may leave the job without an end.
        if let Some(on_committed) = self.on_committed
            && job.status().is_terminal()
        {
            on_committed();
        }
        outcome
    }

    /// Runs the job.
    async fn run_to_end(&mut self, admitted: Admitted) -> TrackerResult {
        let stopped = self.deadlines.before_start(self.job.cancel_token());
        tokio::pin!(stopped);
        let leave_at = self
            .recorder
            .as_ref()
            .and_then(|recorder| recorder.leave_to_next_server());
        let (mut admitted, mut was_refused) = (admitted, false);
        let is_queued = matches!(admitted, Admitted::Queued(_));
        let waits = is_queued || self.claim.is_some() || self.leased.is_some();
        if waits {
            self.spans.wait(&self.job);
        }
        let admission = loop {
            let pending = match admitted {
                Admitted::Now(admission) => {
                    match self.deadlines.at_start(self.job.cancel_token()) {
                        Some(stop) => return TrackerResult::Ended(stop.terminal()),
                        None => break admission,
                    }
                }
                Admitted::Queued(pending) => pending,
            };
            let result = tokio::select! {
                biased;
                stop = &mut stopped => {
                    self.measure_wait();
                    return TrackerResult::Ended(stop.terminal());
                }
                () = cancelled(leave_at.clone()) => return TrackerResult::Left,
                result = pending => result,
            };
            admitted = match result {
                Ok(admission) => Admitted::Now(admission),
                // Another process may be able to run the job.
                Err(_) if self.is_left_when_refused() => return TrackerResult::Left,
                // No client waits: the job waits until the model works again, here or in the next process.
                Err(_) if leave_at.is_some() && !was_refused && self.leased.is_none() => {
                    Admitted::Queued(self.readmission())
                }
                Err(refusal) => {
                    return TrackerResult::Ended(TerminalState::Failed(format!(
                        "the job could not be started: {refusal}"
                    )));
                }
            };
            was_refused = true;
        };
        if waits {
            let load = self.measure_wait();
            self.spans.admit(&self.job, load);
        }
        self.job.assign();
        if !self.input_files.is_empty() {
            self.scratch_used = true;
            let urls = std::mem::take(&mut self.input_files);
            let files = &self.service.shared().deps.files;
            let owner = InputOwner {
                account: self.job.account(),
                downloads: self
                    .leased
                    .as_ref()
                    .and_then(|leased| leased.downloads.as_deref()),
            };
            let fetched = tokio::select! {
                biased;
                stop = &mut stopped => return TrackerResult::Ended(stop.terminal()),
                fetched = files.fetch(owner, urls, &self.work.scratch) => fetched,
            };
            match fetched {
                Ok(files) => self.work.files = files,
                Err(error) => {
                    return TrackerResult::Ended(TerminalState::Failed(error.to_string()));
                }
            }
        }
        if self.job.cancel_token().is_cancelled() {
            return TrackerResult::Ended(TerminalState::Canceled);
        }
        match self.lease(stopped).await {
            Ok(began_at) => self.run_on_executor(admission, began_at).await,
            Err(result) => result,
        }
    }

    /// Records how long the job has waited; returns the load of the model that it waited for.
    fn measure_wait(&mut self) -> Option<LoadSpan> {
        let load = self.service.model.executor.last_load();
        self.clock.waits = JobTimes::waited(self.job.created_at(), now(), load);
        load
    }

    fn is_left_when_refused(&self) -> bool {
        let leased = self.leased.as_ref();
        leased.is_some_and(|leased| leased.on_refused == OnRefused::Leave)
    }

    /// Waits until the insert of the job is committed; `false` when it failed.
    async fn is_inserted(&mut self) -> bool {
        match &mut self.insert {
            Some(insert) => {
                let is_inserted = insert.await.is_ok();
                self.insert = None;
                is_inserted
            }
            None => true,
        }
    }

    /// Another admission, as soon as there is one; refused only when the model is no longer served.
    fn readmission(&self) -> BoxFuture<Result<Box<dyn Admission>, Refusal>> {
        let model = &self.service.model;
        let (own, succession, account) = (
            Arc::clone(&model.executor),
            model.succession.clone(),
            self.job.account().clone(),
        );
        Box::pin(async move {
            loop {
                tokio::time::sleep(READMIT_AFTER).await;
                let executor = succession.executor(&own).ok_or(Refusal::NotReady {
                    health: Health::Unknown,
                })?;
                match executor.admit(&account, WaitPolicy::Unbounded) {
                    Ok(Admitted::Now(admission)) => return Ok(admission),
                    Ok(Admitted::Queued(pending)) => match pending.await {
                        Ok(admission) => return Ok(admission),
                        Err(_) => continue,
                    },
                    Err(_) => continue,
                }
            }
        })
    }

    /// Leases the job before the model starts; returns when it began.
    async fn lease(
        &mut self,
        stopped: impl Future<Output = StopReason>,
    ) -> Result<Timestamp, TrackerResult> {
        let began_at = self.began_at.unwrap_or_else(|| self.job.start_time());
        let Some(recorder) = &mut self.recorder else {
            return Ok(began_at);
        };
        // The lease first: it is granted at once, unless the store fails.
        let decision = tokio::select! {
            biased;
            decision = recorder.lease(&self.job, began_at) => decision,
            stop = stopped => return Err(TrackerResult::Ended(stop.terminal())),
        };
        match decision {
            LeaseDecision::Start(began_at) => Ok(began_at),
            LeaseDecision::Cancel => Err(TrackerResult::Ended(TerminalState::Canceled)),
            LeaseDecision::NotOurs => Err(TrackerResult::NotOurs),
            LeaseDecision::Leave => Err(TrackerResult::Left),
        }
    }

    /// Starts the job on the executor. `None` when its insert failed.
    async fn start(
        &mut self,
        admission: Box<dyn Admission>,
        began_at: Timestamp,
    ) -> Option<StartedRun> {
        self.clock.start();
        self.spans.begin(&self.job);
        let Some(mut insert) = self.insert.take() else {
            self.publish_begin(began_at);
            return Some(StartedRun {
                running: admission.start(self.work.clone()).await,
                first_event: None,
            });
        };
        let mut running = admission.start(self.work.clone()).await;
        let mut first_event = None;
        let is_inserted = loop {
            tokio::select! {
                biased;
                // Polling sends the work to the model; its first event is kept until it may be published.
                event = running.next(), if first_event.is_none() => {
                    self.observe(&event);
                    first_event = Some(event);
                }
                inserted = &mut insert => break inserted.is_ok(),
            }
        };
        if !is_inserted {
            if !matches!(first_event, Some(Event::Ended(_))) {
                abandon(running).await;
            }
            return None;
        }
        self.publish_begin(began_at);
        Some(StartedRun {
            running,
            first_event,
        })
    }

    fn publish_begin(&mut self, began_at: Timestamp) {
        self.job.begin(began_at);
        self.service.shared().begun_jobs.announce(&self.job);
        self.service
            .model
            .metrics
            .began(self.job.queue_time(began_at));
        if let Some(webhook) = &mut self.webhook {
            webhook.start();
        }
    }

    async fn run_on_executor(
        &mut self,
        admission: Box<dyn Admission>,
        began_at: Timestamp,
    ) -> TrackerResult {
        let Some(started) = self.start(admission, began_at).await else {
            return TrackerResult::Left;
        };
        TrackerResult::Ended(self.follow(started).await)
    }

    /// Follows a started job to its end.
    async fn follow(&mut self, started: StartedRun) -> TerminalState {
        let StartedRun {
            mut running,
            mut first_event,
        } = started;
        let mut lease_is_uncommitted = self
            .recorder
            .as_ref()
            .is_some_and(|recorder| recorder.is_uncommitted());
        let commit_lease = tokio::time::sleep(COMMIT_LEASE_AFTER);
        let stopped = self.deadlines.while_running(self.job.cancel_token());
        tokio::pin!(stopped, commit_lease);
        let mut stop_reason: Option<StopReason> = None;
        let mut values = 0usize;
        let mut types = self.output_types();
        loop {
            let event = tokio::select! {
                biased;
                stop = &mut stopped, if stop_reason.is_none() => {
                    stop_reason = Some(stop);
                    if !matches!(first_event, Some(Event::Ended(_))) {
                        running.cancel();
                    }
                    continue;
                }
                event = next_event(&mut running, &mut first_event) => event,
                () = &mut commit_lease, if lease_is_uncommitted => {
                    lease_is_uncommitted = false;
                    let commit = self
                        .recorder
                        .as_mut()
                        .and_then(|recorder| recorder.commit_lease(&self.job));
                    if let Some(commit) = commit {
                        self.service.model.tasks.spawn(commit);
                    }
                    continue;
                }
            };
            self.observe(&event);
            match event {
                Event::Log { source, text } => self.log(source, text),
                Event::Metric(metric) => self.job.metric(metric),
                Event::Remote(fact) => self.job.remote_fact(fact),
                Event::Output(value) => {
                    let added = tokio::select! {
                        biased;
                        stop = &mut stopped, if stop_reason.is_none() => Err(stop.terminal()),
                        added = self.add_output(value, &mut types.yielded) => added.map_err(TerminalState::Failed),
                    };
                    if let Err(terminal) = added {
                        self.on_committed = running.on_committed();
                        self.files_in_use = running.files_in_use();
                        abandon(running).await;
                        return terminal;
                    }
                    if values.is_multiple_of(VALUES_PER_YIELD) {
                        // Readers of the stream run on this thread: they get the first value before the
                        // second one is processed.
                        tokio::task::yield_now().await;
                    }
                    values += 1;
                }
                Event::Ended(outcome) => {
                    let output = match stop_reason {
                        // A job that was asked to stop counts as stopped, whatever its code did then.
                        Some(stop) => Err(stop.terminal()),
                        None => tokio::select! {
                            biased;
                            stop = &mut stopped, if has_files(&outcome) => Err(stop.terminal()),
                            output = self.final_output(outcome) => output,
                        },
                    };
                    let terminal = match output {
                        Ok(output) => self.conclude(output, &mut types.returned).await,
                        Err(terminal) => terminal,
                    };
                    planted!(
                        LeakedPermit,
                        if matches!(terminal, TerminalState::Failed(_)) {
                            std::mem::forget(running);
                            return terminal;
                        }
                    );
                    self.on_committed = running.on_committed();
                    self.files_in_use = running.files_in_use();
                    // The slot is free before a client can see the end.
                    drop(running);
                    return terminal;
                }
            }
        }
    }

    /// Notes when the model has ended the run.
    fn observe(&mut self, event: &Event) {
        self.clock.observe(event);
        if matches!(event, Event::Ended(_)) {
            self.spans.model_ended();
        }
    }

    fn log(&mut self, source: LogSource, text: String) {
        planted!(ForeignLogs, let text = String::from_utf8_lossy(&tidegate_core::planted::previous(text.into())).into_owned());
        tracing::info!(target: "model", job = %self.job.id(), "{}", text.trim_end());
        let mark = self.job.log(source, &text);
        if let Some(webhook) = &mut self.webhook {
            webhook.logs(mark);
        }
    }
}

/// Waits until the token is cancelled; for ever without one.
async fn cancelled(token: Option<CancellationToken>) {
    match token {
        Some(token) => token.cancelled().await,
        None => std::future::pending().await,
    }
}

async fn remove_scratch(directory: PathBuf) {
    // An executor without files has no directory.
    if directory.as_os_str().is_empty() {
        return;
    }
    if let Err(error) = tokio::fs::remove_dir_all(&directory).await
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(directory = %directory.display(), %error, "failed to remove scratch directory of job");
    }
}
