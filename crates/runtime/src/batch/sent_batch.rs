//! A batch that a child has received, or receives: its items, and what the child's messages mean for them.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::{Event, JobKind};
use tidegate_ipc::slot::{self, SlotResponse};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::item::{BatchedJob, ItemLocation};
use crate::child::message_parser::{MalformedMessage, MessageParser, Parsed};
use crate::child::process::{ChildProcess, Retirement};
use crate::child::slot_socket::{SlotSocket, SlotSocketError};
use crate::supervisor::RuntimeShared;

/// A batch of one child.
pub(super) struct SentBatch {
    items: Vec<OpenItem>,
    /// The number of items that were taken for the batch. Those that were canceled are not sent.
    pub(super) taken: usize,
    /// The number of items whose last message has not arrived.
    open: usize,
    /// The positions of the items in the running call of the model; empty before the first call.
    call: Vec<usize>,
    /// When the child is killed, because its code ignores that all items of the call were canceled.
    pub(super) kill_at: Option<Instant>,
    /// The message to the child.
    frame: Vec<u8>,
    /// How many bytes of it the child has received.
    sent: usize,
    /// Whether the child received the batch while it ran another.
    is_ahead: bool,
}

/// An item of a batch.
struct OpenItem {
    item: Arc<BatchedJob>,
    parser: MessageParser,
    ended: bool,
}

/// When a child receives a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SentWhen {
    /// It is free.
    Free,
    /// It runs another batch.
    Ahead,
}

/// Why a batch did not run to its end.
pub(super) enum BatchError {
    /// The child closed its socket.
    Closed,
    /// The child sent something that is not an answer to the batch.
    Malformed,
    /// All items of a call were canceled, and the call did not stop in time.
    NotStopped,
    /// The child ignores the batch, because it can run no more.
    Refused,
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

impl SentBatch {
    /// A batch for the child of `socket`; `changed` is notified when an item is canceled.
    pub(super) fn new(
        socket: &mut SlotSocket,
        items: Vec<Arc<BatchedJob>>,
        changed: &Arc<Notify>,
        when: SentWhen,
    ) -> Self {
        let taken = items.len();
        let mut open = Vec::with_capacity(taken);
        for item in items {
            // The number is used only if the item is sent: the child counts what it receives.
            let nth = socket.peek_job_number();
            let sent = item.set_sent(ItemLocation::Sent {
                child: Arc::clone(&socket.child),
                slot: socket.slot,
                nth,
                changed: Arc::clone(changed),
            });
            if sent {
                socket.next_job_number();
                open.push(OpenItem {
                    parser: MessageParser::new(&item.id),
                    item,
                    ended: false,
                });
            }
        }
        Self {
            frame: frame(&open),
            open: open.len(),
            items: open,
            taken,
            call: Vec::new(),
            kill_at: None,
            sent: 0,
            is_ahead: when == SentWhen::Ahead,
        }
    }

    /// Whether the last messages of all items have arrived.
    pub(super) fn has_ended(&self) -> bool {
        self.open == 0
    }

    /// Whether the whole message was sent.
    pub(super) fn is_sent(&self) -> bool {
        self.sent == self.frame.len()
    }

    /// The message, and how much of it was sent.
    pub(super) fn outgoing(&mut self) -> (&[u8], &mut usize) {
        (&self.frame, &mut self.sent)
    }

    /// Whether the batch is a training, which may take hours.
    pub(super) fn is_training(&self) -> bool {
        self.items
            .iter()
            .any(|open| open.item.kind == JobKind::Training)
    }

    /// Whether the child may have received the batch ahead and has not called the model with it, as far as
    /// the server knows.
    pub(super) fn waits_ahead(&self) -> bool {
        self.is_ahead && self.call.is_empty()
    }

    /// Whether the model works only for canceled items.
    pub(super) fn call_is_canceled(&self) -> bool {
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

    /// Interprets a message of the child about the batch.
    pub(super) fn handle(
        &mut self,
        shared: &RuntimeShared,
        child: &ChildProcess,
        message: &Bytes,
    ) -> Result<(), BatchError> {
        let response = serde_json::from_slice(message).map_err(|_| BatchError::Malformed)?;
        let (n, response) = match response {
            SlotResponse::BatchCall { items } => return self.begin_call(shared, &items),
            SlotResponse::Refused if self.call.is_empty() => return Err(BatchError::Refused),
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
                child.retire(Retirement::Requested);
            }
            Parsed::Broken(reason) => child.retire(Retirement::GpuError(reason)),
            Parsed::Nothing => {}
        }
        Ok(())
    }

    /// Ends the batch after the death of the child that ran it. Returns the items that run again: one of
    /// several may have killed the child, and the others did nothing wrong.
    pub(super) fn lose(self, shared: &RuntimeShared, child: &ChildProcess) -> Vec<Arc<BatchedJob>> {
        if self.waits_ahead() && self.items.iter().all(|open| open.item.lose_ahead()) {
            return self.give_back();
        }
        let several = self.items.len() > 1;
        let mut reason = "Worker crashed";
        if child.was_oom_killed() {
            reason = "Worker crashed: out of memory; the system has killed the model's process";
            if several {
                shared.batcher.out_of_memory(self.items.len());
            }
        }
        let mut again = Vec::new();
        for item in self.unfinished() {
            if several {
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

    /// Ends a batch that the child has not started. Returns the items, which run as if they had not been
    /// sent.
    pub(super) fn give_back(self) -> Vec<Arc<BatchedJob>> {
        let items: Vec<_> = self.unfinished().collect();
        items.iter().for_each(|item| item.wait_again());
        items
    }

    /// The items whose results are still wanted.
    fn unfinished(self) -> impl Iterator<Item = Arc<BatchedJob>> {
        let open = self.items.into_iter().filter(|open| !open.ended);
        open.filter_map(|OpenItem { item, .. }| {
            if item.is_canceled() {
                item.leave_child();
                return None;
            }
            Some(item)
        })
    }
}

fn frame(items: &[OpenItem]) -> Vec<u8> {
    let requests = items.iter().map(|open| &*open.item.request);
    let mut frame = Vec::with_capacity(requests.clone().map(<[u8]>::len).sum::<usize>() + 64);
    match items {
        [] => {}
        [single] if single.item.kind == JobKind::Training => {
            slot::append_single(&mut frame, &single.item.request);
        }
        _ => slot::append_batch(&mut frame, requests),
    }
    frame
}
