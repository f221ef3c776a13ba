//! The clock and the random bits of a thread that simulates, so that a run can be repeated exactly. Only
//! builds with the feature `simulation` have it; the program does not.

use std::cell::RefCell;
use std::rc::Rc;

use jiff::Timestamp;

/// What a simulated process gets from its machine.
pub trait Surroundings {
    /// The current time.
    fn now(&self) -> Timestamp;

    /// 128 random bits.
    fn random_bits(&self) -> u128;
}

thread_local!(static CURRENT: RefCell<Option<Rc<dyn Surroundings>>> = const { RefCell::new(None) });

/// Ends the simulation of this thread when it is dropped.
#[must_use = "dropping it ends the simulation"]
#[derive(Debug)]
pub struct SimulationGuard(());

impl Drop for SimulationGuard {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

/// From now on this thread has simulated surroundings.
pub fn enter(surroundings: Rc<dyn Surroundings>) -> SimulationGuard {
    CURRENT.set(Some(surroundings));
    SimulationGuard(())
}

pub(crate) fn now() -> Option<Timestamp> {
    current().map(|surroundings| surroundings.now())
}

pub(crate) fn random_bits() -> Option<u128> {
    current().map(|surroundings| surroundings.random_bits())
}

/// Cloned, because the surroundings may be asked while they answer.
fn current() -> Option<Rc<dyn Surroundings>> {
    CURRENT.with_borrow(Clone::clone)
}
