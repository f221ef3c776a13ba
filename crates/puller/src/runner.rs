//! One job, from the moment it is in hand until the platform has its result.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tidegate_core::port::{Admission, Executor, Patience, Running, Turn};
use tidegate_core::{Account, Event, JobId, JobKind, Outcome, Work};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::addresses::Delivered;
use crate::delivery::{Delivery, End, Mouth, Word};
use crate::hand::Hand;
use crate::journal::Journal;
use crate::platform::Platform;
use crate::port::{Carried, Porter, Verdict};
use crate::puller::Refresh;
use crate::wire::{self, Ending, Job};

/// The pause before a job whose line was sent away stands in it again.
const LINE_AGAIN: Duration = Duration::from_millis(200);

/// What all jobs are run with.
pub(crate) struct Runner {
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) porter: Arc<dyn Porter>,
    pub(crate) platform: Arc<Platform>,
    pub(crate) hand: Hand,
    pub(crate) journal: Journal,
    pub(crate) refresh: Refresh,
    /// How long the model may work on one job.
    pub(crate) job_timeout: Option<Duration>,
}

/// How a job came out.
enum Came {
    /// It has a result.
    Out(End),
    /// The platform wants nothing of it.
    Stopped,
}

/// The output of a job, as far as it is known.
#[derive(Default)]
struct Given {
    parts: Vec<Bytes>,
    count: usize,
}

impl Runner {
    /// Runs a job that is in hand.
    pub(crate) async fn run(self: Arc<Self>, job: Job, stop: CancellationToken) {
        let (mouth, delivery) = Delivery::new(Arc::clone(&self.platform), &job.id, stop.clone());
        tokio::join!(delivery.run(), self.speak(&job, &stop, mouth));
        if stop.is_cancelled() {
            tracing::info!(job = job.id, "job stopped");
        }
        self.journal.gone(&job.id);
        self.hand.remove(&job.id);
    }

    /// Brings a result that is known already.
    pub(crate) async fn bring(self: Arc<Self>, id: String, stop: CancellationToken, delivered: Delivered, body: Bytes) {
        self.hand.over(&id);
        let (mouth, delivery) = Delivery::new(Arc::clone(&self.platform), &id, stop);
        tokio::join!(delivery.run(), mouth.say(Word::End(End { delivered, body, at: Instant::now() })));
        self.journal.gone(&id);
        self.hand.remove(&id);
    }

    async fn speak(&self, job: &Job, stop: &CancellationToken, mouth: Mouth) {
        let came = self.work(job, stop, &mouth).await;
        if let Came::Out(end) = came {
            self.journal.over(&job.id, end.delivered, &end.body);
            self.hand.over(&job.id);
            mouth.say(Word::End(end)).await;
        }
    }

    async fn work(&self, job: &Job, stop: &CancellationToken, mouth: &Mouth) -> Came {
        let carrying = stop.run_until_cancelled(async { (self.admission().await, self.porter.carry_in(job).await) });
        let Some((admission, carried)) = carrying.await else { return Came::Stopped };
        let carried = match carried {
            Ok(carried) => carried,
            Err(error) => return self.end(Delivered::AtOnce, Verdict { error: Some(error), ..Verdict::default() }),
        };
        let scratch = carried.scratch.clone();
        let came = self.on_executor(job, stop, mouth, admission, carried).await;
        // It is there only if somebody needed it.
        tokio::fs::remove_dir_all(scratch).await.ok();
        came
    }

    /// A place at the model; a job in hand waits for it as long as it takes.
    async fn admission(&self) -> Box<dyn Admission> {
        loop {
            match self.executor.admit(&Account::ANONYMOUS, Patience::Endless) {
                Ok(Turn::Now(admission)) => return admission,
                Ok(Turn::Line(place)) => {
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
        job: &Job,
        stop: &CancellationToken,
        mouth: &Mouth,
        admission: Box<dyn Admission>,
        carried: Carried,
    ) -> Came {
        let id = JobId::parse(&job.id).unwrap_or_else(|_| JobId::from_random(random()));
        let Carried { input, files, scratch } = carried;
        let work = Work { id: id.clone(), kind: JobKind::Prediction, input, files, context: Default::default(), scratch: scratch.clone() };
        self.journal.begun(&job.id);
        tracing::info!(job = job.id, "job started");
        let began = Instant::now();
        let mut running = admission.start(work).await;
        let mut given = Given::default();
        let deadline = self.job_timeout.map(|limit| began + limit);
        let mut cause = None;
        loop {
            let event = tokio::select! {
                biased;
                () = stop.cancelled(), if cause.is_none() => { cause = Some(Cause::Stop); running.cancel(); continue }
                () = until(deadline), if cause.is_none() => { cause = Some(Cause::Time); running.cancel(); continue }
                event = running.next() => event,
            };
            let said = match event {
                Event::Log { text, .. } => {
                    tracing::info!(target: "model", job = job.id, "{}", text.trim_end());
                    Ok(())
                }
                Event::Metric(metric) => {
                    if let Some(json) = self.porter.progress(&metric) {
                        self.say(stop, mouth, Word::Progress(wire::progress(&json))).await;
                    }
                    Ok(())
                }
                Event::Output(value) => match self.porter.carry_out(&id, value, &scratch).await {
                    Ok(json) => self.part(job, stop, mouth, &mut given, json).await,
                    Err(error) => Err(Verdict { error: Some(error), ..Verdict::default() }),
                },
                Event::Ended(outcome) => {
                    let verdict = match &cause {
                        Some(Cause::Stop) => return Came::Stopped,
                        Some(Cause::Time) => self.too_long(),
                        None => self.verdict(&id, outcome, &mut given, &scratch).await,
                    };
                    // The place is free before anybody can see the end.
                    drop(running);
                    tracing::info!(job = job.id, failed = verdict.error.is_some(), took = ?began.elapsed(), "job finished");
                    return self.end(given.delivered(), verdict);
                }
            };
            if let Err(verdict) = said {
                abandon(running).await;
                return self.end(given.delivered(), verdict);
            }
        }
    }

    /// A part of the output. One that says that the job has failed ends it.
    async fn part(&self, job: &Job, stop: &CancellationToken, mouth: &Mouth, given: &mut Given, json: Bytes) -> Result<(), Verdict> {
        if let Some(error) = self.porter.verdict(&json).error.filter(|_| self.porter.parts_can_fail()) {
            return Err(Verdict { error: Some(error), ..Verdict::default() });
        }
        if self.porter.repeats_parts() || !self.platform.takes_parts() {
            given.parts.push(json.clone());
        }
        if given.count == 0 && self.platform.takes_parts() {
            self.journal.parted(&job.id);
        }
        given.count += 1;
        if self.platform.takes_parts() {
            self.say(stop, mouth, Word::Part(wire::part(&json))).await;
        }
        Ok(())
    }

    async fn say(&self, stop: &CancellationToken, mouth: &Mouth, word: Word) {
        stop.run_until_cancelled(mouth.say(word)).await;
    }

    async fn verdict(&self, id: &JobId, outcome: Outcome, given: &mut Given, scratch: &std::path::Path) -> Verdict {
        match outcome {
            Outcome::Succeeded { output: Some(value) } => match self.porter.carry_out(id, value, scratch).await {
                Ok(json) => self.porter.verdict(&json),
                Err(error) => Verdict { error: Some(error), ..Verdict::default() },
            },
            Outcome::Succeeded { output: None } => {
                Verdict { output: Some(wire::list(&std::mem::take(&mut given.parts)).into()), ..Verdict::default() }
            }
            Outcome::Failed { error } => Verdict { error: Some(error), ..Verdict::default() },
            // Nobody asked for it: the model was taken away.
            Outcome::Canceled => Verdict { error: Some("the job was stopped by its worker".to_owned()), ..Verdict::default() },
        }
    }

    fn too_long(&self) -> Verdict {
        let limit = self.job_timeout.unwrap_or_default();
        Verdict { error: Some(format!("the job took longer than {limit:?}, which is the worker's --job-timeout")), ..Verdict::default() }
    }

    fn end(&self, delivered: Delivered, verdict: Verdict) -> Came {
        let output = verdict.output.as_ref().and_then(|json| serde_json::from_slice::<&RawValue>(json).ok());
        let refresh = verdict.refresh || self.refresh == Refresh::AfterEachJob;
        let ending = Ending { output, error: verdict.error.as_deref(), stop_pod: refresh.then_some(true) };
        Came::Out(End { delivered, body: ending.to_bytes(), at: Instant::now() })
    }
}

impl Given {
    fn delivered(&self) -> Delivered {
        if self.count > 0 { Delivered::InParts } else { Delivered::AtOnce }
    }
}

/// Why a job was told to stop.
enum Cause {
    Stop,
    Time,
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// What the model gives cannot be used: it is stopped.
async fn abandon(mut running: Box<dyn Running>) {
    running.cancel();
    while !matches!(running.next().await, Event::Ended(_)) {}
}

pub(crate) fn random() -> u128 {
    let high = getrandom::u64().unwrap_or_default();
    let low = getrandom::u64().unwrap_or_default();
    u128::from(high) << 64 | u128::from(low)
}
