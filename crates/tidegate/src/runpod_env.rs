//! Reads the environment variables of Runpod's workers. No other file reads them.

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

/// The maximum of `--workers`.
const MAX_WORKERS: u16 = 256;

const DEFAULT_INTERVAL: Duration = Duration::from_secs(10);
/// More frequent heartbeats have no use for a platform.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// The environment variables of a worker.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunpodEnv {
    /// The addresses of the platform, if there is one.
    pub(crate) templates: Option<UrlTemplates>,
    /// `RUNPOD_POD_ID`
    pub(crate) worker: Option<String>,
    /// `~/.runpod/config.toml`, or `RUNPOD_AI_API_KEY`
    pub(crate) key: Option<String>,
    /// `RUNPOD_UA_INTEGRATION`
    pub(crate) integration: Option<String>,
    /// `RUNPOD_PING_INTERVAL`, in milliseconds.
    pub(crate) ping_every: Duration,
    /// `RUNPOD_LOG_LEVEL`, or `RUNPOD_DEBUG_LEVEL`, as a log filter.
    pub(crate) log_filter: Option<&'static str>,
}

impl RunpodEnv {
    pub(crate) fn read() -> Result<Self, UsageError> {
        let mut read = Self::from(variable)?;
        // The file takes precedence over the variable, as for Runpod's own workers.
        if let Some(key) = runpod_config::key() {
            read.key = Some(key);
        }
        Ok(read)
    }

    fn from(get: impl Fn(&str) -> Option<String>) -> Result<Self, UsageError> {
        let non_empty = |name: &str| get(name).filter(|value| !value.trim().is_empty());
        let templates = match (non_empty(TAKE), non_empty(DONE)) {
            (Some(take), Some(done)) => Some(UrlTemplates {
                take,
                done,
                stream: non_empty(STREAM),
                ping: non_empty(PING),
            }),
            (Some(_), None) => {
                return Err(missing(DONE, "results", "job-done/$RUNPOD_POD_ID/$ID"));
            }
            (None, Some(_)) => return Err(missing(TAKE, "jobs", "job-take/$ID")),
            (None, None) => None,
        };
        Ok(Self {
            templates,
            worker: non_empty(POD),
            key: non_empty("RUNPOD_AI_API_KEY"),
            integration: non_empty("RUNPOD_UA_INTEGRATION"),
            ping_every: interval(non_empty(INTERVAL))?,
            log_filter: non_empty("RUNPOD_LOG_LEVEL")
                .or_else(|| non_empty("RUNPOD_DEBUG_LEVEL"))
                .and_then(|level| filter(&level)),
        })
    }
}

fn interval(value: Option<String>) -> Result<Duration, UsageError> {
    let Some(text) = value else {
        return Ok(DEFAULT_INTERVAL);
    };
    let invalid = |_| {
        UsageError::new(format!("{INTERVAL} is `{text}`, which is not a number"))
            .hint("set it to milliseconds, such as 10000")
    };
    Ok(Duration::from_millis(text.trim().parse().map_err(invalid)?).max(MIN_INTERVAL))
}

/// The environment variables of the heartbeats of a served handler.
pub(crate) struct HeartbeatEnv {
    /// `RUNPOD_WEBHOOK_PING`
    pub(crate) ping: String,
    /// `RUNPOD_POD_ID`
    pub(crate) worker: String,
    /// The same as for a worker.
    pub(crate) key: Option<String>,
    /// `RUNPOD_PING_INTERVAL`
    pub(crate) every: Duration,
}

impl HeartbeatEnv {
    pub(crate) fn read() -> Result<Option<Self>, UsageError> {
        let non_empty = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let (Some(ping), Some(worker)) = (non_empty(PING), non_empty(POD)) else {
            return Ok(None);
        };
        let key = runpod_config::key().or_else(|| non_empty("RUNPOD_AI_API_KEY"));
        Ok(Some(Self {
            ping,
            worker,
            key,
            every: interval(non_empty(INTERVAL))?,
        }))
    }
}

/// The environment variables that make a worker serve its handler instead of fetching jobs.
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
        let number = |name: &str, default: u16, max: u16| match get(name)
            .filter(|value| !value.trim().is_empty())
        {
            None => Ok(default),
            Some(text) => text
                .trim()
                .parse()
                .ok()
                .filter(|number| *number <= max)
                .ok_or_else(|| {
                    UsageError::new(format!(
                        "{name} is `{text}`, which is not a number up to {max}"
                    ))
                    .hint("set it to a number, or unset it")
                }),
        };
        let port = number(REALTIME_PORT, 0, u16::MAX)?;
        let workers = number(REALTIME_WORKERS, 1, MAX_WORKERS)?.max(1);
        Ok((port != 0).then_some(Self { port, workers }))
    }
}

fn variable(name: &str) -> Option<String> {
    Some(std::env::var_os(name)?.to_string_lossy().into_owned())
}

/// `UVICORN_LOG_LEVEL` as a log filter.
pub(crate) fn server_log_filter() -> Option<&'static str> {
    match variable("UVICORN_LOG_LEVEL")?.to_ascii_lowercase().as_str() {
        "critical" => Some("error"),
        "warning" => Some("warn"),
        other => filter(other).filter(|level| *level != "off"),
    }
}

/// The log filter for a level of Runpod; unknown levels are ignored.
fn filter(level: &str) -> Option<&'static str> {
    match level.to_ascii_uppercase().as_str() {
        // This is what it means in Runpod's package.
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
        "{name}, the address for {what}, is not set"
    ))
    .hint(format!(
        "set it to the address that the platform provides, such as https://PLATFORM/v2/ENDPOINT/{path}?gpu=NAME"
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
    fn a_missing_address_is_named() {
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
    fn an_interval_is_in_milliseconds_and_has_a_minimum() {
        let interval = |text| env(&[(INTERVAL, text)]).map(|env| env.ping_every);
        assert_eq!(interval("4000").unwrap(), Duration::from_secs(4));
        assert_eq!(interval("0").unwrap(), MIN_INTERVAL);
        assert_eq!(interval("").unwrap(), DEFAULT_INTERVAL);
        assert!(interval("10s").is_err());
    }

    #[test]
    fn the_realtime_variables_set_port_and_workers() {
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
