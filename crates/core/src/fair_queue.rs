//! The line in front of the slots: first come first served for one owner, turn by turn between owners.
//!
//! An owner with a thousand callers in the line is served as often as one with a single caller, so
//! nobody waits longer than one turn of everybody else for each turn of their own.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use crate::planted;

/// Somebody in a line who belongs to an owner.
pub trait HasOwner {
    /// Who counts as the same.
    type Owner: Clone + Eq + Hash;

    /// To whom this one belongs.
    fn owner(&self) -> &Self::Owner;

    /// Who has a lower number goes first, whenever they joined; who has the same, in the order of joining.
    fn order(&self) -> u64 {
        0
    }
}

/// A line that is fair between owners.
pub struct FairQueue<W: HasOwner> {
    /// None of them is empty.
    lines: HashMap<W::Owner, VecDeque<W>>,
    /// Each owner with a line once, in the order of their turns.
    turns: VecDeque<W::Owner>,
    len: usize,
}

impl<W: HasOwner> Default for FairQueue<W> {
    fn default() -> Self {
        Self {
            lines: HashMap::new(),
            turns: VecDeque::new(),
            len: 0,
        }
    }
}

impl<W: HasOwner> FairQueue<W> {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many of this owner wait.
    pub fn owner_len(&self, owner: &W::Owner) -> usize {
        self.lines.get(owner).map_or(0, VecDeque::len)
    }

    /// One more, behind the others of its owner.
    pub fn push(&mut self, waiter: W) {
        let line = self.lines.entry(waiter.owner().clone()).or_default();
        if line.is_empty() {
            self.turns.push_back(waiter.owner().clone());
        }
        // They stand by their numbers already, and there may be very many.
        let place = line.partition_point(|before| before.order() <= waiter.order());
        line.insert(place, waiter);
        self.len += 1;
    }

    /// The first of the owner whose turn it is.
    pub fn pop(&mut self) -> Option<W> {
        self.pop_where(|_| true)
    }

    /// The first who is still there, of the owner whose turn it is. Who is not leaves, and takes no turn.
    pub fn pop_where(&mut self, is_there: impl Fn(&W) -> bool) -> Option<W> {
        loop {
            planted!(Unfair, self.turns.rotate_right(self.turns.len().min(1)));
            let owner = self.turns.pop_front()?;
            let line = self.lines.get_mut(&owner)?;
            let before = line.len();
            let next = || {
                planted!(Overtaking, line.rotate_right(line.len().min(1)));
                line.pop_front()
            };
            let present = std::iter::from_fn(next).find(&is_there);
            self.len -= before - line.len();
            if line.is_empty() {
                self.lines.remove(&owner);
            } else {
                self.turns.push_back(owner);
            }
            if present.is_some() {
                return present;
            }
        }
    }

    /// Keeps only those of this owner that pass.
    pub fn retain(&mut self, owner: &W::Owner, stays: impl Fn(&W) -> bool) {
        let Some(line) = self.lines.get_mut(owner) else {
            return;
        };
        let before = line.len();
        line.retain(stays);
        self.len -= before - line.len();
        if line.is_empty() {
            self.lines.remove(owner);
            self.turns.retain(|turn| turn != owner);
        }
    }

    /// Keeps only those that pass, of all owners.
    pub fn retain_all(&mut self, stays: impl Fn(&W) -> bool) {
        let owners: Vec<W::Owner> = self.turns.iter().cloned().collect();
        for owner in owners {
            self.retain(&owner, &stays);
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

    fn drained(line: &mut FairQueue<(char, u32)>) -> String {
        std::iter::from_fn(|| line.pop())
            .map(|(owner, n)| format!("{owner}{n} "))
            .collect()
    }

    #[test]
    fn owners_take_turns_and_each_is_first_come_first_served() {
        let mut line = FairQueue::default();
        for n in 0..4 {
            line.push(('a', n));
        }
        line.push(('b', 0));
        line.push(('c', 0));
        line.push(('b', 1));
        assert_eq!(
            (line.len(), line.owner_len(&'a'), line.owner_len(&'z')),
            (7, 4, 0)
        );
        assert_eq!(drained(&mut line), "a0 b0 c0 a1 b1 a2 a3 ");
        assert_eq!(line.len(), 0);
    }

    struct Numbered(u64);

    impl HasOwner for Numbered {
        type Owner = ();

        fn owner(&self) -> &() {
            &()
        }

        fn order(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn who_has_a_lower_number_goes_first_however_late_it_joins() {
        let mut line = FairQueue::default();
        for number in [3, 1, 2, 5, 0, 4] {
            line.push(Numbered(number));
        }
        let numbers: Vec<u64> = std::iter::from_fn(|| line.pop())
            .map(|Numbered(number)| number)
            .collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn who_leaves_takes_no_turn() {
        let mut line = FairQueue::default();
        for n in 0..4 {
            line.push(('a', n));
            line.push(('b', n));
        }
        line.retain(&'a', |(_, n)| n % 2 == 1);
        line.retain(&'b', |_| false);
        assert_eq!(line.len(), 2);
        line.push(('b', 9));
        assert_eq!(drained(&mut line), "a1 b9 a3 ");
    }

    #[test]
    fn who_is_not_there_any_more_takes_no_turn() {
        let mut line = FairQueue::default();
        for n in 0..4 {
            line.push(('a', n));
            line.push(('b', n));
            line.push(('c', n));
        }
        let present = |(owner, n): &(char, u32)| !(*owner == 'a' && *n < 2 || *owner == 'c');
        let served: String = std::iter::from_fn(|| line.pop_where(present))
            .map(|(owner, n)| format!("{owner}{n} "))
            .collect();
        assert_eq!((served.as_str(), line.len()), ("a2 b0 a3 b1 b2 b3 ", 0));
    }
}
