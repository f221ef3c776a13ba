//! The times of a job that has ended: how long it waited, and how long the model ran.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value};
use tidegate_core::health::LoadSpan;

/// The names under which the times are stored among the metrics of a job. A model cannot record a metric
/// whose name begins with `cog.`.
const PREDICT_TIME: &str = "predict_time";
const QUEUE_TIME: &str = "cog.queue_time";
const LOAD_TIME: &str = "cog.load_time";

/// A job that waited for a model to load and less than this besides did not wait for a slot.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// The times of a job, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct JobTimes {
    /// How long the model ran.
    pub predict_time: f64,
    /// How long the job waited for a free slot; absent if it did not wait.
    pub queue_time: Option<f64>,
    /// How long the job waited while the model was loading; absent if it did not.
    pub load_time: Option<f64>,
}

impl JobTimes {
    /// The times of a job that waited from its creation until `now`.
    pub(crate) fn waited(created_at: Timestamp, now: Timestamp, load: Option<LoadSpan>) -> Self {
        let load_time = load
            .map(|load| between(load.began_at.max(created_at), load.ready_at.min(now)))
            .filter(|time| !time.is_zero());
        let queue_time = between(created_at, now).saturating_sub(load_time.unwrap_or_default());
        // The rest of a job that waited for the load only is what its admission took.
        let waited_for_slot = load_time.is_none() || queue_time >= SHORTEST_WAIT;
        Self {
            predict_time: 0.0,
            queue_time: waited_for_slot.then_some(queue_time.as_secs_f64()),
            load_time: load_time.map(|time| time.as_secs_f64()),
        }
    }

    /// Adds the times to the metrics of a job, as they are stored.
    pub(crate) fn store(self, metrics: &mut Map<String, Value>) {
        let mut add = |name: &str, seconds: Option<f64>| {
            metrics.extend(seconds.map(|seconds| (name.to_owned(), seconds.into())));
        };
        add(PREDICT_TIME, Some(self.predict_time));
        add(QUEUE_TIME, self.queue_time);
        add(LOAD_TIME, self.load_time);
    }

    /// Takes the times out of stored metrics.
    pub(crate) fn take(metrics: &mut Map<String, Value>) -> Option<Self> {
        let mut take = |name: &str| metrics.remove(name).and_then(|seconds| seconds.as_f64());
        let (queue_time, load_time) = (take(QUEUE_TIME), take(LOAD_TIME));
        Some(Self {
            predict_time: take(PREDICT_TIME)?,
            queue_time,
            load_time,
        })
    }
}

/// The time between two timestamps; zero if the clock was set back between them.
pub(super) fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn waits(load: Option<(i64, i64)>) -> (Option<f64>, Option<f64>) {
        let load = load.map(|(began, ready)| LoadSpan {
            began_at: at(began),
            ready_at: at(ready),
        });
        let times = JobTimes::waited(at(100), at(110), load);
        (times.queue_time, times.load_time)
    }

    #[test]
    fn only_the_load_while_the_job_waited_is_load_time() {
        assert_eq!(waits(None), (Some(10.0), None));
        assert_eq!(waits(Some((50, 99))), (Some(10.0), None));
        assert_eq!(waits(Some((50, 103))), (Some(7.0), Some(3.0)));
        assert_eq!(waits(Some((102, 104))), (Some(8.0), Some(2.0)));
        assert_eq!(waits(Some((50, 200))), (None, Some(10.0)));
    }

    #[test]
    fn what_the_admission_takes_after_a_load_is_no_queue_time() {
        let waits = |micros: i64| {
            let load = LoadSpan {
                began_at: at(99),
                ready_at: at(101),
            };
            let now = at(101) + jiff::SignedDuration::from_micros(micros);
            let times = JobTimes::waited(at(100), now, Some(load));
            (times.queue_time, times.load_time)
        };
        assert_eq!(waits(330), (None, Some(1.0)));
        assert_eq!(waits(250_000), (Some(0.25), Some(1.0)));
    }

    #[test]
    fn stored_times_are_apart_from_the_metrics_of_the_model() {
        let times = JobTimes::waited(at(100), at(110), None);
        let model = json!({"queue_time": "mine", "n": 1});
        let mut metrics = model.as_object().unwrap().clone();
        times.store(&mut metrics);
        assert_eq!(JobTimes::take(&mut metrics), Some(times));
        assert_eq!(Value::Object(metrics), model);
    }
}
