//! The client of the admin API, for the commands that inspect a running server.

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tidegate_net::{Client, Config, Url};

use crate::cli::ConnectArgs;
use crate::secrets;
use crate::usage_error::UsageError;

/// The anonymous account in the paths of the admin API.
const ANONYMOUS: &str = "~";

const URL_HINT: &str = "give a URL such as --url http://127.0.0.1:5000";

/// A client of one server.
pub(crate) struct AdminClient {
    base: Url,
    token: Option<String>,
    client: Client,
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
}

#[derive(Debug, Deserialize)]
struct ErrorBody {
    error: String,
}

impl AdminClient {
    pub(crate) fn new(args: &ConnectArgs) -> anyhow::Result<Self> {
        let usage = |error: &dyn std::fmt::Display| {
            UsageError::new(format!(
                "`{}` is not the URL of a server: {error}",
                args.url
            ))
        };
        let base = Url::parse(&args.url).map_err(|error| usage(&error).hint(URL_HINT))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(usage(&"it does not start with http:// or https://")
                .hint(URL_HINT)
                .into());
        }
        Ok(Self {
            base,
            token: token(args.token_file.as_deref())?,
            client: Client::new(Config::default()),
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
        self.token.is_some()
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

    /// Finds the job with this id.
    pub(crate) async fn find(&self, id: &str, account: Option<&str>) -> anyhow::Result<JobRow> {
        let mut query = vec![("id", id)];
        query.extend(account.map(|account| ("account", account)));
        let JobList { mut jobs, scope } = self.get(&["admin", "jobs"], &query).await?;
        match (jobs.pop(), jobs.len()) {
            (Some(job), 0) => Ok(job),
            (Some(last), _) => {
                let owners: Vec<&str> = jobs
                    .iter()
                    .chain([&last])
                    .map(|job| job.account.as_deref().unwrap_or(ANONYMOUS))
                    .collect();
                let usage = UsageError::new(format!(
                    "several accounts have a job `{id}`: {}",
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
                    UsageError::new(format!("{} has no job `{id}`{scope}", self.base)).transient();
                Err(usage
                    .hint("`tidegate ps --all` lists the jobs of the server")
                    .into())
            }
        }
    }

    async fn call(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<Bytes>,
    ) -> anyhow::Result<Bytes> {
        let url = self.at(path, query)?;
        let response = self.client.fetch(&url, self.token.as_deref(), body).await;
        let (status, body) = response.map_err(|error| {
            let start = match self.kind {
                ServerKind::Server => "tidegate serve DIR",
                ServerKind::Platform => "tidegate platform",
            };
            let hint =
                format!("start one with `{start}`, or set its address with --url or TIDEGATE_URL");
            anyhow!(error).context(
                UsageError::new(format!("no server responds at {}", self.base))
                    .transient()
                    .hint(hint),
            )
        })?;
        let error = serde_json::from_slice::<ErrorBody>(&body)
            .map(|refused| refused.error)
            .ok();
        match (status.as_u16(), error) {
            (200..300, _) => Ok(body),
            (401, _) => {
                let why = if self.token.is_some() {
                    "the token is invalid"
                } else {
                    "a token is required"
                };
                let usage = UsageError::new(format!("access to {} denied: {why}", self.base));
                Err(usage
                    .hint("set TIDEGATE_API_TOKEN or --token-file FILE")
                    .into())
            }
            (403, Some(error)) => Err(UsageError::new(format!(
                "{} refused the request: {error}",
                self.base
            ))
            .hint("use an admin token")
            .into()),
            (404, Some(error)) if self.kind == ServerKind::Platform => {
                let hint = "`tidegate endpoints list` lists the endpoints; only a `tidegate platform` has endpoints";
                Err(UsageError::new(error).transient().hint(hint).into())
            }
            (_, Some(error)) => bail!("{error}"),
            (_, None) => bail!("{} ({status})", self.unexpected_response()),
        }
    }

    fn unexpected_response(&self) -> String {
        format!(
            "the server at {} did not respond like a tidegate server of this version",
            self.base
        )
    }

    fn at(&self, path: &[&str], query: &[(&str, &str)]) -> anyhow::Result<Url> {
        let mut url = self.base.clone();
        let segments = url.path_segments_mut().map(|mut segments| {
            segments.pop_if_empty().extend(path);
        });
        segments.map_err(|()| UsageError::new(format!("`{}` cannot have a path", self.base)))?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }
}

impl JobRow {
    /// Its account in the paths of the admin API.
    pub(crate) fn owner(&self) -> &str {
        self.account.as_deref().unwrap_or(ANONYMOUS)
    }
}

/// The token from the file or from the environment.
pub(crate) fn token(file: Option<&Path>) -> anyhow::Result<Option<String>> {
    let (source, text) = match file {
        Some(file) => {
            let bad = |error| {
                UsageError::new(format!(
                    "failed to read the token file `{}`: {error}",
                    file.display()
                ))
            };
            (
                format!("`{}`", file.display()),
                std::fs::read_to_string(file).map_err(bad)?,
            )
        }
        None => match secrets::variable("TIDEGATE_API_TOKEN").filter(|text| !text.is_empty()) {
            Some(text) => ("TIDEGATE_API_TOKEN".to_owned(), text),
            None => return Ok(None),
        },
    };
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(
            UsageError::new(format!("{source} must contain one token and nothing else")).into(),
        );
    }
    Ok(Some(token.to_owned()))
}
