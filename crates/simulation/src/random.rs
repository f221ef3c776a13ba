//! Seeded random numbers (SplitMix64): the same seed gives the same numbers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A source of random numbers.
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(mix(seed)))
    }

    /// Another source, whose numbers do not depend on how many of this one are used later.
    pub fn fork(&self) -> Self {
        Self::new(self.bits())
    }

    /// 64 random bits.
    pub fn bits(&self) -> u64 {
        mix(self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub fn below(&self, limit: usize) -> usize {
        let limit = limit.max(1) as u64;
        usize::try_from(self.bits() % limit).unwrap_or_default()
    }

    /// A number from 0 to 1.
    pub fn fraction(&self) -> f64 {
        let high = u32::try_from(self.bits() >> 32).unwrap_or_default();
        f64::from(high) / f64::from(u32::MAX)
    }

    /// True with this probability.
    pub fn chance(&self, probability: f64) -> bool {
        probability > 0.0 && self.fraction() < probability
    }

    /// A duration in these bounds, in whole milliseconds.
    pub fn between(&self, least: Duration, most: Duration) -> Duration {
        let span = most.saturating_sub(least).as_millis();
        let span = usize::try_from(span).unwrap_or(usize::MAX);
        least + Duration::from_millis(self.below(span.saturating_add(1)) as u64)
    }

    /// A duration with this mean, exponentially distributed.
    pub fn exponential(&self, mean: Duration) -> Duration {
        mean.mul_f64(-(1.0 - self.fraction()).max(1e-9).ln())
    }
}

fn mix(state: u64) -> u64 {
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
