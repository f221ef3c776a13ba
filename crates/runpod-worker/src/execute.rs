//! Executes one job on the model: admission, events, and the final report.

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

/// The pause before admission is tried again.
const ADMISSION_RETRY: Duration = Duration::from_millis(200);

/// Executes jobs on the model.
pub(crate) struct ExecutionContext {
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) codec: Arc<dyn JobCodec>,
    pub(crate) journal: Journal,
    pub(crate) semantics: HandlerSemantics,
    /// Whether the platform accepts streamed parts.
    pub(crate) parts: PlatformStreaming,
    /// The most time that the model may spend on a job.
    pub(crate) job_timeout: Option<Duration>,
}

/// Whether the platform accepts streamed parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlatformStreaming {
    /// Parts are sent as they arrive.
    Supported,
    /// All parts are in the result.
    Unsupported,
}

/// The outcome of a run.
pub(crate) enum RunResult {
    /// The job has a result.
    Finished(FinalReport),
    /// The platform stopped the job and needs no result.
    Stopped,
}

/// One job that the model runs.
struct ActiveRun<'a> {
    job: &'a Job,
    stop: &'a CancellationToken,
    reports: &'a ReportSender,
    id: JobId,
    /// Parts for the result.
    parts: Vec<Bytes>,
    sent_parts: usize,
    /// The output beside an error.
    failure_output: Option<Bytes>,
}

/// Why a job failed, and its output beside the error.
struct JobFailure {
    error: String,
    failure_output: Option<Bytes>,
}

impl From<String> for JobFailure {
    fn from(error: String) -> Self {
        Self {
            error,
            failure_output: None,
        }
    }
}

/// Why a job was stopped.
#[derive(Clone, Copy)]
enum StopCause {
    Requested,
    Timeout,
}

impl ExecutionContext {
    pub(crate) async fn execute(
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
            sent_parts: 0,
            failure_output: None,
        };
        let result = self.on_executor(task, admission, carried).await;
        // The folder exists only if the job had files.
        tokio::fs::remove_dir_all(scratch).await.ok();
        result
    }

    /// Admission to the model; waits without a limit.
    async fn admission(&self) -> Box<dyn Admission> {
        loop {
            match self
                .executor
                .admit(&Account::ANONYMOUS, WaitPolicy::Unbounded)
            {
                Ok(Admitted::Now(admission)) => return admission,
                Ok(Admitted::Queued(admission)) => {
                    if let Ok(admission) = admission.await {
                        return admission;
                    }
                }
                Err(_) => {}
            }
            tokio::time::sleep(ADMISSION_RETRY).await;
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
                () = self.timed_out(began), if cause.is_none() => { cause = Some(StopCause::Timeout); running.cancel(); continue }
                event = running.next() => event,
            };
            let outcome = match event {
                Event::Ended(outcome) => outcome,
                other => match self.forward(&mut task, other, &scratch).await {
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
                Some(StopCause::Timeout) => Err(self.timeout_error().into()),
                None => self.result(&mut task, outcome, &scratch).await,
            };
            let refresh = if running.refreshes() {
                Refresh::AfterEachJob
            } else {
                Refresh::OnRequest
            };
            // Frees the slot before the result is visible.
            drop(running);
            tracing::info!(job = task.job.id, batch, failed = result.is_err(), took = ?began.elapsed(), "Finished.");
            return self.end(self.delivered(&task), result, refresh);
        }
    }

    /// Forwards an event of the model before the end.
    async fn forward(
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
                    task.send(Report::Progress(wire::progress(&json))).await;
                } else if let Some(json) = self.codec.failure_output(&metric) {
                    task.failure_output = Some(json);
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
        if self.parts == PlatformStreaming::Supported {
            if task.sent_parts == 0 {
                self.journal.record_streaming(&task.job.id);
            }
            task.sent_parts += 1;
            task.send(Report::Part(wire::part(&json))).await;
        }
        if self.semantics.stream_result == StreamResult::Aggregated
            || self.parts == PlatformStreaming::Unsupported
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
                failure_output: task.failure_output.take(),
            }),
            // The platform did not cancel the job: the model was unloaded.
            Outcome::Canceled => Err("the worker stopped the job".to_owned().into()),
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
            Err(JobFailure {
                error,
                failure_output,
            }) => (failure_output, Some(error)),
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
        if task.sent_parts > 0 {
            OutputDelivery::Streamed
        } else {
            self.semantics.without_stream
        }
    }

    async fn timed_out(&self, began: Instant) {
        match self.job_timeout {
            Some(limit) => tokio::time::sleep_until(began + limit).await,
            None => std::future::pending().await,
        }
    }

    fn timeout_error(&self) -> String {
        format!(
            "the job took longer than {:?} (the worker's --job-timeout)",
            self.job_timeout.unwrap_or_default()
        )
    }
}

impl ActiveRun<'_> {
    async fn send(&self, report: Report) {
        self.stop
            .run_until_cancelled(self.reports.send(report))
            .await;
    }
}

/// Cancels a job whose output cannot be encoded.
async fn abandon(mut running: Box<dyn Running>) {
    running.cancel();
    while !matches!(running.next().await, Event::Ended(_)) {}
}

fn random() -> u128 {
    let high = getrandom::u64().unwrap_or_default();
    let low = getrandom::u64().unwrap_or_default();
    u128::from(high) << 64 | u128::from(low)
}
