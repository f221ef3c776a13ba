//! The addresses of Redis servers, as users write them.

use std::fmt;
use std::str::FromStr;

use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{Client, ConnectionInfo, IntoConnectionInfo, TlsMode};

/// How the scheme of a URL of sentinels begins.
const SENTINEL: &str = "redis+sentinel://";
/// The same with TLS.
const SENTINEL_TLS: &str = "rediss+sentinel://";
/// The port of a sentinel whose address has none.
const SENTINEL_PORT: u16 = 26379;

/// Why a text is not the address of a Redis server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{url}` is not the address of a Redis server: {reason}; use redis://[USER:PASSWORD@]HOST[:PORT][/DB], rediss:// for TLS, unix:///PATH, or redis+sentinel://HOST[:PORT],HOST[:PORT]/MASTER"
)]
pub struct InvalidRedisUrl {
    /// The text, without a password.
    pub url: String,
    /// What is wrong with it.
    pub reason: String,
}

/// The addresses of one or more Redis servers. Messages are pushed to the first and read from all, so that
/// a new server can take over while an old one is drained.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrls(Vec<RedisUrl>);

/// The address of a Redis server.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    text: String,
    kind: UrlKind,
}

#[derive(Clone, PartialEq, Eq)]
enum UrlKind {
    Server(String),
    /// The URLs of the sentinels, the name of the master, and the URL that says how to connect to it.
    Sentinel {
        sentinels: Vec<String>,
        master: String,
        server: String,
    },
}

impl RedisUrls {
    /// The addresses; there is at least one.
    pub fn all(&self) -> &[RedisUrl] {
        &self.0
    }
}

impl FromStr for RedisUrls {
    type Err = InvalidRedisUrl;

    /// Parses addresses that are separated by commas. The hosts of sentinels are separated by commas, too: a
    /// part without a scheme belongs to the address before it.
    fn from_str(text: &str) -> Result<Self, InvalidRedisUrl> {
        let mut urls: Vec<String> = Vec::new();
        for part in text.split(',').map(str::trim) {
            match urls.last_mut() {
                Some(last) if !part.contains("://") => {
                    last.push(',');
                    last.push_str(part);
                }
                Some(_) | None => urls.push(part.to_owned()),
            }
        }
        urls.iter()
            .map(|url| RedisUrl::parse(url))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl fmt::Debug for RedisUrls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(RedisUrl::to_string))
            .finish()
    }
}

impl fmt::Display for RedisUrl {
    /// The address without its password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_password(&self.text))
    }
}

impl RedisUrl {
    fn parse(text: &str) -> Result<Self, InvalidRedisUrl> {
        let invalid = |reason: String| InvalidRedisUrl {
            url: without_password(text),
            reason,
        };
        let kind = match text.strip_prefix(SENTINEL) {
            Some(rest) => sentinel("redis", rest).map_err(invalid)?,
            None => match text.strip_prefix(SENTINEL_TLS) {
                Some(rest) => sentinel("rediss", rest).map_err(invalid)?,
                None => UrlKind::Server(text.to_owned()),
            },
        };
        let urls: Vec<&String> = match &kind {
            UrlKind::Server(url) => vec![url],
            UrlKind::Sentinel {
                sentinels, server, ..
            } => sentinels.iter().chain([server]).collect(),
        };
        for url in urls {
            connection_info(url).map_err(invalid)?;
        }
        Ok(Self {
            text: text.to_owned(),
            kind,
        })
    }

    /// What connects to the server.
    pub(super) fn connector(&self) -> Result<Connector, redis::RedisError> {
        match &self.kind {
            UrlKind::Server(url) => {
                let client = Client::open(url.as_str())?;
                Ok(Connector::Server(Box::new(client)))
            }
            UrlKind::Sentinel {
                sentinels,
                master,
                server,
            } => {
                let info = server.as_str().into_connection_info()?;
                let mut node = SentinelNodeConnectionInfo::default()
                    .set_redis_connection_info(info.redis_settings().clone());
                if server.starts_with("rediss") {
                    node = node.set_tls_mode(TlsMode::Secure);
                }
                let sentinels = sentinels.iter().map(String::as_str).collect();
                let client = SentinelClient::build(
                    sentinels,
                    master.clone(),
                    Some(node),
                    SentinelServerType::Master,
                )?;
                Ok(Connector::Sentinel(Box::new(client)))
            }
        }
    }
}

/// What connects to a server.
pub(super) enum Connector {
    Server(Box<Client>),
    Sentinel(Box<SentinelClient>),
}

/// Parses what follows the scheme: `[USER:PASSWORD@]HOST[:PORT],…/MASTER[/DB]`.
fn sentinel(scheme: &str, rest: &str) -> Result<UrlKind, String> {
    let (credentials, rest) = match rest.rsplit_once('@') {
        Some((credentials, rest)) => (format!("{credentials}@"), rest),
        None => (String::new(), rest),
    };
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (master, db) = path.split_once('/').unwrap_or((path, ""));
    if master.is_empty() {
        return Err("the name of the master is missing".to_owned());
    }
    let has_port = |host: &str| {
        let port = host.rsplit_once(':').map(|(_, port)| port);
        port.is_some_and(|port| port.parse::<u16>().is_ok())
    };
    let url = |host: &str| match has_port(host) {
        true => format!("{scheme}://{host}"),
        false => format!("{scheme}://{host}:{SENTINEL_PORT}"),
    };
    Ok(UrlKind::Sentinel {
        sentinels: hosts.split(',').map(url).collect(),
        master: master.to_owned(),
        server: format!("{scheme}://{credentials}master/{db}"),
    })
}

fn connection_info(url: &str) -> Result<ConnectionInfo, String> {
    url.into_connection_info()
        .map_err(|error| error.to_string())
}

/// The text with `***` for the password, which is in the part before the host or in the query.
fn without_password(text: &str) -> String {
    let text = match text.split_once("pass=") {
        Some((before, after)) => {
            let rest = after.find('&').map_or("", |end| &after[end..]);
            format!("{before}pass=***{rest}")
        }
        None => text.to_owned(),
    };
    let Some((scheme, rest)) = text.split_once("://") else {
        return text;
    };
    match rest.rsplit_once('@') {
        Some((credentials, host)) => {
            let user = credentials.split_once(':').map_or("", |(user, _)| user);
            format!("{scheme}://{user}:***@{host}")
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let urls: RedisUrls = text.parse().expect("addresses");
        urls.all().iter().map(RedisUrl::to_string).collect()
    }

    #[test]
    fn several_addresses_are_separated_by_commas() {
        assert_eq!(
            shown("redis://a:6379/2, rediss://b,unix:///run/redis.sock"),
            ["redis://a:6379/2", "rediss://b", "unix:///run/redis.sock"]
        );
    }

    #[test]
    fn sentinels_are_one_address() {
        let text = "redis+sentinel://:secret@s1:26380,s2/main/1,redis://green";
        assert_eq!(
            shown(text),
            ["redis+sentinel://:***@s1:26380,s2/main/1", "redis://green"]
        );
        let urls: RedisUrls = text.parse().expect("addresses");
        let UrlKind::Sentinel {
            sentinels,
            master,
            server,
        } = &urls.all()[0].kind
        else {
            panic!("not sentinels");
        };
        assert_eq!(sentinels, &["redis://s1:26380", "redis://s2:26379"]);
        assert_eq!(
            (master.as_str(), server.as_str()),
            ("main", "redis://:secret@master/1")
        );
    }

    #[test]
    fn passwords_are_not_shown() {
        for text in [
            "redis://ann:secret@host",
            "unix:///s?user=ann&pass=secret",
            "http://ann:secret@host",
        ] {
            let shown = match text.parse::<RedisUrls>() {
                Ok(urls) => format!("{urls:?}"),
                Err(error) => error.to_string(),
            };
            assert!(!shown.contains("secret"), "{shown}");
        }
    }

    #[test]
    fn mistakes_say_what_is_expected() {
        for text in [
            "",
            "localhost",
            "http://host",
            "redis+sentinel://host",
            "redis://host/x",
        ] {
            let error = text.parse::<RedisUrls>().expect_err(text).to_string();
            assert!(error.contains("use redis://"), "{error}");
        }
    }
}
