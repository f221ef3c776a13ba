//! Leases of directors, and the search for jobs that no director runs.

use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::Status;
use tidegate_core::lease::{Fence, Nonce};
use tidegate_core::leases::{
    AcquireRequest, AcquireResult, BegunAttempts, ClusterCounts, GrantedLease, HeartbeatResult,
    HeldLease, Holder, JobProgress, JobRef, LeaseHeartbeat,
};
use tidegate_core::outbox::OutboxMessage;
use tidegate_core::record::JobRecord;

use super::{JobRow, StoreServer, StoreState};
use crate::planted_bug::PlantedBug;

fn micros(duration: Duration) -> i64 {
    const CENTURY: i64 = 100 * 366 * 24 * 60 * 60 * 1_000_000;
    i64::try_from(duration.as_micros())
        .unwrap_or(CENTURY)
        .min(CENTURY)
}

fn remaining(row: &JobRow, now: i64) -> Option<Duration> {
    let deadline = row.record.spec.deadline?.as_microsecond();
    Some(Duration::from_micros(
        u64::try_from(deadline - now).unwrap_or_default(),
    ))
}

impl StoreServer {
    pub(super) fn acquire(&self, request: &AcquireRequest) -> AcquireResult {
        let now = self.clock.micros();
        let mut guard = self.lock();
        let state = &mut *guard;
        let AcquireRequest { holder, nonce, .. } = request;
        let lives_long = now + micros(request.lasts) / 2;
        match state.holders.get(&holder.name) {
            Some((boot, _)) if *boot > holder.boot => return AcquireResult::Superseded,
            // Its heartbeats keep it alive.
            Some((boot, until)) if *boot == holder.boot && *until >= lives_long => {}
            Some(_) | None => {
                let life = (holder.boot, now + micros(request.lasts));
                state.holders.insert(holder.name.clone(), life);
            }
        }
        let Some(row) = state.jobs.get(&request.job) else {
            return AcquireResult::Unknown;
        };
        let record = &row.record;
        let ignores_deadline = self.has(PlantedBug::IgnoredDeadline);
        let is_same = row.lease_nonce == Some(*nonce);
        let is_live = state.is_live(row) && !self.has(PlantedBug::DoubleLease);
        let is_overdue = record
            .spec
            .deadline
            .is_some_and(|deadline| deadline.as_microsecond() <= now)
            && !ignores_deadline;
        if record.completion.is_some() && !self.has(PlantedBug::LeaseAfterEnd) {
            return AcquireResult::Ended;
        } else if is_live && !is_same {
            return AcquireResult::HeldByAnother;
        } else if record.cancel_requested {
            return AcquireResult::CancelRequested(Box::new(record.clone()));
        } else if is_same {
            return AcquireResult::Granted(Box::new(granted(row, *nonce, now, ignores_deadline)));
        } else if is_overdue {
            return AcquireResult::Overdue(Box::new(record.clone()));
        } else if record.attempt - record.released >= request.max_attempts {
            return AcquireResult::Exhausted(Box::new(record.clone()));
        }
        let started_at = self.clock.now();
        let row = state.jobs.get_mut(&request.job).expect("it was just found");
        row.record.attempt += 1;
        row.record.started_at = Some(started_at);
        if row.record.completion.is_none() {
            row.record.status = Status::Processing;
            state.leased.insert(row.number, request.job.clone());
        }
        row.lease_nonce = Some(*nonce);
        row.lease_holder = Some(holder.clone());
        row.lease_expired = false;
        let attempt = row.record.attempt;
        self.observe(|checker| checker.leased(&request.job.id, attempt, &holder.name));
        AcquireResult::Granted(Box::new(granted(row, *nonce, now, ignores_deadline)))
    }

    pub(super) fn heartbeat(&self, beat: &LeaseHeartbeat) -> HeartbeatResult {
        let now = self.clock.micros();
        let mut state = self.lock();
        let Holder { name, boot } = &beat.holder;
        if state
            .holders
            .get(name)
            .is_some_and(|(known, _)| known > boot)
        {
            return HeartbeatResult {
                is_superseded: true,
                ..HeartbeatResult::default()
            };
        }
        state
            .holders
            .insert(name.clone(), (*boot, now + micros(beat.lasts)));
        let mut result = HeartbeatResult::default();
        for lease in &beat.leases {
            match state.jobs.get(&lease.job) {
                Some(row) if is_current(row, lease) => {
                    if row.record.cancel_requested {
                        result.cancel.push(lease.job.clone());
                    }
                }
                Some(_) | None => result.lost.push(lease.job.clone()),
            }
        }
        let leased = state.leased.values();
        result.unlisted = leased
            .filter_map(|job| state.lease_of(job, &beat.holder))
            .filter(|lease| !beat.leases.contains(lease))
            .collect();
        result
    }

    pub(super) fn holder_of(&self, job: &JobRef) -> Option<Holder> {
        let state = self.lock();
        let row = state.jobs.get(job)?;
        let is_held = row.record.completion.is_none() && state.is_live(row);
        row.lease_holder.clone().filter(|_| is_held)
    }

    pub(super) fn release(&self, lease: &HeldLease) -> bool {
        let now = self.clock.micros();
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(row) = state.jobs.get_mut(&lease.job) else {
            return false;
        };
        if !is_current(row, lease) {
            return false;
        }
        row.record.status = Status::Queued;
        row.record.started_at = None;
        row.record.released += 1;
        row.lease_nonce = None;
        row.lease_holder = None;
        row.lease_expired = false;
        row.queued = false;
        row.waiting_since = now;
        state.leased.remove(&row.number);
        state.unqueued.insert(row.number, lease.job.clone());
        self.observe(|checker| checker.released(&lease.job.id));
        true
    }

    pub(super) fn put_interim(&self, lease: &HeldLease, message: OutboxMessage) -> bool {
        let now = self.clock.micros();
        let mut state = self.lock();
        if !state
            .jobs
            .get(&lease.job)
            .is_some_and(|row| is_current(row, lease))
        {
            return false;
        }
        state.outbox.remove_unsent(&lease.job, now);
        state.outbox.insert(message, true, now);
        true
    }

    pub(super) fn retire(&self, holder: &Holder) {
        let mut state = self.lock();
        if let Some((boot, alive_until)) = state.holders.get_mut(&holder.name)
            && *boot == holder.boot
        {
            *alive_until = 0;
        }
    }

    pub(super) fn expired(&self, lasts: Duration, limit: usize) -> Vec<JobRecord> {
        let now = self.clock.micros();
        let mut guard = self.lock();
        let state = &mut *guard;
        let previous = state.pulse;
        if now - previous > micros(lasts) / 2 {
            for (_, alive_until) in state.holders.values_mut() {
                if *alive_until > previous {
                    *alive_until = (*alive_until).max(now + micros(lasts));
                }
            }
        }
        state.pulse = previous.max(now);
        let is_expired =
            |job: &&JobRef| state.jobs.get(*job).is_some_and(|row| !state.is_live(row));
        let expired: Vec<JobRef> = state
            .leased
            .values()
            .filter(is_expired)
            .take(limit)
            .cloned()
            .collect();
        expired
            .iter()
            .filter_map(|job| state.expire(job, now))
            .collect()
    }

    pub(super) fn counts(&self) -> ClusterCounts {
        let now = self.clock.micros();
        let state = self.lock();
        let living = state
            .holders
            .values()
            .filter(|(_, until)| *until > state.pulse);
        let due = state.outbox.first_due();
        ClusterCounts {
            leases: state.leased.len(),
            directors: living.count(),
            oldest_due_message: due
                .and_then(|due| u64::try_from(now - due).ok())
                .map(Duration::from_micros),
        }
    }

    pub(super) fn progress(&self, jobs: &[JobRef]) -> Vec<JobProgress> {
        let state = self.lock();
        let progress = |job: &JobRef| {
            let record = &state.jobs.get(job)?.record;
            Some(JobProgress {
                job: job.clone(),
                status: record.status,
                attempt: record.attempt,
                started_at: record.started_at,
            })
        };
        jobs.iter().filter_map(progress).collect()
    }

    pub(super) fn begun(&self, model: &str, since: Option<Timestamp>) -> BegunAttempts {
        let state = self.lock();
        let is_begun = |row: &&JobRow| match since {
            _ if row.record.spec.target.model != model || row.lease_nonce.is_none() => false,
            Some(since) => row.record.started_at >= Some(since),
            None => row.record.completion.is_none() && state.is_live(row),
        };
        let progress = |row: &JobRow| JobProgress {
            job: JobRef::from(&row.record.spec),
            status: row.record.status,
            attempt: row.record.attempt,
            started_at: row.record.started_at,
        };
        BegunAttempts {
            at: self.clock.now(),
            jobs: state.jobs.values().filter(is_begun).map(progress).collect(),
        }
    }

    pub(super) fn mark_queued(&self, jobs: &[JobRef], epoch: &str) {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state
            .queue_epoch
            .as_deref()
            .is_some_and(|recorded| recorded != epoch)
        {
            return;
        }
        for job in jobs {
            if let Some(row) = state.jobs.get_mut(job)
                && row.record.completion.is_none()
            {
                row.queued = true;
                state.unqueued.remove(&row.number);
            }
        }
    }

    pub(super) fn queue_epoch(&self) -> Option<String> {
        self.lock().queue_epoch.clone()
    }

    pub(super) fn mark_all_unqueued(&self, epoch: &str) {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.queue_epoch = Some(epoch.to_owned());
        for (number, job) in &state.open {
            if let Some(row) = state.jobs.get_mut(job) {
                row.queued = false;
                state.unqueued.insert(*number, job.clone());
            }
        }
    }

    /// Removes the marks of open jobs that have waited for `age`.
    pub(super) fn unmark_queued(&self, age: Duration, limit: usize) -> usize {
        let now = self.clock.micros();
        let before = now - micros(age);
        let mut guard = self.lock();
        let state = &mut *guard;
        let is_due =
            |row: &JobRow| row.queued && row.waiting_since <= before && !state.is_live(row);
        let due: Vec<JobRef> = state
            .open
            .values()
            .filter(|job| state.jobs.get(*job).is_some_and(is_due))
            .take(limit)
            .cloned()
            .collect();
        for job in &due {
            if let Some(row) = state.jobs.get_mut(job) {
                row.queued = false;
                row.waiting_since = now;
                state.unqueued.insert(row.number, job.clone());
            }
        }
        due.len()
    }

    /// Open jobs that are not known to be in the queue. They are not returned again within `age`.
    pub(super) fn claim_unqueued(&self, age: Duration, limit: usize) -> Vec<JobRecord> {
        let now = self.clock.micros();
        let before = now - micros(age);
        let mut guard = self.lock();
        let state = &mut *guard;
        let is_due = |row: &JobRow| row.waiting_since <= before && !state.is_live(row);
        let due: Vec<JobRef> = state
            .unqueued
            .values()
            .filter(|job| state.jobs.get(*job).is_some_and(is_due))
            .take(limit)
            .cloned()
            .collect();
        let mut claim = |job: &JobRef| {
            let row = state.jobs.get_mut(job)?;
            row.waiting_since = now;
            Some(row.record.clone())
        };
        due.iter().filter_map(&mut claim).collect()
    }
}

impl StoreState {
    /// Marks the lease of a job as expired.
    /// The lease of a job, if this holder has it.
    fn lease_of(&self, job: &JobRef, holder: &Holder) -> Option<HeldLease> {
        let row = self.jobs.get(job)?;
        let fence = Fence {
            attempt: row.record.attempt,
            nonce: row.lease_nonce?,
        };
        let job = job.clone();
        (row.lease_holder.as_ref() == Some(holder)).then_some(HeldLease { job, fence })
    }

    fn expire(&mut self, job: &JobRef, now: i64) -> Option<JobRecord> {
        let row = self.jobs.get_mut(job)?;
        row.lease_expired = true;
        row.queued = false;
        row.waiting_since = now;
        self.leased.remove(&row.number);
        self.unqueued.insert(row.number, job.clone());
        Some(row.record.clone())
    }
}

/// Whether a lease is the last one of an open job.
fn is_current(row: &JobRow, lease: &HeldLease) -> bool {
    row.record.completion.is_none()
        && row.record.attempt == lease.fence.attempt
        && row.lease_nonce == Some(lease.fence.nonce)
}

fn granted(row: &JobRow, nonce: Nonce, now: i64, ignores_deadline: bool) -> GrantedLease {
    GrantedLease {
        record: row.record.clone(),
        fence: Fence {
            attempt: row.record.attempt,
            nonce,
        },
        remaining: remaining(row, now).filter(|_| !ignores_deadline),
    }
}
