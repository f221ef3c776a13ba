//! Reads the environment variables of Cog, and one of Runpod. No other file reads them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::{director_env, secrets};

/// The environment variables of Cog.
#[derive(Debug, Clone, Default)]
pub(crate) struct CogEnv {
    /// `COG_PREDICT_TYPE_STUB`
    pub(crate) predictor_ref: Option<String>,
    /// `COG_TRAIN_TYPE_STUB`
    pub(crate) train_ref: Option<String>,
    /// `COG_MAX_CONCURRENCY`; values that are not positive numbers mean 1.
    pub(crate) max_concurrency: Option<u32>,
    /// `COG_SETUP_TIMEOUT`, whole seconds; zero and invalid values mean no limit.
    pub(crate) setup_timeout: Option<Duration>,
    /// `COG_THROTTLE_RESPONSE_INTERVAL`, seconds.
    throttle: Option<Duration>,
    /// `COG_STREAM_HISTORY_CAPACITY`
    stream_history: Option<usize>,
    /// `COG_USER_AGENT`
    pub(crate) user_agent: Option<String>,
    /// `WEBHOOK_AUTH_TOKEN`
    pub(crate) webhook_token: Option<String>,
    /// `TIDEGATE_WEBHOOK_SECRET`
    pub(crate) webhook_secret: Option<String>,
    /// The file that Kubernetes probes check, if the server runs in Kubernetes.
    pub(crate) ready_file: Option<PathBuf>,
    /// `RUST_LOG`, or `COG_LOG_LEVEL`
    pub(crate) log_filter: Option<String>,
    /// `LOG_FORMAT`
    pub(crate) log_format: Option<String>,
    /// `RUNPOD_ENDPOINT_ID`, for scripts with a handler.
    pub(crate) endpoint_id: Option<String>,
}

/// The secrets that sign webhooks. They have no flag, because every user of a machine can read command
/// lines.
pub(crate) const WEBHOOK_SECRET: &str = "TIDEGATE_WEBHOOK_SECRET";

/// The other environment variables of a flag.
const OTHER_NAMES: [(&str, &[&str]); 6] = [
    (
        "concurrency",
        &["COG_MAX_CONCURRENCY", director_env::CONCURRENCY],
    ),
    ("job-kind", &[director_env::JOB_KIND]),
    ("setup-timeout", &["COG_SETUP_TIMEOUT"]),
    ("log-level", &["RUST_LOG", "COG_LOG_LEVEL"]),
    ("log-format", &["LOG_FORMAT"]),
    // Not visible to the parser of the command line, because it is a secret.
    ("postgres", &[secrets::POSTGRES]),
];

/// Whether another environment variable of a flag is set.
pub(crate) fn is_set(flag: &str) -> bool {
    other_variable(flag).is_some()
}

/// The other environment variable of a flag that is set, and its value.
pub(crate) fn other_variable(flag: &str) -> Option<(&'static str, String)> {
    let mut names = OTHER_NAMES
        .iter()
        .filter(|(ours, _)| *ours == flag)
        .flat_map(|(_, names)| *names);
    names.find_map(|name| {
        let value = secrets::variable(name).filter(|value| !value.is_empty())?;
        Some((*name, value))
    })
}

const DEFAULT_THROTTLE: Duration = Duration::from_millis(500);
const DEFAULT_HISTORY: usize = 1024;

impl CogEnv {
    pub(crate) fn read() -> Self {
        Self::from(secrets::variable)
    }

    /// The variables in the `environment` of a model's `cog.yaml`.
    pub(crate) fn of_model(environment: &[(OsString, OsString)]) -> Self {
        Self::from(|name| {
            let mut values = environment.iter().rev();
            let (_, value) = values.find(|(key, _)| key == name)?;
            value.to_str().map(str::to_owned)
        })
    }

    /// The same with the settings of `other` that apply to a model, where they are not set here.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            max_concurrency: self.max_concurrency.or(other.max_concurrency),
            setup_timeout: self.setup_timeout.or(other.setup_timeout),
            stream_history: self.stream_history.or(other.stream_history),
            ..self
        }
    }

    /// The shortest pause between interim webhooks of a job.
    pub(crate) fn throttle(&self) -> Duration {
        self.throttle.unwrap_or(DEFAULT_THROTTLE)
    }

    /// How many events of a stream are kept for late readers.
    pub(crate) fn stream_history(&self) -> usize {
        self.stream_history.unwrap_or(DEFAULT_HISTORY)
    }

    fn from(get: impl Fn(&str) -> Option<String>) -> Self {
        let non_empty = |name: &str| get(name).filter(|value| !value.is_empty());
        let throttle =
            non_empty("COG_THROTTLE_RESPONSE_INTERVAL").and_then(|text| text.parse().ok());
        Self {
            predictor_ref: non_empty("COG_PREDICT_TYPE_STUB"),
            train_ref: non_empty("COG_TRAIN_TYPE_STUB"),
            max_concurrency: non_empty("COG_MAX_CONCURRENCY")
                .map(|text| text.parse().ok().filter(|n| *n > 0).unwrap_or(1)),
            setup_timeout: non_empty("COG_SETUP_TIMEOUT")
                .and_then(|text| text.parse().ok())
                .filter(|n| *n > 0)
                .map(Duration::from_secs),
            throttle: throttle.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            stream_history: non_empty("COG_STREAM_HISTORY_CAPACITY")
                .and_then(|text| text.parse().ok()),
            user_agent: non_empty("COG_USER_AGENT"),
            webhook_token: non_empty("WEBHOOK_AUTH_TOKEN"),
            webhook_secret: non_empty(WEBHOOK_SECRET),
            ready_file: non_empty("KUBERNETES_SERVICE_HOST")
                .map(|_| PathBuf::from("/var/run/cog/ready")),
            log_filter: non_empty("RUST_LOG").or_else(|| {
                non_empty("COG_LOG_LEVEL")
                    .map(|level| level.to_ascii_lowercase().replace("warning", "warn"))
            }),
            log_format: non_empty("LOG_FORMAT"),
            endpoint_id: non_empty("RUNPOD_ENDPOINT_ID"),
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
    fn invalid_values_are_read_as_cog_reads_them() {
        for invalid in ["0", "-3", "many"] {
            assert_eq!(
                env(&[("COG_MAX_CONCURRENCY", invalid)]).max_concurrency,
                Some(1),
                "{invalid}"
            );
            assert_eq!(
                env(&[("COG_SETUP_TIMEOUT", invalid)]).setup_timeout,
                None,
                "{invalid}"
            );
        }
        let bad = env(&[
            ("COG_THROTTLE_RESPONSE_INTERVAL", "x"),
            ("COG_STREAM_HISTORY_CAPACITY", "-1"),
        ]);
        assert_eq!(
            (bad.throttle(), bad.stream_history()),
            (DEFAULT_THROTTLE, DEFAULT_HISTORY)
        );
    }

    #[test]
    fn zero_is_a_valid_throttle_and_history() {
        let zero = env(&[
            ("COG_THROTTLE_RESPONSE_INTERVAL", "0"),
            ("COG_STREAM_HISTORY_CAPACITY", "0"),
        ]);
        assert_eq!(
            (zero.throttle(), zero.stream_history()),
            (Duration::ZERO, 0)
        );
    }

    #[test]
    fn the_environment_of_the_server_takes_precedence_over_that_of_the_model() {
        let model = CogEnv::of_model(&[
            ("COG_MAX_CONCURRENCY".into(), "4".into()),
            ("COG_SETUP_TIMEOUT".into(), "7".into()),
            ("COG_STREAM_HISTORY_CAPACITY".into(), "1".into()),
            ("COG_STREAM_HISTORY_CAPACITY".into(), "2".into()),
            ("WEBHOOK_AUTH_TOKEN".into(), "of the server only".into()),
        ]);
        let both = env(&[("COG_MAX_CONCURRENCY", "3")]).or(model);
        assert_eq!(both.max_concurrency, Some(3));
        assert_eq!(both.setup_timeout, Some(Duration::from_secs(7)));
        assert_eq!(both.stream_history(), 2);
        assert_eq!(both.webhook_token, None);
    }
}
