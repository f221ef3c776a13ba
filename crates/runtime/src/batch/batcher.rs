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
    /// Whether a child of the model has ever batched.
    is_used: bool,
    /// Whether a child may take items, now or after it was replaced.
    accepts: bool,
    /// Whether the model stops: no child will take items again.
    is_closed: bool,
    /// Whether children that die are not replaced any more.
    is_draining: bool,
}

impl Batcher {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(BatcherState {
                former: BatchFormer::new(),
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
        drop(state);
        self.changed.notify_waiters();
    }

    /// Gives items back that a child did not run to their end. They run before all others.
    pub(crate) fn push_front(&self, items: Vec<Arc<BatchedJob>>) {
        let mut state = self.state();
        if !state.accepts {
            drop(state);
            return items.iter().for_each(|item| item.lost(NO_CHILD));
        }
        state.former.push_front(items, Instant::now());
        drop(state);
        self.changed.notify_waiters();
    }

    /// An item was canceled: its memory is freed, and a batch may be complete without it.
    pub(crate) fn item_gone(&self) {
        self.state().former.remove_gone();
        self.changed.notify_waiters();
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
        self.state().former.sorted(call, items);
    }

    /// Counts a call of the model with `size` items.
    pub(crate) fn record_call(&self, size: usize) {
        self.sizes.observe(size as f64);
    }

    /// What waits, and the sizes of the calls so far; `None` if the model does not batch.
    pub(crate) fn status(&self) -> Option<BatchStatus> {
        let state = self.state();
        state.is_used.then(|| BatchStatus {
            waiting: state.former.waiting(),
            sizes: self.sizes.read(),
        })
    }

    /// A child takes batches until the returned value is dropped.
    pub(crate) fn add_child(self: &Arc<Self>, limits: BatchLimits) -> RegisteredChild {
        let mut state = self.state();
        state.former.add_child(limits);
        state.is_used = true;
        state.accepts = !state.is_closed;
        RegisteredChild {
            batcher: Arc::clone(self),
        }
    }

    /// Waits for the next batch. Cancel-safe.
    pub(crate) async fn next_batch(&self) -> Vec<Arc<BatchedJob>> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Before the look at the items: a change after it must not be missed.
            changed.as_mut().enable();
            let next = self.state().former.next(Instant::now());
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

    /// The items of a batch have ended.
    pub(crate) fn batch_ended(&self, items: usize) {
        self.state().former.ended(items, Instant::now());
    }
}

/// A child that takes batches.
pub(crate) struct RegisteredChild {
    batcher: Arc<Batcher>,
}

impl Drop for RegisteredChild {
    fn drop(&mut self) {
        self.batcher.state().former.remove_child();
        self.batcher.reject_items_without_child();
        // The share of each remaining child is larger now.
        self.batcher.changed.notify_waiters();
    }
}
