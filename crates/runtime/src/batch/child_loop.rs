//! Runs batches on one child: takes the next one, sends it, distributes the answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tidegate_core::{Event, JobKind};
use tidegate_ipc::slot::{self, SlotResponse};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::batcher::RegisteredChild;
use super::item::{BatchedJob, ItemLocation};
use crate::child::message_parser::{MalformedMessage, MessageParser, Parsed};
use crate::child::process::Retirement;
use crate::child::slot_socket::{SlotSocket, SlotSocketError};
use crate::supervisor::{EXIT_GRACE, RuntimeShared};

/// Runs batches on the child of `socket` until the child ends or takes no more jobs.
pub(crate) async fn run_batches(
    shared: Arc<RuntimeShared>,
    mut socket: SlotSocket,
    _registered: RegisteredChild,
) {
    let child = Arc::clone(&socket.child);
    loop {
        let items = tokio::select! {
            biased;
            () = child.dead() => return,
            () = child.retired() => return,
            () = shared.stop.cancelled() => return,
            items = shared.batcher.next_batch() => items,
        };
        let taken = items.len();
        child.used.store(true, Ordering::Relaxed);
        let mut batch = RunningBatch::new(&mut socket, items);
        let result = batch.run(&shared).await;
        if let Err(error) = result {
            let unfinished = batch.lose(&shared, error).await;
            // Before the count of running items falls, so that a batch never looks smaller.
            shared.batcher.push_front(unfinished);
        }
        shared.batcher.batch_ended(taken);
    }
}

/// A batch that a child runs.
struct RunningBatch<'a> {
    socket: &'a mut SlotSocket,
    items: Vec<OpenItem>,
    /// The number of items whose last message has not arrived.
    open: usize,
    /// The positions of the items in the running call of the model; empty before the first call.
    call: Vec<usize>,
    /// Notified when an item is canceled.
    canceled: Arc<Notify>,
    /// When the child is killed, because its code ignores that all items of the call were canceled.
    kill_at: Option<Instant>,
}

/// An item of a running batch.
struct OpenItem {
    item: Arc<BatchedJob>,
    parser: MessageParser,
    ended: bool,
}

/// Why a batch did not run to its end.
enum BatchError {
    /// The child closed its socket.
    Closed,
    /// The child sent something that is not an answer to the batch.
    Malformed,
    /// All items of a call were canceled, and the call did not stop in time.
    NotStopped,
}

impl From<SlotSocketError> for BatchError {
    fn from(error: SlotSocketError) -> Self {
        match error {
            SlotSocketError::Closed => Self::Closed,
            SlotSocketError::Malformed => Self::Malformed,
        }
    }
}

impl From<MalformedMessage> for BatchError {
    fn from(_: MalformedMessage) -> Self {
        Self::Malformed
    }
}

impl<'a> RunningBatch<'a> {
    fn new(socket: &'a mut SlotSocket, items: Vec<Arc<BatchedJob>>) -> Self {
        let canceled = Arc::new(Notify::new());
        let mut open = Vec::with_capacity(items.len());
        for item in items {
            // The number is used only if the item is sent: the child counts what it receives.
            let nth = socket.peek_job_number();
            let running = item.set_running(ItemLocation::Running {
                child: Arc::clone(&socket.child),
                slot: socket.slot,
                nth,
                canceled: Arc::clone(&canceled),
            });
            if running {
                socket.next_job_number();
                open.push(OpenItem {
                    parser: MessageParser::new(&item.id),
                    item,
                    ended: false,
                });
            }
        }
        Self {
            socket,
            open: open.len(),
            items: open,
            call: Vec::new(),
            canceled,
            kill_at: None,
        }
    }

    async fn run(&mut self, shared: &RuntimeShared) -> Result<(), BatchError> {
        let frame = self.frame();
        let mut sent = 0;
        while self.open > 0 {
            match self.kill_at {
                None if self.call_is_canceled() => {
                    self.kill_at = Some(Instant::now() + shared.launch.cancel_grace);
                }
                // Here as well as below: a child that sends many messages must not delay it.
                Some(at) if Instant::now() >= at => return Err(BatchError::NotStopped),
                Some(_) | None => {}
            }
            let canceled = Arc::clone(&self.canceled);
            let received = tokio::select! {
                biased;
                received = exchange(self.socket, &frame, &mut sent) => received?,
                () = canceled.notified() => continue,
                () = sleep_until(self.kill_at) => return Err(BatchError::NotStopped),
            };
            self.handle(shared, &received)?;
        }
        Ok(())
    }

    fn frame(&self) -> Vec<u8> {
        let requests = self.items.iter().map(|open| &*open.item.request);
        let mut frame = Vec::with_capacity(requests.clone().map(<[u8]>::len).sum::<usize>() + 64);
        match &*self.items {
            [] => {}
            [single] if single.item.kind == JobKind::Training => {
                slot::append_single(&mut frame, &single.item.request);
            }
            _ => slot::append_batch(&mut frame, requests),
        }
        frame
    }

    /// Whether the model works only for canceled items.
    fn call_is_canceled(&self) -> bool {
        let is_canceled = |open: &OpenItem| open.ended || open.item.is_canceled();
        if self.call.is_empty() {
            self.items.iter().all(is_canceled)
        } else {
            self.call.iter().all(|n| is_canceled(&self.items[*n]))
        }
    }

    /// Records that the child calls the model with these items.
    fn begin_call(&mut self, shared: &RuntimeShared, items: &[u32]) -> Result<(), BatchError> {
        let call: Vec<_> = items.iter().map(|n| *n as usize).collect();
        if call.iter().any(|n| *n >= self.items.len()) {
            return Err(BatchError::Malformed);
        }
        if self.call.is_empty() {
            shared.batcher.sorted(call.len(), self.items.len());
        }
        shared.batcher.record_call(call.len());
        self.call = call;
        self.kill_at = None;
        Ok(())
    }

    fn handle(&mut self, shared: &RuntimeShared, message: &Bytes) -> Result<(), BatchError> {
        let response = serde_json::from_slice(message).map_err(|_| BatchError::Malformed)?;
        let (n, response) = match response {
            SlotResponse::BatchCall { items } => return self.begin_call(shared, &items),
            SlotResponse::Item { n, message } => (n as usize, *message),
            // A training is not part of a batch.
            other if self.items.len() == 1 => (0, other),
            _ => return Err(BatchError::Malformed),
        };
        let open = self.items.get_mut(n).ok_or(BatchError::Malformed)?;
        if open.ended {
            // A thread of the model printed after the end of the item.
            return Ok(());
        }
        match open.parser.interpret(message, response)? {
            Parsed::Event(event) => {
                if matches!(event, Event::Ended(_)) {
                    open.ended = true;
                    open.item.leave_child();
                    self.open -= 1;
                }
                open.item.send(event);
            }
            Parsed::Retire => {
                open.item.set_refreshes();
                self.socket.child.retire(Retirement::Requested);
            }
            Parsed::Broken(reason) => {
                self.socket.child.retire(Retirement::GpuError(reason));
            }
            Parsed::Nothing => {}
        }
        Ok(())
    }

    /// Waits for the death of the child and ends the batch. Returns the items that run again: one of
    /// several may have killed the child, and the others did nothing wrong.
    async fn lose(self, shared: &RuntimeShared, error: BatchError) -> Vec<Arc<BatchedJob>> {
        let child = Arc::clone(&self.socket.child);
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
        }
        child.dead().await;
        let several = self.items.len() > 1;
        let mut reason = "Worker crashed";
        if child.was_oom_killed() {
            reason = "Worker crashed: out of memory; the system has killed the model's process";
            if several {
                shared.batcher.out_of_memory(self.items.len());
            }
        }
        let unfinished = self.items.into_iter().filter(|open| !open.ended);
        let mut again = Vec::new();
        for OpenItem { item, .. } in unfinished {
            if item.is_canceled() {
                item.leave_child();
            } else if several {
                item.retry_alone();
                again.push(item);
            } else {
                item.lost(reason);
            }
        }
        if !again.is_empty() {
            tracing::warn!(
                items = again.len(),
                "child died in a batch, running each item alone"
            );
        }
        again
    }
}

/// Writes the rest of the frame, then reads the next message. Cancel-safe.
async fn exchange(
    socket: &mut SlotSocket,
    frame: &[u8],
    sent: &mut usize,
) -> Result<Bytes, SlotSocketError> {
    while *sent < frame.len() {
        *sent += socket.write_some(&frame[*sent..]).await?;
    }
    socket.receive().await
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
