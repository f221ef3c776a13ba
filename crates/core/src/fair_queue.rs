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

    /// Removes and returns the first waiter that `accept` takes, in the order of the turns. The owner of
    /// that waiter goes to the end of the turns; waiters that are not accepted keep their positions, and
    /// their owners their turns.
    pub fn pop_accepted(&mut self, mut accept: impl FnMut(&W) -> bool) -> Option<W> {
        let (turn, index) = self.turns.iter().enumerate().find_map(|(turn, owner)| {
            let index = self.queues.get(owner)?.iter().position(&mut accept)?;
            Some((turn, index))
        })?;
        let owner = self.turns.remove(turn)?;
        let queue = self.queues.get_mut(&owner)?;
        let waiter = queue.remove(index);
        if queue.is_empty() {
            self.queues.remove(&owner);
        } else {
            self.turns.push_back(owner);
        }
        self.len -= usize::from(waiter.is_some());
        waiter
    }

    /// Removes and returns the first waiter of this owner that `select` finds, without using up its turn.
    pub fn remove(&mut self, owner: &W::Owner, select: impl Fn(&W) -> bool) -> Option<W> {
        let queue = self.queues.get_mut(owner)?;
        let index = queue.iter().position(select)?;
        let waiter = queue.remove(index);
        self.len -= usize::from(waiter.is_some());
        if queue.is_empty() {
            self.queues.remove(owner);
            self.turns.retain(|turn| turn != owner);
        }
        waiter
    }

    /// All waiters, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &W> {
        self.queues.values().flatten()
    }

    /// Removes and returns the last waiter of this owner, without using up its turn.
    pub fn pop_last(&mut self, owner: &W::Owner) -> Option<W> {
        let queue = self.queues.get_mut(owner)?;
        let waiter = queue.pop_back();
        self.len -= usize::from(waiter.is_some());
        if queue.is_empty() {
            self.queues.remove(owner);
            self.turns.retain(|turn| turn != owner);
        }
        waiter
    }

    /// The number of waiters that are served before a new waiter of this owner, if no others join.
    pub fn len_ahead(&self, owner: &W::Owner) -> usize {
        let own = self.owner_len(owner);
        self.queues
            .iter()
            .map(|(other, queue)| match other == owner {
                true => own,
                false => queue.len().min(own + 1),
            })
            .sum()
    }

    /// The owners that have waiters, in the order of their turns, with the number of their waiters.
    pub fn owners(&self) -> impl Iterator<Item = (&W::Owner, usize)> {
        self.turns
            .iter()
            .map(|owner| (owner, self.owner_len(owner)))
    }

    /// All waiters, in no particular order.
    pub fn into_waiters(self) -> impl Iterator<Item = W> {
        self.queues.into_values().flatten()
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
    fn waiters_that_are_not_accepted_keep_their_positions() {
        let mut queue = FairQueue::default();
        for n in 0..3 {
            queue.push(('a', n));
            queue.push(('b', n));
        }
        let mut accepted = |accept: fn(&(char, u32)) -> bool| queue.pop_accepted(accept);
        assert_eq!(accepted(|(owner, _)| *owner == 'b'), Some(('b', 0)));
        assert_eq!(accepted(|(_, n)| *n == 1), Some(('a', 1)));
        assert_eq!(accepted(|(_, n)| *n == 7), None);
        assert_eq!(queue.len(), 4);
        assert_eq!(drain(&mut queue), "b1 a0 b2 a2 ");
    }

    #[test]
    fn the_waiters_ahead_of_a_new_one_are_those_of_the_rounds_before_it() {
        let mut queue = FairQueue::default();
        for n in 0..5 {
            queue.push(('a', n));
        }
        queue.push(('b', 0));
        assert_eq!(queue.len_ahead(&'a'), 6);
        assert_eq!(queue.len_ahead(&'b'), 3);
        assert_eq!(queue.len_ahead(&'c'), 2);
        assert_eq!(queue.pop_last(&'a'), Some(('a', 4)));
        assert_eq!(queue.pop_last(&'c'), None);
        assert_eq!(queue.remove(&'a', |(_, n)| *n == 2), Some(('a', 2)));
        assert_eq!(queue.remove(&'a', |(_, n)| *n == 2), None);
        assert_eq!(queue.iter().count(), 4);
        assert_eq!(queue.owners().collect::<Vec<_>>(), [(&'a', 3), (&'b', 1)]);
        assert_eq!(queue.into_waiters().count(), 4);
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
