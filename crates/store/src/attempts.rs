//! The attempts of a job from the columns of its row, for all databases.
//!
//! The row describes the last attempt. Those before it are in the column `earlier_attempts`, a JSON list that
//! the statement extends that overwrites the last attempt. So a job that runs once has no such list, and
//! its statements are no more and do no more than without it.

use jiff::Timestamp;
use serde::Deserialize;
use tidegate_core::Status;
use tidegate_core::job_attempt::{AttemptEnd, JobAttempt};

use crate::columns::{self, ColumnError};

/// The columns of a job that describe its attempts.
#[derive(Debug)]
pub(crate) struct AttemptColumns {
    pub(crate) attempt: u32,
    pub(crate) status: Status,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) completed_at: Option<Timestamp>,
    /// When the lease of the last attempt expired, if it did.
    pub(crate) expired_at: Option<Timestamp>,
    pub(crate) director: Option<String>,
    /// JSON.
    pub(crate) earlier: Option<String>,
}

/// An element of `earlier_attempts`. Times are microseconds since 1970.
#[derive(Debug, Deserialize)]
struct EarlierAttempt {
    number: u32,
    started_at: i64,
    ended_at: i64,
    end: AttemptEnd,
    #[serde(default)]
    director: Option<String>,
}

impl AttemptColumns {
    /// The attempts, oldest first.
    pub(crate) fn list(self) -> Result<Vec<JobAttempt>, ColumnError> {
        let earlier: Vec<EarlierAttempt> = match &self.earlier {
            Some(json) => columns::json(json)?,
            None => Vec::new(),
        };
        let mut attempts = earlier
            .into_iter()
            .map(EarlierAttempt::read)
            .collect::<Result<Vec<_>, _>>()?;
        attempts.extend(self.last());
        Ok(attempts)
    }

    /// The last attempt; `None` before the first, and after one that was given back.
    fn last(self) -> Option<JobAttempt> {
        let started_at = self.started_at?;
        // A late end of an expired lease counts, so the job decides.
        let end = AttemptEnd::of_job(self.status);
        let lost = self.expired_at.map(|_| AttemptEnd::Lost);
        Some(JobAttempt {
            number: self.attempt,
            started_at: Some(started_at),
            ended_at: self.completed_at.or(self.expired_at),
            end: end.or(lost),
            runner: self.director,
        })
    }
}

impl EarlierAttempt {
    fn read(self) -> Result<JobAttempt, ColumnError> {
        Ok(JobAttempt {
            number: self.number,
            started_at: Some(columns::timestamp(self.started_at)?),
            ended_at: Some(columns::timestamp(self.ended_at)?),
            end: Some(self.end),
            runner: self.director,
        })
    }
}
