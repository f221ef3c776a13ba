//! Protects a server without tokens against web pages. A browser on the same machine or network sends
//! the requests of every page that its user visits, so the address of a client proves nothing.
//!
//! - A page may rename itself to the server's address (DNS rebinding). Its requests then name the
//!   page's host, so requests must name a host that only this server can have.
//! - A page may send requests to another origin without permission, and only not read the response.
//!   The browser marks them, so marked requests must not change state. A GET of an image or a script
//!   from a plain http address of another machine has no mark; it is known by the headers that browsers
//!   send.
//!
//! Clients that are not browsers send no such marks and are not restricted. With tokens nothing is
//! checked: a page does not know the token, and a browser does not add it.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use axum::Router;
use axum::http::header::{ACCEPT, HOST, ORIGIN, USER_AGENT};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, CorsLayer, ExposeHeaders};
use url::Url;

use super::error_response;
use crate::director;
use crate::openai::{self, error::OpenAiError};
use crate::replicate;
use crate::request_metrics::RejectReason;
use crate::runpod::{local, platform};
use crate::workers_ai::{self, error::WorkersAiError};

/// The relation of the page that sent a request to the server, as the browser reports it.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// What the `Accept` of a browser contains when it loads a page or a part of one.
const PAGE_TYPES: [&str; 5] = ["text/html", "text/css", "image/", "video/", "audio/"];
/// How long a browser may remember which origins are allowed.
const PREFLIGHT_MAX_AGE: Duration = Duration::from_secs(600);
/// How much of a foreign host or origin is shown.
const MAX_SHOWN: usize = 200;

/// A value of `--allow-host`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedHost {
    /// Every host.
    Any,
    /// This host name, in lower case.
    Name(String),
}

/// The text is not a host name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "give a host name without scheme and port, such as `models.example.com`, or `*` for every host"
)]
pub struct InvalidHost;

impl AllowedHost {
    /// Parses `*` or a host name.
    pub fn parse(text: &str) -> Result<Self, InvalidHost> {
        if text == "*" {
            return Ok(Self::Any);
        }
        // Names are compared in the form in which browsers send them.
        match url::Host::parse(text) {
            Ok(url::Host::Domain(name)) if !name.contains('*') => {
                Ok(Self::Name(name.trim_end_matches('.').to_owned()))
            }
            Ok(url::Host::Ipv4(_) | url::Host::Ipv6(_)) => Ok(Self::Name(text.to_owned())),
            Ok(url::Host::Domain(_)) | Err(_) => Err(InvalidHost),
        }
    }
}

/// A value of `--allow-origin`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedOrigin {
    /// Every web page.
    Any,
    /// The pages of this origin, as browsers write it.
    Origin(HeaderValue),
}

/// The text is not an origin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "give the scheme, host and port of the web page, such as `https://app.example.com` or `http://localhost:3000`, or `*` for every page"
)]
pub struct InvalidOrigin;

impl AllowedOrigin {
    /// Parses `*` or an origin.
    pub fn parse(text: &str) -> Result<Self, InvalidOrigin> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let url = Url::parse(text).map_err(|_| InvalidOrigin)?;
        let is_origin = matches!(url.scheme(), "http" | "https")
            && url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        let text = url.origin().ascii_serialization();
        match HeaderValue::try_from(text) {
            Ok(origin) if is_origin => Ok(Self::Origin(origin)),
            Ok(_) | Err(_) => Err(InvalidOrigin),
        }
    }
}

/// Lets the pages of these origins call every route of `router`, also those that do not exist. Without
/// origins, browsers let only pages of this server read its responses. Routes added later are not
/// covered.
pub fn allow_origins(router: Router, origins: &[AllowedOrigin]) -> Router {
    if origins.is_empty() {
        return router;
    }
    let listed = origins.iter().map(|origin| match origin {
        AllowedOrigin::Any => None,
        AllowedOrigin::Origin(origin) => Some(origin.clone()),
    });
    let origins = listed
        .collect::<Option<Vec<_>>>()
        .map_or_else(AllowOrigin::any, AllowOrigin::list);
    router.layer(
        CorsLayer::new()
            .allow_origin(origins)
            .allow_methods(AllowMethods::mirror_request())
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers(ExposeHeaders::any())
            .max_age(PREFLIGHT_MAX_AGE),
    )
}

/// The hosts and origins from which a server without tokens accepts requests.
#[derive(Debug, Clone)]
pub struct OriginPolicy {
    hosts: Vec<AllowedHost>,
    origins: Vec<AllowedOrigin>,
    /// The origin of `--public-url`: pages of the server itself, behind a proxy.
    public_origin: Option<HeaderValue>,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OriginRefusal {
    #[error(
        "`{0}` is not a host name of this server. A server without tokens accepts only IP addresses, \
         `localhost` and the host of `--public-url`, because web pages could use other names to reach it. \
         If `{0}` is a name of the server, start the server with `--allow-host {0}`"
    )]
    ForeignHost(String),
    #[error(
        "a web page of {0} sent this request. A server without tokens accepts requests that change \
         something only from its own pages and from those of `--allow-origin`"
    )]
    CrossSite(String),
}

impl OriginPolicy {
    /// Accepts `hosts`, `origins` and the host of the public URL, besides IP addresses and
    /// `localhost`.
    pub fn new(
        hosts: Vec<AllowedHost>,
        origins: Vec<AllowedOrigin>,
        public_url: Option<&Url>,
    ) -> Self {
        let public_host = public_url
            .and_then(Url::host_str)
            .and_then(|host| AllowedHost::parse(host).ok());
        let public_origin =
            public_url.and_then(|url| url.origin().ascii_serialization().try_into().ok());
        Self {
            hosts: hosts.into_iter().chain(public_host).collect(),
            origins,
            public_origin,
        }
    }

    pub(crate) fn check(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), OriginRefusal> {
        // Directors have a token of their own, which no web page knows.
        if director::is_director_path(uri.path()) {
            return Ok(());
        }
        // The target of a request may contain the host as well. A request without any comes from no
        // browser.
        let target = uri
            .authority()
            .map(|authority| authority.as_str().as_bytes());
        let named = headers.get_all(HOST).iter().map(HeaderValue::as_bytes);
        for host in target.into_iter().chain(named) {
            if !self.is_own_host(host) {
                let name = std::str::from_utf8(host).ok().and_then(without_port);
                return Err(OriginRefusal::ForeignHost(shown(
                    name.map_or(host, str::as_bytes),
                )));
            }
        }
        if changes_state(method, uri.path()) && !self.is_own_page(method, headers) {
            let page = headers.get(ORIGIN).map_or_else(
                || "another origin".to_owned(),
                |origin| format!("`{}`", shown(origin.as_bytes())),
            );
            return Err(OriginRefusal::CrossSite(page));
        }
        Ok(())
    }

    fn is_own_host(&self, authority: &[u8]) -> bool {
        if self.hosts.contains(&AllowedHost::Any) {
            return true;
        }
        let Some(host) = std::str::from_utf8(authority).ok().and_then(without_port) else {
            return false;
        };
        if let Some(address) = host.strip_prefix('[') {
            let address = address.strip_suffix(']').unwrap_or_default();
            return address.parse::<Ipv6Addr>().is_ok();
        }
        if host.parse::<Ipv4Addr>().is_ok() {
            return true;
        }
        let host = host.strip_suffix('.').unwrap_or(host);
        is_localhost(host)
            || self.hosts.iter().any(|allowed| match allowed {
                AllowedHost::Any => true,
                AllowedHost::Name(name) => name.eq_ignore_ascii_case(host),
            })
            // Other notations of an address, such as `127.1`.
            || matches!(url::Host::parse(host), Ok(url::Host::Ipv4(_)))
    }

    /// Whether the request comes from a page of this server, from an allowed page, or from no page.
    fn is_own_page(&self, method: &Method, headers: &HeaderMap) -> bool {
        let origin = headers.get(ORIGIN);
        match headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes) {
            Some(b"same-origin" | b"none") => true,
            Some(_) => origin.is_some_and(|origin| self.is_allowed_origin(origin)),
            // Browsers leave it out for addresses without TLS that are not on the same machine.
            None => match origin {
                Some(origin) => {
                    is_same_host(origin, headers.get(HOST)) || self.is_allowed_origin(origin)
                }
                // And there they send no origin with a GET whose response the page cannot read.
                None => !(method.is_safe() && is_from_browser(headers)),
            },
        }
    }

    fn is_allowed_origin(&self, origin: &HeaderValue) -> bool {
        self.public_origin.as_ref() == Some(origin)
            || self.origins.iter().any(|allowed| match allowed {
                AllowedOrigin::Any => true,
                AllowedOrigin::Origin(allowed) => allowed == origin,
            })
    }
}

impl OriginRefusal {
    /// The response, in the format of the API that the path belongs to.
    pub(crate) fn response(&self, path: &str) -> Response {
        let detail = self.to_string();
        let response = match path {
            path if openai::is_own_path(path) => {
                OpenAiError::new(StatusCode::FORBIDDEN, detail.as_str()).into_response()
            }
            path if workers_ai::is_own_path(path) => {
                WorkersAiError::forbidden(&detail).into_response()
            }
            path if path.starts_with(replicate::ROOT) => replicate::reply::forbidden(&detail),
            path if path.starts_with(platform::ROOT) => platform::reply::forbidden(&detail),
            _ => error_response(StatusCode::FORBIDDEN, &detail),
        };
        let reason = match self {
            Self::ForeignHost(_) => RejectReason::ForeignHost,
            Self::CrossSite(_) => RejectReason::CrossSite,
        };
        reason.tag(response)
    }
}

/// Whether a request may do more than read.
fn changes_state(method: &Method, path: &str) -> bool {
    !method.is_safe()
        || platform::changes_state_on_get(path)
        || local::changes_state_on_get(below_model(path))
}

/// The path without the prefix of a model.
fn below_model(path: &str) -> &str {
    let below = path.strip_prefix("/models/");
    let rest = below.and_then(|below| below.match_indices('/').nth(1).map(|(at, _)| &below[at..]));
    rest.unwrap_or(path)
}

/// Whether a browser sent the request. A page cannot change the user agent of a request that needs no
/// permission.
fn is_from_browser(headers: &HeaderMap) -> bool {
    let contains = |name: HeaderName, parts: &[&str]| {
        headers.get_all(name).iter().any(|value| {
            let value = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
            parts.iter().any(|part| value.contains(part))
        })
    };
    contains(USER_AGENT, &["mozilla/"]) || contains(ACCEPT, &PAGE_TYPES)
}

/// The host of `HOST[:PORT]`; `None` if the text has another form.
fn without_port(authority: &str) -> Option<&str> {
    let end_of_address = authority.find(']').unwrap_or(0);
    match authority[end_of_address..].find(':') {
        None => Some(authority),
        Some(colon) => {
            let (host, port) = authority.split_at(end_of_address + colon);
            port[1..]
                .bytes()
                .all(|byte| byte.is_ascii_digit())
                .then_some(host)
        }
    }
}

/// Whether the name always means the machine of the client (RFC 6761).
fn is_localhost(host: &str) -> bool {
    let (start, name) = host
        .split_at_checked(host.len().saturating_sub("localhost".len()))
        .unwrap_or((host, ""));
    name.eq_ignore_ascii_case("localhost") && (start.is_empty() || start.ends_with('.'))
}

/// Whether an origin is the host that the request names. A proxy may have another scheme than the
/// server.
fn is_same_host(origin: &HeaderValue, host: Option<&HeaderValue>) -> bool {
    let origin = origin.as_bytes();
    let authority = origin
        .strip_prefix(b"http://")
        .or_else(|| origin.strip_prefix(b"https://"));
    match (authority, host) {
        (Some(authority), Some(host)) => authority.eq_ignore_ascii_case(host.as_bytes()),
        (None, _) | (_, None) => false,
    }
}

/// Text of a client for messages and the log.
fn shown(text: &[u8]) -> String {
    text[..text.len().min(MAX_SHOWN)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(public_url: Option<&str>) -> OriginPolicy {
        let public_url = public_url.map(|url| Url::parse(url).unwrap());
        OriginPolicy::new(
            vec![AllowedHost::parse("gpu-box").unwrap()],
            vec![AllowedOrigin::parse("https://app.example").unwrap()],
            public_url.as_ref(),
        )
    }

    fn check(
        policy: &OriginPolicy,
        request: &str,
        headers: &[(HeaderName, &str)],
    ) -> Result<(), OriginRefusal> {
        let (method, target) = request.split_once(' ').unwrap();
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()));
        let mut map = HeaderMap::new();
        headers.for_each(|(name, value)| {
            map.append(name, value);
        });
        policy.check(&method.parse().unwrap(), &target.parse().unwrap(), &map)
    }

    #[test]
    fn a_request_must_name_a_host_that_no_web_page_can_have() {
        let policy = policy(Some("https://models.example:8443/api"));
        for own in [
            "127.0.0.1",
            "127.0.0.1:5000",
            "192.168.0.7:80",
            "127.1",
            "0x7f.1:5000",
            "[::1]",
            "[::1]:5000",
            "[fe80::1]:5000",
            "localhost",
            "LocalHost:5000",
            "localhost.",
            "app.localhost:5000",
            "models.example",
            "Models.Example.:5000",
            "gpu-box:5000",
        ] {
            assert_eq!(check(&policy, "GET /", &[(HOST, own)]), Ok(()), "{own}");
        }
        for foreign in [
            "evil.example",
            "evil.example:5000",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "evillocalhost",
            "xmodels.example",
            "x.models.example",
            "user@127.0.0.1",
            "evil.example:80@127.0.0.1",
            "[::1].evil.example",
            "[::1",
            "[evil.example]",
            "::1",
            "127.0.0.1:x",
            "127.0.0.1, evil.example",
            "",
            "*",
        ] {
            assert!(
                check(&policy, "GET /", &[(HOST, foreign)]).is_err(),
                "{foreign}"
            );
        }
        let refusal = check(&policy, "GET /", &[(HOST, "evil.example:5000")]).unwrap_err();
        assert!(
            refusal.to_string().ends_with("`--allow-host evil.example`"),
            "{refusal}"
        );
    }

    #[test]
    fn every_host_in_a_request_counts() {
        let policy = policy(None);
        let foreign = Err(OriginRefusal::ForeignHost("evil.example".to_owned()));
        let two = [(HOST, "localhost"), (HOST, "evil.example")];
        assert_eq!(check(&policy, "GET /", &two), foreign);
        assert_eq!(
            check(&policy, "GET http://evil.example/", &[(HOST, "localhost")]),
            foreign
        );
        assert_eq!(
            check(
                &policy,
                "GET http://localhost:5000/",
                &[(HOST, "evil.example")]
            ),
            foreign
        );
        assert_eq!(check(&policy, "GET http://localhost:5000/", &[]), Ok(()));
        assert_eq!(check(&policy, "POST /predictions", &[]), Ok(()), "no host");
        let any = OriginPolicy::new(vec![AllowedHost::Any], Vec::new(), None);
        assert_eq!(check(&any, "GET /", &[(HOST, "evil.example")]), Ok(()));
    }

    #[test]
    fn other_pages_cannot_change_state() {
        let policy = policy(Some("http://models.lan"));
        let host = (HOST, "192.168.0.7:5000");
        for (site, origin, allowed) in [
            (None, None, true),
            (Some("same-origin"), Some("http://192.168.0.7:5000"), true),
            (Some("none"), None, true),
            (None, Some("http://192.168.0.7:5000"), true),
            (None, Some("https://192.168.0.7:5000"), true),
            (None, Some("http://models.lan"), true),
            (Some("cross-site"), Some("https://app.example"), true),
            (None, Some("https://app.example"), true),
            (Some("cross-site"), Some("https://evil.example"), false),
            (Some("cross-site"), None, false),
            (Some("same-site"), Some("http://192.168.0.7:3000"), false),
            (Some("cross-site"), Some("http://192.168.0.7:5000"), false),
            (None, Some("http://192.168.0.7"), false),
            (None, Some("https://evil.example"), false),
            (None, Some("null"), false),
            (None, Some("http://app.example"), false),
            (None, Some("https://app.example.evil"), false),
            (None, Some(""), false),
        ] {
            let mut headers = vec![host.clone()];
            headers.extend(site.map(|site| (SEC_FETCH_SITE, site)));
            headers.extend(origin.map(|origin| (ORIGIN, origin)));
            for request in [
                "POST /predictions",
                "PUT /predictions/x",
                "DELETE /v1/files/x",
                "POST /v2/echo/run",
                "GET /v2/echo/job-take/w",
                "GET /v2/echo/openai/v1/models",
                "GET /v2/echo/stream/x",
                "GET /stream/x",
                "GET /models/local/echo/stream/x",
            ] {
                let checked = check(&policy, request, &headers);
                assert_eq!(checked.is_ok(), allowed, "{request} {site:?} {origin:?}");
            }
            for request in [
                "GET /docs",
                "HEAD /",
                "OPTIONS /predictions",
                "GET /v2/echo/status/x",
                "GET /models/local/echo/status/x",
                "GET /models/stream/x/predictions/y",
            ] {
                assert_eq!(check(&policy, request, &headers), Ok(()), "{request}");
            }
        }
    }

    /// Browsers mark no GET that a page sends to a plain http address of another machine, unless the page
    /// wants to read the response.
    #[test]
    fn parts_of_a_page_are_not_loaded_from_requests_that_change_state() {
        const FIREFOX: &str =
            "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
        let policy = policy(None);
        for (agent, accept, allowed) in [
            (Some("Python/3.12 aiohttp/3.13.2"), Some("*/*"), true),
            (Some("RunPod-Python-SDK/1.7.13"), None, true),
            (None, Some("application/json"), true),
            (None, None, true),
            (Some(FIREFOX), Some("*/*"), false),
            (Some(FIREFOX), None, false),
            (None, Some("image/avif,image/webp,*/*;q=0.8"), false),
            (None, Some("text/html,application/xhtml+xml"), false),
            (None, Some("text/css,*/*;q=0.1"), false),
        ] {
            let mut headers = vec![(HOST, "192.168.0.7:5000")];
            headers.extend(agent.map(|agent| (USER_AGENT, agent)));
            headers.extend(accept.map(|accept| (ACCEPT, accept)));
            let checked = check(&policy, "GET /v2/echo/job-take/w", &headers);
            assert_eq!(checked.is_ok(), allowed, "{agent:?} {accept:?}");
            for request in ["GET /docs", "GET /v2/echo/status/x", "POST /predictions"] {
                assert_eq!(check(&policy, request, &headers), Ok(()), "{request}");
            }
        }
    }

    #[test]
    fn hosts_and_origins_are_parsed() {
        let name = |text: &str| Ok(AllowedHost::Name(text.to_owned()));
        assert_eq!(
            AllowedHost::parse("Models.Example."),
            name("models.example")
        );
        assert_eq!(
            AllowedHost::parse("bücher.example"),
            name("xn--bcher-kva.example")
        );
        assert_eq!(AllowedHost::parse("*"), Ok(AllowedHost::Any));
        for bad in ["", "http://h", "h:80", "a b", "*.h", "h/x"] {
            assert_eq!(AllowedHost::parse(bad), Err(InvalidHost), "{bad}");
        }
        let origin = |text| Ok(AllowedOrigin::Origin(HeaderValue::from_static(text)));
        assert_eq!(
            AllowedOrigin::parse("HTTPS://App.Example:443/"),
            origin("https://app.example")
        );
        assert_eq!(
            AllowedOrigin::parse("http://localhost:3000"),
            origin("http://localhost:3000")
        );
        assert_eq!(AllowedOrigin::parse("*"), Ok(AllowedOrigin::Any));
        for bad in [
            "",
            "app.example",
            "https://h/x",
            "https://h?x",
            "https://u@h",
            "ftp://h",
            "null",
        ] {
            assert_eq!(AllowedOrigin::parse(bad), Err(InvalidOrigin), "{bad}");
        }
    }
}
