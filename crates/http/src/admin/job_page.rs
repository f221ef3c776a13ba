//! Pages of jobs: open ones before ended ones, both newest first.
//!
//! Open jobs are in memory, or in the store if directors run them; of the ended ones the newest are in memory
//! and the others in the store. The cursor names the last job of a page, so that jobs that are created
//! meanwhile move nothing.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;

use jiff::Timestamp;
use tidegate_core::counters::MetricLabel;
use tidegate_core::record::JobSummary;
use tidegate_core::store::{JobFilter, JobHead, StoreError};
use tidegate_core::{Account, JobId, Status};
use tidegate_service::JobService;

use super::query::ANONYMOUS;

/// How many jobs are read beyond a page. The store sorts by the order of insertion, which differs from the
/// order of creation by the number of jobs that were being inserted at the same time.
const MARGIN: usize = 100;

/// The position of a job in the list, and the end of a page.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JobListCursor {
    is_ended: bool,
    /// Microseconds, as in the store, so that a job keeps its place when only the store has it.
    created_at: Reverse<i64>,
    /// The account and the id, because several jobs may be created in a microsecond.
    key: String,
}

impl JobListCursor {
    fn of(job: JobHead<'_>) -> Self {
        let account = match job.account.is_anonymous() {
            true => ANONYMOUS,
            false => job.account.as_str(),
        };
        Self {
            is_ended: job.status.is_terminal(),
            created_at: Reverse(job.created_at.as_microsecond()),
            key: format!("{account}/{}", job.id.as_str()),
        }
    }

    /// Jobs after it were not created later than this. A job in memory may be some nanoseconds younger.
    fn created_until(&self) -> Option<Timestamp> {
        Timestamp::from_microsecond(self.created_at.0).ok()
    }

    /// Parses the text that `Display` writes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let is_ended = match parts.next()? {
            "open" => false,
            "over" => true,
            _ => return None,
        };
        let created_at = parts.next()?.parse().ok()?;
        Timestamp::from_microsecond(created_at).ok()?;
        Some(Self {
            is_ended,
            created_at: Reverse(created_at),
            key: parts.next()?.to_owned(),
        })
    }
}

impl fmt::Display for JobListCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = if self.is_ended { "over" } else { "open" };
        write!(f, "{part}.{}.{}", self.created_at.0, self.key)
    }
}

/// The jobs of a page, and the cursor of the next one.
pub(super) struct JobPage {
    pub(super) jobs: Vec<JobSummary>,
    pub(super) next: Option<JobListCursor>,
}

/// The matching jobs after a cursor.
pub(super) async fn find_page(
    jobs: &JobService,
    filter: &JobFilter,
    after: Option<&JobListCursor>,
) -> Result<JobPage, StoreError> {
    // One more than the page has, which says whether there is another page.
    let in_memory = jobs.select_in_memory(filter.limit + 1, |job| {
        let position = filter.matches(job).then(|| JobListCursor::of(job));
        position.filter(|position| after.is_none_or(|cursor| position > cursor))
    });
    let in_memory = in_memory.into_iter();
    let mut known: HashMap<(Account, JobId), JobSummary> =
        in_memory.map(|summary| (key(&summary), summary)).collect();
    for query in queries(filter, after) {
        for summary in jobs.list_recorded(&query).await? {
            // The record of a job in memory may be outdated, whether it matches there or not.
            if !jobs.is_in_memory(&summary.account, &summary.id) {
                known.entry(key(&summary)).or_insert(summary);
            }
        }
    }
    Ok(page_of(known.into_values(), filter, after))
}

/// The queries for the records of a page: one for open jobs, one for ended ones.
fn queries(filter: &JobFilter, after: Option<&JobListCursor>) -> Vec<JobFilter> {
    let is_wanted =
        |status: &Status| filter.statuses.is_empty() || filter.statuses.contains(status);
    let query = |is_ended: bool| {
        let statuses = Status::ALL.iter().copied().filter(is_wanted);
        let statuses: Vec<Status> = statuses.filter(|s| s.is_terminal() == is_ended).collect();
        let after_here = after.filter(|cursor| cursor.is_ended == is_ended);
        // All open jobs come before the ended ones.
        let is_past = after.is_some_and(|cursor| cursor.is_ended && !is_ended);
        (!statuses.is_empty() && !is_past).then(|| JobFilter {
            statuses,
            created_until: after_here.and_then(JobListCursor::created_until),
            limit: filter.limit + MARGIN,
            ..filter.clone()
        })
    };
    [query(false), query(true)].into_iter().flatten().collect()
}

fn page_of(
    jobs: impl Iterator<Item = JobSummary>,
    filter: &JobFilter,
    after: Option<&JobListCursor>,
) -> JobPage {
    let is_after =
        |job: &JobSummary| after.is_none_or(|cursor| JobListCursor::of(job.into()) > *cursor);
    let mut jobs: Vec<JobSummary> = jobs
        .filter(|job| filter.matches(job) && is_after(job))
        .collect();
    jobs.sort_by_cached_key(|job| JobListCursor::of(job.into()));
    let is_last = jobs.len() <= filter.limit;
    jobs.truncate(filter.limit);
    let last = jobs.last().filter(|_| !is_last);
    JobPage {
        next: last.map(|job| JobListCursor::of(job.into())),
        jobs,
    }
}

fn key(summary: &JobSummary) -> (Account, JobId) {
    (summary.account.clone(), summary.id.clone())
}

#[cfg(test)]
mod tests {
    use tidegate_core::JobKind;
    use tidegate_core::record::{Api, Target};

    use super::*;

    fn job(id: &str, second: i64, status: Status) -> JobSummary {
        JobSummary {
            id: JobId::parse(id).unwrap(),
            account: Account::ANONYMOUS,
            kind: JobKind::Prediction,
            target: Target::of_endpoint("x"),
            api: Api::Cog,
            status,
            created_at: Timestamp::from_second(second).unwrap(),
            started_at: None,
            completed_at: None,
            error: None,
        }
    }

    #[test]
    fn pages_have_every_job_once_with_the_open_ones_first() {
        let all = [
            job("a", 1, Status::Succeeded),
            job("b", 2, Status::Queued),
            job("c", 3, Status::Failed),
            job("d", 3, Status::Failed),
            job("e", 4, Status::Processing),
            job("f.g", 5, Status::Canceled),
        ];
        let filter = JobFilter {
            limit: 2,
            ..JobFilter::default()
        };
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let page = page_of(all.iter().cloned(), &filter, cursor.as_ref());
            seen.push(
                page.jobs
                    .iter()
                    .map(|job| job.id.to_string())
                    .collect::<String>(),
            );
            let Some(next) = page.next else { break };
            cursor = JobListCursor::parse(&next.to_string());
            assert_eq!(cursor.as_ref(), Some(&next));
        }
        assert_eq!(seen, ["eb", "f.gc", "da"]);
    }

    #[test]
    fn jobs_of_one_microsecond_are_on_one_page_each() {
        let at = |account: &str, nanos: i64| JobSummary {
            account: Account::parse(account).unwrap(),
            created_at: Timestamp::from_nanosecond(1_000_000_000_000_000_000 + i128::from(nanos))
                .unwrap(),
            ..job("same", 1, Status::Succeeded)
        };
        // All but the last are of one microsecond; in the store, none has the nanoseconds.
        let in_memory = [
            at("b", 900),
            at("a", 100),
            at("d", 500),
            at("c", 0),
            at("z.1", -1),
        ];
        let in_store = in_memory.clone().map(|job| JobSummary {
            created_at: Timestamp::from_microsecond(job.created_at.as_microsecond()).unwrap(),
            ..job
        });
        let filter = JobFilter {
            limit: 1,
            ..JobFilter::default()
        };
        let (mut seen, mut cursor) = (Vec::new(), None);
        for n in 0.. {
            // The jobs leave the memory while they are listed.
            let all = if n < 2 { &in_memory } else { &in_store };
            let page = page_of(all.iter().cloned(), &filter, cursor.as_ref());
            seen.extend(page.jobs.iter().map(|job| job.account.to_string()));
            let Some(next) = page.next else { break };
            cursor = JobListCursor::parse(&next.to_string());
            assert_eq!(cursor.as_ref(), Some(&next));
        }
        assert_eq!(seen, ["a", "b", "c", "d", "z.1"]);
    }

    #[test]
    fn only_the_records_that_a_page_needs_are_read() {
        let ended = job("a", 7, Status::Succeeded);
        let cursor = JobListCursor::of((&ended).into());
        let filter = JobFilter {
            limit: 10,
            ..JobFilter::default()
        };
        let first = queries(&filter, None);
        assert_eq!(first.len(), 2);
        assert!(first.iter().all(|query| query.created_until.is_none()));
        let [next] = &queries(&filter, Some(&cursor))[..] else {
            panic!("open jobs are on earlier pages")
        };
        assert_eq!(next.created_until, Timestamp::from_second(7).ok());
        let failed = JobFilter {
            statuses: vec![Status::Failed],
            ..filter
        };
        assert_eq!(queries(&failed, None).len(), 1);
    }

    #[test]
    fn other_texts_are_no_cursors() {
        for text in ["", "open", "open.1", "over.x.a", "late.1.a"] {
            assert_eq!(JobListCursor::parse(text), None, "{text}");
        }
    }
}
