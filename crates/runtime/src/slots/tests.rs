//! No slot is lost, none is given twice: by property over random histories, and by loom over every
//! interleaving of small ones.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::*;

/// A waiter that leaves its permit in a box; an empty box stands for a caller who has gone.
struct Seat<L: Lock<Ledger<u32, Seat<L>>>>(Option<Arc<L2<L>>>);
type L2<L> = Mutex<Option<Permit<u32, Seat<L>, L>>>;

impl<L: Lock<Ledger<u32, Seat<L>>>> Waiter<u32, L> for Seat<L> {
    fn give(self, permit: Permit<u32, Self, L>) -> Result<(), Permit<u32, Self, L>> {
        match self.0 {
            Some(seat) => {
                *seat.lock().unwrap() = Some(permit);
                Ok(())
            }
            None => Err(permit),
        }
    }

    fn has_left(&self) -> bool {
        self.0.is_none()
    }
}

/// All callers of these tests are one owner's; turns between owners are `fair`'s business.
impl<L: Lock<Ledger<u32, Seat<L>>>> HasOwner for Seat<L> {
    type Owner = ();

    fn owner(&self) -> &() {
        &()
    }
}

struct StdLock(Mutex<Ledger<u32, Seat<StdLock>>>);

impl Lock<Ledger<u32, Seat<StdLock>>> for StdLock {
    fn new(state: Ledger<u32, Seat<StdLock>>) -> Self {
        Self(Mutex::new(state))
    }
    fn with<R>(&self, f: impl FnOnce(&mut Ledger<u32, Seat<StdLock>>) -> R) -> R {
        f(&mut self.0.lock().unwrap())
    }
}

#[derive(Debug, Clone)]
enum Move {
    Add,
    Take,
    Join,
    JoinAndLeave,
    Drop(usize),
    Poison(usize),
    RetireOdd,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        2 => Just(Move::Add),
        4 => Just(Move::Take),
        3 => Just(Move::Join),
        1 => Just(Move::JoinAndLeave),
        5 => any::<usize>().prop_map(Move::Drop),
        1 => any::<usize>().prop_map(Move::Poison),
        1 => Just(Move::RetireOdd),
    ];
    prop::collection::vec(one, 0..60)
}

proptest! {
    #[test]
    fn slots_are_conserved(history in moves()) {
        let pool: Pool<u32, Seat<StdLock>, StdLock> = Pool::new(3);
        let mut held: Vec<Permit<u32, Seat<StdLock>, StdLock>> = Vec::new();
        let mut seats = Vec::new();
        let (mut made, mut poisoned) = (0u32, HashSet::new());
        for step in history {
            match step {
                Move::Add => { pool.add(made); made += 1; }
                Move::Take => held.extend(pool.try_take()),
                Move::Join => {
                    let seat = Arc::new(Mutex::new(None));
                    match pool.join(Seat(Some(Arc::clone(&seat))), LineLimit::Usual) {
                        Ok(Joined::Now(permit)) => held.push(permit),
                        Ok(Joined::Waits) => seats.push(seat),
                        Err(denied) => prop_assert_eq!(denied, Denied::Full),
                    }
                }
                Move::JoinAndLeave => if let Ok(Joined::Now(permit)) = pool.join(Seat(None), LineLimit::Usual) { held.push(permit) },
                Move::Drop(i) => if !held.is_empty() { drop(held.remove(i % held.len())) },
                Move::Poison(i) => if !held.is_empty() {
                    let mut permit = held.remove(i % held.len());
                    poisoned.insert(*permit.slot());
                    permit.poison();
                },
                Move::RetireOdd => pool.retire(|slot| slot % 2 == 1),
            }
            held.extend(seats.iter().filter_map(|seat| seat.lock().unwrap().take()));
            let count = pool.count();
            let distinct: HashSet<u32> = held.iter_mut().map(|permit| *permit.slot()).collect();
            prop_assert_eq!(distinct.len(), held.len(), "a slot was given twice");
            prop_assert!(distinct.is_disjoint(&poisoned), "a poisoned slot came back");
            prop_assert_eq!(count.idle + held.len(), count.total, "a slot was lost");
            prop_assert!(count.idle == 0 || count.waiting == 0, "somebody waits beside a free slot");
            prop_assert!(count.waiting <= 3);
        }
        let left = pool.count().total;
        drop(held);
        // What is given back goes to those who still wait, and from them back again.
        while seats.iter().any(|seat| seat.lock().unwrap().take().is_some()) {}
        prop_assert_eq!(pool.count().idle, left);
    }
}

#[test]
fn who_leaves_the_line_frees_a_place() {
    let pool: Pool<u32, Seat<StdLock>, StdLock> = Pool::new(1);
    assert!(matches!(
        pool.join(Seat(None), LineLimit::Usual),
        Ok(Joined::Waits)
    ));
    let seat = Arc::new(Mutex::new(None));
    assert!(matches!(
        pool.join(Seat(Some(Arc::clone(&seat))), LineLimit::Usual),
        Ok(Joined::Waits)
    ));
    assert!(matches!(
        pool.join(Seat(None), LineLimit::Usual),
        Err(Denied::Full)
    ));
    pool.add(1);
    assert!(seat.lock().unwrap().is_some());
}

#[test]
fn a_closed_pool_gives_nothing_and_keeps_nothing() {
    let pool: Pool<u32, Seat<StdLock>, StdLock> = Pool::new(1);
    pool.add(1);
    pool.add(2);
    let permit = pool.try_take().expect("two are free");
    pool.close();
    assert!(pool.try_take().is_none());
    drop(permit);
    pool.add(3);
    assert_eq!(
        pool.count(),
        Count {
            idle: 0,
            total: 0,
            waiting: 0
        }
    );
}

struct LoomLock(loom::sync::Mutex<Ledger<u32, Seat<LoomLock>>>);

impl Lock<Ledger<u32, Seat<LoomLock>>> for LoomLock {
    fn new(state: Ledger<u32, Seat<LoomLock>>) -> Self {
        Self(loom::sync::Mutex::new(state))
    }
    fn with<R>(&self, f: impl FnOnce(&mut Ledger<u32, Seat<LoomLock>>) -> R) -> R {
        f(&mut self.0.lock().unwrap())
    }
}

type LoomPool = Pool<u32, Seat<LoomLock>, LoomLock>;

#[test]
fn in_every_interleaving_a_waiting_caller_gets_the_freed_slot() {
    loom::model(|| {
        let pool: LoomPool = Pool::new(1);
        pool.add(1);
        let permit = pool.try_take().expect("it is free");
        let other = pool;
        let seat = Arc::new(Mutex::new(None));
        let place = Arc::clone(&seat);
        let caller =
            loom::thread::spawn(
                move || match other.join(Seat(Some(place)), LineLimit::Usual) {
                    Ok(Joined::Now(permit)) => Some(permit),
                    Ok(Joined::Waits) => None,
                    Err(_) => panic!("the line has a place"),
                },
            );
        drop(permit);
        let now = caller.join().unwrap();
        assert!(
            now.is_some() || seat.lock().unwrap().is_some(),
            "the slot went nowhere"
        );
    });
}

#[test]
fn in_every_interleaving_a_retired_slot_is_counted_once() {
    loom::model(|| {
        let pool: LoomPool = Pool::new(0);
        pool.add(1);
        let other = pool.clone();
        let user = loom::thread::spawn(move || {
            if let Some(permit) = other.try_take() {
                permit.poison();
            }
        });
        pool.retire(|_| true);
        user.join().unwrap();
        pool.retire(|_| true);
        assert_eq!(
            pool.count(),
            Count {
                idle: 0,
                total: 0,
                waiting: 0
            }
        );
    });
}

#[test]
fn in_every_interleaving_close_and_give_back_leave_nothing() {
    loom::model(|| {
        let pool: LoomPool = Pool::new(1);
        pool.add(1);
        let permit = pool.try_take().expect("it is free");
        let other = pool.clone();
        let closer = loom::thread::spawn(move || other.close());
        drop(permit);
        closer.join().unwrap();
        assert_eq!(
            pool.count(),
            Count {
                idle: 0,
                total: 0,
                waiting: 0
            }
        );
    });
}
