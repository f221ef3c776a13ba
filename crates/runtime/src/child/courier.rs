//! Sends one job over the socket of its slot and turns the child's messages into events.
//!
//! The job's own task polls the courier: no other task is between the socket and the caller. The
//! courier owns the permit, so the slot is free when the courier is dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::port::{Admission, Running};
use tidegate_core::{Event, Outcome, Work};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::job_request::JobFiles;
use super::message_parser::{MalformedMessage, MessageParser, Parsed};
use super::outgoing_frame::OutgoingFrame;
use super::pool_slot::SocketPermit;
use super::process::Retirement;
use super::slot_socket::SlotSocketError;
use crate::scratch::Scratch;
use crate::supervisor::EXIT_GRACE;

/// A permit for a slot, ready to start a job.
pub(crate) struct Courier {
    pub(crate) permit: SocketPermit,
    pub(crate) cancel_grace: Duration,
    pub(crate) tasks: TaskTracker,
    pub(crate) scratch: Scratch,
}

#[async_trait]
impl Admission for Courier {
    async fn start(self: Box<Self>, work: Work) -> Box<dyn Running> {
        let mut permit = self.permit;
        permit.socket().child.used.store(true, Ordering::Relaxed);
        let mut job = SlotJob {
            permit: Some(permit),
            parser: MessageParser::new(work.id.as_str()),
            outgoing: OutgoingFrame::default(),
            nth: 0,
            files: JobFiles::default(),
            rejected: None,
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
    permit: Option<SocketPermit>,
    parser: MessageParser,
    /// The frame of the job, until it is sent.
    outgoing: OutgoingFrame,
    /// The number of the job on its slot.
    nth: u64,
    files: JobFiles,
    /// Why the job could not be sent; the slot is still usable.
    rejected: Option<String>,
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
        let created = self.files.create(work, scratch).await;
        match created.and_then(|()| self.files.frame(work)) {
            Err(error) => self.rejected = Some(error),
            Ok(frame) => {
                self.outgoing = frame;
                if let Some(permit) = &mut self.permit {
                    self.nth = permit.socket().next_job_number();
                }
            }
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
                Err(MalformedMessage) => return self.malformed().await,
            }
        }
    }

    /// Writes the rest of the job's frame, then reads the next message. Cancel-safe.
    async fn exchange(&mut self) -> Result<Bytes, SlotSocketError> {
        let socket = self
            .permit
            .as_mut()
            .ok_or(SlotSocketError::Closed)?
            .socket();
        self.outgoing.send(socket).await?;
        socket.receive().await
    }

    /// Kills the child because the job did not react to its cancellation in time.
    async fn kill(&mut self) -> Event {
        if let Some(mut permit) = self.permit.take() {
            tracing::warn!(
                job = self.parser.work_id(),
                "canceled job does not stop, replacing its child"
            );
            let child = Arc::clone(&permit.socket().child);
            child.kill();
            child.dead().await;
            permit.poison();
        }
        Event::Ended(Outcome::Canceled)
    }

    fn parse(&mut self, message: &Bytes) -> Result<Option<Event>, MalformedMessage> {
        let response = serde_json::from_slice(message).map_err(|_| MalformedMessage)?;
        match self.parser.interpret(message, response)? {
            Parsed::Event(event) => Ok(Some(event)),
            Parsed::Retire => {
                self.refreshes = true;
                if let Some(permit) = &mut self.permit {
                    permit.socket().child.retire(Retirement::Requested);
                }
                Ok(None)
            }
            Parsed::Broken(reason) => {
                if let Some(permit) = &mut self.permit {
                    permit.socket().child.retire(Retirement::GpuError(reason));
                }
                Ok(None)
            }
            Parsed::Nothing => Ok(None),
        }
    }

    /// Ends the job after its socket was closed. A child that closed one of its slots is unusable, dead
    /// or not.
    async fn lose(&mut self) -> Event {
        let mut error = "Worker crashed";
        if let Some(mut permit) = self.permit.take() {
            let child = Arc::clone(&permit.socket().child);
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
        tracing::error!(
            job = self.parser.work_id(),
            "child wrote malformed bytes on its slot, replacing it"
        );
        if let Some(permit) = &mut self.permit {
            permit.socket().child.kill();
        }
        self.lose().await
    }

    fn cancel(&mut self) {
        if self.kill_at.is_none()
            && let Some(permit) = self.permit.as_mut()
        {
            self.kill_at = Some(Instant::now() + self.cancel_grace);
            let socket = permit.socket();
            socket.child.cancel(socket.slot, self.nth);
        }
    }
}

impl Drop for SlotJob {
    fn drop(&mut self) {
        if let Some(mut permit) = self.permit.take()
            && permit.socket().child.is_unusable()
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
