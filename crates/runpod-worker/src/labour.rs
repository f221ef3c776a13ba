//! One job on the executor: from a place at the model to what its end says.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tidegate_core::port::{Admission, Admitted, Executor, Running, WaitPolicy};
use tidegate_core::{Account, Event, JobId, JobKind, Outcome, Work};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::addresses::Delivered;
use crate::delivery::{End, Mouth, Word};
use crate::journal::Journal;
use crate::port::{AfterParts, Carried, EmptyObject, Habits, Porter, Refresh};
use crate::wire::{self, Ending, Job};

/// The pause before a job whose line was sent away stands in it again.
const LINE_AGAIN: Duration = Duration::from_millis(200);

/// What all jobs are worked on with.
pub(crate) struct Labour {
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) porter: Arc<dyn Porter>,
    pub(crate) journal: Journal,
    pub(crate) habits: Habits,
    /// Whether parts are said one by one.
    pub(crate) parts: SaidParts,
    /// How long the model may work on one job.
    pub(crate) job_timeout: Option<Duration>,
}

/// What is done with the parts of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SaidParts {
    /// They are said as they come.
    OneByOne,
    /// They are all said at the end, because nobody hears them before.
    AtTheEnd,
}

/// How a job came out.
pub(crate) enum Came {
    /// It has a result.
    Out(End),
    /// Somebody stopped it, and wants nothing of it.
    Stopped,
}

/// One job that is worked on.
struct Task<'a> {
    job: &'a Job,
    stop: &'a CancellationToken,
    mouth: &'a Mouth,
    id: JobId,
    /// Parts that are repeated.
    parts: Vec<Bytes>,
    said: usize,
    /// What it gives besides an error.
    beside: Option<Bytes>,
}

/// Why a job has no result, and what it gives nevertheless.
struct Failed {
    error: String,
    beside: Option<Bytes>,
}

impl From<String> for Failed {
    fn from(error: String) -> Self {
        Self {
            error,
            beside: None,
        }
    }
}

/// Why a job was told to stop.
#[derive(Clone, Copy)]
enum Cause {
    Stop,
    Time,
}

impl Labour {
    pub(crate) async fn work(&self, job: &Job, stop: &CancellationToken, mouth: &Mouth) -> Came {
        let ready = stop.run_until_cancelled(async {
            (self.admission().await, self.porter.carry_in(job).await)
        });
        let Some((admission, carried)) = ready.await else {
            return Came::Stopped;
        };
        let carried = match carried {
            Ok(carried) => carried,
            Err(error) => {
                return self.end(self.habits.no_parts, Err(error.into()), Refresh::WhenAsked);
            }
        };
        let scratch = carried.scratch.clone();
        let id = JobId::parse(&job.id).unwrap_or_else(|_| JobId::from_random(random()));
        let task = Task {
            job,
            stop,
            mouth,
            id,
            parts: Vec::new(),
            said: 0,
            beside: None,
        };
        let came = self.on_executor(task, admission, carried).await;
        // It is there only if somebody needed it.
        tokio::fs::remove_dir_all(scratch).await.ok();
        came
    }

    /// A place at the model; a job in hand waits for it as long as it takes.
    async fn admission(&self) -> Box<dyn Admission> {
        loop {
            match self
                .executor
                .admit(&Account::ANONYMOUS, WaitPolicy::Unbounded)
            {
                Ok(Admitted::Now(admission)) => return admission,
                Ok(Admitted::Queued(place)) => {
                    if let Ok(admission) = place.await {
                        return admission;
                    }
                }
                Err(_) => {}
            }
            tokio::time::sleep(LINE_AGAIN).await;
        }
    }

    async fn on_executor(
        &self,
        mut task: Task<'_>,
        admission: Box<dyn Admission>,
        carried: Carried,
    ) -> Came {
        let Carried {
            input,
            files,
            context,
            scratch,
        } = carried;
        let work = Work {
            id: task.id.clone(),
            kind: JobKind::Prediction,
            input,
            files,
            context,
            scratch: scratch.clone(),
        };
        self.journal.begun(&task.job.id);
        let batch = task.job.batch();
        tracing::info!(job = task.job.id, batch, "Started.");
        let began = Instant::now();
        let mut running = admission.start(work).await;
        let mut cause = None;
        loop {
            let event = tokio::select! {
                biased;
                () = task.stop.cancelled(), if cause.is_none() => { cause = Some(Cause::Stop); running.cancel(); continue }
                () = self.too_late(began), if cause.is_none() => { cause = Some(Cause::Time); running.cancel(); continue }
                event = running.next() => event,
            };
            let outcome = match event {
                Event::Ended(outcome) => outcome,
                other => match self.heard(&mut task, other, &scratch).await {
                    Ok(()) => continue,
                    Err(error) => {
                        abandon(running).await;
                        return self.end(
                            self.delivered(&task),
                            Err(error.into()),
                            Refresh::WhenAsked,
                        );
                    }
                },
            };
            let result = match cause {
                Some(Cause::Stop) => return Came::Stopped,
                Some(Cause::Time) => Err(self.took_too_long().into()),
                None => self.result(&mut task, outcome, &scratch).await,
            };
            let refresh = if running.refreshes() {
                Refresh::AfterEachJob
            } else {
                Refresh::WhenAsked
            };
            // The place is free before anybody can see the end.
            drop(running);
            tracing::info!(job = task.job.id, batch, failed = result.is_err(), took = ?began.elapsed(), "Finished.");
            return self.end(self.delivered(&task), result, refresh);
        }
    }

    /// Passes on what the model says before its end.
    async fn heard(&self, task: &mut Task<'_>, event: Event, scratch: &Path) -> Result<(), String> {
        match event {
            Event::Log { text, .. } => {
                tracing::info!(target: "model", job = task.job.id, "{}", text.trim_end())
            }
            Event::Metric(metric) => {
                if let Some(json) = self.porter.progress(&metric) {
                    task.say(Word::Progress(wire::progress(&json))).await;
                } else if let Some(json) = self.porter.beside_error(&metric) {
                    task.beside = Some(json);
                }
            }
            Event::Output(value) => {
                let json = self.porter.carry_out(&task.id, value, scratch).await?;
                self.part(task, json).await;
            }
            Event::Ended(_) => {}
        }
        Ok(())
    }

    async fn part(&self, task: &mut Task<'_>, json: Bytes) {
        if self.parts == SaidParts::OneByOne {
            if task.said == 0 {
                self.journal.parted(&task.job.id);
            }
            task.said += 1;
            task.say(Word::Part(wire::part(&json))).await;
        }
        if self.habits.after_parts == AfterParts::Repeated || self.parts == SaidParts::AtTheEnd {
            task.parts.push(json);
        }
    }

    async fn result(
        &self,
        task: &mut Task<'_>,
        outcome: Outcome,
        scratch: &Path,
    ) -> Result<Option<Bytes>, Failed> {
        match outcome {
            Outcome::Succeeded {
                output: Some(value),
            } => {
                let json = self.porter.carry_out(&task.id, value, scratch).await?;
                let nothing =
                    self.habits.empty_object == EmptyObject::Nothing && &json[..] == b"{}";
                Ok((!nothing).then_some(json))
            }
            Outcome::Succeeded { output: None } => {
                Ok(Some(wire::list(&std::mem::take(&mut task.parts)).into()))
            }
            Outcome::Failed { error } => Err(Failed {
                error,
                beside: task.beside.take(),
            }),
            // Nobody asked for it: the model was taken away.
            Outcome::Canceled => Err("the job was stopped by its worker".to_owned().into()),
        }
    }

    fn end(
        &self,
        delivered: Delivered,
        result: Result<Option<Bytes>, Failed>,
        refresh: Refresh,
    ) -> Came {
        let (output, error) = match result {
            Ok(output) => (output, None),
            Err(Failed { error, beside }) => (beside, Some(error)),
        };
        let output = output
            .as_ref()
            .and_then(|json| serde_json::from_slice::<&RawValue>(json).ok());
        let replaced = [refresh, self.habits.refresh].contains(&Refresh::AfterEachJob);
        let ending = Ending {
            output,
            error: error.as_deref(),
            stop_pod: replaced.then_some(true),
        };
        Came::Out(End {
            delivered,
            body: ending.to_bytes(),
            at: Instant::now(),
        })
    }

    fn delivered(&self, task: &Task<'_>) -> Delivered {
        if task.said > 0 {
            Delivered::InParts
        } else {
            self.habits.no_parts
        }
    }

    async fn too_late(&self, began: Instant) {
        match self.job_timeout {
            Some(limit) => tokio::time::sleep_until(began + limit).await,
            None => std::future::pending().await,
        }
    }

    fn took_too_long(&self) -> String {
        format!(
            "the job took longer than {:?}, which is the worker's --job-timeout",
            self.job_timeout.unwrap_or_default()
        )
    }
}

impl Task<'_> {
    async fn say(&self, word: Word) {
        self.stop.run_until_cancelled(self.mouth.say(word)).await;
    }
}

/// What the model gives cannot be used: it is stopped.
async fn abandon(mut running: Box<dyn Running>) {
    running.cancel();
    while !matches!(running.next().await, Event::Ended(_)) {}
}

fn random() -> u128 {
    let high = getrandom::u64().unwrap_or_default();
    let low = getrandom::u64().unwrap_or_default();
    u128::from(high) << 64 | u128::from(low)
}
