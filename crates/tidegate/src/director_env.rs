//! Reads the environment variables of directors: those of Replicate's, and the token. No other file reads
//! them.

use clap::ValueEnum;

use crate::cli::JobKindArg;
use crate::secrets;
use crate::usage_error::UsageError;

/// The jobs that run at the same time.
pub(crate) const CONCURRENCY: &str = "DIRECTOR_CONCURRENT_PREDICTIONS";
/// The kind of jobs.
pub(crate) const JOB_KIND: &str = "DIRECTOR_JOB_KIND";
/// The token that the API accepts from directors. It has no flag, because every user of a machine can read
/// command lines.
pub(crate) const TOKEN: &str = "TIDEGATE_DIRECTOR_TOKEN";

/// The environment variables of a director.
#[derive(Debug, Default)]
pub(crate) struct DirectorEnv {
    /// `DIRECTOR_CONCURRENT_PREDICTIONS`
    pub(crate) concurrency: Option<u32>,
    /// `DIRECTOR_JOB_KIND`
    pub(crate) job_kind: Option<JobKindArg>,
    /// `TIDEGATE_DIRECTOR_TOKEN`
    pub(crate) token: Option<String>,
}

impl DirectorEnv {
    pub(crate) fn read() -> Result<Self, UsageError> {
        Self::from(secrets::variable)
    }

    fn from(get: impl Fn(&str) -> Option<String>) -> Result<Self, UsageError> {
        let non_empty = |name: &str| {
            let value = get(name)?.trim().to_owned();
            (!value.is_empty()).then_some(value)
        };
        let concurrency = non_empty(CONCURRENCY).map(|text| {
            let count = text.parse().ok().filter(|count| *count > 0);
            count.ok_or_else(|| {
                UsageError::new(format!("invalid {CONCURRENCY} `{text}`"))
                    .hint("set it to a number above 0, or use --concurrency")
            })
        });
        let job_kind = non_empty(JOB_KIND).map(|text| {
            JobKindArg::from_str(&text, true).map_err(|_| {
                UsageError::new(format!("invalid {JOB_KIND} `{text}`"))
                    .hint("set it to prediction, training or procedure")
            })
        });
        Ok(Self {
            concurrency: concurrency.transpose()?,
            job_kind: job_kind.transpose()?,
            token: non_empty(TOKEN),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Result<DirectorEnv, UsageError> {
        DirectorEnv::from(|name| {
            let pair = pairs.iter().find(|(key, _)| *key == name);
            pair.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn kinds_are_read_in_singular_and_plural() {
        for (text, kind) in [
            ("prediction", JobKindArg::Prediction),
            ("trainings", JobKindArg::Training),
            ("Procedure", JobKindArg::Procedure),
        ] {
            assert_eq!(env(&[(JOB_KIND, text)]).unwrap().job_kind, Some(kind));
        }
        assert_eq!(env(&[(JOB_KIND, "")]).unwrap().job_kind, None);
    }

    #[test]
    fn invalid_values_are_refused_with_their_name() {
        for (name, value) in [
            (CONCURRENCY, "0"),
            (CONCURRENCY, "many"),
            (JOB_KIND, "batch"),
        ] {
            let error = env(&[(name, value)]).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
    }
}
