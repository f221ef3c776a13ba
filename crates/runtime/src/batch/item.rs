//! One job of a model that batches.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tidegate_core::port::{Admission, BoxFuture, Running};
use tidegate_core::{Event, JobKind, Outcome, Work};
use tidegate_ipc::control::SlotId;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::batcher::Batcher;
use super::former::Waiting;
use crate::child::job_request::JobFiles;
use crate::child::pool_slot::SlotPermit;
use crate::child::process::ChildProcess;
use crate::scratch::Scratch;

/// A place in the batches of a model, ready to start a job.
pub(crate) struct BatchAdmission {
    pub(crate) permit: SlotPermit,
    pub(crate) batcher: Arc<Batcher>,
    pub(crate) scratch: Scratch,
}

#[async_trait]
impl Admission for BatchAdmission {
    async fn start(self: Box<Self>, work: Work) -> Box<dyn Running> {
        let mut files = JobFiles::default();
        let created = files.create(&work, &self.scratch).await;
        let request = created.and_then(|()| files.item(&work));
        let (events, receiver) = mpsc::unbounded_channel();
        let mut rejected = None;
        let request = request.unwrap_or_else(|error| {
            rejected = Some(error);
            Vec::new()
        });
        let item = Arc::new(BatchedJob {
            id: work.id.as_str().into(),
            kind: work.kind,
            request,
            _files: files,
            events,
            location: Mutex::new(ItemLocation::Waiting),
            is_alone: AtomicBool::new(work.kind == JobKind::Training),
            is_canceled: AtomicBool::new(false),
            was_lost_ahead: AtomicBool::new(false),
            refreshes: AtomicBool::new(false),
            left_child: CancellationToken::new(),
        });
        if rejected.is_none() {
            self.batcher.push(Arc::clone(&item));
        }
        Box::new(RunningItem {
            item,
            permit: Some(self.permit),
            batcher: self.batcher,
            events: receiver,
            rejected,
            ended: false,
        })
    }
}

/// A job that waits for a batch or runs in one.
pub(crate) struct BatchedJob {
    /// The id of the job.
    pub(crate) id: Box<str>,
    /// The function to call.
    pub(crate) kind: JobKind,
    /// The job as JSON, its part of the message to the child.
    pub(crate) request: Vec<u8>,
    /// Removed with the item: it may run again.
    _files: JobFiles,
    events: mpsc::UnboundedSender<Event>,
    location: Mutex<ItemLocation>,
    /// Whether the item must not share a call with others.
    is_alone: AtomicBool,
    is_canceled: AtomicBool,
    /// Whether a child died that might have begun to work on the item; it had received it ahead.
    was_lost_ahead: AtomicBool,
    /// Whether the job asked for a new child.
    refreshes: AtomicBool,
    /// Cancelled when no child uses the files of the job any more.
    left_child: CancellationToken,
}

/// Where a cancellation must be sent.
pub(crate) enum ItemLocation {
    /// No child has the item.
    Waiting,
    /// A child runs it, or has received it ahead.
    Sent {
        /// The child.
        child: Arc<ChildProcess>,
        /// The slot of the child.
        slot: SlotId,
        /// The number of the item on the slot.
        nth: u64,
        /// Notified when the item is canceled.
        changed: Arc<Notify>,
    },
}

impl BatchedJob {
    /// Records that a child gets the item. Returns `false` if the item was canceled before.
    pub(crate) fn set_sent(&self, location: ItemLocation) -> bool {
        let mut current = self.location();
        if self.is_canceled() {
            return false;
        }
        *current = location;
        true
    }

    /// Prepares the item for another child: the one that had received it has not started it.
    pub(crate) fn wait_again(&self) {
        *self.location() = ItemLocation::Waiting;
    }

    /// Records that a child died which had received the item ahead and may have begun to work on it.
    /// Returns whether this is the first time.
    pub(crate) fn lose_ahead(&self) -> bool {
        !self.was_lost_ahead.swap(true, Ordering::Relaxed)
    }

    /// Prepares the item for another attempt, in a call of its own: the child died, and this item may
    /// be the cause.
    pub(crate) fn retry_alone(&self) {
        self.wait_again();
        self.is_alone.store(true, Ordering::Relaxed);
    }

    /// Records that the child has ended the item, or is dead.
    pub(crate) fn leave_child(&self) {
        self.left_child.cancel();
    }

    /// Sends an event to the job. A canceled item has no receiver.
    pub(crate) fn send(&self, event: Event) {
        self.events.send(event).ok();
    }

    /// Ends the item because its child is gone.
    pub(crate) fn lost(&self, error: &str) {
        self.send(Event::Ended(Outcome::Failed {
            error: error.to_owned(),
        }));
    }

    /// Records that the job asked for a new child.
    pub(crate) fn set_refreshes(&self) {
        self.refreshes.store(true, Ordering::Relaxed);
    }

    /// Whether the result is no longer wanted.
    pub(crate) fn is_canceled(&self) -> bool {
        self.is_canceled.load(Ordering::Relaxed)
    }

    fn cancel(&self, batcher: &Batcher) {
        let location = self.location();
        if self.is_canceled.swap(true, Ordering::Relaxed) {
            return;
        }
        match &*location {
            ItemLocation::Waiting => batcher.item_gone(),
            ItemLocation::Sent {
                child,
                slot,
                nth,
                changed,
            } => {
                child.cancel(*slot, *nth);
                changed.notify_one();
            }
        }
    }

    fn location(&self) -> std::sync::MutexGuard<'_, ItemLocation> {
        self.location.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting for Arc<BatchedJob> {
    fn is_alone(&self) -> bool {
        self.is_alone.load(Ordering::Relaxed)
    }

    fn is_gone(&self) -> bool {
        self.is_canceled()
    }

    fn bytes(&self) -> usize {
        self.request.len()
    }
}

/// The job's view of its item.
struct RunningItem {
    item: Arc<BatchedJob>,
    /// Present until `self` is dropped.
    permit: Option<SlotPermit>,
    batcher: Arc<Batcher>,
    events: mpsc::UnboundedReceiver<Event>,
    /// Why the job could not be sent.
    rejected: Option<String>,
    ended: bool,
}

#[async_trait]
impl Running for RunningItem {
    async fn next(&mut self) -> Event {
        let event = if let Some(error) = self.rejected.take() {
            Event::Ended(Outcome::Failed { error })
        } else if self.item.is_canceled() {
            // At once: the other items of the batch continue.
            Event::Ended(Outcome::Canceled)
        } else {
            let event = self.events.recv().await;
            event.expect("the item, which is part of `self`, has a sender")
        };
        self.ended |= matches!(event, Event::Ended(_));
        event
    }

    fn refreshes(&self) -> bool {
        self.item.refreshes.load(Ordering::Relaxed)
    }

    fn cancel(&mut self) {
        self.item.cancel(&self.batcher);
    }

    fn files_in_use(&mut self) -> Option<BoxFuture<()>> {
        // A canceled item ends at once, but the call with the other items continues.
        let is_sent = matches!(*self.item.location(), ItemLocation::Sent { .. });
        let left_child = self.item.left_child.clone();
        let in_use = is_sent && !left_child.is_cancelled();
        in_use.then(|| Box::pin(left_child.cancelled_owned()) as BoxFuture<()>)
    }
}

impl Drop for RunningItem {
    fn drop(&mut self) {
        if !self.ended {
            self.item.cancel(&self.batcher);
        }
        if let Some(mut permit) = self.permit.take()
            && permit.slot().child().is_unusable()
        {
            permit.poison();
        }
    }
}
