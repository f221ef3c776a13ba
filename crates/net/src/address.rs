//! Addresses as people write them: what is refused before anybody is called.

use url::Url;

use crate::AllowedNetworks;

/// An address that is never called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUrl {
    /// It is not a URL.
    #[error("it is not a URL ({0})")]
    Unreadable(String),
    /// It is a URL of another kind.
    #[error("only http and https can be called, not `{0}`")]
    Scheme(String),
    /// It names nobody.
    #[error("it names no host")]
    NoHost,
    /// It names a machine that is not on the public internet. Where a name leads is not said: it would
    /// tell strangers about our networks.
    #[error(
        "`{0}` is not a public address; who runs this server can allow it with --allow-private-networks"
    )]
    Private(String),
}

/// Reads an address: http or https, with a host that may be called.
pub fn parse_url(text: &str, networks: &AllowedNetworks) -> Result<Url, InvalidUrl> {
    let url = Url::parse(text).map_err(|error| InvalidUrl::Unreadable(error.to_string()))?;
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
    fn only_web_addresses_pass() {
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
    fn an_open_loopback_opens_its_name() {
        let networks = AllowedNetworks::parse("127.0.0.0/8").unwrap();
        assert!(parse_url("http://localhost:1/x", &networks).is_ok());
        assert!(parse_url("http://127.0.0.1:1/x", &networks).is_ok());
        assert!(parse_url("http://[::1]:1/x", &networks).is_err());
    }

    #[test]
    fn refusals_keep_credentials_to_themselves() {
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
