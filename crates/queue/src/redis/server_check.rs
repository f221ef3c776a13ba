//! Checks that a server can hold queues, before anything is pushed to it.

use std::collections::HashMap;

use redis::{ErrorKind, Pipeline, RedisError};
use tidegate_core::queue::QueueError;

use super::backend::Backend;
use super::keys::{EPOCH, STORE};

/// The oldest version that has all commands: `XPENDING … IDLE`.
const OLDEST: (u32, u32) = (6, 2);

/// Why a queue cannot be opened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RedisOpenError {
    /// The server does not answer. A later attempt may succeed.
    #[error(
        "failed to connect to the Redis server {url}: {reason}; check that it runs and that the address is right"
    )]
    Unreachable {
        /// The address without its password.
        url: String,
        /// Why the connection failed.
        reason: String,
    },
    /// The server answers, and cannot be used as it is configured.
    #[error("the Redis server {url} cannot hold the queue: {reason}")]
    Unusable {
        /// The address without its password.
        url: String,
        /// What is wrong and how to fix it.
        reason: String,
    },
}

/// Checks the version and the configuration of a server.
pub(super) async fn check(backend: &Backend) -> Result<(), RedisOpenError> {
    let url = backend.link.url().to_string();
    let info = match info(backend).await {
        Ok(info) => info,
        Err(error) if is_mistake(&error) => {
            let reason = format!("{error}; check the user and the password in the address");
            return Err(RedisOpenError::Unusable { url, reason });
        }
        Err(error) if error.to_string().contains("certificate") => {
            let reason = format!(
                "{error}; set SSL_CERT_FILE to a file with the certificate of its authority"
            );
            return Err(RedisOpenError::Unusable { url, reason });
        }
        Err(error) => {
            let reason = error.to_string();
            return Err(RedisOpenError::Unreachable { url, reason });
        }
    };
    match problem(&info) {
        Some(reason) => Err(RedisOpenError::Unusable { url, reason }),
        None => Ok(()),
    }
}

/// Records that a server holds the jobs of this store; refuses one that holds those of another.
pub(super) async fn claim(backend: &Backend, store: &str) -> Result<(), RedisOpenError> {
    let url = backend.link.url().to_string();
    let mut commands = Pipeline::new();
    commands.cmd("SET").arg(STORE).arg(store).arg("NX").ignore();
    commands.cmd("GET").arg(STORE);
    match backend.pipeline::<(String,)>(&commands).await {
        Ok((known,)) if known == store => Ok(()),
        Ok((known,)) => {
            let reason = format!(
                "it holds the jobs of another store, `{known}`; use another database for each, such as \
                 redis://HOST/1, or delete the key `{STORE}` if that store is gone"
            );
            Err(RedisOpenError::Unusable { url, reason })
        }
        Err(error) => {
            let reason = error.to_string();
            Err(RedisOpenError::Unreachable { url, reason })
        }
    }
}

/// What is wrong with a server.
fn problem(info: &HashMap<String, String>) -> Option<String> {
    let value = |name: &str| info.get(name).map_or("", String::as_str);
    let version = value("redis_version");
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    let number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if number < OLDEST {
        let (major, minor) = OLDEST;
        return Some(format!(
            "its version is `{version}`; use Redis {major}.{minor} or newer, or Valkey"
        ));
    }
    if value("redis_mode") == "cluster" {
        return Some(
            "it is a node of a Redis Cluster, where the streams of a queue would be on different nodes; use \
             one server, or a replicated one with sentinels, `redis+sentinel://HOST,HOST/MASTER`"
                .to_owned(),
        );
    }
    match value("maxmemory_policy") {
        "noeviction" | "" => None,
        policy => Some(format!(
            "its `maxmemory-policy` is `{policy}`, so it deletes waiting jobs when it is full; set \
             `maxmemory-policy noeviction`"
        )),
    }
}

/// Whether the error is a mistake in the address, and not a server that is down.
fn is_mistake(error: &RedisError) -> bool {
    let code = error.code().unwrap_or_default();
    error.kind() == ErrorKind::AuthenticationFailed
        || ["NOAUTH", "WRONGPASS", "NOPERM"].contains(&code)
}

async fn info(backend: &Backend) -> Result<HashMap<String, String>, RedisError> {
    let mut commands = Pipeline::new();
    commands.cmd("INFO").arg("server");
    commands.cmd("INFO").arg("memory");
    let (server, memory): (String, String) = backend.pipeline(&commands).await?;
    Ok(parse_info(&server).chain(parse_info(&memory)).collect())
}

fn parse_info(text: &str) -> impl Iterator<Item = (String, String)> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned()))
}

/// Changes when the server lost its data, or may have lost the last changes: it was started again, or
/// another one took over.
pub(super) async fn epoch(backend: &Backend) -> Result<String, QueueError> {
    let mut random = [0; 16];
    // Without random bytes, the id of the run still changes.
    getrandom::fill(&mut random).ok();
    let mut commands = Pipeline::new();
    let value = format!("{:032x}", u128::from_ne_bytes(random));
    commands.cmd("SET").arg(EPOCH).arg(value).arg("NX").ignore();
    commands.cmd("GET").arg(EPOCH);
    commands.cmd("INFO").arg("server");
    let (epoch, server): (String, String) = backend
        .pipeline(&commands)
        .await
        .map_err(|error| backend.error(&error))?;
    let run = parse_info(&server).find(|(name, _)| name == "run_id");
    Ok(format!(
        "{epoch}:{}",
        run.map_or_else(String::new, |(_, id)| id)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem_of(info: &str) -> Option<String> {
        problem(&parse_info(info).collect())
    }

    #[test]
    fn a_suitable_server_has_no_problem() {
        for version in ["6.2.0", "7.0.15", "8.2.1"] {
            let info = format!(
                "redis_version:{version}\r\nredis_mode:standalone\r\nmaxmemory_policy:noeviction\r\n"
            );
            assert_eq!(problem_of(&info), None, "{version}");
        }
    }

    #[test]
    fn a_problem_says_how_to_fix_it() {
        for (info, expected) in [
            ("redis_version:5.0.7", "6.2 or newer"),
            ("redis_version:7.0.15\nredis_mode:cluster", "one server"),
            (
                "redis_version:7.0.15\nmaxmemory_policy:allkeys-lru",
                "maxmemory-policy noeviction",
            ),
        ] {
            let problem = problem_of(info).unwrap_or_default();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
