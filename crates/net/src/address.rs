//! Which addresses we call at all.

use url::Url;

/// An address that is never called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    /// It is not a URL.
    #[error("it is not a URL ({0})")]
    Unreadable(String),
    /// It is a URL of another kind.
    #[error("only http and https can be called, not `{0}`")]
    Scheme(String),
    /// It names nobody.
    #[error("it names no host")]
    NoHost,
}

/// Reads an address that somebody gave us: http or https with a host.
pub fn check_address(text: &str) -> Result<Url, BadAddress> {
    let url = Url::parse(text).map_err(|error| BadAddress::Unreadable(error.to_string()))?;
    match url.scheme() {
        "http" | "https" if url.host().is_some() => Ok(url),
        "http" | "https" => Err(BadAddress::NoHost),
        other => Err(BadAddress::Scheme(other.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_web_addresses_pass() {
        assert!(check_address("https://example.com/x?y=1").is_ok());
        for bad in ["", "example.com", "file:///etc/passwd", "ftp://h/x", "http://", "javascript:1"] {
            assert!(check_address(bad).is_err(), "{bad:?}");
        }
    }
}
