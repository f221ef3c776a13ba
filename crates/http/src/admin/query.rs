//! The parameters of a request: the query string, and the account in the path.

use std::time::Duration;

use tidegate_core::counters::MetricLabel;
use tidegate_core::store::JobFilter;
use tidegate_core::{Account, JobId, Status};
use url::form_urlencoded;

use super::job_page::JobListCursor;
use super::reply::ApiError;

/// How many jobs are listed by default, and at most.
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;
/// The longest wait for more logs.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// The anonymous account in paths and parameters; no account can have this name.
pub(crate) const ANONYMOUS: &str = "~";

/// The parameters of a query string; of several with the same name the first counts.
pub(super) struct AdminQuery(Vec<(String, String)>);

impl AdminQuery {
    pub(super) fn parse(query: Option<&str>) -> Self {
        Self(
            form_urlencoded::parse(query.unwrap_or_default().as_bytes())
                .into_owned()
                .collect(),
        )
    }

    /// The value of a parameter, if it is not empty.
    fn value(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(key, _)| key == name)?;
        Some(value.as_str()).filter(|value| !value.is_empty())
    }

    /// The job id in a parameter. An invalid id is an unknown job.
    pub(super) fn job(&self, name: &str) -> Result<Option<JobId>, ApiError> {
        self.value(name)
            .map(|id| JobId::parse(id).map_err(|_| ApiError::UnknownJob(id.to_owned())))
            .transpose()
    }

    /// The jobs to list, among those that the client may see.
    pub(super) fn job_filter(&self, scope: Option<Account>) -> Result<JobFilter, ApiError> {
        let account = self.value("account").map(|name| {
            account(name).ok_or_else(|| invalid("account", name, "not a valid account name"))
        });
        Ok(JobFilter {
            // A client that may see one account and asks for another gets nothing: see
            // `is_outside`.
            account: scope.or(account.transpose()?),
            id: self.job("id")?,
            id_prefix: self.value("id_prefix").map(str::to_owned),
            deployment: None,
            model: self.value("model").map(str::to_owned),
            statuses: self.statuses()?,
            created_until: None,
            limit: self.limit()?,
        })
    }

    /// The job after which the page begins.
    pub(super) fn before(&self) -> Result<Option<JobListCursor>, ApiError> {
        let Some(text) = self.value("before") else {
            return Ok(None);
        };
        let cursor = JobListCursor::parse(text);
        let cursor = cursor.ok_or_else(|| invalid("before", text, "use the `next` of a response"));
        cursor.map(Some)
    }

    /// Whether the query asks for another account than the one that the client may see.
    pub(super) fn is_outside(&self, scope: Option<&Account>) -> bool {
        scope.is_some()
            && self
                .value("account")
                .is_some_and(|name| account(name).as_ref() != scope)
    }

    /// The version of a model.
    pub(super) fn version(&self) -> Option<&str> {
        self.value("version")
    }

    fn statuses(&self) -> Result<Vec<Status>, ApiError> {
        let names = self.value("status").unwrap_or_default();
        let mut statuses = Vec::new();
        for name in names.split(',').filter(|name| !name.is_empty()) {
            let matches = |status: &&Status| match name {
                "open" => !status.is_terminal(),
                "over" => status.is_terminal(),
                name => status.as_str() == name,
            };
            let before = statuses.len();
            statuses.extend(Status::ALL.iter().filter(matches));
            if statuses.len() == before {
                let expected = "use `open`, `over`, or a list of `queued`, `starting`, `processing`, `succeeded`, `failed`, `canceled`, `aborted`";
                return Err(invalid("status", name, expected));
            }
        }
        Ok(statuses)
    }

    fn limit(&self) -> Result<usize, ApiError> {
        let Some(text) = self.value("limit") else {
            return Ok(DEFAULT_LIMIT);
        };
        let limit = text
            .parse::<usize>()
            .ok()
            .filter(|limit| (1..=MAX_LIMIT).contains(limit));
        limit.ok_or_else(|| invalid("limit", text, "use a number from 1 to 1000"))
    }

    /// The byte from which the logs are read.
    pub(super) fn from(&self) -> Result<usize, ApiError> {
        let Some(text) = self.value("from") else {
            return Ok(0);
        };
        text.parse()
            .map_err(|_| invalid("from", text, "use the `next` of the previous response"))
    }

    /// How long to wait for more logs.
    pub(super) fn wait(&self) -> Result<Duration, ApiError> {
        let Some(text) = self.value("wait") else {
            return Ok(Duration::ZERO);
        };
        let seconds = text
            .parse::<u64>()
            .map_err(|_| invalid("wait", text, "use a number of seconds"))?;
        Ok(Duration::from_secs(seconds).min(MAX_WAIT))
    }
}

fn invalid(name: &'static str, value: &str, expected: &'static str) -> ApiError {
    ApiError::InvalidParameter {
        name,
        value: value.chars().take(100).collect(),
        expected,
    }
}

/// The account with this name in a path.
pub(super) fn account(name: &str) -> Option<Account> {
    if name == ANONYMOUS {
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
    fn statuses_are_selected_by_name_or_group() {
        let statuses = |query: &str| {
            AdminQuery::parse(Some(query))
                .job_filter(None)
                .map(|filter| filter.statuses)
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
    fn a_client_sees_only_its_account() {
        let params = AdminQuery::parse(Some("account=bob"));
        assert_eq!(
            params.job_filter(None).unwrap().account,
            Account::parse("bob").ok()
        );
        assert_eq!(params.job_filter(Some(ann())).unwrap().account, Some(ann()));
        assert!(params.is_outside(Some(&ann())) && !params.is_outside(None));
        assert!(!AdminQuery::parse(Some("account=ann")).is_outside(Some(&ann())));
        assert_eq!(
            AdminQuery::parse(Some("account=~"))
                .job_filter(None)
                .unwrap()
                .account,
            Some(Account::ANONYMOUS)
        );
    }

    #[test]
    fn numbers_are_limited() {
        let limit = |query: &str| {
            AdminQuery::parse(Some(query))
                .job_filter(None)
                .map(|filter| filter.limit)
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
        let wait = |query: &str| AdminQuery::parse(Some(query)).wait().ok();
        assert_eq!(
            [wait(""), wait("wait=5"), wait("wait=9999"), wait("wait=-1")]
                .map(|wait| wait.map(|wait| wait.as_secs())),
            [Some(0), Some(5), Some(60), None]
        );
    }
}
