//! Carries one job over its slot's socket and reads what comes back.
//!
//! The courier is polled by the job's own task: no other task stands between the socket and the
//! caller. It owns the permit, so the slot is free when the courier is dropped.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::port::{Admission, Running};
use tidegate_core::{
    Account, Event, JobKind, Metric, MetricMode, Outcome, OutputFile, OutputFileKind, OutputValue,
    Work,
};
use tidegate_ipc::slot::{self, FileOutputKind, PredictRequest, SlotResponse, WireJobKind};
use tidegate_ipc::{SPILL_ABOVE, frame};
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::boot::log_source;
use super::link::{Broken, Link};
use crate::scratch::Scratch;
use crate::slots::{HasOwner, Ledger, Permit, Waiter};
use crate::supervisor::LAST_BREATH;

/// Metrics nest less deep than this.
const MAX_METRIC_DEPTH: usize = 8;

/// A permit for one slot of a child.
pub(crate) type SlotPermit = Permit<Link, Seat, Mutex<Ledger<Link, Seat>>>;

/// Where a caller in the line finds its permit.
pub(crate) struct Seat {
    pub(crate) account: Account,
    /// See [`HasOwner::number`].
    pub(crate) number: u64,
    pub(crate) permit: oneshot::Sender<SlotPermit>,
}

impl HasOwner for Seat {
    type Owner = Account;

    fn owner(&self) -> &Account {
        &self.account
    }

    fn number(&self) -> u64 {
        self.number
    }
}

impl Waiter<Link, Mutex<Ledger<Link, Seat>>> for Seat {
    fn give(self, permit: SlotPermit) -> Result<(), SlotPermit> {
        self.permit.send(permit)
    }

    fn has_left(&self) -> bool {
        self.permit.is_closed()
    }
}

/// An idle slot, waiting for its job.
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
        let mut delivery = Delivery {
            permit: Some(permit),
            work_id: work.id.as_str().into(),
            outgoing: Vec::new(),
            sent: 0,
            nth: 0,
            files: Vec::new(),
            refused: None,
            spilled: None,
            ended: false,
            refreshes: false,
            cancel_grace: self.cancel_grace,
            kill_at: None,
        };
        delivery.prepare(&work, &self.scratch).await;
        Box::new(Guarded {
            delivery: Some(delivery),
            tasks: self.tasks,
        })
    }
}

/// A job on a slot.
struct Delivery {
    /// Present until the job's child is lost.
    permit: Option<SlotPermit>,
    work_id: Box<str>,
    /// The job's frame, until all of it has been written.
    outgoing: Vec<u8>,
    sent: usize,
    /// Which job of its slot it is.
    nth: u64,
    /// Files that belong into the next output.
    files: Vec<OutputFile>,
    /// Why the job could not be handed over; the slot is as good as before.
    refused: Option<String>,
    /// The input's file, which the child removes when it lives long enough.
    spilled: Option<PathBuf>,
    /// Whether the last event has been given out.
    ended: bool,
    /// Whether it has asked for another child.
    refreshes: bool,
    cancel_grace: Duration,
    /// When user code that ignores its cancellation loses its child.
    kill_at: Option<Instant>,
}

impl Delivery {
    async fn prepare(&mut self, work: &Work, scratch: &Scratch) {
        if let Err(error) = scratch.give_folder(&work.scratch) {
            self.refused = Some(format!(
                "could not make a folder for the job's files: {error}"
            ));
            return;
        }
        if work.input.len() > SPILL_ABOVE {
            let path = work.scratch.with_extension("input");
            let written = spill(&path, &work.input)
                .await
                .and_then(|()| scratch.give(&path));
            self.spilled = Some(path);
            if let Err(error) = written {
                self.refused = Some(format!("could not write the input to a file: {error}"));
                return;
            }
        }
        self.outgoing = frame_of(work, self.spilled.as_deref());
        if self.outgoing.len() > frame::MAX {
            self.refused = Some(format!(
                "the job's context and files take more than the {} bytes that can be handed over",
                frame::MAX
            ));
        } else if let Some(permit) = &mut self.permit {
            self.nth = permit.slot().count_job();
        }
    }

    async fn next(&mut self) -> Event {
        loop {
            if let Some(error) = self.refused.take() {
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
                Err(Broken::Gone) => return self.lose().await,
                Err(Broken::Garbage) => return self.garbage().await,
            };
            match self.understand(&message) {
                Ok(Some(event)) => return event,
                Ok(None) => {}
                Err(()) => return self.garbage().await,
            }
        }
    }

    /// Writes what is left of the job, then reads the next message. Safe to drop and call again.
    async fn exchange(&mut self) -> Result<Bytes, Broken> {
        let link = self.permit.as_mut().ok_or(Broken::Gone)?.slot();
        while self.sent < self.outgoing.len() {
            self.sent += link.write_some(&self.outgoing[self.sent..]).await?;
        }
        link.receive().await
    }

    /// The cancel was not heard in time: the child goes, and another comes.
    async fn kill(&mut self) -> Event {
        if let Some(mut permit) = self.permit.take() {
            tracing::warn!(job = %self.work_id, "canceled code does not stop, replacing its child");
            let child = Arc::clone(&permit.slot().child);
            child.kill();
            child.dead().await;
            permit.poison();
        }
        Event::Ended(Outcome::Canceled)
    }

    fn understand(&mut self, message: &Bytes) -> Result<Option<Event>, ()> {
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
                    permit.slot().child.retire();
                }
                return Ok(None);
            }
            // The child checks names; only something else than our code writes one like this.
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

    /// The last message of another job on this slot means that both sides no longer agree.
    fn check(&self, id: &str) -> Result<(), ()> {
        if *id == *self.work_id {
            Ok(())
        } else {
            Err(())
        }
    }

    /// The value without copying it out of the message, unless it is so small that it would hold on to
    /// a read buffer much larger than itself.
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

    /// The socket is closed. A child that has closed one of its slots is of no more use, dead or not.
    async fn lose(&mut self) -> Event {
        let mut error = "Worker crashed";
        if let Some(mut permit) = self.permit.take() {
            let child = Arc::clone(&permit.slot().child);
            // The permit is given back only when the child is dead, so that no other job gets it.
            if tokio::time::timeout(LAST_BREATH, child.dead())
                .await
                .is_err()
            {
                child.kill();
                child.dead().await;
            }
            if child.ran_out_of_memory() {
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

    async fn garbage(&mut self) -> Event {
        tracing::error!(job = %self.work_id, "the child wrote garbage on its slot, replacing it");
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
            let link = permit.slot();
            link.child.cancel(link.slot, self.nth);
        }
    }
}

/// The job's frame; the input is in it unless it was spilled to a file.
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

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(path) = &self.spilled {
            // Nearly always the child has removed it already.
            std::fs::remove_file(path).ok();
        }
        if let Some(mut permit) = self.permit.take()
            && permit.slot().child.takes_no_more()
        {
            permit.poison();
        }
    }
}

/// A delivery that is never left half done: when its owner goes, the job is stopped and the slot
/// comes back when it has.
struct Guarded {
    delivery: Option<Delivery>,
    tasks: TaskTracker,
}

#[async_trait]
impl Running for Guarded {
    async fn next(&mut self) -> Event {
        let delivery = self.delivery.as_mut().expect("present until dropped");
        let event = delivery.next().await;
        // The permit goes back when `self` is dropped, not yet: files of the output may still be read.
        delivery.ended |= matches!(event, Event::Ended(_));
        event
    }

    fn refreshes(&self) -> bool {
        self.delivery
            .as_ref()
            .is_some_and(|delivery| delivery.refreshes)
    }

    fn cancel(&mut self) {
        if let Some(delivery) = &mut self.delivery {
            delivery.cancel();
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let Some(mut delivery) = self.delivery.take() else {
            return;
        };
        if !delivery.ended {
            self.tasks.spawn(async move {
                delivery.cancel();
                while !matches!(delivery.next().await, Event::Ended(_)) {}
            });
        }
    }
}
