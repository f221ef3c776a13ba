//! Slots and permits: which caller may use which slot of a model.
//!
//! A slot is in exactly one of three states, and its type shows which: *idle* inside the [`Pool`], *in
//! use* inside a [`Permit`], or *poisoned*, which means removed for good. Dropping a permit returns the
//! slot to the pool or grants it to the next waiting caller; [`Permit::poison`] and [`Pool::retire`]
//! are the only other ways out, so that no slot can be lost or granted twice. `tests.rs` checks this
//! with property tests and, with loom, for every interleaving.

mod lock;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use lock::Lock;
use tidegate_core::fair_queue::FairQueue;
pub use tidegate_core::fair_queue::HasOwner;

/// The slots of a model and the queue of callers that wait for one. `W` is a waiting caller, `L` the
/// lock of the state.
pub struct Pool<T, W: HasOwner, L = std::sync::Mutex<PoolState<T, W>>> {
    shared: Arc<L>,
    marker: std::marker::PhantomData<fn() -> (T, W)>,
}

/// A waiting caller.
pub trait Waiter<T, L: Lock<PoolState<T, Self>>>: HasOwner + Sized {
    /// Hands the permit to the caller; returns it if the caller is gone.
    fn grant(self, permit: Permit<T, Self, L>) -> Result<(), Permit<T, Self, L>>;

    /// Whether the caller no longer waits.
    fn is_gone(&self) -> bool;
}

/// The state of a pool; opaque outside of this module.
pub struct PoolState<T, W: HasOwner> {
    idle: Vec<T>,
    queue: FairQueue<W>,
    /// Per owner, so that no owner can fill the queue for the others.
    queue_limit: usize,
    total: usize,
    closed: bool,
}

/// The number of slots and of waiting callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolCount {
    /// Free slots.
    pub idle: usize,
    /// All slots that are not poisoned or retired.
    pub total: usize,
    /// Callers that wait for a slot.
    pub waiting: usize,
}

/// The limit on waiting callers that applies to a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueLimit {
    /// The limit of the pool.
    Configured,
    /// No limit.
    Unlimited,
}

/// Why a caller could not join the queue.
#[derive(Debug, PartialEq, Eq)]
pub enum JoinError {
    /// Every slot is in use, and the queue is full.
    QueueFull,
    /// The pool is closed.
    Closed,
}

/// The result of [`Pool::join`].
pub enum Joined<T, W: Waiter<T, L>, L: Lock<PoolState<T, W>>> {
    /// A slot was free.
    Granted(Permit<T, W, L>),
    /// The caller waits; [`Waiter::grant`] will hand it a permit.
    Queued,
}

impl<T, W: Waiter<T, L>, L: Lock<PoolState<T, W>>> Pool<T, W, L> {
    /// A pool without slots. Up to `queue_limit` callers of each owner may wait.
    pub fn new(queue_limit: usize) -> Self {
        let state = PoolState {
            idle: Vec::new(),
            queue: FairQueue::default(),
            queue_limit,
            total: 0,
            closed: false,
        };
        Self {
            shared: Arc::new(L::new(state)),
            marker: std::marker::PhantomData,
        }
    }

    /// Adds a slot; the first waiting caller gets it.
    pub fn add(&self, slot: T) {
        let closed = self.shared.with(|state| {
            state.total += 1;
            state.closed
        });
        if closed {
            self.shared.with(|state| state.total -= 1);
            return;
        }
        release(&self.shared, slot);
    }

    /// Takes a permit if a slot is free. It overtakes no waiting caller: a slot is idle only while the
    /// queue is empty.
    pub fn try_acquire(&self) -> Option<Permit<T, W, L>> {
        let slot = self
            .shared
            .with(|state| if state.closed { None } else { state.idle.pop() })?;
        Some(Permit::new(slot, &self.shared))
    }

    /// Takes a permit if a slot is free, otherwise adds `waiter` to the queue.
    pub fn join(&self, waiter: W, limit: QueueLimit) -> Result<Joined<T, W, L>, JoinError> {
        let slot = self.shared.with(|state| {
            if state.closed {
                return Err(JoinError::Closed);
            }
            if let Some(slot) = state.idle.pop() {
                return Ok(Some(slot));
            }
            let limit = match limit {
                QueueLimit::Configured => state.queue_limit,
                QueueLimit::Unlimited => usize::MAX,
            };
            if state.queue.owner_len(waiter.owner()) >= limit {
                // Callers that no longer wait are removed only when their place is needed.
                state
                    .queue
                    .retain(waiter.owner(), |waiter| !waiter.is_gone());
            }
            if state.queue.owner_len(waiter.owner()) >= limit {
                return Err(JoinError::QueueFull);
            }
            state.queue.push(waiter);
            Ok(None)
        })?;
        Ok(slot.map_or(Joined::Queued, |slot| {
            Joined::Granted(Permit::new(slot, &self.shared))
        }))
    }

    /// Removes the idle slots that match, for instance because their child has died.
    pub fn retire(&self, matches: impl Fn(&T) -> bool) {
        let retired = self.shared.with(|state| {
            let (retired, idle) = std::mem::take(&mut state.idle)
                .into_iter()
                .partition::<Vec<_>, _>(|slot| matches(slot));
            state.idle = idle;
            state.total -= retired.len();
            retired
        });
        drop(retired);
    }

    /// Rejects all waiting callers; later callers may wait again.
    pub fn reject_waiters(&self) {
        let rejected = self.shared.with(|state| std::mem::take(&mut state.queue));
        drop(rejected);
    }

    /// Grants no more permits and rejects the waiting callers. Permits in use stay valid.
    pub fn close(&self) {
        let removed = self.shared.with(|state| {
            state.closed = true;
            state.total -= state.idle.len();
            (
                std::mem::take(&mut state.idle),
                std::mem::take(&mut state.queue),
            )
        });
        drop(removed);
    }

    /// Calls `f` with each idle slot.
    pub fn for_each_idle(&self, f: impl FnMut(&T)) {
        self.shared.with(|state| state.idle.iter().for_each(f));
    }

    /// Whether the pool is closed.
    pub fn is_closed(&self) -> bool {
        self.shared.with(|state| state.closed)
    }

    /// The number of slots and of waiting callers.
    pub fn count(&self) -> PoolCount {
        self.shared.with(|state| PoolCount {
            idle: state.idle.len(),
            total: state.total,
            waiting: state.queue.len(),
        })
    }
}

/// The exclusive use of one slot. Dropping it grants the slot to the first waiting caller or returns it
/// to the pool.
#[must_use = "dropping a permit frees its slot"]
pub struct Permit<T, W: Waiter<T, L>, L: Lock<PoolState<T, W>>> {
    /// Present until the permit is dropped or poisoned.
    slot: Option<T>,
    shared: Arc<L>,
    marker: std::marker::PhantomData<fn() -> W>,
}

impl<T, W: Waiter<T, L>, L: Lock<PoolState<T, W>>> Permit<T, W, L> {
    fn new(slot: T, shared: &Arc<L>) -> Self {
        Self {
            slot: Some(slot),
            shared: Arc::clone(shared),
            marker: std::marker::PhantomData,
        }
    }

    /// The slot.
    pub fn slot(&mut self) -> &mut T {
        self.slot
            .as_mut()
            .expect("a permit has its slot until it is dropped")
    }

    /// Removes the slot from the pool for good.
    pub fn poison(mut self) {
        if let Some(slot) = self.slot.take() {
            self.shared.with(|state| state.total -= 1);
            drop(slot);
        }
    }
}

impl<T, W: Waiter<T, L>, L: Lock<PoolState<T, W>>> Drop for Permit<T, W, L> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            release(&self.shared, slot);
        }
    }
}

/// Grants the slot to the first caller that still waits, or makes it idle.
fn release<T, W: Waiter<T, L>, L: Lock<PoolState<T, W>>>(shared: &Arc<L>, slot: T) {
    let mut slot = Some(slot);
    loop {
        let (next, closed_slot) = shared.with(|state| {
            if state.closed {
                state.total -= 1;
                return (None, slot.take());
            }
            let next = state.queue.pop();
            if next.is_none() {
                state.idle.extend(slot.take());
            }
            (next, None)
        });
        // Dropping a slot closes its socket; that must happen outside of the lock.
        drop(closed_slot);
        let Some(waiter) = next else { return };
        let permit = Permit::new(
            slot.take().expect("only a waiter or the pool takes it"),
            shared,
        );
        match waiter.grant(permit) {
            Ok(()) => return,
            Err(mut permit) => slot = permit.slot.take(),
        }
    }
}

impl<T, W: HasOwner, L> Clone for Pool<T, W, L> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            marker: std::marker::PhantomData,
        }
    }
}
