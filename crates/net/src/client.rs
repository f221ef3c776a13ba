//! [`Client`]: several HTTP clients with different rules. Each is created at its first use, because
//! reading the system's certificates takes longer than a whole prediction.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER,
};
use reqwest::{ClientBuilder, StatusCode, redirect};
use url::Url;

use crate::error::host_of;
use crate::guarded_resolver::{self, GuardedResolver, Lookup};
use crate::url_check::check_url;
use crate::{Config, Error, InvalidUrl, parse_url};

/// The largest number of redirects.
pub(crate) const MAX_REDIRECTS: usize = 5;
/// Idle connections per host; each uses a file descriptor.
const MAX_IDLE: usize = 8;
/// How long a server that the operator chose may send no bytes.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// The HTTP client for all outgoing requests.
pub struct Client {
    pub(crate) config: Config,
    lookup: Lookup,
    /// For webhooks: follows no redirects.
    webhooks: LazyClient,
    /// For downloads: follows redirects and checks each target.
    downloads: LazyClient,
    /// For URLs that the operator chose: no check of the address.
    operator: LazyClient,
    /// The same without redirects, which [`Client::send`] follows itself.
    operator_no_redirect: LazyClient,
}

/// A request to a server that the operator chose.
#[derive(Debug)]
pub struct HttpRequest {
    /// The URL.
    pub url: Url,
    /// Additional headers.
    pub headers: HeaderMap,
    /// The body of a `POST`; without it, the request is a `GET`.
    pub body: Option<Bytes>,
    /// The timeout of the request.
    pub limit: Duration,
}

/// The response to an [`HttpRequest`].
#[derive(Debug)]
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// The value of `Retry-After`.
    pub retry_after: Option<Duration>,
    /// The whole body.
    pub body: Bytes,
}

/// A response whose body is read while it arrives.
#[derive(Debug)]
pub struct StreamedResponse {
    url: Url,
    response: reqwest::Response,
}

impl StreamedResponse {
    /// The status code.
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// The next part of the body; `None` at its end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        self.response
            .chunk()
            .await
            .map_err(|error| Error::Incomplete {
                host: host_of(&self.url),
                source: error.without_url(),
            })
    }
}

/// The response of a webhook receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebhookResponse {
    /// The status code.
    pub status: u16,
    /// The value of `Retry-After`.
    pub retry_after: Option<Duration>,
}

impl WebhookResponse {
    /// Whether the receiver accepted the message.
    pub fn is_success(self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl Client {
    /// A client with these limits.
    pub fn new(config: Config) -> Self {
        Self::with_lookup(config, guarded_resolver::system())
    }

    pub(crate) fn with_lookup(config: Config, lookup: Lookup) -> Self {
        Self {
            config,
            lookup,
            webhooks: LazyClient::default(),
            downloads: LazyClient::default(),
            operator: LazyClient::default(),
            operator_no_redirect: LazyClient::default(),
        }
    }

    /// The largest file in either direction, in bytes.
    pub fn max_file(&self) -> u64 {
        self.config.max_file
    }

    /// The longest time of one request to a webhook receiver.
    pub fn webhook_timeout(&self) -> Duration {
        self.config.webhook_timeout
    }

    /// Parses and checks a URL from a request. The addresses of a host name are checked at each
    /// connection.
    pub fn check(&self, text: &str) -> Result<Url, InvalidUrl> {
        parse_url(text, &self.config.networks)
    }

    /// Posts a webhook. Redirects are not followed and the body of the response is not read.
    pub async fn post(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<WebhookResponse, Error> {
        if let Some(transport) = &self.config.webhook_transport {
            return Ok(transport.deliver(url, headers, body).await);
        }
        self.guard(url)?;
        let client = self
            .webhooks
            .get(url, || self.guarded().redirect(redirect::Policy::none()))?;
        let sent = client
            .post(url.clone())
            .headers(headers)
            .timeout(self.config.webhook_timeout)
            .body(body)
            .send()
            .await;
        let response = sent.map_err(|error| Error::from_send(url, error))?;
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| parse_retry_after(value.to_str().ok()?));
        Ok(WebhookResponse {
            status: response.status().as_u16(),
            retry_after,
        })
    }

    /// Sends a request to a tidegate server, for the command line: a `GET`, or a `POST` of JSON, with a
    /// bearer token if there is one. There is no timeout: the response may take as long as the model.
    pub async fn fetch(
        &self,
        url: &Url,
        token: Option<&str>,
        json: Option<Bytes>,
    ) -> Result<(StatusCode, Bytes), Error> {
        let response = self.send_json(url, token, json, None).await?;
        Ok((
            response.status(),
            response
                .bytes()
                .await
                .map_err(|error| Error::from_send(url, error))?,
        ))
    }

    /// Sends a `GET`, or a `POST` of JSON, like [`Client::fetch`], and asks for a stream of events.
    pub async fn fetch_events(
        &self,
        url: &Url,
        token: Option<&str>,
        json: Option<Bytes>,
    ) -> Result<StreamedResponse, Error> {
        let response = self
            .send_json(url, token, json, Some("text/event-stream"))
            .await?;
        Ok(StreamedResponse {
            url: url.clone(),
            response,
        })
    }

    async fn send_json(
        &self,
        url: &Url,
        token: Option<&str>,
        json: Option<Bytes>,
        accept: Option<&str>,
    ) -> Result<reqwest::Response, Error> {
        let client = self.operator_client(url)?;
        let mut request = match json {
            Some(json) => client
                .post(url.clone())
                .header(CONTENT_TYPE, "application/json")
                .body(json),
            None => client.get(url.clone()),
        };
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        if let Some(accept) = accept {
            request = request.header(ACCEPT, accept);
        }
        request
            .send()
            .await
            .map_err(|error| Error::from_send(url, error))
    }

    /// Sends a request to a server that the operator chose; any status is a response. Unlike common
    /// HTTP clients, it sends a `POST` with its body again after a 301 or 302 redirect.
    pub async fn send(&self, request: HttpRequest) -> Result<HttpResponse, Error> {
        let HttpRequest {
            mut url,
            mut headers,
            mut body,
            limit,
        } = request;
        let client = self
            .operator_no_redirect
            .get(&url, || self.basic().redirect(redirect::Policy::none()))?;
        let mut hops = 0;
        loop {
            let request = match &body {
                Some(body) => client.post(url.clone()).body(body.clone()),
                None => client.get(url.clone()),
            };
            let response = request.headers(headers.clone()).timeout(limit).send().await;
            let response = response.map_err(|error| Error::from_send(&url, error))?;
            let Some(next) = redirect_target(&url, &response).filter(|_| hops < MAX_REDIRECTS)
            else {
                return read_response(&url, response).await;
            };
            if response.status() == StatusCode::SEE_OTHER {
                body = None;
            }
            if !may_share_credentials(&url, &next) {
                headers.remove(AUTHORIZATION);
            }
            url = next;
            hops += 1;
        }
    }

    /// Refuses private IP addresses in the URL, which the resolver never sees.
    pub(crate) fn guard(&self, url: &Url) -> Result<(), Error> {
        check_url(url, &self.config.networks).map_err(|source| Error::Refused {
            host: host_of(url),
            source,
        })
    }

    pub(crate) fn download_client(&self, url: &Url) -> Result<&reqwest::Client, Error> {
        self.downloads
            .get(url, || self.guarded().redirect(self.checked_redirects()))
    }

    fn checked_redirects(&self) -> redirect::Policy {
        let networks = self.config.networks.clone();
        redirect::Policy::custom(move |next| {
            if next.previous().len() > MAX_REDIRECTS {
                return next.error("too many redirects");
            }
            match check_url(next.url(), &networks) {
                Ok(()) => next.follow(),
                Err(refusal) => next.error(refusal),
            }
        })
    }

    pub(crate) fn operator_client(&self, url: &Url) -> Result<&reqwest::Client, Error> {
        self.operator.get(url, || {
            self.config
                .server_trust
                .apply(self.basic())
                .redirect(redirect::Policy::limited(MAX_REDIRECTS))
        })
    }

    fn guarded(&self) -> ClientBuilder {
        // A proxy would resolve names itself, and the guard would not see the address.
        let resolver = GuardedResolver {
            networks: self.config.networks.clone(),
            lookup: self.lookup.clone(),
        };
        self.basic().no_proxy().dns_resolver(resolver)
    }

    pub(crate) fn basic(&self) -> ClientBuilder {
        // It fails if another client of this process has installed the provider, which is harmless.
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        let agent = HeaderValue::from_str(&self.config.user_agent)
            .unwrap_or(HeaderValue::from_static("tidegate"));
        let builder = reqwest::Client::builder()
            .user_agent(agent)
            .referer(false)
            .connect_timeout(Duration::from_secs(10));
        builder.pool_max_idle_per_host(MAX_IDLE)
    }
}

/// The target of a redirect response.
fn redirect_target(url: &Url, response: &reqwest::Response) -> Option<Url> {
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let next = url
        .join(
            response
                .headers()
                .get(LOCATION)
                .filter(|_| is_redirect)?
                .to_str()
                .ok()?,
        )
        .ok()?;
    matches!(next.scheme(), "http" | "https").then_some(next)
}

/// Whether the credentials for `url` may be sent to `next`: both are on one server, or `next` is the same
/// host over https.
fn may_share_credentials(url: &Url, next: &Url) -> bool {
    let is_upgrade = url.scheme() == "http" && next.scheme() == "https";
    url.host() == next.host()
        && (is_upgrade || url.port_or_known_default() == next.port_or_known_default())
}

async fn read_response(url: &Url, response: reqwest::Response) -> Result<HttpResponse, Error> {
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| parse_retry_after(value.to_str().ok()?));
    let status = response.status().as_u16();
    let body = response.bytes().await;
    let body = body.map_err(|error| Error::Incomplete {
        host: host_of(url),
        source: error.without_url(),
    })?;
    Ok(HttpResponse {
        status,
        retry_after,
        body,
    })
}

/// A plain client for a server that the operator chose, for callers with their own protocol. It checks
/// no addresses and follows no redirects.
pub fn unguarded_client() -> Result<reqwest::Client, reqwest::Error> {
    Client::new(Config::default())
        .basic()
        .redirect(redirect::Policy::none())
        .read_timeout(READ_TIMEOUT)
        .build()
}

/// A client that is created at its first use. If that fails, for instance because there are no file
/// descriptors left, the next use tries again.
#[derive(Default)]
struct LazyClient {
    client: OnceLock<reqwest::Client>,
    /// For plain http on a machine without certificates.
    plain: OnceLock<reqwest::Client>,
}

impl LazyClient {
    fn get(
        &self,
        url: &Url,
        builder: impl Fn() -> ClientBuilder,
    ) -> Result<&reqwest::Client, Error> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let no_client = |source| Error::NoClient {
            host: host_of(url),
            source,
        };
        match builder().build() {
            Ok(client) => Ok(self.client.get_or_init(|| client)),
            Err(source) if url.scheme() == "https" => Err(no_client(source)),
            Err(source) => {
                if self.plain.get().is_none() {
                    let client = builder()
                        .tls_certs_only([])
                        .build()
                        .map_err(|_| no_client(source))?;
                    self.plain.set(client).ok();
                }
                Ok(self.plain.get().expect("it was set above"))
            }
        }
    }
}

/// Parses `Retry-After`: seconds or a date.
fn parse_retry_after(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text.trim()).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(parse_retry_after("120"), Some(Duration::from_secs(120)));
        assert_eq!(
            parse_retry_after("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(Duration::ZERO)
        );
        let later = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(60));
        assert!(
            parse_retry_after(&later).is_some_and(|delay| (50..=60).contains(&delay.as_secs()))
        );
        assert_eq!(parse_retry_after("soon"), None);
        assert_eq!(parse_retry_after("-5"), None);
    }
}
