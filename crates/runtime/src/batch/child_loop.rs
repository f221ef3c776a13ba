//! Runs batches on one child: takes the next one, sends it, distributes the answers.
//!
//! A full batch is sent while the child still runs the previous one, so that the child finds it at once;
//! see [`BatchFormer::next_ahead`](super::former::BatchFormer::next_ahead).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::time::Instant;

use super::batcher::RegisteredChild;
use super::item::BatchedJob;
use super::sent_batch::{BatchError, SentBatch, SentWhen};
use crate::child::process::ChildProcess;
use crate::child::slot_socket::{SlotSocket, SlotSocketError};
use crate::supervisor::{EXIT_GRACE, RuntimeShared};

/// Runs batches on the child of `socket` until the child ends or takes no more jobs.
pub(crate) async fn run_batches(
    shared: Arc<RuntimeShared>,
    mut socket: SlotSocket,
    registered: RegisteredChild,
) {
    let child = Arc::clone(&socket.child);
    // A child that refuses a batch says why, but perhaps on another socket and later.
    let mut refuses = false;
    loop {
        let items = tokio::select! {
            biased;
            () = child.dead() => return,
            () = child.retired() => return,
            () = shared.stop.cancelled() => return,
            items = shared.batcher.next_batch(), if !refuses => items,
        };
        child.used.store(true, Ordering::Relaxed);
        let changed = registered.changed();
        let running = SentBatch::new(&mut socket, items, changed, SentWhen::Free);
        let mut batches = ChildBatches {
            shared: &shared,
            registered: &registered,
            socket: &mut socket,
            running,
            ahead: None,
        };
        let ended = batches.run().await;
        let running = batches.running.taken;
        if let Err(error) = ended {
            refuses = matches!(error, BatchError::Refused);
            let unfinished = batches.lose(error).await;
            // Before the count of running items falls, so that a batch never looks smaller.
            shared.batcher.push_front(unfinished);
        }
        shared.batcher.batch_ended(running);
    }
}

/// The batch that a child runs, and the next one.
struct ChildBatches<'a> {
    shared: &'a RuntimeShared,
    registered: &'a RegisteredChild,
    socket: &'a mut SlotSocket,
    running: SentBatch,
    /// A batch that was sent while `running` runs.
    ahead: Option<SentBatch>,
}

impl ChildBatches<'_> {
    /// Runs batches until one has ended and no other was sent ahead.
    async fn run(&mut self) -> Result<(), BatchError> {
        loop {
            self.run_one().await?;
            let Some(next) = self.ahead.take() else {
                return Ok(());
            };
            self.registered.next_started(self.running.taken, next.taken);
            self.running = next;
        }
    }

    /// Runs the running batch to its end.
    async fn run_one(&mut self) -> Result<(), BatchError> {
        let child = Arc::clone(&self.socket.child);
        let changed = Arc::clone(self.registered.changed());
        while !self.running.has_ended() {
            match self.running.kill_at {
                None if self.running.call_is_canceled() => {
                    let grace = self.shared.launch.cancel_grace;
                    self.running.kill_at = Some(Instant::now() + grace);
                }
                // Here as well as below: a child that sends many messages must not delay it.
                Some(at) if Instant::now() >= at => return Err(BatchError::NotStopped),
                Some(_) | None => {}
            }
            self.take_ahead(&child);
            let kill_at = self.running.kill_at;
            let received = tokio::select! {
                biased;
                received = self.exchange() => received?,
                () = changed.notified() => continue,
                () = sleep_until(kill_at) => return Err(BatchError::NotStopped),
            };
            self.running.handle(self.shared, &child, &received)?;
        }
        Ok(())
    }

    /// Takes the next batch, if there is a full one and the child will be able to run it.
    fn take_ahead(&mut self, child: &ChildProcess) {
        let takes_none = self.ahead.is_some()
            || self.running.kill_at.is_some()
            || self.running.is_training()
            || child.is_unusable()
            || self.shared.stop.is_cancelled();
        if takes_none {
            return;
        }
        if let Some(items) = self.registered.take_ahead() {
            let changed = self.registered.changed();
            let ahead = SentBatch::new(self.socket, items, changed, SentWhen::Ahead);
            self.ahead = Some(ahead);
        }
    }

    /// Sends what is not sent yet, and reads the next message. Cancel-safe.
    async fn exchange(&mut self) -> Result<Bytes, SlotSocketError> {
        let unsent = match &mut self.ahead {
            Some(ahead) if self.running.is_sent() => ahead,
            _ => &mut self.running,
        };
        let (bytes, sent) = unsent.outgoing();
        self.socket.receive_while_sending(bytes, sent).await
    }

    /// Ends the batches of a child that runs no more of them. Returns the items that run again.
    async fn lose(self, error: BatchError) -> Vec<Arc<BatchedJob>> {
        let child = Arc::clone(&self.socket.child);
        let mut again = match error {
            // The child exits when its socket is closed. It refuses the batch that was sent ahead, too.
            BatchError::Refused => self.running.give_back(),
            error => {
                end(&child, error).await;
                self.running.lose(self.shared, &child)
            }
        };
        if let Some(ahead) = self.ahead {
            self.registered.ahead_lost(ahead.taken);
            // The child works on it only after the end of the running batch.
            again.extend(ahead.give_back());
        }
        again
    }
}

/// Kills the child, if it lives, and waits for its death.
async fn end(child: &ChildProcess, error: BatchError) {
    match error {
        BatchError::Closed => {
            // It may still be alive for a moment, or have closed only its socket.
            if tokio::time::timeout(EXIT_GRACE, child.dead())
                .await
                .is_err()
            {
                child.kill();
            }
        }
        BatchError::Malformed => {
            tracing::error!("child wrote malformed bytes on its slot, replacing it");
            child.kill();
        }
        BatchError::NotStopped => {
            tracing::warn!("canceled batch does not stop, replacing its child");
            child.kill();
        }
        BatchError::Refused => {}
    }
    child.dead().await;
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
