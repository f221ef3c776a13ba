//! Adds and removes child processes as the load changes (`--workers MIN..MAX`).
//!
//! A child is added when callers have had to wait without a break for some time, and removed when one
//! child fewer would have been enough for a longer time. Only one child starts at a time, and the first
//! child of the model sets up alone: what it downloads is in the caches for the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::health::SetupStatus;
use tokio::time::Instant;

use crate::child::process::Retirement;
use crate::launch_config::Autoscaling;
use crate::slots::PoolCount;
use crate::supervisor::{self, RuntimeShared};

/// How often the load is sampled, at least and at most.
const SAMPLE_INTERVAL: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];
/// How often the scaler checks whether the first child has ended its setup.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The pause after an additional child could not be set up; it doubles each time.
const MIN_PAUSE: Duration = Duration::from_secs(30);
const MAX_PAUSE: Duration = Duration::from_secs(600);

/// Callers that found no free slot and were not allowed to wait.
#[derive(Default)]
pub(crate) struct RefusedCallers(AtomicU64);

impl RefusedCallers {
    /// Counts one refusal.
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Starts the children of a model and changes their number until the model stops.
pub(crate) async fn run(shared: Arc<RuntimeShared>, autoscaling: Autoscaling) {
    let min = shared.launch.children;
    spawn_child(&shared, 0);
    while shared.state.child_count().ready == 0 {
        if shared.state.setup_status() == SetupStatus::Failed {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = shared.stop.cancelled() => return,
        }
    }
    for number in 1..min {
        spawn_child(&shared, number);
    }
    let interval = autoscaling.up_after.min(autoscaling.down_after) / 10;
    let interval = interval.clamp(SAMPLE_INTERVAL[0], SAMPLE_INTERVAL[1]);
    let mut policy = ScalePolicy::new(min, autoscaling);
    loop {
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = shared.stop.cancelled() => return,
        }
        if shared.state.is_open() && !shared.pool.is_closed() {
            step(&shared, &mut policy);
        }
    }
}

fn spawn_child(shared: &Arc<RuntimeShared>, number: usize) {
    shared
        .tasks
        .spawn(supervisor::supervise(Arc::clone(shared), number));
}

fn step(shared: &Arc<RuntimeShared>, policy: &mut ScalePolicy) {
    let children = shared.state.child_count();
    let sample = LoadSample {
        slots: shared.pool.count(),
        ready: children.ready,
        starting: children.starting,
        refusals: shared.refused.total(),
        failures: shared.state.scale_up_failures(),
    };
    let decision = policy.decide(Instant::now(), sample);
    shared.state.set_short(policy.is_short);
    match decision {
        ScaleDecision::Keep => {}
        ScaleDecision::Add => {
            if let Some(number) = shared.state.add_child() {
                tracing::info!(worker = number, "requests wait, starting another process");
                spawn_child(shared, number);
            }
        }
        ScaleDecision::Remove => remove_idle_child(shared),
    }
}

/// Stops a child without jobs, if there is one.
fn remove_idle_child(shared: &RuntimeShared) {
    let mut idle = Vec::new();
    shared
        .pool
        .for_each_idle(|slot| idle.push(slot.child().pid()));
    if let Some((number, child)) = shared.state.remove_idle_child(&idle) {
        shared.gpus.removed(number);
        tracing::info!(pid = child.pid(), "stopping a process that is not needed");
        // A job that it gets before its slots are removed from the pool is not interrupted.
        child.retire(Retirement::NotNeeded);
    }
}

/// The load of a model at one time.
#[derive(Debug, Clone, Copy)]
struct LoadSample {
    slots: PoolCount,
    ready: usize,
    starting: usize,
    /// The number of refused callers so far.
    refusals: u64,
    /// How many additional children could not be set up so far.
    failures: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum ScaleDecision {
    Keep,
    Add,
    Remove,
}

/// Decides from a series of samples.
struct ScalePolicy {
    min: usize,
    autoscaling: Autoscaling,
    /// Since when callers have had to wait.
    waiting_since: Option<Instant>,
    /// Since when one child fewer would have been enough.
    surplus_since: Option<Instant>,
    /// The number of refused callers, and when it last changed.
    refusals: u64,
    refused_at: Option<Instant>,
    failures: u64,
    /// The next pause after a failed start, and the end of the present one.
    pause: Duration,
    paused_until: Option<Instant>,
    /// Whether a child would be added if there were not the maximum already.
    is_short: bool,
}

impl ScalePolicy {
    fn new(min: usize, autoscaling: Autoscaling) -> Self {
        Self {
            min,
            autoscaling,
            waiting_since: None,
            surplus_since: None,
            refusals: 0,
            refused_at: None,
            failures: 0,
            pause: MIN_PAUSE,
            paused_until: None,
            is_short: false,
        }
    }

    fn decide(&mut self, now: Instant, sample: LoadSample) -> ScaleDecision {
        if sample.refusals > std::mem::replace(&mut self.refusals, sample.refusals) {
            self.refused_at = Some(now);
        }
        if sample.failures > std::mem::replace(&mut self.failures, sample.failures) {
            self.paused_until = Some(now + self.pause);
            self.pause = (self.pause * 2).min(MAX_PAUSE);
        }
        if sample.starting > 0 {
            // What another child changes is known only when it is ready.
            (self.waiting_since, self.surplus_since) = (None, None);
            return ScaleDecision::Keep;
        }
        let slots = sample.slots;
        let refused_lately = self
            .refused_at
            .is_some_and(|at| now.duration_since(at) < self.autoscaling.up_after);
        let waits = slots.idle == 0 && (slots.waiting > 0 || refused_lately);
        let surplus = slots.waiting == 0 && slots.idle * sample.ready >= slots.total;
        let waited = lasts(&mut self.waiting_since, waits, now);
        let was_idle = lasts(&mut self.surplus_since, surplus, now);
        let is_short = waited.is_some_and(|time| time >= self.autoscaling.up_after);
        let running = sample.ready;
        self.is_short = is_short && running >= self.autoscaling.max;
        if is_short && running < self.autoscaling.max {
            if self.paused_until.is_some_and(|until| now < until) {
                return ScaleDecision::Keep;
            }
            self.waiting_since = None;
            return ScaleDecision::Add;
        }
        if running > self.min && was_idle.is_some_and(|time| time >= self.autoscaling.down_after) {
            self.surplus_since = None;
            // The next child that is added begins a new series of attempts.
            self.pause = MIN_PAUSE;
            return ScaleDecision::Remove;
        }
        ScaleDecision::Keep
    }
}

/// How long a condition has held.
fn lasts(since: &mut Option<Instant>, holds: bool, now: Instant) -> Option<Duration> {
    if holds {
        Some(now.duration_since(*since.get_or_insert(now)))
    } else {
        *since = None;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTOSCALING: Autoscaling = Autoscaling {
        max: 3,
        up_after: Duration::from_secs(2),
        down_after: Duration::from_secs(60),
    };

    /// Feeds one sample per second, and returns the decisions.
    fn decisions(policy: &mut ScalePolicy, samples: &[LoadSample]) -> Vec<ScaleDecision> {
        let mut now = Instant::now();
        let each = samples.iter().map(|sample| {
            now += Duration::from_secs(1);
            policy.decide(now, *sample)
        });
        each.collect()
    }

    fn sample(ready: usize, idle: usize, waiting: usize) -> LoadSample {
        LoadSample {
            slots: PoolCount {
                idle,
                total: ready,
                waiting,
            },
            ready,
            starting: 0,
            refusals: 0,
            failures: 0,
        }
    }

    #[test]
    fn a_child_is_added_when_callers_have_waited_without_a_break() {
        use ScaleDecision::{Add, Keep};
        let policy = &mut ScalePolicy::new(1, AUTOSCALING);
        let (waits, free) = (sample(1, 0, 1), sample(1, 1, 0));
        assert_eq!(
            decisions(policy, &[waits, waits, free, waits, waits, waits, waits]),
            [Keep, Keep, Keep, Keep, Keep, Add, Keep]
        );
    }

    #[test]
    fn no_child_is_added_while_another_one_starts() {
        let policy = &mut ScalePolicy::new(1, AUTOSCALING);
        let starting = LoadSample {
            starting: 1,
            ..sample(1, 0, 5)
        };
        let decided = decisions(policy, &[starting; 10]);
        assert!(decided.iter().all(|one| *one == ScaleDecision::Keep));
        // Its effect is awaited before the next one.
        assert_eq!(
            decisions(policy, &[sample(2, 0, 5); 3])[..],
            [ScaleDecision::Keep, ScaleDecision::Keep, ScaleDecision::Add]
        );
    }

    #[test]
    fn refused_callers_count_as_waiting_while_they_come_back() {
        let refused = |refusals| LoadSample {
            refusals,
            ..sample(1, 0, 0)
        };
        let policy = &mut ScalePolicy::new(1, AUTOSCALING);
        let once = decisions(policy, &[refused(1); 8]);
        assert!(once.iter().all(|one| *one == ScaleDecision::Keep));
        let policy = &mut ScalePolicy::new(1, AUTOSCALING);
        let again = decisions(policy, &[refused(1), refused(2), refused(3)]);
        assert_eq!(again.last(), Some(&ScaleDecision::Add));
    }

    #[test]
    fn a_child_is_removed_when_one_fewer_was_enough_for_long() {
        let policy = &mut ScalePolicy::new(1, AUTOSCALING);
        // One of two children is enough, then both are needed for a moment.
        let mut samples = vec![sample(2, 1, 0); 50];
        samples.push(sample(2, 0, 0));
        samples.extend(vec![sample(2, 1, 0); 62]);
        let decided = decisions(policy, &samples);
        let removals = decided.iter().filter(|one| **one == ScaleDecision::Remove);
        assert_eq!(removals.count(), 1);
        assert_eq!(decided[111], ScaleDecision::Remove);
        let decided = decisions(&mut ScalePolicy::new(2, AUTOSCALING), &samples);
        assert!(decided.iter().all(|one| *one == ScaleDecision::Keep));
    }

    #[test]
    fn at_the_maximum_the_shortage_is_reported() {
        let policy = &mut ScalePolicy::new(1, AUTOSCALING);
        let decided = decisions(policy, &[sample(3, 0, 1); 5]);
        assert!(decided.iter().all(|one| *one == ScaleDecision::Keep));
        assert!(policy.is_short);
        decisions(policy, &[sample(3, 1, 0)]);
        assert!(!policy.is_short);
    }

    #[test]
    fn after_a_failed_start_there_is_a_pause() {
        let policy = &mut ScalePolicy::new(1, AUTOSCALING);
        let failed = LoadSample {
            failures: 1,
            ..sample(1, 0, 1)
        };
        let decided = decisions(policy, &[failed; 40]);
        let added = decided.iter().position(|one| *one == ScaleDecision::Add);
        assert_eq!(added, Some(30));
    }
}
