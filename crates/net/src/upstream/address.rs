//! The address of a backend, which selects the connections that can be reused.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Where and how a backend is reached. Requests to equal addresses share connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UpstreamAddress {
    /// Plain or encrypted.
    pub scheme: UpstreamScheme,
    /// A host name or an IP address, without brackets.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
    /// The address to connect to, if discovery has resolved the host. The `Host` header and the name in
    /// the certificate are those of `host`.
    pub ip: Option<IpAddr>,
    /// The version of HTTP.
    pub version: UpstreamVersion,
}

/// Plain or encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UpstreamScheme {
    /// `http`.
    Http,
    /// `https`.
    Https,
}

/// The version of HTTP that a backend speaks; it is not negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum UpstreamVersion {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2, with prior knowledge.
    Http2,
}

impl UpstreamScheme {
    /// The name in a URL.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl UpstreamAddress {
    /// Host and port as in a `Host` header, without the default port of the scheme.
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        let (open, close) = if host.contains(':') {
            ("[", "]")
        } else {
            ("", "")
        };
        if *port == self.scheme.default_port() {
            format!("{open}{host}{close}")
        } else {
            format!("{open}{host}{close}:{port}")
        }
    }
}

impl fmt::Display for UpstreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.name(), self.authority())?;
        match self.ip {
            Some(ip) => write!(f, " ({ip})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_printed_as_a_url() {
        for (scheme, host, port, printed) in [
            (
                UpstreamScheme::Http,
                "10.0.0.5",
                8000,
                "http://10.0.0.5:8000",
            ),
            (
                UpstreamScheme::Http,
                "gpu.example",
                80,
                "http://gpu.example",
            ),
            (
                UpstreamScheme::Https,
                "gpu.example",
                443,
                "https://gpu.example",
            ),
            (UpstreamScheme::Https, "::1", 80, "https://[::1]:80"),
        ] {
            let address = UpstreamAddress {
                scheme,
                host: host.into(),
                port,
                ip: None,
                version: UpstreamVersion::Http1,
            };
            assert_eq!(address.to_string(), printed);
        }
    }
}
