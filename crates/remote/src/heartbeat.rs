//! The heartbeat of a Runpod worker: records its pings and decides when a worker or a job is lost.
//!
//! A ping names the jobs that the worker has. A worker is lost when its pings stop or its connection
//! breaks for too long; a job is lost when its worker's pings no longer name it, or when a worker that
//! never pings is silent about it for too long. Each running job checks its worker four times a second (`RemoteRun` in `admission.rs`); there is no background
//! task.

use std::time::Duration;

use tidegate_core::JobId;
use tokio::time::Instant;

use crate::assignment::{Assignment, AssignmentState, RemoteJob};
use crate::dispatch_state::DispatchState;
use crate::executor::Config;
use crate::worker::{WorkerId, WorkerState};

/// A worker that sent nothing for this long is removed.
pub(crate) const REMOVE_AFTER: Duration = Duration::from_secs(300);
/// How long a worker's message may have been on its way.
const IN_TRANSIT: Duration = Duration::from_secs(1);
/// The most jobs that are remembered because workers have them and they were not started here.
const MAX_UNSTARTED: usize = 10_000;
/// Consecutive pings without a job after which the job is lost.
const MAX_MISSED_PINGS: u32 = 2;

impl WorkerState {
    /// Why the worker is lost; `None` while it is alive.
    pub(crate) fn loss_reason(&self, config: &Config, now: Instant) -> Option<&'static str> {
        let longer = |since: Instant, than| now.saturating_duration_since(since) > than;
        if self
            .disconnected
            .is_some_and(|at| longer(at, config.reconnect_timeout))
        {
            return Some("its connection broke and it did not reconnect");
        }
        // A worker that never pings is judged for each of its jobs, by `assignment_loss`.
        let silent = self
            .last_ping
            .is_some_and(|at| longer(at, config.ping_timeout))
            && longer(self.last_request, config.ping_timeout);
        silent.then_some("it stopped sending pings")
    }
}

impl DispatchState {
    /// Records a ping. `named` are the jobs that the worker says it has; `None` when the list is not
    /// complete. Returns the named jobs that were not started here.
    pub(crate) fn record_ping(
        &mut self,
        worker: &WorkerId,
        named: Option<&[&str]>,
        now: Instant,
    ) -> Vec<JobId> {
        self.worker(worker, now).last_ping = Some(now);
        let Some(named) = named else {
            return Vec::new();
        };
        let mut unstarted = Vec::new();
        self.unstarted
            .retain(|_, (_, at)| now.saturating_duration_since(*at) < REMOVE_AFTER);
        for id in named
            .iter()
            .filter(|id| !self.jobs.contains_key(**id))
            .filter_map(|id| JobId::parse(id).ok())
        {
            if self.unstarted.len() < MAX_UNSTARTED && !self.early_results.contains(&id) {
                self.unstarted.insert(id.clone(), (worker.clone(), now));
                unstarted.push(id);
            }
        }
        for (id, job) in &mut self.jobs {
            let Some(assignment) = job.assignment.as_mut().filter(|assignment| {
                assignment.worker == *worker && assignment.state != AssignmentState::Offered
            }) else {
                continue;
            };
            // A ping that was sent before the job was delivered says nothing about the job.
            let old_enough = now.saturating_duration_since(assignment.since) > IN_TRANSIT;
            let is_named = named.contains(&id.as_str());
            assignment.named |= is_named;
            assignment.missed_pings = if is_named {
                0
            } else {
                assignment.missed_pings + u32::from(old_enough)
            };
        }
        unstarted
    }

    /// A worker that asks for jobs says that it has none: jobs that were sent to it and that no ping
    /// named did not reach it.
    pub(crate) fn report_idle(&mut self, worker: &WorkerId, config: &Config, now: Instant) {
        let never_arrived = |job: &RemoteJob| {
            job.assignment.as_ref().is_some_and(|assignment| {
                let since = now.saturating_duration_since(assignment.since);
                assignment.worker == *worker
                    && assignment.state == AssignmentState::Delivered
                    && !assignment.named
                    && since > IN_TRANSIT
            })
        };
        let lost: Vec<JobId> = self
            .jobs
            .iter()
            .filter(|(_, job)| never_arrived(job))
            .map(|(id, _)| id.clone())
            .collect();
        for id in lost {
            self.lose_worker(&id, "it says that it has no job", config, now);
        }
    }

    /// Why the worker of this assignment has lost the job; `None` while it has it.
    pub(crate) fn assignment_loss(
        &self,
        assignment: &Assignment,
        config: &Config,
        now: Instant,
    ) -> Option<&'static str> {
        match self.workers.get(&assignment.worker) {
            None => Some("it sent nothing for too long and was removed"),
            Some(_) if assignment.missed_pings >= MAX_MISSED_PINGS => {
                Some("its pings no longer name the job")
            }
            Some(worker) => worker.loss_reason(config, now).or_else(|| {
                let heard = assignment
                    .last_report
                    .max(worker.last_listened(now).unwrap_or(assignment.last_report));
                let silent = worker.last_ping.is_none()
                    && now.saturating_duration_since(heard) > config.ping_timeout;
                silent.then_some("it never sent a ping")
            }),
        }
    }
}
