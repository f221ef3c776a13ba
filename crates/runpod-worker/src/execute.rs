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

use crate::codec::{DecodedJob, EmptyObject, HandlerSemantics, JobCodec, Refresh, StreamResult};
use crate::delivery::{FinalReport, Report, ReportSender};
use crate::journal::Journal;
use crate::platform_urls::OutputDelivery;
use crate::wire::{self, Job, JobDone};

/// The pause before a job whose line was sent away stands in it again.
const LINE_AGAIN: Duration = Duration::from_millis(200);

/// What all jobs are worked on with.
pub(crate) struct ExecutionContext {
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) codec: Arc<dyn JobCodec>,
    pub(crate) journal: Journal,
    pub(crate) semantics: HandlerSemantics,
    /// Whether parts are said one by one.
    pub(crate) parts: StreamSupport,
    /// How long the model may work on one job.
    pub(crate) job_timeout: Option<Duration>,
}

/// What is done with the parts of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamSupport {
    /// They are said as they come.
    Supported,
    /// They are all said at the end, because nobody hears them before.
    Unsupported,
}

/// How a job came out.
pub(crate) enum RunResult {
    /// It has a result.
    Finished(FinalReport),
    /// Somebody stopped it, and wants nothing of it.
    Stopped,
}

/// One job that is worked on.
struct ActiveRun<'a> {
    job: &'a Job,
    stop: &'a CancellationToken,
    reports: &'a ReportSender,
    id: JobId,
    /// WorkerDeps that are repeated.
    parts: Vec<Bytes>,
    said: usize,
    /// What it gives besides an error.
    beside: Option<Bytes>,
}

/// Why a job has no result, and what it gives nevertheless.
struct JobFailure {
    error: String,
    beside: Option<Bytes>,
}

impl From<String> for JobFailure {
    fn from(error: String) -> Self {
        Self {
            error,
            beside: None,
        }
    }
}

/// Why a job was told to stop.
#[derive(Clone, Copy)]
enum StopCause {
    Requested,
    Timeout,
}

impl ExecutionContext {
    pub(crate) async fn work(
        &self,
        job: &Job,
        stop: &CancellationToken,
        reports: &ReportSender,
    ) -> RunResult {
        let ready = stop
            .run_until_cancelled(async { (self.admission().await, self.codec.decode(job).await) });
        let Some((admission, carried)) = ready.await else {
            return RunResult::Stopped;
        };
        let carried = match carried {
            Ok(carried) => carried,
            Err(error) => {
                return self.end(
                    self.semantics.without_stream,
                    Err(error.into()),
                    Refresh::OnRequest,
                );
            }
        };
        let scratch = carried.scratch.clone();
        let id = JobId::parse(&job.id).unwrap_or_else(|_| JobId::from_random(random()));
        let task = ActiveRun {
            job,
            stop,
            reports,
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
        mut task: ActiveRun<'_>,
        admission: Box<dyn Admission>,
        carried: DecodedJob,
    ) -> RunResult {
        let DecodedJob {
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
        self.journal.record_started(&task.job.id);
        let batch = task.job.batch();
        tracing::info!(job = task.job.id, batch, "Started.");
        let began = Instant::now();
        let mut running = admission.start(work).await;
        let mut cause = None;
        loop {
            let event = tokio::select! {
                biased;
                () = task.stop.cancelled(), if cause.is_none() => { cause = Some(StopCause::Requested); running.cancel(); continue }
                () = self.too_late(began), if cause.is_none() => { cause = Some(StopCause::Timeout); running.cancel(); continue }
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
                            Refresh::OnRequest,
                        );
                    }
                },
            };
            let result = match cause {
                Some(StopCause::Requested) => return RunResult::Stopped,
                Some(StopCause::Timeout) => Err(self.took_too_long().into()),
                None => self.result(&mut task, outcome, &scratch).await,
            };
            let refresh = if running.refreshes() {
                Refresh::AfterEachJob
            } else {
                Refresh::OnRequest
            };
            // The place is free before anybody can see the end.
            drop(running);
            tracing::info!(job = task.job.id, batch, failed = result.is_err(), took = ?began.elapsed(), "Finished.");
            return self.end(self.delivered(&task), result, refresh);
        }
    }

    /// Passes on what the model says before its end.
    async fn heard(
        &self,
        task: &mut ActiveRun<'_>,
        event: Event,
        scratch: &Path,
    ) -> Result<(), String> {
        match event {
            Event::Log { text, .. } => {
                tracing::info!(target: "model", job = task.job.id, "{}", text.trim_end())
            }
            Event::Metric(metric) => {
                if let Some(json) = self.codec.progress(&metric) {
                    task.say(Report::Progress(wire::progress(&json))).await;
                } else if let Some(json) = self.codec.failure_output(&metric) {
                    task.beside = Some(json);
                }
            }
            Event::Output(value) => {
                let json = self.codec.encode_output(&task.id, value, scratch).await?;
                self.part(task, json).await;
            }
            // The model runs here, so there are no facts about a remote worker.
            Event::Remote(_) | Event::Ended(_) => {}
        }
        Ok(())
    }

    async fn part(&self, task: &mut ActiveRun<'_>, json: Bytes) {
        if self.parts == StreamSupport::Supported {
            if task.said == 0 {
                self.journal.record_streaming(&task.job.id);
            }
            task.said += 1;
            task.say(Report::Part(wire::part(&json))).await;
        }
        if self.semantics.stream_result == StreamResult::Aggregated
            || self.parts == StreamSupport::Unsupported
        {
            task.parts.push(json);
        }
    }

    async fn result(
        &self,
        task: &mut ActiveRun<'_>,
        outcome: Outcome,
        scratch: &Path,
    ) -> Result<Option<Bytes>, JobFailure> {
        match outcome {
            Outcome::Succeeded {
                output: Some(value),
            } => {
                let json = self.codec.encode_output(&task.id, value, scratch).await?;
                let nothing =
                    self.semantics.empty_object == EmptyObject::NoOutput && &json[..] == b"{}";
                Ok((!nothing).then_some(json))
            }
            Outcome::Succeeded { output: None } => {
                Ok(Some(wire::list(&std::mem::take(&mut task.parts)).into()))
            }
            Outcome::Failed { error } => Err(JobFailure {
                error,
                beside: task.beside.take(),
            }),
            // Nobody asked for it: the model was taken away.
            Outcome::Canceled => Err("the job was stopped by its worker".to_owned().into()),
        }
    }

    fn end(
        &self,
        delivered: OutputDelivery,
        result: Result<Option<Bytes>, JobFailure>,
        refresh: Refresh,
    ) -> RunResult {
        let (output, error) = match result {
            Ok(output) => (output, None),
            Err(JobFailure { error, beside }) => (beside, Some(error)),
        };
        let output = output
            .as_ref()
            .and_then(|json| serde_json::from_slice::<&RawValue>(json).ok());
        let replaced = [refresh, self.semantics.refresh].contains(&Refresh::AfterEachJob);
        let ending = JobDone {
            output,
            error: error.as_deref(),
            stop_pod: replaced.then_some(true),
        };
        RunResult::Finished(FinalReport {
            delivered,
            body: ending.to_bytes(),
            at: Instant::now(),
        })
    }

    fn delivered(&self, task: &ActiveRun<'_>) -> OutputDelivery {
        if task.said > 0 {
            OutputDelivery::Streamed
        } else {
            self.semantics.without_stream
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

impl ActiveRun<'_> {
    async fn say(&self, word: Report) {
        self.stop.run_until_cancelled(self.reports.say(word)).await;
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
