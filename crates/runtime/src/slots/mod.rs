//! Slots and permits: who may use which of a model's sockets.
//!
//! A slot is in exactly one of three places, and its type says which: *idle* inside the [`Pool`], *in
//! use* inside a [`Permit`], or *poisoned*, which means gone for good. Dropping a permit puts the slot
//! back or hands it to the next in line; [`Permit::poison`] and [`Pool::retire`] are the only other
//! ways out, so that no slot can be lost or given twice. `tests.rs` checks that by property and,
//! with loom, for every interleaving.

mod lock;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use lock::Lock;
use tidegate_core::fair_queue::FairQueue;
pub use tidegate_core::fair_queue::HasOwner;

/// The slots of a model and the line in front of them. `W` is how a waiting caller gets its permit,
/// `L` how the state is locked.
pub struct Pool<T, W: HasOwner, L = std::sync::Mutex<Ledger<T, W>>> {
    shared: Arc<L>,
    marker: std::marker::PhantomData<fn() -> (T, W)>,
}

/// A place where a permit can be left for a waiting caller.
pub trait Waiter<T, L: Lock<Ledger<T, Self>>>: HasOwner + Sized {
    /// Leaves the permit there; gives it back when the caller has gone.
    fn give(self, permit: Permit<T, Self, L>) -> Result<(), Permit<T, Self, L>>;

    /// Whether the caller has left the line.
    fn has_left(&self) -> bool;
}

/// What a pool knows; opaque to everybody else.
pub struct Ledger<T, W: HasOwner> {
    idle: Vec<T>,
    line: FairQueue<W>,
    /// For each owner, so that nobody can fill it for the others.
    line_limit: usize,
    total: usize,
    closed: bool,
}

/// How many slots are where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// Free.
    pub idle: usize,
    /// All that are not gone.
    pub total: usize,
    /// Callers in the line.
    pub waiting: usize,
}

/// Whether the line can be too long for a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineLimit {
    /// The pool's own.
    Usual,
    /// Never.
    None,
}

/// Why no permit was given.
#[derive(Debug, PartialEq, Eq)]
pub enum Denied {
    /// Every slot is taken, and the line is full.
    Full,
    /// The pool is closed.
    Closed,
}

/// What [`Pool::join`] gives.
pub enum Joined<T, W: Waiter<T, L>, L: Lock<Ledger<T, W>>> {
    /// A slot was free.
    Now(Permit<T, W, L>),
    /// The caller stands in the line and will find the permit where it said.
    Waits,
}

impl<T, W: Waiter<T, L>, L: Lock<Ledger<T, W>>> Pool<T, W, L> {
    /// A pool without slots whose line holds up to `line_limit` callers of each owner.
    pub fn new(line_limit: usize) -> Self {
        let ledger = Ledger {
            idle: Vec::new(),
            line: FairQueue::default(),
            line_limit,
            total: 0,
            closed: false,
        };
        Self {
            shared: Arc::new(L::new(ledger)),
            marker: std::marker::PhantomData,
        }
    }

    /// Adds a slot; the first in line gets it.
    pub fn add(&self, slot: T) {
        let closed = self.shared.with(|ledger| {
            ledger.total += 1;
            ledger.closed
        });
        if closed {
            self.shared.with(|ledger| ledger.total -= 1);
            return;
        }
        put_back(&self.shared, slot);
    }

    /// A permit if a slot is free. Nobody is overtaken: a slot is idle only while the line is empty.
    pub fn try_take(&self) -> Option<Permit<T, W, L>> {
        let slot = self.shared.with(|ledger| {
            if ledger.closed {
                None
            } else {
                ledger.idle.pop()
            }
        })?;
        Some(Permit::new(slot, &self.shared))
    }

    /// A permit now, or a place in the line for `waiter`.
    pub fn join(&self, waiter: W, limit: LineLimit) -> Result<Joined<T, W, L>, Denied> {
        let slot = self.shared.with(|ledger| {
            if ledger.closed {
                return Err(Denied::Closed);
            }
            if let Some(slot) = ledger.idle.pop() {
                return Ok(Some(slot));
            }
            let most = match limit {
                LineLimit::Usual => ledger.line_limit,
                LineLimit::None => usize::MAX,
            };
            if ledger.line.owner_len(waiter.owner()) >= most {
                // Those who have left are noticed only when their place is wanted.
                ledger
                    .line
                    .retain(waiter.owner(), |waiter| !waiter.has_left());
            }
            if ledger.line.owner_len(waiter.owner()) >= most {
                return Err(Denied::Full);
            }
            ledger.line.push(waiter);
            Ok(None)
        })?;
        Ok(slot.map_or(Joined::Waits, |slot| {
            Joined::Now(Permit::new(slot, &self.shared))
        }))
    }

    /// Takes idle slots out for good, when their child has died.
    pub fn retire(&self, gone: impl Fn(&T) -> bool) {
        let retired = self.shared.with(|ledger| {
            let (out, stay) = std::mem::take(&mut ledger.idle)
                .into_iter()
                .partition::<Vec<_>, _>(|slot| gone(slot));
            ledger.idle = stay;
            ledger.total -= out.len();
            out
        });
        drop(retired);
    }

    /// Sends everybody in the line away; who comes later may wait again.
    pub fn send_line_away(&self) {
        let sent_away = self.shared.with(|ledger| std::mem::take(&mut ledger.line));
        drop(sent_away);
    }

    /// Gives no more permits and sends the line away. Permits in use stay valid.
    pub fn close(&self) {
        let sent_away = self.shared.with(|ledger| {
            ledger.closed = true;
            ledger.total -= ledger.idle.len();
            (
                std::mem::take(&mut ledger.idle),
                std::mem::take(&mut ledger.line),
            )
        });
        drop(sent_away);
    }

    /// Looks at each slot that is free.
    pub fn each_idle(&self, look: impl FnMut(&T)) {
        self.shared.with(|ledger| ledger.idle.iter().for_each(look));
    }

    /// Whether it gives no more permits.
    pub fn is_closed(&self) -> bool {
        self.shared.with(|ledger| ledger.closed)
    }

    /// How many slots are where.
    pub fn count(&self) -> Count {
        self.shared.with(|ledger| Count {
            idle: ledger.idle.len(),
            total: ledger.total,
            waiting: ledger.line.len(),
        })
    }
}

/// The right to use one slot. Dropping it gives the slot to the first in line or back to the pool.
#[must_use = "dropping a permit gives its slot back"]
pub struct Permit<T, W: Waiter<T, L>, L: Lock<Ledger<T, W>>> {
    /// Present until the permit is dropped or poisoned.
    slot: Option<T>,
    shared: Arc<L>,
    marker: std::marker::PhantomData<fn() -> W>,
}

impl<T, W: Waiter<T, L>, L: Lock<Ledger<T, W>>> Permit<T, W, L> {
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

    /// Takes the slot out of the pool for good.
    pub fn poison(mut self) {
        if let Some(slot) = self.slot.take() {
            self.shared.with(|ledger| ledger.total -= 1);
            drop(slot);
        }
    }
}

impl<T, W: Waiter<T, L>, L: Lock<Ledger<T, W>>> Drop for Permit<T, W, L> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            put_back(&self.shared, slot);
        }
    }
}

/// Gives the slot to the first in line who is still there, or makes it idle.
fn put_back<T, W: Waiter<T, L>, L: Lock<Ledger<T, W>>>(shared: &Arc<L>, slot: T) {
    let mut slot = Some(slot);
    loop {
        let (next, gone) = shared.with(|ledger| {
            if ledger.closed {
                ledger.total -= 1;
                return (None, slot.take());
            }
            let next = ledger.line.pop();
            if next.is_none() {
                ledger.idle.extend(slot.take());
            }
            (next, None)
        });
        // A slot's own drop closes a socket; that happens outside of the lock.
        drop(gone);
        let Some(waiter) = next else { return };
        let permit = Permit::new(
            slot.take().expect("only a waiter or the pool takes it"),
            shared,
        );
        match waiter.give(permit) {
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
