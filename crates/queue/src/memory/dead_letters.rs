//! The dead letters of the queues in memory.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tidegate_core::queue::{Claim, DeadLetter};

/// The most dead letters that are kept; the oldest is dropped for the next.
const MAX: usize = 10_000;

/// The dead letters, by their number.
#[derive(Default)]
pub(super) struct DeadLetters {
    letters: BTreeMap<u64, DeadLetter>,
    last: u64,
}

impl DeadLetters {
    pub(super) fn add(&mut self, claim: &Claim, reason: &str) {
        self.last += 1;
        let letter = DeadLetter {
            id: self.last.to_string(),
            queue: claim.queue.clone(),
            entry: Some(claim.entry.clone()),
            reason: reason.to_owned(),
            at: Timestamp::now(),
            data: String::new(),
            size: 0,
        };
        self.letters.insert(self.last, letter);
        if self.letters.len() > MAX {
            self.letters.pop_first();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.letters.len()
    }

    pub(super) fn list(&self, after: Option<&str>, limit: usize) -> Vec<DeadLetter> {
        let after = after.and_then(|id| id.parse().ok()).unwrap_or(0);
        let later = self.letters.range(after + 1..);
        later
            .map(|(_, letter)| letter.clone())
            .take(limit)
            .collect()
    }

    pub(super) fn remove(&mut self, id: &str) -> Option<DeadLetter> {
        self.letters.remove(&id.parse().ok()?)
    }
}
