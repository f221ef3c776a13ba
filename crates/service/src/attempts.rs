//! The attempts of a job: those that the store has, completed by what only this process or the job's remote
//! workers know.

use tidegate_core::job_attempt::{AttemptEnd, JobAttempt};
use tidegate_core::remote::RemoteFacts;
use tidegate_core::store::StoreError;

use crate::job::Job;
use crate::job_service::JobService;
use crate::snapshot::Snapshot;

impl JobService {
    /// The attempts of a job, oldest first. A job that waits for its first attempt has none.
    pub async fn attempts(&self, job: &Job) -> Result<Vec<JobAttempt>, StoreError> {
        let recorded = match self.store() {
            Some(store) => store.attempts(job.account(), job.id()).await?,
            None => Vec::new(),
        };
        Ok(completed(recorded, &job.snapshot_without_output()))
    }
}

/// The recorded attempts with what the job itself shows: it may have begun or ended since, and the attempts of
/// remote workers are part of one recorded attempt.
fn completed(recorded: Vec<JobAttempt>, job: &Snapshot) -> Vec<JobAttempt> {
    let mut attempts = recorded;
    if attempts.is_empty() {
        attempts.extend(job.started_at.map(|at| JobAttempt {
            number: 1,
            started_at: Some(at),
            ended_at: None,
            end: None,
            runner: None,
        }));
    }
    if let Some(last) = attempts.last_mut()
        && last.end.is_none()
    {
        last.end = AttemptEnd::of_job(job.status);
        last.ended_at = last.end.and(job.completed_at);
    }
    match job.remote.as_deref() {
        Some(remote) => with_workers(attempts, remote),
        None => attempts,
    }
}

/// The attempts, the last of which was one or several of remote workers.
fn with_workers(mut attempts: Vec<JobAttempt>, remote: &RemoteFacts) -> Vec<JobAttempt> {
    let Some(last) = attempts.pop() else {
        return attempts;
    };
    let first = last.number;
    let lost = (first..).zip(&remote.lost);
    attempts.extend(lost.map(|(number, attempt)| JobAttempt {
        number,
        ..attempt.clone()
    }));
    let started_at = match remote.lost.as_slice() {
        [] => last.started_at,
        // `None` if no worker got the job again.
        [..] => remote.retried_at,
    };
    let count = u32::try_from(remote.lost.len()).unwrap_or(u32::MAX);
    attempts.extend(started_at.map(|at| JobAttempt {
        number: first.saturating_add(count),
        started_at: Some(at),
        runner: remote.worker.clone(),
        ..last
    }));
    attempts
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use jiff::{Timestamp, ToSpan};
    use serde_json::Map;
    use tidegate_core::record::Target;
    use tidegate_core::{Account, JobId, JobKind, Status};

    use super::*;

    fn snapshot() -> Snapshot {
        let target = Target::of_endpoint("e");
        Snapshot {
            id: JobId::parse("a").unwrap(),
            account: Account::ANONYMOUS,
            target: Arc::new(target),
            kind: JobKind::Prediction,
            status: Status::Queued,
            logs: String::new(),
            warnings: Vec::new(),
            output: None,
            error: None,
            metrics: Map::new(),
            remote: None,
            times: None,
            input: Bytes::from_static(b"{}"),
            created_at: at(0),
            started_at: None,
            completed_at: None,
            deadline: None,
            hook: None,
            data_removed: false,
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + second.seconds()
    }

    fn attempt(number: u32, times: (i64, Option<i64>), end: Option<AttemptEnd>) -> JobAttempt {
        JobAttempt {
            number,
            started_at: Some(at(times.0)),
            ended_at: times.1.map(at),
            end,
            runner: None,
        }
    }

    fn job(status: Status, started: Option<i64>, completed: Option<i64>) -> Snapshot {
        Snapshot {
            status,
            started_at: started.map(at),
            completed_at: completed.map(at),
            ..snapshot()
        }
    }

    #[test]
    fn a_job_that_is_not_recorded_has_the_attempt_that_it_shows() {
        let waiting = job(Status::Queued, None, None);
        assert_eq!(completed(Vec::new(), &waiting), []);
        let running = job(Status::Processing, Some(5), None);
        assert_eq!(
            completed(Vec::new(), &running),
            [attempt(1, (5, None), None)]
        );
        let failed = job(Status::Failed, Some(5), Some(7));
        let expected = attempt(1, (5, Some(7)), Some(AttemptEnd::Failed));
        assert_eq!(completed(Vec::new(), &failed), [expected]);
    }

    #[test]
    fn a_job_that_has_just_ended_ends_its_last_attempt() {
        let lost = attempt(1, (5, Some(6)), Some(AttemptEnd::Lost));
        let recorded = vec![lost.clone(), attempt(2, (8, None), None)];
        let ended = job(Status::Succeeded, Some(8), Some(9));
        let last = attempt(2, (8, Some(9)), Some(AttemptEnd::Succeeded));
        assert_eq!(completed(recorded, &ended), [lost, last]);
    }

    #[test]
    fn lost_workers_had_attempts_of_their_own() {
        let worker = |name: &str, attempt: JobAttempt| JobAttempt {
            runner: Some(name.to_owned()),
            ..attempt
        };
        let lost = |number| worker("a", attempt(number, (5, Some(6)), Some(AttemptEnd::Lost)));
        let facts = |retried_at: Option<i64>| RemoteFacts {
            worker: Some("b".to_owned()),
            lost: vec![lost(1)],
            retried_at: retried_at.map(at),
            ..RemoteFacts::default()
        };
        let recorded = || vec![attempt(2, (5, None), None)];
        let waits = Snapshot {
            remote: Some(Box::new(facts(None))),
            ..job(Status::Processing, Some(5), None)
        };
        assert_eq!(completed(recorded(), &waits), [lost(2)]);
        let ended = Snapshot {
            remote: Some(Box::new(facts(Some(8)))),
            ..job(Status::Succeeded, Some(5), Some(9))
        };
        let last = attempt(3, (8, Some(9)), Some(AttemptEnd::Succeeded));
        assert_eq!(completed(recorded(), &ended), [lost(2), worker("b", last)]);
    }
}
