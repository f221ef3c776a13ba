//! Active health checks: asks every endpoint periodically whether it is healthy.
//!
//! One task starts the checks and applies their results; a bounded number of them run at once, one for
//! each endpoint. A check that fails takes the endpoint out of use when a second one fails too, or at once
//! if nothing listens at its address.

mod check;
mod judge;
mod metrics;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::random;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::control::ControlShared;
use crate::endpoint::{EndpointKey, ResolvedEndpoint};
use crate::fleet::ProbeConfig;
use check::{CheckMemory, CheckResult, ProbeReport};

/// The most checks that run at once.
const MAX_RUNNING: usize = 64;
/// The number of failures in a row that take an endpoint out of use.
const FAILURES: u32 = 2;
/// The longest time until the first check of a new endpoint, and until the second one after a failure.
const SOON: Duration = Duration::from_secs(1);

/// The endpoints to check.
#[derive(Default)]
pub(crate) struct ProbeTargets {
    pub(crate) config: ProbeConfig,
    pub(crate) endpoints: HashMap<EndpointKey, ResolvedEndpoint>,
}

/// Checks endpoints until the control plane stops.
pub(crate) async fn run(
    control: Arc<ControlShared>,
    mut targets: watch::Receiver<Arc<ProbeTargets>>,
) {
    let stop = control.stop.clone();
    let mut prober = Prober {
        control,
        targets: targets.borrow_and_update().clone(),
        checks: HashMap::new(),
        running: JoinSet::new(),
    };
    prober.follow_targets();
    loop {
        let next = prober.start_due();
        tokio::select! {
            () = stop.cancelled() => return,
            changed = targets.changed() => {
                if changed.is_err() {
                    return;
                }
                prober.targets = targets.borrow_and_update().clone();
                prober.follow_targets();
            }
            Some(Ok(report)) = prober.running.join_next() => prober.finish(report),
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

struct Prober {
    control: Arc<ControlShared>,
    targets: Arc<ProbeTargets>,
    checks: HashMap<EndpointKey, CheckState>,
    running: JoinSet<ProbeReport>,
}

/// The checks of one endpoint.
struct CheckState {
    due: Instant,
    is_running: bool,
    failures: u32,
    is_down: bool,
    memory: CheckMemory,
}

impl Prober {
    /// Forgets endpoints that are gone; new ones are due soon, not all at once.
    fn follow_targets(&mut self) {
        let endpoints = &self.targets.endpoints;
        self.checks.retain(|key, _| endpoints.contains_key(key));
        let now = Instant::now();
        let spread = self.targets.config.interval.min(SOON) / 4;
        for key in endpoints.keys() {
            self.checks
                .entry(key.clone())
                .or_insert_with(|| CheckState {
                    due: now + spread.mul_f64(random::fraction()),
                    is_running: false,
                    failures: 0,
                    is_down: false,
                    memory: CheckMemory::default(),
                });
        }
    }

    /// Starts the checks that are due, and returns when the next one is.
    fn start_due(&mut self) -> Instant {
        let now = Instant::now();
        let mut next = now + self.targets.config.interval;
        for (key, check) in &mut self.checks {
            if check.is_running {
                continue;
            }
            if check.due > now {
                next = next.min(check.due);
            } else if self.running.len() < MAX_RUNNING {
                let target = self.targets.endpoints[key].clone();
                check.is_running = true;
                self.running.spawn(check::run(
                    self.control.client.clone(),
                    target,
                    check.memory.clone(),
                    self.targets.config.timeout,
                ));
            }
        }
        next
    }

    fn finish(&mut self, report: ProbeReport) {
        let interval = self.targets.config.interval;
        let Some(check) = self.checks.get_mut(&report.key) else {
            return;
        };
        check.is_running = false;
        check.memory = report.memory;
        check.due = Instant::now() + interval.mul_f64(1.0 - 0.1 * random::fraction());
        let was_down = check.is_down;
        let down_reason = match report.result {
            CheckResult::Healthy => {
                check.failures = 0;
                None
            }
            CheckResult::Refused(reason) => Some(reason),
            CheckResult::Failed(reason) => {
                check.failures += 1;
                if check.failures < FAILURES {
                    check.due = Instant::now() + interval.min(SOON);
                    return;
                }
                Some(reason)
            }
        };
        check.is_down = down_reason.is_some();
        if check.is_down {
            // It may come back as another version.
            check.memory = CheckMemory::default();
        }
        self.apply(&report.key, was_down, down_reason);
        if let Some(endpoint) = self.control.registry.endpoint(&report.key) {
            endpoint.set_reported_queue(report.queue.unwrap_or(0));
        }
        if let Some(permits) = report.permits {
            self.control
                .update(|state| state.report_permits(report.key, permits));
        }
    }

    fn apply(&self, key: &EndpointKey, was_down: bool, down_reason: Option<String>) {
        if let Some(endpoint) = self.control.registry.endpoint(key) {
            endpoint.record_probe(down_reason.is_none());
        }
        match down_reason {
            Some(reason) if !was_down => {
                tracing::warn!(endpoint = %key, %reason, "the endpoint is not healthy");
            }
            None if was_down => {
                tracing::info!(endpoint = %key, "the endpoint is healthy again");
                self.control.endpoint_is_back(key);
            }
            Some(_) | None => {}
        }
    }
}
