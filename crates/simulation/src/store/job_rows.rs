//! Jobs: insert, cancel, lease without a cluster, end.

use tidegate_core::lease::{Fence, LeaseRequest, LeaseResult};
use tidegate_core::leases::JobRef;
use tidegate_core::record::{Completion, JobRecord, JobSpec};
use tidegate_core::store::{CancelRequestResult, FinishOutcome, Inserted, JobFinish, StoreError};
use tidegate_core::{Account, JobId, Status};

use super::{JobRow, StoreServer, StoreState};
use crate::planted_bug::PlantedBug;

pub(super) fn key(account: &Account, id: &JobId) -> JobRef {
    JobRef {
        account: account.clone(),
        id: id.clone(),
    }
}

impl StoreServer {
    pub(super) fn insert(&self, spec: JobSpec, lease: Option<LeaseRequest>) -> Inserted {
        let key = JobRef::from(&spec);
        let mut state = self.lock();
        if let Some(known) = state.jobs.get(&key) {
            return Inserted::Known(Box::new(known.record.clone()));
        }
        self.observe(|checker| checker.inserted(&spec));
        state.last_number += 1;
        let number = state.last_number;
        let (status, attempt) = match lease {
            Some(_) => (Status::Processing, 1),
            None => (Status::Queued, 0),
        };
        let row = JobRow {
            number,
            record: JobRecord {
                spec,
                attempt,
                released: 0,
                status,
                started_at: lease.as_ref().map(|lease| lease.began_at),
                completion: None,
                data_removed: false,
                cancel_requested: false,
            },
            lease_nonce: lease.map(|lease| lease.nonce),
            end_nonce: None,
            lease_holder: None,
            lease_expired: false,
            queued: false,
            waiting_since: self.clock.micros(),
        };
        state.open.insert(number, key.clone());
        state.unqueued.insert(number, key.clone());
        state.jobs.insert(key, row);
        Inserted::New
    }

    pub(super) fn replace(&self, spec: JobSpec) -> Inserted {
        let key = JobRef::from(&spec);
        {
            let mut state = self.lock();
            let has_ended = |row: &JobRow| row.record.completion.is_some();
            if state.jobs.get(&key).is_some_and(has_ended) {
                state.delete(&key);
            }
        }
        self.insert(spec, None)
    }

    pub(super) fn request_cancel(&self, account: &Account, id: &JobId) -> CancelRequestResult {
        let mut state = self.lock();
        match state.jobs.get_mut(&key(account, id)) {
            None => CancelRequestResult::Unknown,
            Some(row) if row.record.completion.is_some() => CancelRequestResult::Ended,
            Some(row) => {
                row.record.cancel_requested |= !self.has(PlantedBug::ForgottenCancel);
                CancelRequestResult::Recorded
            }
        }
    }

    /// The lease of a server that uses the database alone.
    pub(super) fn lease(&self, request: &LeaseRequest) -> LeaseResult {
        let mut state = self.lock();
        let Some(row) = state.jobs.get_mut(&key(&request.account, &request.id)) else {
            return LeaseResult::Unknown;
        };
        if row.record.completion.is_some() {
            return LeaseResult::Ended;
        }
        if row.record.cancel_requested {
            return LeaseResult::CancelRequested;
        }
        let is_same = row.lease_nonce == Some(request.nonce);
        if !is_same && row.record.attempt != request.after_attempt {
            return LeaseResult::HeldByAnother;
        }
        if !is_same {
            row.record.attempt += 1;
            row.record.status = Status::Processing;
            row.record.started_at = Some(request.began_at);
            row.lease_nonce = Some(request.nonce);
        }
        LeaseResult::Granted(Fence {
            attempt: row.record.attempt,
            nonce: request.nonce,
        })
    }

    pub(super) fn finish(&self, finish: JobFinish) -> Result<FinishOutcome, StoreError> {
        if !finish.status.is_terminal() {
            return Err(StoreError::Invalid(format!(
                "{:?} is not a final status",
                finish.status
            )));
        }
        let now = self.clock.micros();
        let mut guard = self.lock();
        let state = &mut *guard;
        let loses_end = finish.began_at.is_some() && self.has_sometimes(PlantedBug::LostEnd, state);
        let loses_message = self.has_sometimes(PlantedBug::LostMessage, state);
        let job = key(&finish.account, &finish.id);
        let Some(row) = state.jobs.get_mut(&job) else {
            return Ok(FinishOutcome::ByAnother);
        };
        let is_last = match finish.began_at {
            _ if self.has(PlantedBug::NoFence) => true,
            None => {
                row.record.attempt <= finish.fence.attempt
                    || row.lease_nonce == Some(finish.fence.nonce)
            }
            Some(_) => {
                row.record.attempt == finish.fence.attempt
                    && row.lease_nonce == Some(finish.fence.nonce)
            }
        };
        let is_permitted = !row.record.cancel_requested || finish.status == Status::Canceled;
        if row.record.completion.is_some() || !is_last || !is_permitted {
            return Ok(why_not_finished(row, &finish));
        }
        if loses_end {
            return Ok(FinishOutcome::Committed);
        }
        self.observe(|checker| checker.ended(&finish));
        let record = &mut row.record;
        record.status = finish.status;
        record.attempt = record.attempt.max(finish.fence.attempt);
        record.started_at = finish.began_at.or(record.started_at);
        row.end_nonce = Some(finish.fence.nonce);
        let number = row.number;
        let ended_at = finish.completion.completed_at.as_microsecond();
        record.completion = Some(finish.completion);
        state.open.remove(&number);
        state.leased.remove(&number);
        state.unqueued.remove(&number);
        state.ended.insert((ended_at, number, job.clone()));
        if let Some(message) = finish.message.filter(|_| !loses_message) {
            state.outbox.remove_unsent(&job, now);
            state.outbox.insert(message, false, now);
        }
        Ok(FinishOutcome::Committed)
    }

    pub(super) fn get(&self, account: &Account, id: &JobId) -> Option<JobRecord> {
        let state = self.lock();
        let row = state.jobs.get(&key(account, id))?;
        Some(row.record.clone())
    }

    /// Deletes jobs that ended before this time.
    pub(super) fn forget(&self, before: i64, limit: usize) -> usize {
        let mut state = self.lock();
        let old: Vec<JobRef> = state
            .ended
            .iter()
            .take_while(|(at, ..)| *at < before)
            .take(limit)
            .map(|(.., job)| job.clone())
            .collect();
        old.iter().for_each(|job| state.delete(job));
        old.len()
    }

    /// Removes the data of jobs that ended before this time.
    pub(super) fn remove_data(&self, before: i64, limit: usize) -> usize {
        let mut guard = self.lock();
        let state = &mut *guard;
        let mut count = 0;
        for (.., job) in state.ended.iter().take_while(|(at, ..)| *at < before) {
            let Some(row) = state.jobs.get_mut(job) else {
                continue;
            };
            if row.record.data_removed || count == limit {
                continue;
            }
            row.record.data_removed = true;
            row.record.spec.input = bytes::Bytes::from_static(b"{}");
            if let Some(completion) = &mut row.record.completion {
                *completion = Completion {
                    output: None,
                    logs: String::new(),
                    ..completion.clone()
                };
            }
            count += 1;
        }
        count
    }
}

fn why_not_finished(row: &JobRow, finish: &JobFinish) -> FinishOutcome {
    let is_ended = row.record.completion.is_some();
    if is_ended && row.end_nonce == Some(finish.fence.nonce) {
        FinishOutcome::AlreadyCommitted
    } else if !is_ended && row.record.cancel_requested && finish.status != Status::Canceled {
        FinishOutcome::CancelRequested
    } else {
        FinishOutcome::ByAnother
    }
}

impl StoreState {
    fn delete(&mut self, job: &JobRef) {
        if let Some(row) = self.jobs.remove(job)
            && let Some(completion) = &row.record.completion
        {
            let at = completion.completed_at.as_microsecond();
            self.ended.remove(&(at, row.number, job.clone()));
        }
    }
}
