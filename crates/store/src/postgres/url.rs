//! The URL of a database: `postgresql://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use tidegate_core::chain;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// The URL of a PostgreSQL database. It is displayed without the password.
#[derive(Clone, PartialEq)]
pub struct PostgresUrl {
    config: Config,
    tls: TlsMode,
}

/// How a connection is encrypted, by the parameters `sslmode` and `sslrootcert`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TlsMode {
    /// `disable`, `prefer` and `require`: the certificate of the server is not checked.
    Unverified,
    /// `verify-full`: the certificate must be valid for the host. The authorities are those of this file,
    /// or those of the system.
    Verified(Option<PathBuf>),
}

/// Why a text is not the URL of a PostgreSQL database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}; give `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`")]
pub struct InvalidPostgresUrl(String);

impl PostgresUrl {
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn tls(&self) -> &TlsMode {
        &self.tls
    }

    /// The role that connects.
    pub(super) fn user(&self) -> &str {
        self.config.get_user().unwrap_or("the user of this process")
    }

    /// The name of the database.
    pub(super) fn database(&self) -> &str {
        let user = self.config.get_user().unwrap_or_default();
        self.config.get_dbname().unwrap_or(user)
    }
}

impl FromStr for PostgresUrl {
    type Err = InvalidPostgresUrl;

    fn from_str(text: &str) -> Result<Self, InvalidPostgresUrl> {
        let invalid = |what: &str| InvalidPostgresUrl(what.to_owned());
        if !text.starts_with("postgresql://") && !text.starts_with("postgres://") {
            return Err(invalid("it does not begin with `postgresql://`"));
        }
        let (url, tls, mode) = split_tls(text)?;
        let mut config: Config = url
            .parse()
            .map_err(|error| InvalidPostgresUrl(chain(&error).to_string()))?;
        config.ssl_mode(mode);
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(invalid("it has no host"));
        }
        if config.get_user().is_none() {
            return Err(invalid("it has no user"));
        }
        Ok(Self { config, tls })
    }
}

/// Takes `sslmode` and `sslrootcert` out of a URL, because the client library knows fewer values.
fn split_tls(text: &str) -> Result<(String, TlsMode, SslMode), InvalidPostgresUrl> {
    let (address, query) = text.split_once('?').unwrap_or((text, ""));
    let (mut mode, mut authorities, mut rest) = (None, None, Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sslmode", value)) => mode = Some(value),
            Some(("sslrootcert", value)) => authorities = Some(PathBuf::from(decode(value)?)),
            _ => rest.push(pair),
        }
    }
    let (tls, mode) = match mode {
        Some("disable") => (TlsMode::Unverified, SslMode::Disable),
        Some("prefer") => (TlsMode::Unverified, SslMode::Prefer),
        Some("require") if authorities.is_none() => (TlsMode::Unverified, SslMode::Require),
        None if authorities.is_none() => (TlsMode::Unverified, SslMode::Prefer),
        Some("verify-full") => (TlsMode::Verified(authorities), SslMode::Require),
        None | Some("require") => {
            return Err(InvalidPostgresUrl(
                "`sslrootcert` has an effect only with `sslmode=verify-full`".to_owned(),
            ));
        }
        Some(other) => {
            return Err(InvalidPostgresUrl(format!(
                "`sslmode={other}` is not supported; use `disable`, `prefer`, `require` or `verify-full`"
            )));
        }
    };
    let url = if rest.is_empty() {
        address.to_owned()
    } else {
        format!("{address}?{}", rest.join("&"))
    };
    Ok((url, tls, mode))
}

/// Decodes `%2F` and the like.
fn decode(value: &str) -> Result<String, InvalidPostgresUrl> {
    let invalid = || InvalidPostgresUrl(format!("`{value}` has an invalid percent-encoding"));
    let (mut bytes, mut rest) = (Vec::new(), value.as_bytes());
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2).ok_or_else(invalid)?;
        let digits = std::str::from_utf8(digits).map_err(|_| invalid())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| invalid())?);
        rest = tail;
    }
    String::from_utf8(bytes).map_err(|_| invalid())
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = self.config.get_ports();
        for (index, host) in self.config.get_hosts().iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            match host {
                Host::Tcp(name) => write!(f, "{separator}{name}")?,
                #[cfg(unix)]
                Host::Unix(path) => write!(f, "{separator}{}", path.display())?,
            }
            let port = ports.get(index).or(ports.first()).unwrap_or(&5432);
            write!(f, ":{port}")?;
        }
        write!(f, "/{}", self.database())
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<PostgresUrl, InvalidPostgresUrl> {
        text.parse()
    }

    #[test]
    fn a_url_is_displayed_without_its_password() {
        let url = parse("postgres://ann:s3cret@db.example:6432/jobs?sslmode=disable").unwrap();
        assert_eq!(url.to_string(), "db.example:6432/jobs");
        assert!(!format!("{url:?}").contains("s3cret"));
        let socket = parse("postgresql://ann@/jobs?host=/run/pg&port=5433").unwrap();
        assert_eq!(socket.to_string(), "/run/pg:5433/jobs");
    }

    #[test]
    fn tls_is_chosen_by_the_mode() {
        for (query, tls, mode) in [
            ("", TlsMode::Unverified, SslMode::Prefer),
            ("?sslmode=require", TlsMode::Unverified, SslMode::Require),
            (
                "?sslmode=verify-full",
                TlsMode::Verified(None),
                SslMode::Require,
            ),
            (
                "?connect_timeout=3&sslrootcert=%2Fca%20.pem&sslmode=verify-full",
                TlsMode::Verified(Some("/ca .pem".into())),
                SslMode::Require,
            ),
        ] {
            let url = parse(&format!("postgresql://ann@db/jobs{query}")).unwrap();
            assert_eq!((url.tls(), url.config().get_ssl_mode()), (&tls, mode));
        }
    }

    #[test]
    fn an_invalid_url_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "does not begin"),
            ("host=db user=ann", "does not begin"),
            ("mysql://ann@db/jobs", "does not begin"),
            ("postgresql://", "no host"),
            ("postgresql://db/jobs", "no user"),
            ("postgresql://ann@db:port/jobs", "port"),
            ("postgresql://ann@db/jobs?sslmode=verify-ca", "verify-ca"),
            ("postgresql://ann@db/jobs?sslrootcert=ca.pem", "sslrootcert"),
            (
                "postgresql://ann@db/jobs?sslrootcert=%2&sslmode=verify-full",
                "percent",
            ),
            ("postgresql://ann@db/jobs?nonsense=1", "nonsense"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
            assert!(error.contains("give `postgresql://"), "{text}: {error}");
        }
    }
}
