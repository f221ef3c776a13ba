//! A fair queue: first in, first out for one owner, round robin between owners.
//!
//! An owner with a thousand waiters is served as often as an owner with a single waiter, so between
//! two turns of an owner each other owner has at most one turn.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use crate::planted;

/// A waiter that belongs to an owner.
pub trait HasOwner {
    /// The type that identifies an owner.
    type Owner: Clone + Eq + Hash;

    /// The owner of this waiter.
    fn owner(&self) -> &Self::Owner;

    /// The position among the waiters of the same owner: a lower value goes first, whenever it was
    /// pushed; equal values go in the order in which they were pushed.
    fn order(&self) -> u64 {
        0
    }
}

/// A queue that is fair between owners.
pub struct FairQueue<W: HasOwner> {
    /// The waiters of each owner that has any: no queue in the map is empty.
    queues: HashMap<W::Owner, VecDeque<W>>,
    /// Each owner in `queues` once, in the order of their turns.
    turns: VecDeque<W::Owner>,
    len: usize,
}

impl<W: HasOwner> Default for FairQueue<W> {
    fn default() -> Self {
        Self {
            queues: HashMap::new(),
            turns: VecDeque::new(),
            len: 0,
        }
    }
}

impl<W: HasOwner> FairQueue<W> {
    /// The number of waiters.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of waiters of this owner.
    pub fn owner_len(&self, owner: &W::Owner) -> usize {
        self.queues.get(owner).map_or(0, VecDeque::len)
    }

    /// Adds a waiter behind the others of its owner.
    pub fn push(&mut self, waiter: W) {
        let queue = self.queues.entry(waiter.owner().clone()).or_default();
        if queue.is_empty() {
            self.turns.push_back(waiter.owner().clone());
        }
        // The queue is sorted by `order` and can be very long.
        let index = queue.partition_point(|other| other.order() <= waiter.order());
        queue.insert(index, waiter);
        self.len += 1;
    }

    /// Removes and returns the first waiter of the owner whose turn it is.
    pub fn pop(&mut self) -> Option<W> {
        self.pop_where(|_| true)
    }

    /// Removes and returns the first waiter that is still present, of the owner whose turn it is.
    /// Waiters that are not present are dropped without using up the turn of their owner.
    pub fn pop_where(&mut self, is_present: impl Fn(&W) -> bool) -> Option<W> {
        loop {
            planted!(Unfair, self.turns.rotate_right(self.turns.len().min(1)));
            let owner = self.turns.pop_front()?;
            let queue = self.queues.get_mut(&owner)?;
            let before = queue.len();
            let next = || {
                planted!(Overtaking, queue.rotate_right(queue.len().min(1)));
                queue.pop_front()
            };
            let present = std::iter::from_fn(next).find(&is_present);
            self.len -= before - queue.len();
            if queue.is_empty() {
                self.queues.remove(&owner);
            } else {
                self.turns.push_back(owner);
            }
            if present.is_some() {
                return present;
            }
        }
    }

    /// Keeps only the waiters of this owner for which `keep` returns `true`.
    pub fn retain(&mut self, owner: &W::Owner, keep: impl Fn(&W) -> bool) {
        let Some(queue) = self.queues.get_mut(owner) else {
            return;
        };
        let before = queue.len();
        queue.retain(keep);
        self.len -= before - queue.len();
        if queue.is_empty() {
            self.queues.remove(owner);
            self.turns.retain(|turn| turn != owner);
        }
    }

    /// Keeps only the waiters for which `keep` returns `true`, of all owners.
    pub fn retain_all(&mut self, keep: impl Fn(&W) -> bool) {
        let owners: Vec<W::Owner> = self.turns.iter().cloned().collect();
        for owner in owners {
            self.retain(&owner, &keep);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl HasOwner for (char, u32) {
        type Owner = char;

        fn owner(&self) -> &char {
            &self.0
        }
    }

    fn drain(queue: &mut FairQueue<(char, u32)>) -> String {
        std::iter::from_fn(|| queue.pop())
            .map(|(owner, n)| format!("{owner}{n} "))
            .collect()
    }

    #[test]
    fn owners_take_turns_and_each_is_first_in_first_out() {
        let mut queue = FairQueue::default();
        for n in 0..4 {
            queue.push(('a', n));
        }
        queue.push(('b', 0));
        queue.push(('c', 0));
        queue.push(('b', 1));
        assert_eq!(
            (queue.len(), queue.owner_len(&'a'), queue.owner_len(&'z')),
            (7, 4, 0)
        );
        assert_eq!(drain(&mut queue), "a0 b0 c0 a1 b1 a2 a3 ");
        assert_eq!(queue.len(), 0);
    }

    struct Ordered(u64);

    impl HasOwner for Ordered {
        type Owner = ();

        fn owner(&self) -> &() {
            &()
        }

        fn order(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn a_lower_order_goes_first_however_late_it_is_pushed() {
        let mut queue = FairQueue::default();
        for order in [3, 1, 2, 5, 0, 4] {
            queue.push(Ordered(order));
        }
        let popped: Vec<u64> = std::iter::from_fn(|| queue.pop())
            .map(|Ordered(order)| order)
            .collect();
        assert_eq!(popped, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn removed_waiters_use_up_no_turn() {
        let mut queue = FairQueue::default();
        for n in 0..4 {
            queue.push(('a', n));
            queue.push(('b', n));
        }
        queue.retain(&'a', |(_, n)| n % 2 == 1);
        queue.retain(&'b', |_| false);
        assert_eq!(queue.len(), 2);
        queue.push(('b', 9));
        assert_eq!(drain(&mut queue), "a1 b9 a3 ");
    }

    #[test]
    fn absent_waiters_use_up_no_turn() {
        let mut queue = FairQueue::default();
        for n in 0..4 {
            queue.push(('a', n));
            queue.push(('b', n));
            queue.push(('c', n));
        }
        let present = |(owner, n): &(char, u32)| !(*owner == 'a' && *n < 2 || *owner == 'c');
        let served: String = std::iter::from_fn(|| queue.pop_where(present))
            .map(|(owner, n)| format!("{owner}{n} "))
            .collect();
        assert_eq!((served.as_str(), queue.len()), ("a2 b0 a3 b1 b2 b3 ", 0));
    }
}
