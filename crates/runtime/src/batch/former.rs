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

/// An item that waits for its batch.
pub(crate) trait Waiting {
    /// Whether it must not share a call with others.
    fn is_alone(&self) -> bool;
    /// Whether nobody waits for its result any more.
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
    /// How many items are expected to be present at the same time.
    expected: f64,
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
            expected: 0.0,
        }
    }

    /// A child that takes batches with these limits was added.
    pub(crate) fn add_child(&mut self, limits: BatchLimits) {
        self.children += 1;
        self.limits = limits;
    }

    /// A child takes no more batches.
    pub(crate) fn remove_child(&mut self) {
        self.children -= 1;
    }

    /// Adds an item at the end.
    pub(crate) fn push(&mut self, item: T, now: Instant) {
        self.waiting.push_back((now, item));
        self.note_present();
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

    /// The items of a batch have ended.
    pub(crate) fn ended(&mut self, items: usize) {
        self.running -= items;
    }

    /// Removes all waiting items.
    pub(crate) fn take_all(&mut self) -> Vec<T> {
        self.waiting.drain(..).map(|(_, item)| item).collect()
    }

    /// What a free child does at `now`.
    pub(crate) fn next(&mut self, now: Instant) -> NextBatch<T> {
        self.waiting.retain(|(_, item)| !item.is_gone());
        let Some((arrived, first)) = self.waiting.front() else {
            return NextBatch::Wait;
        };
        let deadline = *arrived + Duration::from_micros(self.limits.max_wait_micros);
        let (size, is_complete) = if first.is_alone() {
            (1, true)
        } else {
            self.available()
        };
        if !is_complete && size < self.target() && now < deadline {
            return NextBatch::WaitUntil(deadline);
        }
        let present = self.present();
        self.expected = (self.expected * DECAY).max(present as f64);
        self.running += size;
        NextBatch::Run(self.waiting.drain(..size).map(|(_, item)| item).collect())
    }

    /// The number of items that can form a batch now, and whether waiting cannot make it larger.
    fn available(&self) -> (usize, bool) {
        let (mut size, mut bytes) = (0, 0);
        for (_, item) in &self.waiting {
            bytes += item.bytes();
            let is_full = size >= self.limits.max_message as usize;
            if is_full || item.is_alone() || (size > 0 && bytes > MAX_MESSAGE_BYTES) {
                return (size, true);
            }
            size += 1;
        }
        (size, size >= self.limits.max_message as usize)
    }

    /// The size that a batch can reach if every child gets its share of the expected items.
    fn target(&self) -> usize {
        let share = (self.expected / self.children.max(1) as f64).round() as usize;
        share.min(self.limits.max_size as usize)
    }

    fn present(&self) -> usize {
        self.waiting.len() + self.running
    }

    fn note_present(&mut self) {
        self.expected = self.expected.max(self.present() as f64);
    }
}

#[cfg(test)]
mod tests;
