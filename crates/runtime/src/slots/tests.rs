//! No slot is lost or granted twice: property tests over random histories, and loom over every
//! interleaving of small ones.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::*;

/// A waiter that stores its permit in a shared cell; `None` is a caller that no longer waits.
struct TestCaller<L: Lock<PoolState<u32, TestCaller<L>>>>(Option<Arc<GrantBox<L>>>);
type GrantBox<L> = Mutex<Option<Permit<u32, TestCaller<L>, L>>>;

impl<L: Lock<PoolState<u32, TestCaller<L>>>> Waiter<u32, L> for TestCaller<L> {
    fn grant(self, permit: Permit<u32, Self, L>) -> Result<(), Permit<u32, Self, L>> {
        match self.0 {
            Some(grant) => {
                *grant.lock().unwrap() = Some(permit);
                Ok(())
            }
            None => Err(permit),
        }
    }

    fn is_gone(&self) -> bool {
        self.0.is_none()
    }
}

/// All callers of these tests have one owner; `FairQueue` has its own tests for several owners.
impl<L: Lock<PoolState<u32, TestCaller<L>>>> HasOwner for TestCaller<L> {
    type Owner = ();

    fn owner(&self) -> &() {
        &()
    }
}

struct StdLock(Mutex<PoolState<u32, TestCaller<StdLock>>>);

impl Lock<PoolState<u32, TestCaller<StdLock>>> for StdLock {
    fn new(state: PoolState<u32, TestCaller<StdLock>>) -> Self {
        Self(Mutex::new(state))
    }
    fn with<R>(&self, f: impl FnOnce(&mut PoolState<u32, TestCaller<StdLock>>) -> R) -> R {
        f(&mut self.0.lock().unwrap())
    }
}

#[derive(Debug, Clone)]
enum Step {
    Add,
    Take,
    Join,
    JoinAndLeave,
    Drop(usize),
    Poison(usize),
    RetireOdd,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let one = prop_oneof![
        2 => Just(Step::Add),
        4 => Just(Step::Take),
        3 => Just(Step::Join),
        1 => Just(Step::JoinAndLeave),
        5 => any::<usize>().prop_map(Step::Drop),
        1 => any::<usize>().prop_map(Step::Poison),
        1 => Just(Step::RetireOdd),
    ];
    prop::collection::vec(one, 0..60)
}

proptest! {
    #[test]
    fn slots_are_conserved(history in steps()) {
        let pool: Pool<u32, TestCaller<StdLock>, StdLock> = Pool::new(3);
        let mut held: Vec<Permit<u32, TestCaller<StdLock>, StdLock>> = Vec::new();
        let mut grants = Vec::new();
        let (mut made, mut poisoned) = (0u32, HashSet::new());
        for step in history {
            match step {
                Step::Add => { pool.add(made); made += 1; }
                Step::Take => held.extend(pool.try_acquire()),
                Step::Join => {
                    let grant = Arc::new(Mutex::new(None));
                    match pool.join(TestCaller(Some(Arc::clone(&grant))), QueueLimit::Configured) {
                        Ok(Joined::Granted(permit)) => held.push(permit),
                        Ok(Joined::Queued) => grants.push(grant),
                        Err(denied) => prop_assert_eq!(denied, JoinError::QueueFull),
                    }
                }
                Step::JoinAndLeave => if let Ok(Joined::Granted(permit)) = pool.join(TestCaller(None), QueueLimit::Configured) { held.push(permit) },
                Step::Drop(i) => if !held.is_empty() { drop(held.remove(i % held.len())) },
                Step::Poison(i) => if !held.is_empty() {
                    let mut permit = held.remove(i % held.len());
                    poisoned.insert(*permit.slot());
                    permit.poison();
                },
                Step::RetireOdd => pool.retire(|slot| slot % 2 == 1),
            }
            held.extend(grants.iter().filter_map(|grant| grant.lock().unwrap().take()));
            let count = pool.count();
            let distinct: HashSet<u32> = held.iter_mut().map(|permit| *permit.slot()).collect();
            prop_assert_eq!(distinct.len(), held.len(), "a slot was granted twice");
            prop_assert!(distinct.is_disjoint(&poisoned), "a poisoned slot came back");
            prop_assert_eq!(count.idle + held.len(), count.total, "a slot was lost");
            prop_assert!(count.idle == 0 || count.waiting == 0, "a caller waits although a slot is free");
            prop_assert!(count.waiting <= 3);
        }
        let left = pool.count().total;
        drop(held);
        // Dropped permits go to callers that still wait, and from them back to the pool.
        while grants.iter().any(|grant| grant.lock().unwrap().take().is_some()) {}
        prop_assert_eq!(pool.count().idle, left);
    }
}

#[test]
fn a_caller_that_stops_waiting_frees_its_place_in_the_queue() {
    let pool: Pool<u32, TestCaller<StdLock>, StdLock> = Pool::new(1);
    assert!(matches!(
        pool.join(TestCaller(None), QueueLimit::Configured),
        Ok(Joined::Queued)
    ));
    let grant = Arc::new(Mutex::new(None));
    assert!(matches!(
        pool.join(TestCaller(Some(Arc::clone(&grant))), QueueLimit::Configured),
        Ok(Joined::Queued)
    ));
    assert!(matches!(
        pool.join(TestCaller(None), QueueLimit::Configured),
        Err(JoinError::QueueFull)
    ));
    pool.add(1);
    assert!(grant.lock().unwrap().is_some());
}

#[test]
fn a_closed_pool_grants_no_permit_and_keeps_no_slot() {
    let pool: Pool<u32, TestCaller<StdLock>, StdLock> = Pool::new(1);
    pool.add(1);
    pool.add(2);
    let permit = pool.try_acquire().expect("two are free");
    pool.close();
    assert!(pool.try_acquire().is_none());
    drop(permit);
    pool.add(3);
    assert_eq!(
        pool.count(),
        PoolCount {
            idle: 0,
            total: 0,
            waiting: 0
        }
    );
}

struct LoomLock(loom::sync::Mutex<PoolState<u32, TestCaller<LoomLock>>>);

impl Lock<PoolState<u32, TestCaller<LoomLock>>> for LoomLock {
    fn new(state: PoolState<u32, TestCaller<LoomLock>>) -> Self {
        Self(loom::sync::Mutex::new(state))
    }
    fn with<R>(&self, f: impl FnOnce(&mut PoolState<u32, TestCaller<LoomLock>>) -> R) -> R {
        f(&mut self.0.lock().unwrap())
    }
}

type LoomPool = Pool<u32, TestCaller<LoomLock>, LoomLock>;

#[test]
fn in_every_interleaving_a_waiting_caller_gets_the_freed_slot() {
    loom::model(|| {
        let pool: LoomPool = Pool::new(1);
        pool.add(1);
        let permit = pool.try_acquire().expect("it is free");
        let other = pool;
        let grant = Arc::new(Mutex::new(None));
        let cell = Arc::clone(&grant);
        let caller = loom::thread::spawn(move || {
            match other.join(TestCaller(Some(cell)), QueueLimit::Configured) {
                Ok(Joined::Granted(permit)) => Some(permit),
                Ok(Joined::Queued) => None,
                Err(_) => panic!("the queue is not full"),
            }
        });
        drop(permit);
        let now = caller.join().unwrap();
        assert!(
            now.is_some() || grant.lock().unwrap().is_some(),
            "the slot is lost"
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
            if let Some(permit) = other.try_acquire() {
                permit.poison();
            }
        });
        pool.retire(|_| true);
        user.join().unwrap();
        pool.retire(|_| true);
        assert_eq!(
            pool.count(),
            PoolCount {
                idle: 0,
                total: 0,
                waiting: 0
            }
        );
    });
}

#[test]
fn in_every_interleaving_close_and_release_leave_no_slot() {
    loom::model(|| {
        let pool: LoomPool = Pool::new(1);
        pool.add(1);
        let permit = pool.try_acquire().expect("it is free");
        let other = pool.clone();
        let closer = loom::thread::spawn(move || other.close());
        drop(permit);
        closer.join().unwrap();
        assert_eq!(
            pool.count(),
            PoolCount {
                idle: 0,
                total: 0,
                waiting: 0
            }
        );
    });
}
