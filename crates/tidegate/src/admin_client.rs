//! A server that runs, as the commands that look at it see it.

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tidegate_net::{Client, Config, Url};

use crate::cli::ConnectArgs;
use crate::secrets;
use crate::usage_error::UsageError;

/// Stands for nobody's account in the server's paths.
const NOBODY: &str = "~";

const LIKE_THIS: &str = "give it like --url http://127.0.0.1:5000";

/// A server that runs somewhere.
pub(crate) struct AdminClient {
    base: Url,
    token: Option<String>,
    client: Client,
    sought: ServerKind,
}

/// What is to be there.
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

/// A job in a few words.
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
    pub(crate) fn of(args: &ConnectArgs) -> anyhow::Result<Self> {
        let usage = |error: &dyn std::fmt::Display| {
            UsageError::new(format!(
                "`{}` is not the URL of a server: {error}",
                args.url
            ))
        };
        let base = Url::parse(&args.url).map_err(|error| usage(&error).hint(LIKE_THIS))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(usage(&"it does not begin with http:// or https://")
                .hint(LIKE_THIS)
                .into());
        }
        Ok(Self {
            base,
            token: token(args.token_file.as_deref())?,
            client: Client::new(Config::default()),
            sought: ServerKind::Server,
        })
    }

    /// A server with endpoints.
    pub(crate) fn platform(args: &ConnectArgs) -> anyhow::Result<Self> {
        Ok(Self {
            sought: ServerKind::Platform,
            ..Self::of(args)?
        })
    }

    /// Whether it is told who we are.
    pub(crate) fn knows_us(&self) -> bool {
        self.token.is_some()
    }

    /// Reads something.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> anyhow::Result<T> {
        serde_json::from_slice(&self.call(path, query, None).await?).with_context(|| self.strange())
    }

    /// The same, without looking into it.
    pub(crate) async fn get_raw(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> anyhow::Result<Bytes> {
        self.call(path, query, None).await
    }

    /// Has something done.
    pub(crate) async fn post(&self, path: &[&str]) -> anyhow::Result<()> {
        self.call(path, &[], Some(Bytes::from_static(b"{}")))
            .await
            .map(drop)
    }

    /// Has something done that needs to be described, and reads the answer.
    pub(crate) async fn post_json<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &serde_json::Value,
    ) -> anyhow::Result<T> {
        let body = Bytes::from(serde_json::to_vec(body)?);
        serde_json::from_slice(&self.call(path, &[], Some(body)).await?)
            .with_context(|| self.strange())
    }

    /// The one job with this id.
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
                    .map(|job| job.account.as_deref().unwrap_or(NOBODY))
                    .collect();
                let usage = UsageError::new(format!(
                    "several accounts have a job `{id}`: {}",
                    owners.join(", ")
                ));
                Err(usage.hint("say whose is meant with --account NAME").into())
            }
            (None, _) => {
                let whose = if scope == "account" && self.knows_us() {
                    " of your account"
                } else {
                    ""
                };
                let usage = UsageError::new(format!("{} knows no job `{id}`{whose}", self.base))
                    .transient();
                Err(usage
                    .hint("`tidegate ps --all` lists those that it knows")
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
        let answered = self.client.fetch(&url, self.token.as_deref(), body).await;
        let (status, body) = answered.map_err(|error| {
            let start = match self.sought {
                ServerKind::Server => "tidegate serve DIR",
                ServerKind::Platform => "tidegate platform",
            };
            let hint =
                format!("start one with `{start}`, or say where it is with --url or TIDEGATE_URL");
            anyhow!(error).context(
                UsageError::new(format!("no server answers at {}", self.base))
                    .transient()
                    .hint(hint),
            )
        })?;
        let said = serde_json::from_slice::<ErrorBody>(&body)
            .map(|refused| refused.error)
            .ok();
        match (status.as_u16(), said) {
            (200..300, _) => Ok(body),
            (401, _) => {
                let why = if self.token.is_some() {
                    "it does not know the token"
                } else {
                    "it wants a token"
                };
                let usage = UsageError::new(format!("{} does not let us in: {why}", self.base));
                Err(usage
                    .hint("set TIDEGATE_API_TOKEN, or give --token-file FILE")
                    .into())
            }
            (403, Some(error)) => Err(UsageError::new(format!(
                "{} does not allow it: {error}",
                self.base
            ))
            .hint("use the token of an administrator")
            .into()),
            (404, Some(error)) if self.sought == ServerKind::Platform => {
                let hint = "`tidegate endpoints list` shows the endpoints that there are; only a `tidegate platform` has some";
                Err(UsageError::new(error).transient().hint(hint).into())
            }
            (_, Some(error)) => bail!("{error}"),
            (_, None) => bail!("{} ({status})", self.strange()),
        }
    }

    fn strange(&self) -> String {
        format!(
            "what answers at {} does not speak like a tidegate of this version",
            self.base
        )
    }

    fn at(&self, path: &[&str], query: &[(&str, &str)]) -> anyhow::Result<Url> {
        let mut url = self.base.clone();
        let segments = url.path_segments_mut().map(|mut segments| {
            segments.pop_if_empty().extend(path);
        });
        segments.map_err(|()| {
            UsageError::new(format!("`{}` cannot be extended by a path", self.base))
        })?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }
}

impl JobRow {
    /// Its account as the server's paths name it.
    pub(crate) fn owner(&self) -> &str {
        self.account.as_deref().unwrap_or(NOBODY)
    }
}

/// What we show to be let in, if anything.
pub(crate) fn token(file: Option<&Path>) -> anyhow::Result<Option<String>> {
    let (place, text) = match file {
        Some(file) => {
            let bad = |error| {
                UsageError::new(format!(
                    "the token file `{}` cannot be read: {error}",
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
            UsageError::new(format!("{place} does not hold one token and nothing else")).into(),
        );
    }
    Ok(Some(token.to_owned()))
}
