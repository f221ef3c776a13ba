//! Parses and checks URLs before any connection is made.

use url::Url;

use crate::AllowedNetworks;

/// Why a URL is not requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUrl {
    /// The text is not a URL.
    #[error("not a valid URL ({0})")]
    Malformed(String),
    /// The scheme is not http or https.
    #[error("the scheme `{0}` is not supported; use http or https")]
    Scheme(String),
    /// The URL has no host.
    #[error("the URL has no host")]
    NoHost,
    /// The host is not on the public internet. The message does not contain the address that a name
    /// resolves to: it would disclose the private network to clients.
    #[error(
        "`{0}` is not a public address; the operator of the server can allow it with `--allow-private-networks`"
    )]
    Private(String),
}

/// Parses an http or https URL and checks its host against the allowed networks.
pub fn parse_url(text: &str, networks: &AllowedNetworks) -> Result<Url, InvalidUrl> {
    let url = Url::parse(text).map_err(|error| InvalidUrl::Malformed(error.to_string()))?;
    check_url(&url, networks)?;
    Ok(url)
}

pub(crate) fn check_url(url: &Url, networks: &AllowedNetworks) -> Result<(), InvalidUrl> {
    match url.scheme() {
        "http" | "https" => networks.check(url),
        other => Err(InvalidUrl::Scheme(other.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_urls_pass() {
        let networks = AllowedNetworks::all();
        assert!(parse_url("https://example.com/x?y=1", &networks).is_ok());
        for bad in [
            "",
            "example.com",
            "file:///etc/passwd",
            "ftp://h/x",
            "http://",
            "javascript:1",
        ] {
            assert!(parse_url(bad, &networks).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn private_addresses_are_refused_however_they_are_written() {
        let networks = AllowedNetworks::public();
        for host in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f.0.0.1",
            "0177.0.0.1",
            "127.0.0.1.",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "localhost",
            "LOCALHOST",
            "localhost.",
            "a.localhost",
            "169.254.169.254",
            "0",
            "10.0.0.1:8080",
            "user:pass@192.168.0.1",
        ] {
            let refused = parse_url(&format!("http://{host}/x"), &networks);
            assert!(
                matches!(&refused, Err(InvalidUrl::Private(_))),
                "{host}: {refused:?}"
            );
        }
        for host in [
            "1.1.1.1",
            "example.com",
            "localhost.example.com",
            "notlocalhost",
        ] {
            assert!(
                parse_url(&format!("http://{host}/x"), &networks).is_ok(),
                "{host}"
            );
        }
    }

    #[test]
    fn allowing_the_loopback_network_allows_localhost() {
        let networks = AllowedNetworks::parse("127.0.0.0/8").unwrap();
        assert!(parse_url("http://localhost:1/x", &networks).is_ok());
        assert!(parse_url("http://127.0.0.1:1/x", &networks).is_ok());
        assert!(parse_url("http://[::1]:1/x", &networks).is_err());
    }

    #[test]
    fn errors_do_not_contain_credentials() {
        for text in [
            "http://me:hunter2@127.0.0.1/hunter2?hunter2",
            "ftp://me:hunter2@h/",
            "http://me:hunter2@h:port/",
        ] {
            let error = parse_url(text, &AllowedNetworks::public())
                .unwrap_err()
                .to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
