//! What an operator asks for: the part of an address after `?`, and the names in its path.

use std::time::Duration;

use tidegate_core::meter::MetricLabel;
use tidegate_core::store::JobFilter;
use tidegate_core::{Account, JobId, Status};
use url::form_urlencoded;

use super::reply::ApiError;

/// How many jobs are listed if nobody says how many, and at most.
const USUAL_LIMIT: usize = 100;
const MOST: usize = 1000;
/// Nobody is kept waiting longer for more logs.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Stands for nobody's account in paths and questions; no account can be called so.
pub(super) const NOBODY: &str = "~";

/// The values of a query by their names; the first counts.
pub(super) struct JobQuery(Vec<(String, String)>);

impl JobQuery {
    pub(super) fn read(query: Option<&str>) -> Self {
        Self(
            form_urlencoded::parse(query.unwrap_or_default().as_bytes())
                .into_owned()
                .collect(),
        )
    }

    /// What is given and not empty.
    fn value(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(given, _)| given == name)?;
        Some(value.as_str()).filter(|value| !value.is_empty())
    }

    /// An id that cannot be one is of no job.
    pub(super) fn job(&self, name: &str) -> Result<Option<JobId>, ApiError> {
        self.value(name)
            .map(|id| JobId::parse(id).map_err(|_| ApiError::UnknownJob(id.to_owned())))
            .transpose()
    }

    /// Which jobs are wanted, within what the caller may see.
    pub(super) fn wanted(&self, scope: Option<Account>) -> Result<JobFilter, ApiError> {
        let asked = self.value("account").map(|name| {
            account(name).ok_or_else(|| bad("account", name, "no account has such a name"))
        });
        Ok(JobFilter {
            // Who may see one account only and asks for another sees nothing of either.
            account: scope.or(asked.transpose()?),
            id: self.job("id")?,
            model: self.value("model").map(str::to_owned),
            statuses: self.statuses()?,
            limit: self.limit()?,
        })
    }

    /// The account that is asked for is another than the one that may be seen.
    pub(super) fn is_about_others(&self, scope: Option<&Account>) -> bool {
        scope.is_some()
            && self
                .value("account")
                .is_some_and(|name| account(name).as_ref() != scope)
    }

    fn statuses(&self) -> Result<Vec<Status>, ApiError> {
        let words = self.value("status").unwrap_or_default();
        let mut statuses = Vec::new();
        for word in words.split(',').filter(|word| !word.is_empty()) {
            let named = |status: &&Status| match word {
                "open" => !status.is_terminal(),
                "over" => status.is_terminal(),
                word => status.as_str() == word,
            };
            let before = statuses.len();
            statuses.extend(Status::ALL.iter().filter(named));
            if statuses.len() == before {
                let expected = "use `open`, `over`, or some of `queued`, `starting`, `processing`, `succeeded`, `failed`, `canceled`, `aborted`";
                return Err(bad("status", word, expected));
            }
        }
        Ok(statuses)
    }

    fn limit(&self) -> Result<usize, ApiError> {
        let Some(text) = self.value("limit") else {
            return Ok(USUAL_LIMIT);
        };
        let limit = text
            .parse::<usize>()
            .ok()
            .filter(|limit| (1..=MOST).contains(limit));
        limit.ok_or_else(|| bad("limit", text, "use a number from 1 to 1000"))
    }

    /// Up to which byte the logs have been seen.
    pub(super) fn from(&self) -> Result<usize, ApiError> {
        let Some(text) = self.value("from") else {
            return Ok(0);
        };
        text.parse()
            .map_err(|_| bad("from", text, "use the `next` of the answer before"))
    }

    /// How long more logs may be waited for.
    pub(super) fn wait(&self) -> Result<Duration, ApiError> {
        let Some(text) = self.value("wait") else {
            return Ok(Duration::ZERO);
        };
        let seconds = text
            .parse::<u64>()
            .map_err(|_| bad("wait", text, "use a number of seconds"))?;
        Ok(Duration::from_secs(seconds).min(LONGEST_WAIT))
    }
}

fn bad(name: &'static str, value: &str, expected: &'static str) -> ApiError {
    ApiError::InvalidParameter {
        name,
        value: value.chars().take(100).collect(),
        expected,
    }
}

/// The account with this name in a path.
pub(super) fn account(name: &str) -> Option<Account> {
    if name == NOBODY {
        Some(Account::ANONYMOUS)
    } else {
        Account::parse(name).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ann() -> Account {
        Account::parse("ann").unwrap()
    }

    #[test]
    fn states_are_named_alone_or_together() {
        let statuses = |query: &str| {
            JobQuery::read(Some(query))
                .wanted(None)
                .map(|wanted| wanted.statuses)
        };
        assert_eq!(statuses("").unwrap(), []);
        assert_eq!(
            statuses("status=open").unwrap(),
            [Status::Queued, Status::Starting, Status::Processing]
        );
        assert_eq!(
            statuses("status=failed,canceled").unwrap(),
            [Status::Failed, Status::Canceled]
        );
        assert!(statuses("status=odd").is_err());
    }

    #[test]
    fn nobody_sees_beyond_their_account() {
        let query_params = JobQuery::read(Some("account=bob"));
        assert_eq!(
            query_params.wanted(None).unwrap().account,
            Account::parse("bob").ok()
        );
        assert_eq!(
            query_params.wanted(Some(ann())).unwrap().account,
            Some(ann())
        );
        assert!(query_params.is_about_others(Some(&ann())) && !query_params.is_about_others(None));
        assert!(!JobQuery::read(Some("account=ann")).is_about_others(Some(&ann())));
        assert_eq!(
            JobQuery::read(Some("account=~"))
                .wanted(None)
                .unwrap()
                .account,
            Some(Account::ANONYMOUS)
        );
    }

    #[test]
    fn numbers_have_bounds() {
        let limit = |query: &str| {
            JobQuery::read(Some(query))
                .wanted(None)
                .map(|wanted| wanted.limit)
                .ok()
        };
        assert_eq!(
            [
                limit(""),
                limit("limit=7"),
                limit("limit=0"),
                limit("limit=1001")
            ],
            [Some(100), Some(7), None, None]
        );
        let wait = |query: &str| JobQuery::read(Some(query)).wait().ok();
        assert_eq!(
            [wait(""), wait("wait=5"), wait("wait=9999"), wait("wait=-1")]
                .map(|wait| wait.map(|wait| wait.as_secs())),
            [Some(0), Some(5), Some(60), None]
        );
    }
}
