//! The variables that Runpod's workers know, read here and nowhere else.

use std::time::Duration;

use tidegate_puller::Templates;

use crate::failure::Usage;

const TAKE: &str = "RUNPOD_WEBHOOK_GET_JOB";
const DONE: &str = "RUNPOD_WEBHOOK_POST_OUTPUT";
const STREAM: &str = "RUNPOD_WEBHOOK_POST_STREAM";
const PING: &str = "RUNPOD_WEBHOOK_PING";
const INTERVAL: &str = "RUNPOD_PING_INTERVAL";
const POD: &str = "RUNPOD_POD_ID";

const DEFAULT_INTERVAL: Duration = Duration::from_secs(10);
/// A platform that is told more often has no use for it.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// What the environment says in Runpod's names.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunpodEnv {
    /// The addresses; none when there is no platform.
    pub(crate) templates: Option<Templates>,
    /// `RUNPOD_POD_ID`
    pub(crate) worker: Option<String>,
    /// `RUNPOD_AI_API_KEY`
    pub(crate) key: Option<String>,
    /// `RUNPOD_PING_INTERVAL`, in milliseconds.
    pub(crate) ping_every: Duration,
    /// `RUNPOD_LOG_LEVEL`, or `RUNPOD_DEBUG_LEVEL`, as a filter of ours.
    pub(crate) log_filter: Option<&'static str>,
}

impl RunpodEnv {
    pub(crate) fn read() -> Result<Self, Usage> {
        Self::from(|name| Some(std::env::var_os(name)?.to_string_lossy().into_owned()))
    }

    fn from(get: impl Fn(&str) -> Option<String>) -> Result<Self, Usage> {
        let filled = |name: &str| get(name).filter(|value| !value.trim().is_empty());
        let templates = match (filled(TAKE), filled(DONE)) {
            (Some(take), Some(done)) => Some(Templates { take, done, stream: filled(STREAM), ping: filled(PING) }),
            (Some(_), None) => return Err(missing(DONE, "results go", "job-done/$RUNPOD_POD_ID/$ID")),
            (None, Some(_)) => return Err(missing(TAKE, "jobs come from", "job-take/$ID")),
            (None, None) => None,
        };
        let interval =
            match filled(INTERVAL) {
                None => DEFAULT_INTERVAL,
                Some(text) => Duration::from_millis(text.trim().parse().map_err(|_| {
                    Usage::new(format!("{INTERVAL} is `{text}`, which is no number")).hint("give milliseconds, such as 10000")
                })?),
            };
        Ok(Self {
            templates,
            worker: filled(POD),
            key: filled("RUNPOD_AI_API_KEY"),
            ping_every: interval.max(SHORTEST_INTERVAL),
            log_filter: filled("RUNPOD_LOG_LEVEL").or_else(|| filled("RUNPOD_DEBUG_LEVEL")).and_then(|level| filter(&level)),
        })
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

fn missing(name: &str, what: &str, path: &str) -> Usage {
    Usage::new(format!("{name} is not set, so it is not known where {what}"))
        .hint(format!("set it to an address of the platform, such as https://PLATFORM/v2/ENDPOINT/{path}?gpu=NAME"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Result<RunpodEnv, Usage> {
        RunpodEnv::from(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn half_a_platform_is_a_mistake_that_is_named() {
        assert!(env(&[(TAKE, "http://p")]).unwrap_err().to_string().contains(DONE));
        assert!(env(&[(DONE, "http://p")]).unwrap_err().to_string().contains(TAKE));
        assert!(env(&[]).unwrap().templates.is_none());
        assert!(env(&[(TAKE, "http://p"), (DONE, "http://p")]).unwrap().templates.is_some());
    }

    #[test]
    fn an_interval_is_milliseconds_and_never_none_at_all() {
        let interval = |text| env(&[(INTERVAL, text)]).map(|env| env.ping_every);
        assert_eq!(interval("4000").unwrap(), Duration::from_secs(4));
        assert_eq!(interval("0").unwrap(), SHORTEST_INTERVAL);
        assert_eq!(interval("").unwrap(), DEFAULT_INTERVAL);
        assert!(interval("10s").is_err());
    }
}
