//! The client: a few ways out, each built when it is first used, because reading the system's
//! certificates takes longer than a whole prediction.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{ClientBuilder, StatusCode, redirect};
use url::Url;

use crate::address::check_url;
use crate::error::host_of;
use crate::resolve::{self, GuardedResolver, Lookup};
use crate::{Config, Error, InvalidUrl, parse_url};

/// How often an address may point on to another.
pub(crate) const MAX_REDIRECTS: usize = 5;
/// Connections to one host that wait for the next call; each is a file descriptor.
const MAX_IDLE: usize = 8;
/// How long a place of the operator's may say nothing.
const STANDSTILL: Duration = Duration::from_secs(30);

/// The one HTTP client.
pub struct Client {
    pub(crate) config: Config,
    lookup: Lookup,
    /// For webhooks, which go to the address that was given and nowhere else.
    strict: LazyClient,
    /// For downloads, where an address may point on to another; each is checked.
    following: LazyClient,
    /// For addresses that the operator chose.
    own: LazyClient,
    /// For the same, where we see ourselves to what moves.
    steady: LazyClient,
}

/// One call to a place that the operator named, for who speaks there in words of its own.
#[derive(Debug)]
pub struct HttpRequest {
    /// Whom to call.
    pub url: Url,
    /// What is said besides.
    pub headers: HeaderMap,
    /// What is brought: a `POST` with it, a `GET` without.
    pub body: Option<Bytes>,
    /// The longest that it may take as a whole.
    pub limit: Duration,
}

/// What came back from a [`HttpRequest`].
#[derive(Debug)]
pub struct HttpResponse {
    /// Its status.
    pub status: u16,
    /// How long it wants to be left alone.
    pub retry_after: Option<Duration>,
    /// All of its body.
    pub body: Bytes,
}

/// What a receiver said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebhookResponse {
    /// Its status.
    pub status: u16,
    /// How long it wants to be left alone.
    pub retry_after: Option<Duration>,
}

impl WebhookResponse {
    /// Whether it took the message.
    pub fn is_success(self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl Client {
    /// A client with these limits; nothing is built yet.
    pub fn new(config: Config) -> Self {
        Self::with_lookup(config, resolve::system())
    }

    pub(crate) fn with_lookup(config: Config, lookup: Lookup) -> Self {
        Self {
            config,
            lookup,
            strict: LazyClient::default(),
            following: LazyClient::default(),
            own: LazyClient::default(),
            steady: LazyClient::default(),
        }
    }

    /// The largest file in either direction, in bytes.
    pub fn max_file(&self) -> u64 {
        self.config.max_file
    }

    /// Reads an address that a stranger gave us. Where its name leads is checked later, at each call.
    pub fn check(&self, text: &str) -> Result<Url, InvalidUrl> {
        parse_url(text, &self.config.networks)
    }

    /// Posts a webhook. Redirects are not followed and the body of the answer is not read.
    pub async fn post(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<WebhookResponse, Error> {
        self.guard(url)?;
        let client = self
            .strict
            .ready(url, || self.guarded().redirect(redirect::Policy::none()))?;
        let sent = client
            .post(url.clone())
            .headers(headers)
            .timeout(self.config.webhook_timeout)
            .body(body)
            .send()
            .await;
        let answer = sent.map_err(|error| Error::from_send(url, error))?;
        let retry_after = answer
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| delay(value.to_str().ok()?));
        Ok(WebhookResponse {
            status: answer.status().as_u16(),
            retry_after,
        })
    }

    /// One call of our own to another server, for the command line: a `GET`, or a `POST` of JSON, with a
    /// token if the server wants one. The answer may take as long as a model takes.
    pub async fn fetch(
        &self,
        url: &Url,
        token: Option<&str>,
        json: Option<Bytes>,
    ) -> Result<(StatusCode, Bytes), Error> {
        let client = self.own(url)?;
        let request = match json {
            Some(json) => client
                .post(url.clone())
                .header(CONTENT_TYPE, "application/json")
                .body(json),
            None => client.get(url.clone()),
        };
        let request = if let Some(token) = token {
            request.bearer_auth(token)
        } else {
            request
        };
        let answer = request
            .send()
            .await
            .map_err(|error| Error::from_send(url, error))?;
        let status = answer.status();
        Ok((
            status,
            answer
                .bytes()
                .await
                .map_err(|error| Error::from_send(url, error))?,
        ))
    }

    /// Calls a place that the operator named. Every status is an answer. What is brought is brought to where the
    /// place has moved; clients usually come there with empty hands.
    pub async fn send(&self, request: HttpRequest) -> Result<HttpResponse, Error> {
        let HttpRequest {
            mut url,
            mut headers,
            mut body,
            limit,
        } = request;
        let client = self
            .steady
            .ready(&url, || self.basic().redirect(redirect::Policy::none()))?;
        let mut hops = 0;
        loop {
            let request = match &body {
                Some(body) => client.post(url.clone()).body(body.clone()),
                None => client.get(url.clone()),
            };
            let answer = request.headers(headers.clone()).timeout(limit).send().await;
            let answer = answer.map_err(|error| Error::from_send(&url, error))?;
            let Some(next) = moved(&url, &answer).filter(|_| hops < MAX_REDIRECTS) else {
                return reply(&url, answer).await;
            };
            if answer.status() == StatusCode::SEE_OTHER {
                body = None;
            }
            if !is_same_place(&url, &next) {
                headers.remove(AUTHORIZATION);
            }
            url = next;
            hops += 1;
        }
    }

    /// Refuses what the resolver never sees: hosts that are addresses already.
    pub(crate) fn guard(&self, url: &Url) -> Result<(), Error> {
        check_url(url, &self.config.networks).map_err(|source| Error::Refused {
            host: host_of(url),
            source,
        })
    }

    pub(crate) fn following(&self, url: &Url) -> Result<&reqwest::Client, Error> {
        self.following
            .ready(url, || self.guarded().redirect(self.checked_redirects()))
    }

    fn checked_redirects(&self) -> redirect::Policy {
        let networks = self.config.networks.clone();
        redirect::Policy::custom(move |next| {
            if next.previous().len() > MAX_REDIRECTS {
                return next.error("it pointed on too often");
            }
            match check_url(next.url(), &networks) {
                Ok(()) => next.follow(),
                Err(refusal) => next.error(refusal),
            }
        })
    }

    pub(crate) fn own(&self, url: &Url) -> Result<&reqwest::Client, Error> {
        self.own.ready(url, || {
            self.basic()
                .redirect(redirect::Policy::limited(MAX_REDIRECTS))
        })
    }

    fn guarded(&self) -> ClientBuilder {
        // A proxy would resolve names itself, where no guard sees the address.
        let resolver = GuardedResolver {
            networks: self.config.networks.clone(),
            lookup: self.lookup.clone(),
        };
        self.basic().no_proxy().dns_resolver(resolver)
    }

    fn basic(&self) -> ClientBuilder {
        // Installing it twice is harmless: another client of this process was first.
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

/// Where an answer sends the caller on to.
fn moved(url: &Url, answer: &reqwest::Response) -> Option<Url> {
    let points_on = matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let next = url
        .join(
            answer
                .headers()
                .get(LOCATION)
                .filter(|_| points_on)?
                .to_str()
                .ok()?,
        )
        .ok()?;
    matches!(next.scheme(), "http" | "https").then_some(next)
}

/// Whether the keys of one address are those of the other: they are on one server, or the same by a safer way.
fn is_same_place(url: &Url, next: &Url) -> bool {
    let safer = url.scheme() == "http" && next.scheme() == "https";
    url.host() == next.host()
        && (safer || url.port_or_known_default() == next.port_or_known_default())
}

async fn reply(url: &Url, answer: reqwest::Response) -> Result<HttpResponse, Error> {
    let retry_after = answer
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| delay(value.to_str().ok()?));
    let status = answer.status().as_u16();
    let body = answer.bytes().await;
    let body = body.map_err(|error| Error::BrokeOff {
        host: host_of(url),
        source: error.without_url(),
    })?;
    Ok(HttpResponse {
        status,
        retry_after,
        body,
    })
}

/// A client for a place that the operator chose, for who speaks there in a protocol of its own. Nothing is guarded;
/// what stands still is given up.
pub fn unguarded_client() -> Result<reqwest::Client, reqwest::Error> {
    Client::new(Config::default())
        .basic()
        .redirect(redirect::Policy::none())
        .read_timeout(STANDSTILL)
        .build()
}

/// One way out. What cannot be built now, without file descriptors for instance, is built by a later
/// call.
#[derive(Default)]
struct LazyClient {
    client: OnceLock<reqwest::Client>,
    /// For a machine without certificates, which can still tell things in the open.
    plain: OnceLock<reqwest::Client>,
}

impl LazyClient {
    fn ready(
        &self,
        url: &Url,
        builder: impl Fn() -> ClientBuilder,
    ) -> Result<&reqwest::Client, Error> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let not_ready = |source| Error::NotReady {
            host: host_of(url),
            source,
        };
        match builder().build() {
            Ok(client) => Ok(self.client.get_or_init(|| client)),
            Err(source) if url.scheme() == "https" => Err(not_ready(source)),
            Err(source) => {
                if self.plain.get().is_none() {
                    let client = builder()
                        .tls_certs_only([])
                        .build()
                        .map_err(|_| not_ready(source))?;
                    self.plain.set(client).ok();
                }
                Ok(self.plain.get().expect("it was just put there"))
            }
        }
    }
}

/// `Retry-After`: seconds, or a date.
fn delay(text: &str) -> Option<Duration> {
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
        assert_eq!(delay("120"), Some(Duration::from_secs(120)));
        assert_eq!(delay("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        let later = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(60));
        assert!(delay(&later).is_some_and(|delay| (50..=60).contains(&delay.as_secs())));
        assert_eq!(delay("soon"), None);
        assert_eq!(delay("-5"), None);
    }
}
