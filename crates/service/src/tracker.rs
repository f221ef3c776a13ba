//! The one task of a running job, and the only writer of its state.
//!
//! Place in line → files of the input → the model → files of the output → the end. Whatever happens,
//! a job that got here reaches one terminal state, and its slot is free before anybody is told.

use std::path::PathBuf;
use std::sync::Arc;

use tidegate_core::port::{Admission, Running, Turn};
use tidegate_core::{Event, Outcome, OutputValue, Refusal, Work};

use crate::deadline::{Deadlines, Stop};
use crate::job::Job;
use crate::jobs::Tools;
use crate::registry::Registry;
use crate::snapshot::Terminal;
use crate::webhook::Sender;

/// After this many values of a generator, others get their turn.
const VALUES_PER_TURN: usize = 64;

/// Everything a job needs to run.
pub(crate) struct Tracker {
    pub(crate) job: Arc<Job>,
    pub(crate) work: Work,
    /// Addresses of files in the input, by JSON pointer.
    pub(crate) addresses: Vec<(String, String)>,
    pub(crate) hook: Option<Sender>,
    pub(crate) tools: Arc<Tools>,
    pub(crate) registry: Arc<Registry>,
    /// When the job is stopped even if nobody asks.
    pub(crate) deadlines: Deadlines,
    /// Whether there is something to remove in the end.
    pub(crate) scratch_used: bool,
}

impl Tracker {
    pub(crate) async fn run(mut self, turn: Turn) {
        let terminal = self.through(turn).await;
        // A job that did not get to its end may have left files that nobody has heard of.
        // A model that runs as another user always has its folder made.
        let made = self.tools.files.owner.is_some();
        if self.scratch_used || made || !matches!(terminal, Terminal::Succeeded) {
            remove(self.work.scratch.clone()).await;
        }
        tracing::debug!(job = %self.job.id(), ?terminal, "job over");
        self.job.end(terminal);
        self.registry.over(Arc::clone(&self.job));
        if let Some(hook) = self.hook {
            hook.completed();
        }
    }

    async fn through(&mut self, turn: Turn) -> Terminal {
        let stopped = self.deadlines.before_start(self.job.cancel_token());
        tokio::pin!(stopped);
        let admission = match turn {
            Turn::Now(admission) => admission,
            Turn::Line(place) => tokio::select! {
                biased;
                stop = &mut stopped => return stop.terminal(),
                admission = place => match admission {
                    Ok(admission) => admission,
                    Err(refusal) => return Terminal::Failed(late_refusal(&refusal)),
                },
            },
        };
        self.job.assign();
        if !self.addresses.is_empty() {
            self.scratch_used = true;
            let addresses = std::mem::take(&mut self.addresses);
            let fetched = tokio::select! {
                biased;
                stop = &mut stopped => return stop.terminal(),
                fetched = self.tools.files.fetch(addresses, &self.work.scratch) => fetched,
            };
            match fetched {
                Ok(files) => self.work.files = files,
                Err(error) => return Terminal::Failed(error.to_string()),
            }
        }
        if self.job.cancel_token().is_cancelled() {
            return Terminal::Canceled;
        }
        self.on_executor(admission).await
    }

    async fn on_executor(&mut self, admission: Box<dyn Admission>) -> Terminal {
        self.job.begin();
        if let Some(hook) = &mut self.hook {
            hook.start();
        }
        let mut running = admission.start(self.work.clone()).await;
        let stopped = self.deadlines.while_running(self.job.cancel_token());
        tokio::pin!(stopped);
        let mut asked: Option<Stop> = None;
        let mut values = 0usize;
        loop {
            let event = tokio::select! {
                biased;
                stop = &mut stopped, if asked.is_none() => {
                    asked = Some(stop);
                    running.cancel();
                    continue;
                }
                event = running.next() => event,
            };
            match event {
                Event::Log { source, text } => {
                    tracing::info!(target: "model", job = %self.job.id(), "{}", text.trim_end());
                    let moment = self.job.log(source, &text);
                    if let Some(hook) = &mut self.hook {
                        hook.logs(moment);
                    }
                }
                Event::Metric(metric) => self.job.metric(metric),
                Event::Output(value) => {
                    let given = tokio::select! {
                        biased;
                        stop = &mut stopped, if asked.is_none() => Err(stop.terminal()),
                        given = self.give(value) => given.map_err(Terminal::Failed),
                    };
                    if let Err(terminal) = given {
                        return abandon(running, terminal).await;
                    }
                    if values.is_multiple_of(VALUES_PER_TURN) {
                        // Those who read the stream run on this thread: they get the first value before
                        // the second is looked at.
                        tokio::task::yield_now().await;
                    }
                    values += 1;
                }
                Event::Ended(outcome) => {
                    let terminal = match asked {
                        // Once it was told to stop it counts as stopped, whatever its code made of that.
                        Some(stop) => stop.terminal(),
                        None => tokio::select! {
                            biased;
                            stop = &mut stopped, if has_files(&outcome) => stop.terminal(),
                            terminal = self.conclude(outcome) => terminal,
                        },
                    };
                    // The slot is free before anybody can see the end.
                    drop(running);
                    return terminal;
                }
            }
        }
    }

    async fn conclude(&mut self, outcome: Outcome) -> Terminal {
        match outcome {
            Outcome::Succeeded { output: None } => Terminal::Succeeded,
            Outcome::Succeeded { output: Some(value) } => match self.settle(value).await {
                Ok(json) => match self.job.returned(json) {
                    Ok(moment) => {
                        self.tell_output(moment);
                        Terminal::Succeeded
                    }
                    Err(error) => Terminal::Failed(error.to_string()),
                },
                Err(error) => Terminal::Failed(error),
            },
            Outcome::Failed { error } => Terminal::Failed(error),
            Outcome::Canceled => Terminal::Canceled,
        }
    }

    /// A value that a generator yielded.
    async fn give(&mut self, value: OutputValue) -> Result<(), String> {
        let json = self.settle(value).await?;
        let moment = self.job.output(json).map_err(|error| error.to_string())?;
        self.tell_output(moment);
        Ok(())
    }

    async fn settle(&mut self, value: OutputValue) -> Result<bytes::Bytes, String> {
        if value.files.is_empty() {
            return Ok(value.json);
        }
        self.scratch_used |= value.files.iter().any(|file| file.path.starts_with(&self.work.scratch));
        self.tools.files.settle(value, self.job.id(), &self.work.scratch).await
    }

    fn tell_output(&mut self, moment: crate::job::Moment) {
        if let Some(hook) = &mut self.hook {
            hook.output(moment);
        }
    }
}

/// A value that cannot be delivered ends the job; the model is stopped first.
async fn abandon(mut running: Box<dyn Running>, terminal: Terminal) -> Terminal {
    running.cancel();
    while !matches!(running.next().await, Event::Ended(_)) {}
    terminal
}

/// Whether the end takes time: what the model returned without files is not thrown away by a late cancel.
fn has_files(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Succeeded { output: Some(value) } if !value.files.is_empty())
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
