//! The backends of a model.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tidegate_net::upstream::{UpstreamAddress, UpstreamScheme, UpstreamVersion};

/// One backend of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct EndpointConfig {
    /// Where it is, or how it is found.
    pub address: Discovery,
    /// The protocol that it speaks.
    pub kind: BackendKind,
    /// What the backend calls the model; `None` if it uses the same name.
    pub upstream_model: Option<String>,
    /// The most requests that it runs at once; `None` asks the backend or takes the default of its kind.
    pub permits: Option<u32>,
    /// The site where it stands; empty means the site of this router.
    pub site: String,
    /// Its share of the traffic relative to others.
    pub weight: f64,
    /// The version of HTTP.
    pub http: HttpVersion,
    /// Headers that are added to each request, such as its credentials.
    pub headers: Vec<SecretHeader>,
    /// The path of its health check, if it is not the one of its kind.
    pub probe_path: Option<String>,
    /// The path of its stream of completions, if permits outlive their responses.
    pub loopback: Option<String>,
    /// How long a detached permit is held without an event.
    pub detach_timeout: Duration,
    /// How long a permit is held after the client has gone, for kinds that do not stop on disconnect.
    pub cancel_grace: Duration,
}

impl EndpointConfig {
    /// An endpoint with the default of every other setting.
    pub fn new(address: Discovery, kind: BackendKind) -> Self {
        Self {
            address,
            kind,
            upstream_model: None,
            permits: None,
            site: String::new(),
            weight: 1.0,
            http: HttpVersion::Http1,
            headers: Vec::new(),
            probe_path: None,
            loopback: None,
            detach_timeout: Duration::from_secs(600),
            cancel_grace: Duration::from_secs(10),
        }
    }
}

/// Where the addresses of an endpoint come from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Discovery {
    /// One address.
    Url(BackendUrl),
    /// All addresses that a host name resolves to: `[https://]HOST:PORT`.
    Dns(String),
    /// The targets of the SRV records of a name, those with the lowest priority number.
    Srv(String),
    /// All healthy instances of a service of Consul.
    Consul(String),
    /// Backends that register themselves.
    Join,
}

/// The protocol of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BackendKind {
    /// Cog's HTTP API.
    Cog,
    /// OpenAI's API: vLLM, SGLang, llama.cpp and others.
    OpenAi,
    /// Text Generation Inference.
    Tgi,
    /// Text Embeddings Inference.
    Tei,
    /// Triton's KServe v2 API.
    Triton,
    /// Another tidegate: `serve` or `api`.
    Tidegate,
}

impl BackendKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Cog,
        Self::OpenAi,
        Self::Tgi,
        Self::Tei,
        Self::Triton,
        Self::Tidegate,
    ];

    /// The name in the configuration and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cog => "cog",
            Self::OpenAi => "openai",
            Self::Tgi => "tgi",
            Self::Tei => "tei",
            Self::Triton => "triton",
            Self::Tidegate => "tidegate",
        }
    }

    /// The kind with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The permits of an endpoint that neither the configuration nor the backend tells.
    pub const fn default_permits(self) -> u32 {
        match self {
            Self::Cog => 1,
            Self::OpenAi | Self::Tgi | Self::Tei | Self::Triton | Self::Tidegate => 64,
        }
    }

    /// Whether a backend of this kind stops working on a request when its connection is closed.
    pub const fn stops_on_disconnect(self) -> bool {
        match self {
            Self::Cog | Self::Triton => false,
            Self::OpenAi | Self::Tgi | Self::Tei | Self::Tidegate => true,
        }
    }
}

/// The version of HTTP that is spoken to a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HttpVersion {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2, without an upgrade.
    Http2,
}

/// Plain or encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `http`.
    Http,
    /// `https`.
    Https,
}

/// The base URL of a backend: scheme, host, port and a path prefix without a final slash.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BackendUrl {
    /// The scheme.
    pub scheme: Scheme,
    /// The host: a name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The path before the paths of the API; empty for none.
    pub prefix: String,
    /// The address to connect to, if discovery has resolved the host. Requests still name the host.
    pub ip: Option<IpAddr>,
}

/// The text is not the URL of a backend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not the URL of a backend: {reason}; write for instance `http://10.0.0.5:8000`"
)]
pub struct InvalidBackendUrl {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl BackendUrl {
    /// Parses `http://HOST[:PORT][/PREFIX]` or `https://…`.
    pub fn parse(text: &str) -> Result<Self, InvalidBackendUrl> {
        let invalid = |reason| InvalidBackendUrl {
            text: text.to_owned(),
            reason,
        };
        let (scheme, rest) = match text.split_once("://") {
            Some(("http", rest)) => (Scheme::Http, rest),
            Some(("https", rest)) => (Scheme::Https, rest),
            Some(_) => return Err(invalid("the scheme must be http or https")),
            None => return Err(invalid("it has no scheme")),
        };
        if rest.contains(['?', '#', '@', ' ']) {
            return Err(invalid("it must have no user, query or fragment"));
        }
        let (authority, prefix) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.strip_prefix('[') {
            Some(bracketed) => {
                let (host, port) = bracketed
                    .split_once(']')
                    .ok_or_else(|| invalid("the bracket of the address is not closed"))?;
                (host, port.strip_prefix(':'))
            }
            None => match authority.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        if host.is_empty() {
            return Err(invalid("it has no host"));
        }
        let port = match (port, scheme) {
            (Some(port), _) => port
                .parse()
                .map_err(|_| invalid("the port is not a number from 0 to 65535"))?,
            (None, Scheme::Http) => 80,
            (None, Scheme::Https) => 443,
        };
        Ok(Self {
            scheme,
            host: host.to_ascii_lowercase(),
            port,
            prefix: prefix.trim_end_matches('/').to_owned(),
            ip: None,
        })
    }

    /// The same backend at one of the addresses of its host.
    pub fn at(mut self, ip: IpAddr) -> Self {
        // A host that is an address needs no other one.
        self.ip = self.host.parse::<IpAddr>().is_err().then_some(ip);
        self
    }

    /// Where the connection pool connects to.
    pub fn upstream_address(&self, http: HttpVersion) -> UpstreamAddress {
        UpstreamAddress {
            scheme: match self.scheme {
                Scheme::Http => UpstreamScheme::Http,
                Scheme::Https => UpstreamScheme::Https,
            },
            host: self.host.as_str().into(),
            port: self.port,
            ip: self.ip,
            version: match http {
                HttpVersion::Http1 => UpstreamVersion::Http1,
                HttpVersion::Http2 => UpstreamVersion::Http2,
            },
        }
    }

    /// Host and port, as in a `Host` header.
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }
}

/// The URL. A backend at one address of its host is printed as `http://10.0.0.5:8000#llama.svc`, so that
/// the addresses of a host differ, and the hosts of an address too.
impl fmt::Display for BackendUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        let Self { host, prefix, .. } = self;
        match self.ip {
            Some(ip) => {
                let address = SocketAddr::new(ip, self.port);
                write!(f, "{scheme}://{address}{prefix}#{host}")
            }
            None => write!(f, "{scheme}://{}{prefix}", self.authority()),
        }
    }
}

/// A header whose value is a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretHeader {
    /// The name, in lower case.
    pub name: String,
    /// The value, which is never printed.
    pub value: String,
}

impl fmt::Debug for SecretHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: (secret)", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backend_urls_are_parsed_and_printed() {
        for (text, printed) in [
            ("http://10.0.0.5:8000", "http://10.0.0.5:8000"),
            ("https://gpu.example/base/", "https://gpu.example:443/base"),
            ("http://[::1]:80", "http://[::1]:80"),
            ("http://LOCALHOST", "http://localhost:80"),
        ] {
            let url = BackendUrl::parse(text).expect(text);
            assert_eq!(url.to_string(), printed);
        }
        let resolved = BackendUrl::parse("https://llama.svc:8000/v1").unwrap();
        assert_eq!(
            resolved.at("10.0.0.5".parse().unwrap()).to_string(),
            "https://10.0.0.5:8000/v1#llama.svc"
        );
        for text in [
            "10.0.0.5:8000",
            "ftp://a",
            "http://",
            "http://u@h",
            "http://h:99999",
            "http://h?x",
        ] {
            assert!(BackendUrl::parse(text).is_err(), "{text}");
        }
    }
}
