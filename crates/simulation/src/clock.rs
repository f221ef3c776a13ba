//! Simulated time: the paused clock of tokio, with a date. Each machine has its own offset.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::simulation::{self, SimulationGuard, Surroundings};
use tokio::time::Instant;

use crate::random::SeededRandom;

/// 2026-01-01 in microseconds since 1970.
const FIRST_DAY: i64 = 1_767_225_600_000_000;

thread_local!(static OFFSET: Cell<i64> = const { Cell::new(0) });

/// The clock of one server.
#[derive(Debug, Clone)]
pub struct SimulatedClock {
    start: Instant,
    /// The time at `start`, in microseconds since 1970.
    base: i64,
}

impl SimulatedClock {
    /// The true time of a simulation that starts now.
    pub fn start() -> Self {
        Self::starting_at(FIRST_DAY)
    }

    /// A clock that shows this time now, in microseconds since 1970.
    pub fn starting_at(base: i64) -> Self {
        Self {
            start: Instant::now(),
            base,
        }
    }

    /// The clock of a machine that is ahead by this many milliseconds.
    pub fn ahead_by(&self, milliseconds: i64) -> Self {
        Self {
            base: self.base + milliseconds * 1000,
            ..self.clone()
        }
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Microseconds since 1970.
    pub fn micros(&self) -> i64 {
        self.base + i64::try_from(self.elapsed().as_micros()).unwrap_or_default()
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_microsecond(self.micros()).unwrap_or(Timestamp::MAX)
    }
}

struct SimulatedMachine {
    clock: SimulatedClock,
    random: Arc<SeededRandom>,
}

impl Surroundings for SimulatedMachine {
    fn now(&self) -> Timestamp {
        self.clock.ahead_by(OFFSET.get()).now()
    }

    fn random_bits(&self) -> u128 {
        (u128::from(self.random.bits()) << 64) | u128::from(self.random.bits())
    }
}

/// From now on this thread has this clock and these random bits.
pub fn enter(clock: SimulatedClock, random: Arc<SeededRandom>) -> SimulationGuard {
    simulation::enter(Rc::new(SimulatedMachine { clock, random }))
}

/// Runs a future on a machine whose clock is ahead. Tasks that it spawns have the true time.
pub async fn on_machine<F: Future>(ahead: i64, future: F) -> F::Output {
    let future = Box::pin(future);
    OnMachine { ahead, future }.await
}

/// Calls a function on a machine whose clock is ahead.
pub fn with_offset<R>(ahead: i64, f: impl FnOnce() -> R) -> R {
    let before = OFFSET.replace(ahead);
    let result = f();
    OFFSET.set(before);
    result
}

struct OnMachine<F> {
    ahead: i64,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for OnMachine<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let ahead = self.ahead;
        with_offset(ahead, || self.future.as_mut().poll(context))
    }
}

/// How far the clock of the current machine is ahead.
pub(crate) fn current_offset() -> i64 {
    OFFSET.get()
}
