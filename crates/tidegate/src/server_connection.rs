//! The connection of a command to a running server: its address, the token, and the trusted certificates.

use std::io::ErrorKind;
use std::path::Path;

use bytes::Bytes;
use tidegate_core::chain;
use tidegate_net::{Client, Config, Error, ServerTrust, StreamedResponse, Url};

use crate::cli::TrustArgs;
use crate::secrets;
use crate::usage_error::UsageError;

/// The connection to one server.
pub(crate) struct ServerConnection {
    base: Url,
    token: Option<String>,
    client: Client,
}

impl ServerConnection {
    /// A connection to `url`, which is not used yet.
    pub(crate) fn new(
        url: &str,
        token_file: Option<&Path>,
        trust: &TrustArgs,
    ) -> anyhow::Result<Self> {
        let usage = |error: &dyn std::fmt::Display| {
            UsageError::new(format!("`{url}` is not the URL of a server: {error}"))
                .hint("give a URL such as --url http://127.0.0.1:5000")
        };
        let base = Url::parse(url).map_err(|error| usage(&error))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(usage(&"it does not start with http:// or https://").into());
        }
        Ok(Self {
            token: token(token_file)?,
            client: Client::new(Config {
                server_trust: match base.scheme() {
                    "https" => server_trust(trust)?,
                    _ => ServerTrust::System,
                },
                ..Config::default()
            }),
            base,
        })
    }

    /// The address of the server.
    pub(crate) fn base(&self) -> &Url {
        &self.base
    }

    /// Whether requests carry a token.
    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// The URL of a path of the server.
    pub(crate) fn at(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Url, UsageError> {
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

    /// Sends a GET request, or a POST request with a JSON body, and returns status and body of the
    /// response. `remedy` is what to do if no server
    /// responds.
    pub(crate) async fn fetch(
        &self,
        url: &Url,
        body: Option<Bytes>,
        remedy: &str,
    ) -> Result<(u16, Bytes), UsageError> {
        let response = self.client.fetch(url, self.token.as_deref(), body).await;
        let (status, body) = response.map_err(|error| self.unreachable(&error, remedy))?;
        self.check_access(status.as_u16())?;
        Ok((status.as_u16(), body))
    }

    /// Sends a GET request, or a POST request with a JSON body, and asks for a stream of events.
    pub(crate) async fn fetch_events(
        &self,
        url: &Url,
        body: Option<Bytes>,
        remedy: &str,
    ) -> Result<StreamedResponse, UsageError> {
        let response = self
            .client
            .fetch_events(url, self.token.as_deref(), body)
            .await
            .map_err(|error| self.unreachable(&error, remedy))?;
        self.check_access(response.status())?;
        Ok(response)
    }

    fn check_access(&self, status: u16) -> Result<(), UsageError> {
        if status != 401 {
            return Ok(());
        }
        let why = if self.has_token() {
            "the token is invalid"
        } else {
            "a token is required"
        };
        Err(
            UsageError::new(format!("access to {} denied: {why}", self.base))
                .hint("set TIDEGATE_API_TOKEN or --token-file FILE"),
        )
    }

    /// The error of a request without a response.
    fn unreachable(&self, error: &Error, remedy: &str) -> UsageError {
        let message = format!("no server responds at {}", self.base);
        let causes: Vec<_> = anyhow::Chain::new(error).collect();
        let is_refused = causes.iter().any(|cause| {
            cause
                .downcast_ref::<std::io::Error>()
                .is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        });
        if is_refused {
            // One line: there is nothing more to say about the most common mistake.
            return UsageError::new(format!("{message}: connection refused; {remedy}")).transient();
        }
        let cause = causes
            .last()
            .map_or_else(|| error.to_string(), ToString::to_string);
        if cause.contains("certificate") {
            return self.untrusted(&cause);
        }
        UsageError::new(format!("{message}: {cause}"))
            .transient()
            .hint(remedy)
    }

    /// The error for a certificate that is not accepted.
    fn untrusted(&self, cause: &str) -> UsageError {
        let reason = if cause.contains("CaUsedAsEndEntity") {
            "it is self-signed"
        } else if cause.contains("UnknownIssuer") {
            "its issuer is unknown"
        } else {
            cause
        };
        UsageError::new(format!(
            "the certificate of {} is not trusted: {reason}",
            self.base
        ))
        .transient()
        .hint("trust the server's certificate, or the authority that issued it, with --ca FILE; --insecure accepts every certificate")
    }
}

/// The certificates that the flags trust.
fn server_trust(args: &TrustArgs) -> Result<ServerTrust, UsageError> {
    let file = match (&args.ca, args.insecure) {
        (_, true) => return Ok(ServerTrust::Anything),
        (None, false) => return Ok(ServerTrust::System),
        (Some(file), false) => file,
    };
    ServerTrust::from_file(file).map_err(|error| {
        UsageError::new(chain(&error).to_string())
            .hint("--ca and SSL_CERT_FILE name a PEM file with the certificate of the server or of its authority")
    })
}

/// The token from the file or from the environment.
fn token(file: Option<&Path>) -> anyhow::Result<Option<String>> {
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
