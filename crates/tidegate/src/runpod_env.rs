//! The variables that Runpod's workers know, read here and nowhere else.

use std::time::Duration;

use tidegate_runpod_worker::UrlTemplates;

use crate::runpod_config;
use crate::usage_error::UsageError;

const TAKE: &str = "RUNPOD_WEBHOOK_GET_JOB";
const DONE: &str = "RUNPOD_WEBHOOK_POST_OUTPUT";
const STREAM: &str = "RUNPOD_WEBHOOK_POST_STREAM";
const PING: &str = "RUNPOD_WEBHOOK_PING";
const INTERVAL: &str = "RUNPOD_PING_INTERVAL";
const POD: &str = "RUNPOD_POD_ID";
const REALTIME_PORT: &str = "RUNPOD_REALTIME_PORT";
const REALTIME_WORKERS: &str = "RUNPOD_REALTIME_CONCURRENCY";

/// As many processes as `--workers` takes.
const MOST_WORKERS: u16 = 256;

const DEFAULT_INTERVAL: Duration = Duration::from_secs(10);
/// A platform that is told more often has no use for it.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// What the environment says in Runpod's names.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunpodEnv {
    /// The addresses; none when there is no platform.
    pub(crate) templates: Option<UrlTemplates>,
    /// `RUNPOD_POD_ID`
    pub(crate) worker: Option<String>,
    /// `~/.runpod/config.toml`, or `RUNPOD_AI_API_KEY`
    pub(crate) key: Option<String>,
    /// `RUNPOD_UA_INTEGRATION`
    pub(crate) integration: Option<String>,
    /// `RUNPOD_PING_INTERVAL`, in milliseconds.
    pub(crate) ping_every: Duration,
    /// `RUNPOD_LOG_LEVEL`, or `RUNPOD_DEBUG_LEVEL`, as a filter of ours.
    pub(crate) log_filter: Option<&'static str>,
}

impl RunpodEnv {
    pub(crate) fn read() -> Result<Self, UsageError> {
        let mut read = Self::from(variable)?;
        // It counts more than the variable for Runpod's own workers too.
        if let Some(key) = runpod_config::key() {
            read.key = Some(key);
        }
        Ok(read)
    }

    fn from(get: impl Fn(&str) -> Option<String>) -> Result<Self, UsageError> {
        let filled = |name: &str| get(name).filter(|value| !value.trim().is_empty());
        let templates = match (filled(TAKE), filled(DONE)) {
            (Some(take), Some(done)) => Some(UrlTemplates {
                take,
                done,
                stream: filled(STREAM),
                ping: filled(PING),
            }),
            (Some(_), None) => {
                return Err(missing(DONE, "results go", "job-done/$RUNPOD_POD_ID/$ID"));
            }
            (None, Some(_)) => return Err(missing(TAKE, "jobs come from", "job-take/$ID")),
            (None, None) => None,
        };
        Ok(Self {
            templates,
            worker: filled(POD),
            key: filled("RUNPOD_AI_API_KEY"),
            integration: filled("RUNPOD_UA_INTEGRATION"),
            ping_every: interval(filled(INTERVAL))?,
            log_filter: filled("RUNPOD_LOG_LEVEL")
                .or_else(|| filled("RUNPOD_DEBUG_LEVEL"))
                .and_then(|level| filter(&level)),
        })
    }
}

fn interval(said: Option<String>) -> Result<Duration, UsageError> {
    let Some(text) = said else {
        return Ok(DEFAULT_INTERVAL);
    };
    let wrong = |_| {
        UsageError::new(format!("{INTERVAL} is `{text}`, which is no number"))
            .hint("give milliseconds, such as 10000")
    };
    Ok(Duration::from_millis(text.trim().parse().map_err(wrong)?).max(SHORTEST_INTERVAL))
}

/// What a server of a handler says to a platform that it takes no jobs from.
pub(crate) struct HeartbeatEnv {
    /// `RUNPOD_WEBHOOK_PING`
    pub(crate) ping: String,
    /// `RUNPOD_POD_ID`
    pub(crate) worker: String,
    /// As that of a worker.
    pub(crate) key: Option<String>,
    /// `RUNPOD_PING_INTERVAL`
    pub(crate) every: Duration,
}

impl HeartbeatEnv {
    pub(crate) fn read() -> Result<Option<Self>, UsageError> {
        let filled = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let (Some(ping), Some(worker)) = (filled(PING), filled(POD)) else {
            return Ok(None);
        };
        let key = runpod_config::key().or_else(|| filled("RUNPOD_AI_API_KEY"));
        Ok(Some(Self {
            ping,
            worker,
            key,
            every: interval(filled(INTERVAL))?,
        }))
    }
}

/// Where a handler is served instead of fetching jobs, when the environment says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RealtimeEnv {
    /// `RUNPOD_REALTIME_PORT`
    pub(crate) port: u16,
    /// `RUNPOD_REALTIME_CONCURRENCY`: processes that run the handler.
    pub(crate) workers: u16,
}

impl RealtimeEnv {
    pub(crate) fn read() -> Result<Option<Self>, UsageError> {
        Self::from(variable)
    }

    fn from(get: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, UsageError> {
        let number = |name: &str, usual: u16, most: u16| match get(name)
            .filter(|value| !value.trim().is_empty())
        {
            None => Ok(usual),
            Some(text) => text
                .trim()
                .parse()
                .ok()
                .filter(|number| *number <= most)
                .ok_or_else(|| {
                    UsageError::new(format!(
                        "{name} is `{text}`, which is no number up to {most}"
                    ))
                    .hint("give a number, or leave it away")
                }),
        };
        let port = number(REALTIME_PORT, 0, u16::MAX)?;
        let workers = number(REALTIME_WORKERS, 1, MOST_WORKERS)?.max(1);
        Ok((port != 0).then_some(Self { port, workers }))
    }
}

fn variable(name: &str) -> Option<String> {
    Some(std::env::var_os(name)?.to_string_lossy().into_owned())
}

/// `UVICORN_LOG_LEVEL` as a filter of ours.
pub(crate) fn server_log_filter() -> Option<&'static str> {
    match variable("UVICORN_LOG_LEVEL")?.to_ascii_lowercase().as_str() {
        "critical" => Some("error"),
        "warning" => Some("warn"),
        other => filter(other).filter(|level| *level != "off"),
    }
}

/// Runpod's levels in our words; what is not one says nothing.
fn filter(level: &str) -> Option<&'static str> {
    match level.to_ascii_uppercase().as_str() {
        // That is what it means there.
        "NOTSET" => Some("off"),
        "TRACE" => Some("trace"),
        "DEBUG" => Some("debug"),
        "INFO" => Some("info"),
        "WARN" => Some("warn"),
        "ERROR" => Some("error"),
        _ => None,
    }
}

fn missing(name: &str, what: &str, path: &str) -> UsageError {
    UsageError::new(format!(
        "{name} is not set, so it is not known where {what}"
    ))
    .hint(format!(
        "set it to an address of the platform, such as https://PLATFORM/v2/ENDPOINT/{path}?gpu=NAME"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Result<RunpodEnv, UsageError> {
        RunpodEnv::from(|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn half_a_platform_is_a_mistake_that_is_named() {
        assert!(
            env(&[(TAKE, "http://p")])
                .unwrap_err()
                .to_string()
                .contains(DONE)
        );
        assert!(
            env(&[(DONE, "http://p")])
                .unwrap_err()
                .to_string()
                .contains(TAKE)
        );
        assert!(env(&[]).unwrap().templates.is_none());
        assert!(
            env(&[(TAKE, "http://p"), (DONE, "http://p")])
                .unwrap()
                .templates
                .is_some()
        );
    }

    #[test]
    fn an_interval_is_milliseconds_and_never_none_at_all() {
        let interval = |text| env(&[(INTERVAL, text)]).map(|env| env.ping_every);
        assert_eq!(interval("4000").unwrap(), Duration::from_secs(4));
        assert_eq!(interval("0").unwrap(), SHORTEST_INTERVAL);
        assert_eq!(interval("").unwrap(), DEFAULT_INTERVAL);
        assert!(interval("10s").is_err());
    }

    #[test]
    fn a_handler_is_served_where_the_environment_says() {
        let realtime = |pairs: &'static [(&str, &str)]| {
            RealtimeEnv::from(|name| {
                pairs
                    .iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(
            realtime(&[(REALTIME_PORT, "8001")]).unwrap(),
            Some(RealtimeEnv {
                port: 8001,
                workers: 1
            })
        );
        let both = realtime(&[(REALTIME_PORT, " 8001 "), (REALTIME_WORKERS, "4")]).unwrap();
        assert_eq!(
            both,
            Some(RealtimeEnv {
                port: 8001,
                workers: 4
            })
        );
        for none in ["", "0"] {
            assert_eq!(
                RealtimeEnv::from(|name| (name == REALTIME_PORT).then(|| none.to_owned())).unwrap(),
                None
            );
        }
        assert!(realtime(&[(REALTIME_PORT, "http")]).is_err());
        assert!(realtime(&[(REALTIME_PORT, "1"), (REALTIME_WORKERS, "1000")]).is_err());
    }
}
