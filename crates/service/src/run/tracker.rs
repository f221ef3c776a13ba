//! The one task of a running job, and the only writer of its state (but for a job whose task is lost).
//!
//! Place in line → files of the input → the model → files of the output → the end. Whatever happens,
//! a job that got here reaches one terminal state, and its slot is free before anybody is told.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tidegate_core::health::Health;
use tidegate_core::planted::{Planted, planted, planted_now_and_then, the_one_before};
use tidegate_core::port::{Admission, Admitted, BoxFuture, WaitPolicy};
use tidegate_core::{Event, Outcome, OutputValue, Refusal, Work};

use jiff::Timestamp;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::config::Deps;
use crate::files::OutputOwner;
use crate::job::Job;
use crate::metrics::JobMetrics;
use crate::models::succession::Succession;
use crate::models::trained::training::{VersionMaker, attach_version};
use crate::registry::Registry;
use crate::run::deadlines::{Deadlines, StopReason};
use crate::run::recorder::{BeginWrite, FinishResult, JobRecorder};
use crate::run::started::{StartedRun, abandon, next_of};
use crate::snapshot::TerminalState;
use crate::waiting::claims::ClaimGuard;
use crate::webhook::WebhookSender;

/// The pause before a job whose line was sent away stands in it again.
const LINE_AGAIN: Duration = Duration::from_secs(1);
/// How long a job runs before that is noted, if it may be noted with its end.
const WRITE_BEGIN_AFTER: Duration = Duration::from_millis(25);
/// After this many values of a generator, others get their turn.
const VALUES_PER_TURN: usize = 64;

/// Everything a job needs to run.
pub(crate) struct Tracker {
    pub(crate) job: Arc<Job>,
    pub(crate) work: Work,
    /// Addresses of files in the input, by JSON pointer.
    pub(crate) addresses: Vec<(String, String)>,
    /// Of a training: the model that what it gives becomes a version of.
    pub(crate) destination: Option<String>,
    pub(crate) hook: Option<WebhookSender>,
    pub(crate) deps: Arc<Deps>,
    /// Makes a version of what a training gives.
    pub(crate) maker: Arc<OnceLock<Weak<dyn VersionMaker>>>,
    /// Who runs it if the version that it was accepted for cannot and is replaced.
    pub(crate) succession: Succession,
    pub(crate) registry: Arc<Registry>,
    pub(crate) metrics: Arc<JobMetrics>,
    /// What is written down about the job, if it is.
    pub(crate) recorder: Option<Box<JobRecorder>>,
    /// When the job is stopped even if nobody asks.
    pub(crate) deadlines: Deadlines,
    /// Whether there is something to remove in the end.
    pub(crate) scratch_used: bool,
    /// The job's entry, if it stood in a line.
    pub(crate) claim: Option<ClaimGuard>,
    /// Comes when the job is written down, if it was not when it began; never comes if it cannot be.
    pub(crate) written: Option<oneshot::Receiver<()>>,
    /// When it began, if somebody has it from a server before this one.
    pub(crate) began_at: Option<Timestamp>,
}

impl Tracker {
    pub(crate) async fn run(mut self, admitted: Admitted) {
        let terminal = match self.through(admitted).await {
            Some(terminal) if self.is_written().await => terminal,
            // Nobody is told anything: another server finds it as it was, or it was never accepted.
            Some(_) | None => {
                // What the model may have made is nobody's.
                remove(self.work.scratch.clone()).await;
                return self.registry.forget(&self.job);
            }
        };
        // First of all: from here on nobody is told that it can still be stopped.
        let succeeded = matches!(terminal, TerminalState::Succeeded);
        tracing::debug!(job = %self.job.id(), ?terminal, "job over");
        let settled = self.job.settle(terminal);
        // A job that did not get to its end may have left files that nobody has heard of.
        // A model that runs as another user always has its folder made.
        let made = self.deps.files.owner.is_some();
        if self.scratch_used || made || !succeeded {
            remove(self.work.scratch.clone()).await;
        }
        let Some(end) = settled else { return };
        let (message, tells) = match self.recorder {
            None => (None, true),
            Some(recorder) => match recorder.finish(&self.job, &end).await {
                FinishResult::Committed(message) => (message, true),
                FinishResult::ByAnother => (None, false),
                FinishResult::Abandoned => return self.registry.forget(&self.job),
            },
        };
        // Before the id can be used again.
        if let Some(claim) = self.claim {
            claim.ack().await;
        }
        self.metrics
            .finished(self.job.api(), self.job.kind(), end.status, end.ran);
        self.job.end(end);
        self.registry.over(Arc::clone(&self.job));
        if let Some(hook) = self.hook.filter(|_| tells)
            && !planted_now_and_then(Planted::LostWebhook)
        {
            hook.completed(message);
        }
    }

    /// The job's way to its end; `None` when it is left to the next server.
    async fn through(&mut self, admitted: Admitted) -> Option<TerminalState> {
        let stopped = self.deadlines.before_start(self.job.cancel_token());
        let leave_at = self
            .recorder
            .as_ref()
            .and_then(|recorder| recorder.leave_to_next_server());
        tokio::pin!(stopped);
        let (mut admitted, mut sent_away) = (admitted, false);
        let admission = loop {
            let place = match admitted {
                Admitted::Now(admission) => {
                    match self.deadlines.at_start(self.job.cancel_token()) {
                        Some(stop) => return Some(stop.terminal()),
                        None => break admission,
                    }
                }
                Admitted::Queued(place) => place,
            };
            let result = tokio::select! {
                biased;
                stop = &mut stopped => return Some(stop.terminal()),
                () = left_behind(leave_at.clone()) => return None,
                result = place => result,
            };
            admitted = match result {
                Ok(admission) => Admitted::Now(admission),
                // Nobody is kept waiting: it waits until the model works again, in this server or the next.
                Err(_) if leave_at.is_some() && !sent_away => Admitted::Queued(self.line_again()),
                Err(refusal) => return Some(TerminalState::Failed(late_refusal(&refusal))),
            };
            sent_away = true;
        };
        self.job.assign();
        if !self.addresses.is_empty() {
            self.scratch_used = true;
            let addresses = std::mem::take(&mut self.addresses);
            let fetched = tokio::select! {
                biased;
                stop = &mut stopped => return Some(stop.terminal()),
                fetched = self.deps.files.fetch(self.job.account(), addresses, &self.work.scratch) => fetched,
            };
            match fetched {
                Ok(files) => self.work.files = files,
                Err(error) => return Some(TerminalState::Failed(error.to_string())),
            }
        }
        if self.job.cancel_token().is_cancelled() {
            return Some(TerminalState::Canceled);
        }
        self.on_executor(admission).await
    }

    /// Waits until the job is written down; `false` when it cannot be.
    async fn is_written(&mut self) -> bool {
        match &mut self.written {
            Some(written) => {
                let is_written = written.await.is_ok();
                self.written = None;
                is_written
            }
            None => true,
        }
    }

    /// A place in the line again, as soon as there is one; refused only when the model is not offered any more.
    fn line_again(&self) -> BoxFuture<Result<Box<dyn Admission>, Refusal>> {
        let (own, succession, account) = (
            Arc::clone(&self.deps.executor),
            self.succession.clone(),
            self.job.account().clone(),
        );
        Box::pin(async move {
            loop {
                tokio::time::sleep(LINE_AGAIN).await;
                let executor = succession.executor(&own).ok_or(Refusal::NotReady {
                    health: Health::Unknown,
                })?;
                match executor.admit(&account, WaitPolicy::Unbounded) {
                    Ok(Admitted::Now(admission)) => return Ok(admission),
                    Ok(Admitted::Queued(place)) => match place.await {
                        Ok(admission) => return Ok(admission),
                        Err(_) => continue,
                    },
                    Err(_) => continue,
                }
            }
        })
    }

    /// Hands the job to the model, and notes that. `None` when it turns out that the job was never accepted.
    async fn start(&mut self, admission: Box<dyn Admission>) -> Option<StartedRun> {
        let began_at = self.began_at.unwrap_or_else(|| self.job.begins_at());
        let Some(mut written) = self.written.take() else {
            let begin_write = self.note_begin(began_at).await;
            return Some(StartedRun {
                running: admission.start(self.work.clone()).await,
                begin_write,
                said: None,
            });
        };
        let mut running = admission.start(self.work.clone()).await;
        let mut said = None;
        let is_written = loop {
            tokio::select! {
                biased;
                // The model gets its work by this; what it says first is kept until somebody may hear it.
                event = running.next(), if said.is_none() => said = Some(event),
                written = &mut written => break written.is_ok(),
            }
        };
        if !is_written {
            if !matches!(said, Some(Event::Ended(_))) {
                abandon(running).await;
            }
            return None;
        }
        let begin_write = self.note_begin(began_at).await;
        Some(StartedRun {
            running,
            begin_write,
            said,
        })
    }

    async fn note_begin(&mut self, began_at: Timestamp) -> Option<BeginWrite> {
        let begin_write = match &mut self.recorder {
            Some(recorder) => Some(recorder.begin(&self.job, began_at).await),
            None => None,
        };
        self.job.begin(began_at);
        self.metrics.began(self.job.waited(began_at));
        if let Some(hook) = &mut self.hook {
            hook.start();
        }
        begin_write
    }

    async fn on_executor(&mut self, admission: Box<dyn Admission>) -> Option<TerminalState> {
        let StartedRun {
            mut running,
            begin_write,
            mut said,
        } = self.start(admission).await?;
        let (mut unrecorded_begin, noted) = (
            begin_write == Some(BeginWrite::Deferred),
            tokio::time::sleep(WRITE_BEGIN_AFTER),
        );
        let stopped = self.deadlines.while_running(self.job.cancel_token());
        tokio::pin!(stopped, noted);
        let mut asked: Option<StopReason> = None;
        let mut values = 0usize;
        loop {
            let event = tokio::select! {
                biased;
                stop = &mut stopped, if asked.is_none() => {
                    asked = Some(stop);
                    if !matches!(said, Some(Event::Ended(_))) {
                        running.cancel();
                    }
                    continue;
                }
                event = next_of(&mut running, &mut said) => event,
                () = &mut noted, if unrecorded_begin => {
                    unrecorded_begin = false;
                    if let Some(recorder) = &mut self.recorder {
                        recorder.write_begin(&self.job);
                    }
                    continue;
                }
            };
            match event {
                Event::Log { source, text } => {
                    let text = the_one_before(Planted::ForeignLogs, &text).unwrap_or(text);
                    tracing::info!(target: "model", job = %self.job.id(), "{}", text.trim_end());
                    let mark = self.job.log(source, &text);
                    if let Some(hook) = &mut self.hook {
                        hook.logs(mark);
                    }
                }
                Event::Metric(metric) => self.job.metric(metric),
                Event::Output(value) => {
                    let given = tokio::select! {
                        biased;
                        stop = &mut stopped, if asked.is_none() => Err(stop.terminal()),
                        given = self.give(value) => given.map_err(TerminalState::Failed),
                    };
                    if let Err(terminal) = given {
                        abandon(running).await;
                        return Some(terminal);
                    }
                    if values.is_multiple_of(VALUES_PER_TURN) {
                        // Those who read the stream run on this thread: they get the first value before
                        // the second is looked at.
                        tokio::task::yield_now().await;
                    }
                    values += 1;
                }
                Event::Ended(outcome) => {
                    let given = match asked {
                        // Once it was told to stop it counts as stopped, whatever its code made of that.
                        Some(stop) => Err(stop.terminal()),
                        None => tokio::select! {
                            biased;
                            stop = &mut stopped, if has_files(&outcome) => Err(stop.terminal()),
                            given = self.given(outcome) => given,
                        },
                    };
                    let terminal = match given {
                        Ok(output) => self.conclude(output).await,
                        Err(terminal) => terminal,
                    };
                    // The slot is free before anybody can see the end.
                    if planted(Planted::LeakedPermit)
                        && matches!(terminal, TerminalState::Failed(_))
                    {
                        std::mem::forget(running);
                        return Some(terminal);
                    }
                    drop(running);
                    return Some(terminal);
                }
            }
        }
    }

    /// What the model returned, or how else it ended.
    async fn given(&mut self, outcome: Outcome) -> Result<Option<bytes::Bytes>, TerminalState> {
        match outcome {
            Outcome::Succeeded { output: None } => Ok(None),
            Outcome::Succeeded {
                output: Some(value),
            } => self
                .settle(value)
                .await
                .map(Some)
                .map_err(TerminalState::Failed),
            Outcome::Failed { .. } if planted_now_and_then(Planted::FalseSuccess) => Ok(None),
            Outcome::Failed { error } => Err(TerminalState::Failed(error)),
            Outcome::Canceled => Err(TerminalState::Canceled),
        }
    }

    /// Cannot be stopped any more: a version that was made is not taken back.
    async fn conclude(&mut self, output: Option<bytes::Bytes>) -> TerminalState {
        let Some(output) = output else {
            return TerminalState::Succeeded;
        };
        let output =
            match attach_version(&self.maker, &self.job, self.destination.as_deref(), output).await
            {
                Ok(output) => output,
                Err(error) => return TerminalState::Failed(error),
            };
        match self.job.returned(output) {
            Ok(mark) => {
                self.tell_output(mark);
                TerminalState::Succeeded
            }
            Err(error) => TerminalState::Failed(error.to_string()),
        }
    }

    /// A value that a generator yielded.
    async fn give(&mut self, value: OutputValue) -> Result<(), String> {
        let json = self.settle(value).await?;
        let mark = self.job.output(json).map_err(|error| error.to_string())?;
        self.tell_output(mark);
        Ok(())
    }

    async fn settle(&mut self, value: OutputValue) -> Result<bytes::Bytes, String> {
        if value.files.is_empty() {
            if planted(Planted::ForeignOutput)
                && let Some(other) = the_one_before(
                    Planted::ForeignOutput,
                    &String::from_utf8_lossy(&value.json),
                )
            {
                return Ok(other.into());
            }
            return Ok(value.json);
        }
        self.scratch_used |= value
            .files
            .iter()
            .any(|file| file.path.starts_with(&self.work.scratch));
        let owner = OutputOwner {
            account: self.job.account(),
            id: self.job.id(),
            api: self.job.api(),
        };
        self.deps
            .files
            .settle(value, owner, &self.work.scratch)
            .await
    }

    fn tell_output(&mut self, mark: crate::job::HistoryMark) {
        if let Some(hook) = &mut self.hook {
            hook.output(mark);
        }
    }
}

/// Whether the end takes time: what the model returned without files is not thrown away by a late cancel.
fn has_files(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Succeeded { output: Some(value) } if !value.files.is_empty())
}

/// Waits until a job that stands in the line is left to the next server.
async fn left_behind(at: Option<CancellationToken>) {
    match at {
        Some(closing) => closing.cancelled().await,
        None => std::future::pending().await,
    }
}

/// The line was sent away while the job stood in it.
fn late_refusal(refusal: &Refusal) -> String {
    format!("the job could not be started: {refusal}")
}

async fn remove(folder: PathBuf) {
    if let Err(error) = tokio::fs::remove_dir_all(&folder).await
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(folder = %folder.display(), %error, "could not remove a job's files");
    }
}
