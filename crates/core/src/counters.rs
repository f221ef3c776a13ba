//! Counters and histograms, updated where the events happen. An update is one or two atomic
//! additions; the exporter decides about names and formats.

use std::sync::atomic::{AtomicU64, Ordering};

/// Sums are stored in billionths.
const SUM_SCALE: f64 = 1e9;

/// A number that only increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds a number.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The number of values in each bucket, and their sum.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One bucket for each bound, and one for the values above all bounds.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// The values of a histogram at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramSnapshot {
    /// The sum of all values.
    pub sum: f64,
    /// The number of values.
    pub count: u64,
    /// Each bound with the number of values that are at most this bound and above the previous one.
    /// The last bound is [`f64::MAX`].
    pub buckets: Vec<(f64, u64)>,
}

impl Histogram {
    /// An empty histogram with these ascending bounds.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            buckets: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    /// Adds a value. Negative values count as zero.
    pub fn observe(&self, value: f64) {
        let index = self.bounds.partition_point(|bound| *bound < value);
        self.buckets[index].fetch_add(1, Ordering::Relaxed);
        self.sum
            .fetch_add((value * SUM_SCALE) as u64, Ordering::Relaxed);
    }

    /// The current values.
    pub fn read(&self) -> HistogramSnapshot {
        let bounds = self.bounds.iter().copied().chain([f64::MAX]);
        let buckets: Vec<(f64, u64)> = bounds
            .zip(&self.buckets)
            .map(|(bound, count)| (bound, count.load(Ordering::Relaxed)))
            .collect();
        HistogramSnapshot {
            sum: self.sum.load(Ordering::Relaxed) as f64 / SUM_SCALE,
            count: buckets.iter().map(|(_, count)| count).sum(),
            buckets,
        }
    }
}

impl HistogramSnapshot {
    /// Adds the values of a histogram with the same bounds.
    pub fn add(&mut self, other: &Self) {
        self.sum += other.sum;
        self.count += other.count;
        for ((_, count), (_, more)) in self.buckets.iter_mut().zip(&other.buckets) {
            *count += more;
        }
    }
}

/// The label of a metric: one of a closed set of values.
pub trait MetricLabel: Copy + 'static {
    /// All values.
    const ALL: &'static [Self];

    /// The index of the value in [`MetricLabel::ALL`].
    fn index(self) -> usize;

    /// The value as text.
    fn as_str(self) -> &'static str;
}

/// One counter for each value of a label.
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
    /// The counter for this value of the label.
    pub fn of(&self, label: L) -> &Counter {
        &self.counters[label.index()]
    }

    /// Each value of the label with its count.
    pub fn each(&self) -> impl Iterator<Item = (L, u64)> {
        L::ALL.iter().map(|label| (*label, self.of(*label).get()))
    }
}

/// Implements [`MetricLabel`](crate::counters::MetricLabel) for an enum without data. The variants
/// must be listed in the order of their declaration.
#[macro_export]
macro_rules! label {
    ($label:ty: $($variant:ident = $text:literal),+ $(,)?) => {
        impl $crate::counters::MetricLabel for $label {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn index(self) -> usize {
                self as usize
            }

            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }
        }
    };
}

label!(crate::record::Api: Cog = "cog", Replicate = "replicate", Runpod = "runpod", OpenAi = "openai", WorkersAi = "workers_ai");
label!(crate::JobKind: Prediction = "prediction", Training = "training");
label!(crate::Status: Queued = "queued", Starting = "starting", Processing = "processing", Succeeded = "succeeded",
    Failed = "failed", Canceled = "canceled", Aborted = "aborted");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Api;
    use crate::{JobKind, Status};

    #[test]
    fn a_value_counts_in_the_bucket_of_the_next_bound() {
        let histogram = Histogram::new(&[0.1, 1.0]);
        for value in [0.0, 0.1, 0.5, 1.0, 3.0, -1.0] {
            histogram.observe(value);
        }
        let snapshot = histogram.read();
        assert_eq!(snapshot.buckets, [(0.1, 3), (1.0, 2), (f64::MAX, 1)]);
        assert_eq!(snapshot.count, 6);
        assert!((snapshot.sum - 4.6).abs() < 1e-6);
    }

    fn assert_indexes_match<L: MetricLabel>() {
        for (index, label) in L::ALL.iter().enumerate() {
            assert_eq!(label.index(), index, "{}", label.as_str());
        }
    }

    #[test]
    fn labels_are_listed_in_the_order_of_their_declaration() {
        assert_indexes_match::<Api>();
        assert_indexes_match::<JobKind>();
        assert_indexes_match::<Status>();
    }

    #[test]
    fn each_label_has_its_own_counter() {
        let counters = Counters::<Api>::default();
        counters.of(Api::Replicate).inc();
        assert_eq!(
            counters.each().map(|(_, count)| count).collect::<Vec<_>>(),
            [0, 1, 0, 0, 0]
        );
    }
}
