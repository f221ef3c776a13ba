//! Numbers that are counted where things happen, for whoever watches the server. Counting is one or two
//! atomic additions; names and formats are the business of who shows them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Sums are kept in billionths.
const FINE: f64 = 1e9;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn inc(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many values fell below which bound, and their sum.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One for each bound, and one for all above.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramSnapshot {
    /// Of all values.
    pub sum: f64,
    /// How many values there were.
    pub count: u64,
    /// Each bound with the number of values up to it and above the one before. The last bound is endless.
    pub buckets: Vec<(f64, u64)>,
}

impl Histogram {
    /// Nothing yet, with these rising bounds.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            buckets: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    /// One more value; what is below zero counts as zero.
    pub fn observe(&self, value: f64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        self.buckets[place].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add((value * FINE) as u64, Ordering::Relaxed);
    }

    /// As it is now.
    pub fn read(&self) -> HistogramSnapshot {
        let bounds = self.bounds.iter().copied().chain([f64::MAX]);
        let buckets: Vec<(f64, u64)> = bounds
            .zip(&self.buckets)
            .map(|(bound, count)| (bound, count.load(Ordering::Relaxed)))
            .collect();
        HistogramSnapshot {
            sum: self.sum.load(Ordering::Relaxed) as f64 / FINE,
            count: buckets.iter().map(|(_, count)| count).sum(),
            buckets,
        }
    }
}

/// A label of a number: one of a closed set of words.
pub trait MetricLabel: Copy + 'static {
    /// All of them.
    const ALL: &'static [Self];

    /// Its place in [`MetricLabel::ALL`].
    fn index(self) -> usize;

    /// The word.
    fn as_str(self) -> &'static str;
}

/// A counter for each word of a label.
#[derive(Debug)]
pub struct Counters<L> {
    counters: Box<[Counter]>,
    label: std::marker::PhantomData<L>,
}

impl<L: MetricLabel> Default for Counters<L> {
    fn default() -> Self {
        Self {
            counters: L::ALL.iter().map(|_| Counter::default()).collect(),
            label: std::marker::PhantomData,
        }
    }
}

impl<L: MetricLabel> Counters<L> {
    /// The counter of this word.
    pub fn of(&self, label: L) -> &Counter {
        &self.counters[label.index()]
    }

    /// Each word with its number.
    pub fn each(&self) -> impl Iterator<Item = (L, u64)> {
        L::ALL.iter().map(|label| (*label, self.of(*label).get()))
    }
}

/// Makes a label of an enum without data whose variants are listed in their order.
#[macro_export]
macro_rules! label {
    ($label:ty: $($variant:ident = $word:literal),+ $(,)?) => {
        impl $crate::counters::MetricLabel for $label {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn index(self) -> usize {
                self as usize
            }

            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }
    };
}

label!(crate::record::Api: Cog = "cog", Replicate = "replicate", Runpod = "runpod");
label!(crate::JobKind: Prediction = "prediction", Training = "training");
label!(crate::Status: Queued = "queued", Starting = "starting", Processing = "processing", Succeeded = "succeeded",
    Failed = "failed", Canceled = "canceled", Aborted = "aborted");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Api;
    use crate::{JobKind, Status};

    #[test]
    fn a_value_counts_up_to_the_bound_that_holds_it() {
        let histogram = Histogram::new(&[0.1, 1.0]);
        for value in [0.0, 0.1, 0.5, 1.0, 3.0, -1.0] {
            histogram.observe(value);
        }
        let reading = histogram.read();
        assert_eq!(reading.buckets, [(0.1, 3), (1.0, 2), (f64::MAX, 1)]);
        assert_eq!(reading.count, 6);
        assert!((reading.sum - 4.6).abs() < 1e-6);
    }

    fn in_order<L: MetricLabel>() {
        for (place, label) in L::ALL.iter().enumerate() {
            assert_eq!(label.index(), place, "{}", label.as_str());
        }
    }

    #[test]
    fn every_word_has_its_own_place() {
        in_order::<Api>();
        in_order::<JobKind>();
        in_order::<Status>();
    }

    #[test]
    fn words_are_counted_apart() {
        let counters = Counters::<Api>::default();
        counters.of(Api::Replicate).inc();
        assert_eq!(
            counters.each().map(|(_, count)| count).collect::<Vec<_>>(),
            [0, 1, 0]
        );
    }
}
