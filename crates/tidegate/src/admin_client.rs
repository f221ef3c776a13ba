//! The client of the admin API, for the commands that inspect a running server.

use anyhow::{Context, bail};
use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use tidegate_net::StreamedResponse;

use crate::cli::ConnectArgs;
use crate::server_connection::ServerConnection;
use crate::usage_error::UsageError;

/// The anonymous account in the paths of the admin API.
pub(crate) const ANONYMOUS: &str = "~";
/// How many of several matching ids are shown.
const MAX_SHOWN: usize = 10;

/// A client of one server.
pub(crate) struct AdminClient {
    server: ServerConnection,
    kind: ServerKind,
}

/// Which command starts the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerKind {
    Server,
    Platform,
}

/// A list of jobs.
#[derive(Debug, Deserialize)]
pub(crate) struct JobList {
    pub(crate) jobs: Vec<JobRow>,
    pub(crate) scope: String,
}

/// A job in a list.
#[derive(Debug, Deserialize)]
pub(crate) struct JobRow {
    pub(crate) account: Option<String>,
    pub(crate) id: String,
    pub(crate) model: String,
    pub(crate) status: String,
    pub(crate) waited_s: f64,
    pub(crate) ran_s: Option<f64>,
    pub(crate) created_at: jiff::Timestamp,
    /// Absent on servers of an earlier version, too.
    pub(crate) error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct DeliveryList {
    deliveries: Vec<DeliveryRow>,
}

#[derive(Debug, Deserialize)]
struct DeliveryRow {
    id: String,
}

#[derive(Debug, Deserialize)]
struct ErrorBody {
    error: String,
}

impl AdminClient {
    pub(crate) fn new(args: &ConnectArgs) -> anyhow::Result<Self> {
        Ok(Self {
            server: ServerConnection::new(&args.url, args.token_file.as_deref(), &args.trust)?,
            kind: ServerKind::Server,
        })
    }

    /// A client of a `tidegate platform`.
    pub(crate) fn platform(args: &ConnectArgs) -> anyhow::Result<Self> {
        Ok(Self {
            kind: ServerKind::Platform,
            ..Self::new(args)?
        })
    }

    /// Whether requests carry a token.
    pub(crate) fn has_token(&self) -> bool {
        self.server.has_token()
    }

    /// Sends a GET request, and parses the response.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> anyhow::Result<T> {
        serde_json::from_slice(&self.call(path, query, None).await?)
            .with_context(|| self.unexpected_response())
    }

    /// Sends a GET request, and returns the body.
    pub(crate) async fn get_raw(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> anyhow::Result<Bytes> {
        self.call(path, query, None).await
    }

    /// Sends a GET request, and returns the events of the response; `None` if the server does not have them.
    pub(crate) async fn get_events(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> anyhow::Result<Option<StreamedResponse>> {
        let url = self.server.at(path, query)?;
        let response = self.server.fetch_events(&url, None, self.remedy()).await?;
        Ok((response.status() == 200).then_some(response))
    }

    /// Sends a POST request without a body.
    pub(crate) async fn post(&self, path: &[&str]) -> anyhow::Result<()> {
        self.call(path, &[], Some(Bytes::from_static(b"{}")))
            .await
            .map(drop)
    }

    /// Sends a POST request with a JSON body, and parses the response.
    pub(crate) async fn post_json<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &serde_json::Value,
    ) -> anyhow::Result<T> {
        let body = Bytes::from(serde_json::to_vec(body)?);
        serde_json::from_slice(&self.call(path, &[], Some(body)).await?)
            .with_context(|| self.unexpected_response())
    }

    /// Finds the job with this id, or the only job whose id begins with it.
    pub(crate) async fn find(&self, id: &str, account: Option<&str>) -> anyhow::Result<JobRow> {
        let mut found = self.list_by("id", id, account).await?;
        if found.jobs.is_empty() {
            found = self.list_by("id_prefix", id, account).await?;
            // A server of a previous version ignores the parameter.
            found.jobs.retain(|job| job.id.starts_with(id));
        }
        let JobList { mut jobs, scope } = found;
        match (jobs.pop(), jobs.first()) {
            (Some(job), None) => Ok(job),
            (Some(last), Some(first)) if last.id != first.id => {
                let ids = jobs.iter().chain([&last]).map(|job| job.id.as_str());
                Err(ambiguous("jobs", id, ids).into())
            }
            (Some(last), Some(_)) => {
                let owners: Vec<&str> = jobs
                    .iter()
                    .chain([&last])
                    .map(|job| job.account.as_deref().unwrap_or(ANONYMOUS))
                    .collect();
                let usage = UsageError::new(format!(
                    "several accounts have a job `{}`: {}",
                    last.id,
                    owners.join(", ")
                ));
                Err(usage.hint("select the account with --account NAME").into())
            }
            (None, _) => {
                let scope = if scope == "account" && self.has_token() {
                    " of your account"
                } else {
                    ""
                };
                let usage =
                    UsageError::new(format!("{} has no job `{id}`{scope}", self.server.base()))
                        .transient();
                Err(usage
                    .hint("`tidegate ps --all` lists the jobs of the server")
                    .into())
            }
        }
    }

    async fn list_by(
        &self,
        parameter: &str,
        value: &str,
        account: Option<&str>,
    ) -> anyhow::Result<JobList> {
        let mut query = vec![(parameter, value)];
        query.extend(account.map(|account| ("account", account)));
        self.get(&["admin", "jobs"], &query).await
    }

    /// The id of the webhook message that begins with `id`, if there is only one; otherwise `id`, which
    /// the server may know.
    pub(crate) async fn find_message(&self, id: &str) -> anyhow::Result<String> {
        let DeliveryList { deliveries } = self.get(&["admin", "deliveries"], &[]).await?;
        let mut ids: Vec<&str> = deliveries
            .iter()
            .map(|message| message.id.as_str())
            .collect();
        ids.retain(|known| known.starts_with(id));
        ids.dedup();
        match &ids[..] {
            [only] => Ok((*only).to_owned()),
            [] => Ok(id.to_owned()),
            many if many.contains(&id) => Ok(id.to_owned()),
            many => Err(ambiguous("messages", id, many.iter().copied()).into()),
        }
    }

    async fn call(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<Bytes>,
    ) -> anyhow::Result<Bytes> {
        let url = self.server.at(path, query)?;
        let (status, body) = self.server.fetch(&url, body, self.remedy()).await?;
        let error = serde_json::from_slice::<ErrorBody>(&body)
            .map(|refused| refused.error)
            .ok();
        match (status, error) {
            (200..300, _) => Ok(body),
            (403, Some(error)) => Err(UsageError::new(format!(
                "{} refused the request: {error}",
                self.server.base()
            ))
            .hint("use an admin token")
            .into()),
            (404, Some(error)) if self.kind == ServerKind::Platform => {
                let hint = "`tidegate endpoints list` lists the endpoints; only a `tidegate platform`, and a `serve` or `api` with --endpoint NAME, have endpoints";
                Err(UsageError::new(error).transient().hint(hint).into())
            }
            // The servers with jobs say in their own words what they do not know.
            (404, None) => Err(UsageError::new(self.unexpected_response())
                .transient()
                .hint("set --url or TIDEGATE_URL to a `tidegate serve`, `api` or `platform`: directors, workers and routers have no jobs")
                .into()),
            (_, Some(error)) => bail!("{error}"),
            (_, None) => bail!("{} ({status})", self.unexpected_response()),
        }
    }

    /// What to do if no server responds.
    fn remedy(&self) -> &'static str {
        match self.kind {
            ServerKind::Server => {
                "start one with `tidegate serve DIR`, or set its address with --url or TIDEGATE_URL"
            }
            ServerKind::Platform => {
                "start one with `tidegate platform`, or set its address with --url or TIDEGATE_URL"
            }
        }
    }

    fn unexpected_response(&self) -> String {
        format!(
            "the server at {} did not respond like a tidegate server of this version",
            self.server.base()
        )
    }
}

/// Several ids begin with `prefix`.
fn ambiguous<'a>(what: &str, prefix: &str, ids: impl Iterator<Item = &'a str>) -> UsageError {
    let shown: Vec<&str> = ids.take(MAX_SHOWN).collect();
    UsageError::new(format!(
        "the ids of several {what} begin with `{prefix}`: {}",
        shown.join(", ")
    ))
    .hint("give more characters of the id")
}

impl JobRow {
    /// Its account in the paths of the admin API.
    pub(crate) fn owner(&self) -> &str {
        self.account.as_deref().unwrap_or(ANONYMOUS)
    }
}
