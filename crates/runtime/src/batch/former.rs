//! Decides which waiting items form the next batch, and how long they wait for others. No I/O.
//!
//! An item waits only if recent load shows that others will join: the number of items that were
//! present at the same time, running or waiting, is remembered and decays with every batch. A client
//! that sends one request after the other never waits; twelve clients that do get batches of twelve
//! as soon as the twelfth item is there.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_ipc::control::BatchLimits;
use tokio::time::Instant;

/// The share of the remembered number of items that is left after a batch.
const DECAY: f64 = 0.75;
/// A message to a child stays below this size, unless a single item is larger.
const MAX_MESSAGE_BYTES: usize = 32 * 1024 * 1024;

/// A batch that was reduced after an out-of-memory kill grows by one item after this many full batches.
const GROW_AFTER: u32 = 50;
/// The expectation is forgotten when no item was present for this multiple of the longest wait.
const FORGET_AFTER_WAITS: u32 = 10;

/// An item that waits for its batch.
pub(crate) trait Waiting {
    /// Whether it must not share a call with others.
    fn is_alone(&self) -> bool;
    /// Whether its result is no longer wanted.
    fn is_gone(&self) -> bool;
    /// Its part of the message.
    fn bytes(&self) -> usize;
}

/// The items of a model that wait for a batch.
pub(crate) struct BatchFormer<T> {
    waiting: VecDeque<(Instant, T)>,
    limits: BatchLimits,
    /// The number of children that take batches.
    children: usize,
    /// The number of items in batches that run.
    running: usize,
    /// The number of children that run a batch.
    busy: usize,
    /// The number of items in batches that were sent ahead.
    ahead: usize,
    /// The number of children that have received their next batch ahead.
    children_ahead: usize,
    /// How many items are expected to be present at the same time.
    expected: f64,
    /// When the last batch ended.
    last_end: Option<Instant>,
    /// When a child became free after a time in which all were busy.
    free_since: Option<Instant>,
    /// The maximum size of a batch after the system has killed a child for its memory.
    ceiling: Option<u32>,
    /// The number of batches since then that reached the ceiling.
    at_ceiling: u32,
    /// Whether the child has sorted the items of the last message into calls that were not full.
    is_mixed: bool,
}

/// What a free child does now.
#[derive(Debug, PartialEq)]
pub(crate) enum NextBatch<T> {
    /// Runs these items.
    Run(Vec<T>),
    /// Waits for more items until this time.
    WaitUntil(Instant),
    /// Waits for an item.
    Wait,
}

impl<T: Waiting> BatchFormer<T> {
    pub(crate) fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            limits: BatchLimits {
                max_size: 1,
                max_message: 1,
                max_wait_micros: 0,
            },
            children: 0,
            running: 0,
            busy: 0,
            ahead: 0,
            children_ahead: 0,
            expected: 0.0,
            last_end: None,
            free_since: None,
            ceiling: None,
            at_ceiling: 0,
            is_mixed: true,
        }
    }

    /// A child that takes batches with these limits was added.
    pub(crate) fn add_child(&mut self, limits: BatchLimits) {
        self.children += 1;
        self.limits = limits;
    }

    /// The number of children that take batches.
    pub(crate) fn children(&self) -> usize {
        self.children
    }

    /// A child takes no more batches.
    pub(crate) fn remove_child(&mut self) {
        self.children -= 1;
    }

    /// Adds an item at the end.
    pub(crate) fn push(&mut self, item: T, now: Instant) {
        let forgets_after = self.max_wait() * FORGET_AFTER_WAITS;
        let idle = self.last_end.map(|end| now.duration_since(end));
        if self.present() == 0 && idle.is_some_and(|idle| idle > forgets_after) {
            self.expected = 0.0;
        }
        self.waiting.push_back((now, item));
        self.expected = self.expected.max(self.useful_present());
    }

    /// Adds items before all others, in their order.
    pub(crate) fn push_front(&mut self, items: Vec<T>, now: Instant) {
        for item in items.into_iter().rev() {
            self.waiting.push_front((now, item));
        }
    }

    /// The number of items that wait for a batch.
    pub(crate) fn waiting(&self) -> usize {
        let wanted = self.waiting.iter().filter(|(_, item)| !item.is_gone());
        wanted.count()
    }

    /// Removes the items whose results are no longer wanted.
    pub(crate) fn remove_gone(&mut self) {
        self.waiting.retain(|(_, item)| !item.is_gone());
    }

    /// The items of a batch have ended.
    pub(crate) fn ended(&mut self, items: usize, now: Instant) {
        if self.busy >= self.children {
            self.free_since = Some(now);
        }
        self.running -= items;
        self.busy -= 1;
        self.last_end = Some(now);
    }

    /// A child has ended a batch with `items` items, and the next one, with `next` items, was sent ahead:
    /// it has started.
    pub(crate) fn ended_before_next(&mut self, items: usize, next: usize, now: Instant) {
        self.running = self.running - items + next;
        self.last_end = Some(now);
        self.ahead_left(next);
    }

    /// A batch with `items` items that was sent ahead has started, or was given back.
    pub(crate) fn ahead_left(&mut self, items: usize) {
        self.ahead -= items;
        self.children_ahead -= 1;
    }

    /// Makes batches smaller, because the system has killed a child that ran one with `items` items.
    pub(crate) fn out_of_memory(&mut self, items: usize) {
        let half = (items as u32 / 2).max(1);
        self.ceiling = Some(self.ceiling.map_or(half, |ceiling| ceiling.min(half)));
        self.at_ceiling = 0;
    }

    /// A child has sorted a message with `items` items into calls, the first with `call` of them.
    ///
    /// A message has more items than a call, so that those of a group find each other. If all are of one
    /// group, it would be a full call and one with the rest, which could have waited for others.
    pub(crate) fn sorted(&mut self, call: usize, items: usize) {
        self.is_mixed = call < items.min(self.max_size_now(self.limits.max_size));
    }

    /// Removes all waiting items.
    pub(crate) fn take_all(&mut self) -> Vec<T> {
        self.waiting.drain(..).map(|(_, item)| item).collect()
    }

    /// What a free child does at `now`.
    pub(crate) fn next(&mut self, now: Instant) -> NextBatch<T> {
        self.remove_gone();
        let Some((arrived, first)) = self.waiting.front() else {
            return NextBatch::Wait;
        };
        // While all children are busy, an item waits for a child and not for others. If that time counted,
        // clients whose batches take longer than the wait would never find together: each half would run
        // while the other half waits.
        let waits_since = self.free_since.map_or(*arrived, |free| free.max(*arrived));
        let deadline = waits_since + self.max_wait();
        let (size, is_complete) = if first.is_alone() {
            (1, true)
        } else {
            self.available()
        };
        if !is_complete && size < self.target() && now < deadline {
            return NextBatch::WaitUntil(deadline);
        }
        let items = self.take(size);
        self.running += size;
        self.busy += 1;
        NextBatch::Run(items)
    }

    /// The next batch of a child that runs one: a batch that waiting cannot make larger, so that the child
    /// may have it before it is free.
    ///
    /// No child gets a second batch unless there is one for each of the others: an item that was sent to
    /// a child cannot run on another that is free earlier.
    pub(crate) fn next_ahead(&mut self) -> Option<Vec<T>> {
        self.remove_gone();
        self.has_batch_ahead().then(|| {
            let size = self.limit();
            let items = self.take(size);
            self.ahead += size;
            self.children_ahead += 1;
            items
        })
    }

    /// Whether a child that runs a batch may receive the next one.
    pub(crate) fn has_batch_ahead(&self) -> bool {
        let without_next = self.children.saturating_sub(self.children_ahead).max(1);
        self.busy >= self.children
            && self.waiting.len() >= self.limit() * without_next
            && self.available().0 == self.limit()
    }

    /// Removes the next `size` items.
    fn take(&mut self, size: usize) -> Vec<T> {
        self.raise_ceiling(size);
        self.expected = (self.expected * DECAY).max(self.useful_present());
        self.waiting.drain(..size).map(|(_, item)| item).collect()
    }

    /// The number of items that can form a batch now, and whether waiting cannot make it larger.
    fn available(&self) -> (usize, bool) {
        let limit = self.limit();
        let (mut size, mut bytes) = (0, 0);
        for (_, item) in &self.waiting {
            bytes += item.bytes();
            if size >= limit || item.is_alone() || (size > 0 && bytes > MAX_MESSAGE_BYTES) {
                return (size, true);
            }
            size += 1;
        }
        (size, size >= limit)
    }

    /// The maximum size of the next batch: other free children get their share of the waiting items.
    fn limit(&self) -> usize {
        let free = self.children.saturating_sub(self.busy).max(1);
        let share = self.waiting.len().div_ceil(free);
        let wanted = share.max(self.target()).max(1);
        let most = self.max_size_now(if self.is_mixed {
            self.limits.max_message
        } else {
            self.limits.max_size
        });
        if free > 1 { wanted.min(most) } else { most }
    }

    /// The size that a batch can reach if every child gets its share of the expected items.
    fn target(&self) -> usize {
        let share = (self.expected / self.children.max(1) as f64).round() as usize;
        share.min(self.max_size_now(self.limits.max_size))
    }

    fn max_size_now(&self, configured: u32) -> usize {
        self.ceiling
            .map_or(configured, |ceiling| ceiling.min(configured)) as usize
    }

    /// Lets batches grow again after many that reached the ceiling.
    fn raise_ceiling(&mut self, size: usize) {
        let Some(ceiling) = self.ceiling else { return };
        if size < ceiling as usize {
            return;
        }
        self.at_ceiling += 1;
        if self.at_ceiling >= GROW_AFTER {
            self.at_ceiling = 0;
            self.ceiling = Some(ceiling + 1).filter(|ceiling| *ceiling < self.limits.max_message);
        }
    }

    fn max_wait(&self) -> Duration {
        Duration::from_micros(self.limits.max_wait_micros)
    }

    /// The number of items that are present, as far as the children can take them at the same time.
    fn useful_present(&self) -> f64 {
        let most = self.children.max(1) * self.limits.max_size as usize;
        self.present().min(most) as f64
    }

    fn present(&self) -> usize {
        self.waiting.len() + self.ahead + self.running
    }
}

#[cfg(test)]
mod tests;
