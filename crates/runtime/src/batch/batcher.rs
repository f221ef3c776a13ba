//! The items of a model that wait for a batch, shared by its jobs and its children.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::counters::Histogram;
use tidegate_core::pool_status::BatchStatus;
use tidegate_ipc::control::BatchLimits;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::former::{BatchFormer, NextBatch};
use super::item::BatchedJob;

/// Forms the batches of a model.
pub(crate) struct Batcher {
    state: Mutex<BatcherState>,
    /// Notified when a waiting child may find a batch.
    changed: Notify,
    /// The number of items in each call of the model.
    sizes: Histogram,
}

/// The error of an item that no child will run, as for a job whose child died.
const NO_CHILD: &str = "Worker crashed";

const SIZE_BOUNDS: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

struct BatcherState {
    former: BatchFormer<Arc<BatchedJob>>,
    children: Vec<BatchingChild>,
    /// Whether a child of the model has ever batched.
    is_used: bool,
    /// Whether a child may take items, now or after it was replaced.
    accepts: bool,
    /// Whether the model stops: no child will take items again.
    is_closed: bool,
    /// Whether children that die are not replaced any more.
    is_draining: bool,
}

/// A child that takes batches.
struct BatchingChild {
    /// Identifies the child, and is notified when it may receive a batch ahead.
    changed: Arc<Notify>,
    /// The items that it has received ahead.
    ahead: Vec<Arc<BatchedJob>>,
}

impl Batcher {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(BatcherState {
                former: BatchFormer::new(),
                children: Vec::new(),
                is_used: false,
                accepts: false,
                is_closed: false,
                is_draining: false,
            }),
            changed: Notify::new(),
            sizes: Histogram::new(&SIZE_BOUNDS),
        }
    }

    fn state(&self) -> MutexGuard<'_, BatcherState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an item; it runs when a child takes it.
    pub(crate) fn push(&self, item: Arc<BatchedJob>) {
        let mut state = self.state();
        if !state.accepts {
            drop(state);
            return item.lost(NO_CHILD);
        }
        state.former.push(item, Instant::now());
        self.notify(&state);
    }

    /// Gives items back that a child did not run to their end. They run before all others.
    pub(crate) fn push_front(&self, items: Vec<Arc<BatchedJob>>) {
        let mut state = self.state();
        if !state.accepts {
            drop(state);
            return items.iter().for_each(|item| item.lost(NO_CHILD));
        }
        state.former.push_front(items, Instant::now());
        self.notify(&state);
    }

    /// An item was canceled: its memory is freed, and a batch may be complete without it.
    pub(crate) fn item_gone(&self) {
        let mut state = self.state();
        state.former.remove_gone();
        self.notify(&state);
    }

    /// Wakes the children for which there may be a batch now.
    fn notify(&self, state: &BatcherState) {
        self.changed.notify_waiters();
        self.notify_busy(state);
    }

    fn notify_busy(&self, state: &BatcherState) {
        if state.former.has_batch_ahead() {
            let without_next = state.children.iter().filter(|child| child.ahead.is_empty());
            without_next.for_each(|child| child.changed.notify_one());
        }
    }

    /// The system has killed a child that ran a batch with `items` items.
    pub(crate) fn out_of_memory(&self, items: usize) {
        self.state().former.out_of_memory(items);
    }

    /// Ends all waiting items, and those that follow until a child is ready again.
    pub(crate) fn reject_items(&self) {
        let mut state = self.state();
        state.accepts = false;
        let items = state.former.take_all();
        drop(state);
        items.iter().for_each(|item| item.lost(NO_CHILD));
    }

    /// The model is unloaded when its last item has ended. A child that dies from now on is not
    /// replaced.
    pub(crate) fn drain(&self) {
        self.state().is_draining = true;
        self.reject_items_without_child();
    }

    fn reject_items_without_child(&self) {
        let state = self.state();
        if state.is_draining && state.former.children() == 0 {
            drop(state);
            self.reject_items();
        }
    }

    /// Ends all items, because the model stops.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.reject_items();
    }

    /// A child has sorted a message with `items` items into calls, the first with `call` of them.
    pub(crate) fn sorted(&self, call: usize, items: usize) {
        let mut state = self.state();
        state.former.sorted(call, items);
        self.notify_busy(&state);
    }

    /// Counts a call of the model with `size` items.
    pub(crate) fn record_call(&self, size: usize) {
        self.sizes.observe(size as f64);
    }

    /// What waits, and the sizes of the calls so far; `None` if the model does not batch.
    pub(crate) fn status(&self) -> Option<BatchStatus> {
        let state = self.state();
        state.is_used.then(|| BatchStatus {
            waiting: state.former.waiting() + state.waiting_ahead(),
            sizes: self.sizes.read(),
        })
    }

    /// A child takes batches until the returned value is dropped.
    pub(crate) fn add_child(self: &Arc<Self>, limits: BatchLimits) -> RegisteredChild {
        let mut state = self.state();
        state.former.add_child(limits);
        state.is_used = true;
        state.accepts = !state.is_closed;
        let changed = Arc::new(Notify::new());
        state.children.push(BatchingChild {
            changed: Arc::clone(&changed),
            ahead: Vec::new(),
        });
        RegisteredChild {
            batcher: Arc::clone(self),
            changed,
        }
    }

    /// Waits for the next batch. Cancel-safe.
    pub(crate) async fn next_batch(&self) -> Vec<Arc<BatchedJob>> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Before the look at the items: a change after it must not be missed.
            changed.as_mut().enable();
            let next = {
                let mut state = self.state();
                let next = state.former.next(Instant::now());
                // If no child is free any more, a busy one may receive what waits.
                self.notify_busy(&state);
                next
            };
            match next {
                NextBatch::Run(items) => return items,
                NextBatch::WaitUntil(deadline) => {
                    // Either reason to look again is fine.
                    tokio::time::timeout_at(deadline, changed).await.ok();
                }
                NextBatch::Wait => changed.await,
            }
        }
    }

    /// The items of a batch have ended, and the child is free.
    pub(crate) fn batch_ended(&self, items: usize) {
        self.state().former.ended(items, Instant::now());
    }
}

impl BatcherState {
    fn child(&mut self, changed: &Arc<Notify>) -> Option<&mut BatchingChild> {
        let mut children = self.children.iter_mut();
        children.find(|child| Arc::ptr_eq(&child.changed, changed))
    }

    /// The number of items that a child has received and not started.
    fn waiting_ahead(&self) -> usize {
        let items = self.children.iter().flat_map(|child| &child.ahead);
        items.filter(|item| !item.is_canceled()).count()
    }
}

/// A child that takes batches.
pub(crate) struct RegisteredChild {
    batcher: Arc<Batcher>,
    changed: Arc<Notify>,
}

impl RegisteredChild {
    /// Notified when the child may receive a batch ahead. Its batches use it for their own changes, too.
    pub(crate) fn changed(&self) -> &Arc<Notify> {
        &self.changed
    }

    /// The next batch of this child, which runs one, if the child may receive it already.
    pub(crate) fn take_ahead(&self) -> Option<Vec<Arc<BatchedJob>>> {
        let mut state = self.batcher.state();
        let items = state.former.next_ahead()?;
        if let Some(child) = state.child(&self.changed) {
            child.ahead.clone_from(&items);
        }
        Some(items)
    }

    /// The batch of the child, with `items` items, has ended, and the one that was sent ahead has started,
    /// with `next` items.
    pub(crate) fn next_started(&self, items: usize, next: usize) {
        let mut state = self.batcher.state();
        state.former.ended_before_next(items, next, Instant::now());
        self.clear_ahead(&mut state);
    }

    /// The child will not run the batch that was sent ahead, with `items` items.
    pub(crate) fn ahead_lost(&self, items: usize) {
        let mut state = self.batcher.state();
        state.former.ahead_left(items);
        self.clear_ahead(&mut state);
    }

    fn clear_ahead(&self, state: &mut BatcherState) {
        if let Some(child) = state.child(&self.changed) {
            child.ahead = Vec::new();
        }
    }
}

impl Drop for RegisteredChild {
    fn drop(&mut self) {
        let mut state = self.batcher.state();
        state.former.remove_child();
        state
            .children
            .retain(|child| !Arc::ptr_eq(&child.changed, &self.changed));
        // The share of each remaining child is larger now.
        self.batcher.notify(&state);
        drop(state);
        self.batcher.reject_items_without_child();
    }
}
