//! Sends one job over the socket of its slot and turns the child's messages into events.
//!
//! The job's own task polls the courier: no other task is between the socket and the caller. The
//! courier owns the permit, so the slot is free when the courier is dropped.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::port::{Admission, Running};
use tidegate_core::{
    Event, JobKind, Metric, MetricMode, Outcome, OutputFile, OutputFileKind, OutputValue, Work,
};
use tidegate_ipc::slot::{self, FileOutputKind, PredictRequest, SlotResponse, WireJobKind};
use tidegate_ipc::{SPILL_ABOVE, frame};
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::boot::log_source;
use super::process::Retirement;
use super::queued_caller::SlotPermit;
use super::slot_socket::SlotSocketError;
use crate::scratch::Scratch;
use crate::supervisor::EXIT_GRACE;

/// The maximum nesting of a metric's name.
const MAX_METRIC_DEPTH: usize = 8;

/// A permit for a slot, ready to start a job.
pub(crate) struct Courier {
    pub(crate) permit: SlotPermit,
    pub(crate) cancel_grace: Duration,
    pub(crate) tasks: TaskTracker,
    pub(crate) scratch: Scratch,
}

#[async_trait]
impl Admission for Courier {
    async fn start(self: Box<Self>, work: Work) -> Box<dyn Running> {
        let mut permit = self.permit;
        permit.slot().child.used.store(true, Ordering::Relaxed);
        let mut job = SlotJob {
            permit: Some(permit),
            work_id: work.id.as_str().into(),
            outgoing: Vec::new(),
            sent: 0,
            nth: 0,
            files: Vec::new(),
            rejected: None,
            spilled: None,
            ended: false,
            refreshes: false,
            cancel_grace: self.cancel_grace,
            kill_at: None,
        };
        job.prepare(&work, &self.scratch).await;
        Box::new(CancelOnDrop {
            job: Some(job),
            tasks: self.tasks,
        })
    }
}

/// A job that runs on a slot.
struct SlotJob {
    /// Present until the child of the job is lost.
    permit: Option<SlotPermit>,
    work_id: Box<str>,
    /// The frame of the job, of which the first `sent` bytes were written.
    outgoing: Vec<u8>,
    sent: usize,
    /// The number of the job on its slot.
    nth: u64,
    /// Files that belong to the next output.
    files: Vec<OutputFile>,
    /// Why the job could not be sent; the slot is still usable.
    rejected: Option<String>,
    /// The file of a large input. The child removes it, unless it dies before.
    spilled: Option<PathBuf>,
    /// Whether the last event was returned.
    ended: bool,
    /// Whether the job asked for a new child.
    refreshes: bool,
    cancel_grace: Duration,
    /// When the child is killed because its code ignores the cancellation.
    kill_at: Option<Instant>,
}

impl SlotJob {
    async fn prepare(&mut self, work: &Work, scratch: &Scratch) {
        if let Err(error) = scratch.chown_job_dir(&work.scratch) {
            self.rejected = Some(format!(
                "could not create a folder for the job's files: {error}"
            ));
            return;
        }
        if work.input.len() > SPILL_ABOVE {
            let path = work.scratch.with_extension("input");
            let written = spill(&path, &work.input)
                .await
                .and_then(|()| scratch.chown(&path));
            self.spilled = Some(path);
            if let Err(error) = written {
                self.rejected = Some(format!("could not write the input to a file: {error}"));
                return;
            }
        }
        self.outgoing = frame_of(work, self.spilled.as_deref());
        if self.outgoing.len() > frame::MAX {
            self.rejected = Some(format!(
                "the job's context and files have more than {} bytes, the limit of one message",
                frame::MAX
            ));
        } else if let Some(permit) = &mut self.permit {
            self.nth = permit.slot().next_job_number();
        }
    }

    async fn next(&mut self) -> Event {
        loop {
            if let Some(error) = self.rejected.take() {
                return Event::Ended(Outcome::Failed { error });
            }
            let received = match self.kill_at {
                None => self.exchange().await,
                Some(at) => match tokio::time::timeout_at(at, self.exchange()).await {
                    Ok(received) => received,
                    Err(_) => return self.kill().await,
                },
            };
            let message = match received {
                Ok(message) => message,
                Err(SlotSocketError::Closed) => return self.lose().await,
                Err(SlotSocketError::Malformed) => return self.malformed().await,
            };
            match self.parse(&message) {
                Ok(Some(event)) => return event,
                Ok(None) => {}
                Err(()) => return self.malformed().await,
            }
        }
    }

    /// Writes the rest of the job's frame, then reads the next message. Cancel-safe.
    async fn exchange(&mut self) -> Result<Bytes, SlotSocketError> {
        let socket = self.permit.as_mut().ok_or(SlotSocketError::Closed)?.slot();
        while self.sent < self.outgoing.len() {
            self.sent += socket.write_some(&self.outgoing[self.sent..]).await?;
        }
        socket.receive().await
    }

    /// Kills the child because the job did not react to its cancellation in time.
    async fn kill(&mut self) -> Event {
        if let Some(mut permit) = self.permit.take() {
            tracing::warn!(job = %self.work_id, "canceled job does not stop, replacing its child");
            let child = Arc::clone(&permit.slot().child);
            child.kill();
            child.dead().await;
            permit.poison();
        }
        Event::Ended(Outcome::Canceled)
    }

    fn parse(&mut self, message: &Bytes) -> Result<Option<Event>, ()> {
        let event = match serde_json::from_slice::<SlotResponse<'_>>(message).map_err(drop)? {
            SlotResponse::Log { source, data } => Event::Log {
                source: log_source(source),
                text: data.into_owned(),
            },
            SlotResponse::Output { output } => Event::Output(self.value(message, output.get())),
            SlotResponse::FileOutput(file) => {
                self.files.push(OutputFile {
                    path: PathBuf::from(file.filename.as_ref()),
                    mime_type: file.mime_type.map(|mime| mime.into_owned()),
                    offset: file.offset,
                    kind: match file.kind {
                        FileOutputKind::FileType => OutputFileKind::User,
                        FileOutputKind::Oversized => OutputFileKind::WholeOutput,
                    },
                });
                return Ok(None);
            }
            SlotResponse::Retire => {
                self.refreshes = true;
                if let Some(permit) = &mut self.permit {
                    permit.slot().child.retire(Retirement::Requested);
                }
                return Ok(None);
            }
            SlotResponse::Broken { reason } => {
                if let Some(permit) = &mut self.permit {
                    let child = &permit.slot().child;
                    child.retire(Retirement::GpuError(reason.into_owned()));
                }
                return Ok(None);
            }
            // The child checks names, so a message like this does not come from our code.
            SlotResponse::Metric { name, .. } if name.split('.').count() > MAX_METRIC_DEPTH => {
                return Err(());
            }
            SlotResponse::Metric { name, value, mode } => Event::Metric(Metric {
                name: name.into_owned(),
                value: serde_json::from_str(value.get()).map_err(drop)?,
                mode: match mode {
                    slot::WireMetricMode::Replace => MetricMode::Replace,
                    slot::WireMetricMode::Increment => MetricMode::Increment,
                    slot::WireMetricMode::Append => MetricMode::Append,
                },
            }),
            SlotResponse::Done {
                id,
                output,
                is_stream,
                ..
            } => {
                self.check(&id)?;
                let output = match output {
                    Some(output) => Some(self.value(message, output.get())),
                    None if is_stream => None,
                    None => Some(self.value(message, "")),
                };
                Event::Ended(Outcome::Succeeded { output })
            }
            SlotResponse::Failed { id, error } => {
                self.check(&id)?;
                Event::Ended(Outcome::Failed {
                    error: error.into_owned(),
                })
            }
            SlotResponse::Cancelled { id } => {
                self.check(&id)?;
                Event::Ended(Outcome::Canceled)
            }
        };
        Ok(Some(event))
    }

    /// A last message with the id of another job means that server and child are out of step.
    fn check(&self, id: &str) -> Result<(), ()> {
        if *id == *self.work_id {
            Ok(())
        } else {
            Err(())
        }
    }

    /// The output value. A large value shares the bytes of the message; a small one is copied, so that
    /// it does not keep a much larger read buffer alive.
    fn value(&mut self, message: &Bytes, json: &str) -> OutputValue {
        const SMALL: usize = 16 * 1024;
        let json = match json.len() {
            0 => Bytes::from_static(b"null"),
            1..SMALL => Bytes::copy_from_slice(json.as_bytes()),
            _ => message.slice_ref(json.as_bytes()),
        };
        OutputValue {
            json,
            files: std::mem::take(&mut self.files),
        }
    }

    /// Ends the job after its socket was closed. A child that closed one of its slots is unusable, dead
    /// or not.
    async fn lose(&mut self) -> Event {
        let mut error = "Worker crashed";
        if let Some(mut permit) = self.permit.take() {
            let child = Arc::clone(&permit.slot().child);
            // The permit is dropped only when the child is dead, so that no other job gets the slot.
            if tokio::time::timeout(EXIT_GRACE, child.dead())
                .await
                .is_err()
            {
                child.kill();
                child.dead().await;
            }
            if child.was_oom_killed() {
                error = "Worker crashed: out of memory; the system has killed the model's process";
            }
            permit.poison();
        }
        let canceled = self.kill_at.is_some();
        Event::Ended(if canceled {
            Outcome::Canceled
        } else {
            Outcome::Failed {
                error: error.to_owned(),
            }
        })
    }

    async fn malformed(&mut self) -> Event {
        tracing::error!(job = %self.work_id, "child wrote malformed bytes on its slot, replacing it");
        if let Some(permit) = &mut self.permit {
            permit.slot().child.kill();
        }
        self.lose().await
    }

    fn cancel(&mut self) {
        if self.kill_at.is_none()
            && let Some(permit) = self.permit.as_mut()
        {
            self.kill_at = Some(Instant::now() + self.cancel_grace);
            let socket = permit.slot();
            socket.child.cancel(socket.slot, self.nth);
        }
    }
}

/// The frame of the job, with the input unless it was spilled to a file.
fn frame_of(work: &Work, spilled: Option<&Path>) -> Vec<u8> {
    let predict = PredictRequest {
        id: work.id.as_str().into(),
        kind: match work.kind {
            JobKind::Prediction => WireJobKind::Prediction,
            JobKind::Training => WireJobKind::Training,
        },
        input: None,
        input_file: spilled.map(Path::to_string_lossy),
        output_dir: work.scratch.to_string_lossy(),
        files: work
            .files
            .iter()
            .map(|(pointer, path)| (pointer.clone(), path.to_string_lossy().into_owned()))
            .collect(),
        context: work.context.clone(),
    };
    let inline: &[u8] = if spilled.is_some() {
        b"null"
    } else {
        &work.input
    };
    let mut frame = Vec::with_capacity(inline.len() + 256);
    slot::append_predict(&mut frame, predict, inline);
    frame
}

async fn spill(path: &Path, input: &[u8]) -> std::io::Result<()> {
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(path).await?;
    file.write_all(input).await?;
    file.flush().await
}

impl Drop for SlotJob {
    fn drop(&mut self) {
        if let Some(path) = &self.spilled {
            // Usually the child has removed it already.
            std::fs::remove_file(path).ok();
        }
        if let Some(mut permit) = self.permit.take()
            && permit.slot().child.is_unusable()
        {
            permit.poison();
        }
    }
}

/// Cancels the job when its owner drops it; the slot is free when the job has stopped.
struct CancelOnDrop {
    job: Option<SlotJob>,
    tasks: TaskTracker,
}

#[async_trait]
impl Running for CancelOnDrop {
    async fn next(&mut self) -> Event {
        let job = self
            .job
            .as_mut()
            .expect("the job is present until `self` is dropped");
        let event = job.next().await;
        // The permit is dropped with `self` and not here: files of the output may still be read.
        job.ended |= matches!(event, Event::Ended(_));
        event
    }

    fn refreshes(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.refreshes)
    }

    fn cancel(&mut self) {
        if let Some(job) = &mut self.job {
            job.cancel();
        }
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(mut job) = self.job.take() else {
            return;
        };
        if !job.ended {
            self.tasks.spawn(async move {
                job.cancel();
                while !matches!(job.next().await, Event::Ended(_)) {}
            });
        }
    }
}
