//! The number of jobs of one model that have not ended, by account. Jobs are counted when they change,
//! so that metrics and health checks do not have to look at each of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use tidegate_core::{Account, Status};

use crate::inspect::{QueueCounts, QueueStatus};

/// The jobs of one model that have not ended.
#[derive(Debug, Default)]
pub(crate) struct OpenJobs {
    /// No account without jobs is in the map.
    accounts: Mutex<HashMap<Account, AccountJobs>>,
}

#[derive(Debug, Default)]
struct AccountJobs {
    waiting: usize,
    running: usize,
    /// The number of waiting jobs by the microsecond in which they were accepted.
    waiting_since: BTreeMap<i64, u32>,
}

impl OpenJobs {
    fn with<R>(&self, f: impl FnOnce(&mut HashMap<Account, AccountJobs>) -> R) -> R {
        f(&mut self.accounts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a job that waits.
    pub(crate) fn add_waiting(&self, account: &Account, accepted_at: Timestamp) {
        self.with(|accounts| {
            let jobs = accounts.entry(account.clone()).or_default();
            jobs.waiting += 1;
            *jobs
                .waiting_since
                .entry(accepted_at.as_microsecond())
                .or_default() += 1;
        });
    }

    /// Counts a waiting job as running.
    pub(crate) fn start(&self, account: &Account, accepted_at: Timestamp) {
        self.with(|accounts| {
            if let Some(jobs) = accounts.get_mut(account) {
                jobs.stop_waiting(accepted_at);
                jobs.running += 1;
            }
        });
    }

    /// Stops counting a job that has this status.
    pub(crate) fn remove(&self, account: &Account, accepted_at: Timestamp, status: Status) {
        self.with(|accounts| {
            let Some(jobs) = accounts.get_mut(account) else {
                return;
            };
            if status == Status::Queued {
                jobs.stop_waiting(accepted_at);
            } else {
                jobs.running -= 1;
            }
            if jobs.waiting == 0 && jobs.running == 0 {
                accounts.remove(account);
            }
        });
    }

    /// The current counts.
    pub(crate) fn status(&self) -> QueueStatus {
        let accounts: BTreeMap<Account, QueueCounts> = self.with(|accounts| {
            accounts
                .iter()
                .map(|(account, jobs)| (account.clone(), jobs.counts()))
                .collect()
        });
        let mut total = QueueCounts::default();
        for jobs in accounts.values() {
            total.waiting += jobs.waiting;
            total.running += jobs.running;
            total.oldest_waiting_since = [total.oldest_waiting_since, jobs.oldest_waiting_since]
                .into_iter()
                .flatten()
                .min();
        }
        QueueStatus { total, accounts }
    }
}

impl AccountJobs {
    fn stop_waiting(&mut self, accepted_at: Timestamp) {
        let since = accepted_at.as_microsecond();
        self.waiting -= 1;
        if let Some(count) = self.waiting_since.get_mut(&since) {
            *count -= 1;
            if *count == 0 {
                self.waiting_since.remove(&since);
            }
        }
    }

    fn counts(&self) -> QueueCounts {
        let oldest = self.waiting_since.keys().next();
        QueueCounts {
            waiting: self.waiting,
            running: self.running,
            oldest_waiting_since: oldest.and_then(|since| Timestamp::from_microsecond(*since).ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_counted_by_account_with_the_oldest_that_waits() {
        let (open, at) = (OpenJobs::default(), |us| {
            Timestamp::from_microsecond(us).expect("a valid time")
        });
        let (ann, bob) = (
            Account::ANONYMOUS,
            Account::parse("bob").expect("a valid name"),
        );
        for (account, since) in [(&ann, 5), (&ann, 5), (&ann, 7), (&bob, 6)] {
            open.add_waiting(account, at(since));
        }
        open.start(&ann, at(5));
        let counts = |waiting, running, oldest: Option<i64>| QueueCounts {
            waiting,
            running,
            oldest_waiting_since: oldest.map(at),
        };
        let status = open.status();
        assert_eq!(status.total, counts(3, 1, Some(5)));
        assert_eq!(status.accounts[&ann], counts(2, 1, Some(5)));
        assert_eq!(status.accounts[&bob], counts(1, 0, Some(6)));
        open.remove(&ann, at(5), Status::Queued);
        assert_eq!(open.status().total, counts(2, 1, Some(6)));
        open.remove(&ann, at(5), Status::Processing);
        open.remove(&ann, at(7), Status::Queued);
        open.remove(&bob, at(6), Status::Queued);
        assert_eq!(open.status(), QueueStatus::default());
    }
}
