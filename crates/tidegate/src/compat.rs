//! The variables that Cog's users know, and one that Runpod's know, read here and nowhere else.

use std::path::PathBuf;
use std::time::Duration;

use crate::secrets;

/// What the environment says in Cog's names.
#[derive(Debug, Clone, Default)]
pub(crate) struct CogEnv {
    /// `COG_PREDICT_TYPE_STUB`
    pub(crate) predictor_ref: Option<String>,
    /// `COG_TRAIN_TYPE_STUB`
    pub(crate) train_ref: Option<String>,
    /// `COG_MAX_CONCURRENCY`; what is no positive number counts as one.
    pub(crate) max_concurrency: Option<u32>,
    /// `COG_SETUP_TIMEOUT`, whole seconds; zero and nonsense count as none.
    pub(crate) setup_timeout: Option<Duration>,
    /// `COG_THROTTLE_RESPONSE_INTERVAL`, seconds.
    pub(crate) throttle: Duration,
    /// `COG_STREAM_HISTORY_CAPACITY`
    pub(crate) stream_history: usize,
    /// `COG_USER_AGENT`
    pub(crate) user_agent: Option<String>,
    /// `WEBHOOK_AUTH_TOKEN`
    pub(crate) webhook_token: Option<String>,
    /// `TIDEGATE_WEBHOOK_SECRET`
    pub(crate) webhook_secret: Option<String>,
    /// Where Kubernetes' probes look, when we are in Kubernetes.
    pub(crate) ready_file: Option<PathBuf>,
    /// `RUST_LOG`, or `COG_LOG_LEVEL`
    pub(crate) log_filter: Option<String>,
    /// `LOG_FORMAT`
    pub(crate) log_format: Option<String>,
    /// `RUNPOD_ENDPOINT_ID`, which scripts with a handler know.
    pub(crate) endpoint_id: Option<String>,
}

/// Secrets that sign webhooks. There is no flag for them: every user of a machine sees its command lines.
pub(crate) const WEBHOOK_SECRET: &str = "TIDEGATE_WEBHOOK_SECRET";

/// Flags that other names in the environment stand for as well.
const OTHER_NAMES: [(&str, &[&str]); 4] = [
    ("concurrency", &["COG_MAX_CONCURRENCY"]),
    ("setup-timeout", &["COG_SETUP_TIMEOUT"]),
    ("log-level", &["RUST_LOG", "COG_LOG_LEVEL"]),
    ("log-format", &["LOG_FORMAT"]),
];

/// Whether the environment says something about a flag in a name that is not ours.
pub(crate) fn says(flag: &str) -> bool {
    let names = OTHER_NAMES
        .iter()
        .filter(|(ours, _)| *ours == flag)
        .flat_map(|(_, names)| *names);
    names
        .into_iter()
        .any(|name| secrets::variable(name).is_some_and(|value| !value.is_empty()))
}

const DEFAULT_THROTTLE: Duration = Duration::from_millis(500);
const DEFAULT_HISTORY: usize = 1024;

impl CogEnv {
    pub(crate) fn read() -> Self {
        Self::from(secrets::variable)
    }

    fn from(get: impl Fn(&str) -> Option<String>) -> Self {
        let filled = |name: &str| get(name).filter(|value| !value.is_empty());
        let throttle = filled("COG_THROTTLE_RESPONSE_INTERVAL").and_then(|text| text.parse().ok());
        Self {
            predictor_ref: filled("COG_PREDICT_TYPE_STUB"),
            train_ref: filled("COG_TRAIN_TYPE_STUB"),
            max_concurrency: filled("COG_MAX_CONCURRENCY")
                .map(|text| text.parse().ok().filter(|n| *n > 0).unwrap_or(1)),
            setup_timeout: filled("COG_SETUP_TIMEOUT")
                .and_then(|text| text.parse().ok())
                .filter(|n| *n > 0)
                .map(Duration::from_secs),
            throttle: throttle
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .unwrap_or(DEFAULT_THROTTLE),
            stream_history: filled("COG_STREAM_HISTORY_CAPACITY")
                .and_then(|text| text.parse().ok())
                .unwrap_or(DEFAULT_HISTORY),
            user_agent: filled("COG_USER_AGENT"),
            webhook_token: filled("WEBHOOK_AUTH_TOKEN"),
            webhook_secret: filled(WEBHOOK_SECRET),
            ready_file: filled("KUBERNETES_SERVICE_HOST")
                .map(|_| PathBuf::from("/var/run/cog/ready")),
            log_filter: filled("RUST_LOG").or_else(|| {
                filled("COG_LOG_LEVEL")
                    .map(|level| level.to_ascii_lowercase().replace("warning", "warn"))
            }),
            log_format: filled("LOG_FORMAT"),
            endpoint_id: filled("RUNPOD_ENDPOINT_ID"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> CogEnv {
        CogEnv::from(|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn nonsense_is_read_as_cog_reads_it() {
        for nonsense in ["0", "-3", "many"] {
            assert_eq!(
                env(&[("COG_MAX_CONCURRENCY", nonsense)]).max_concurrency,
                Some(1),
                "{nonsense}"
            );
            assert_eq!(
                env(&[("COG_SETUP_TIMEOUT", nonsense)]).setup_timeout,
                None,
                "{nonsense}"
            );
        }
        let bad = env(&[
            ("COG_THROTTLE_RESPONSE_INTERVAL", "x"),
            ("COG_STREAM_HISTORY_CAPACITY", "-1"),
        ]);
        assert_eq!(
            (bad.throttle, bad.stream_history),
            (DEFAULT_THROTTLE, DEFAULT_HISTORY)
        );
    }

    #[test]
    fn zero_means_zero_where_it_has_a_meaning() {
        let zero = env(&[
            ("COG_THROTTLE_RESPONSE_INTERVAL", "0"),
            ("COG_STREAM_HISTORY_CAPACITY", "0"),
        ]);
        assert_eq!((zero.throttle, zero.stream_history), (Duration::ZERO, 0));
    }
}
