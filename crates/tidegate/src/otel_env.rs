//! Reads the environment variables of OpenTelemetry that decide whether and when traces are exported. The
//! exporter reads those of the endpoint, its headers, the sampler and the resource itself, because their
//! formats belong to OpenTelemetry. No other file reads them.

use std::time::Duration;

use crate::secrets;
use crate::usage_error::UsageError;

/// The first one that is set is the endpoint.
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];
const PROTOCOLS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
];
const TIMEOUTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
];
/// The protocol of the exporter.
const PROTOCOL: &str = "http/protobuf";

/// How traces are exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OtelEnv {
    /// `OTEL_SERVICE_NAME`
    pub(crate) service_name: Option<String>,
    /// `OTEL_EXPORTER_OTLP_TIMEOUT`, in milliseconds: the limit of one request.
    pub(crate) timeout: Duration,
    /// `OTEL_BSP_SCHEDULE_DELAY`, in milliseconds: how long spans wait for a full batch.
    pub(crate) batch_delay: Duration,
    /// `OTEL_BSP_MAX_QUEUE_SIZE`: how many spans wait for the collector.
    pub(crate) max_waiting: usize,
    /// `OTEL_BSP_MAX_EXPORT_BATCH_SIZE`
    pub(crate) max_batch: usize,
}

impl OtelEnv {
    /// The settings; `None` if no traces are exported.
    pub(crate) fn read() -> Result<Option<Self>, UsageError> {
        Self::from(secrets::variable)
    }

    fn from(get: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, UsageError> {
        let non_empty = |name: &str| get(name).filter(|value| !value.trim().is_empty());
        let first = |names: [&'static str; 2]| {
            let found = |name| non_empty(name).map(|value| (name, value));
            names.into_iter().find_map(found)
        };
        let is_disabled = non_empty("OTEL_SDK_DISABLED")
            .is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
            || non_empty("OTEL_TRACES_EXPORTER").is_some_and(|value| value.trim() == "none");
        if is_disabled || first(ENDPOINTS).is_none() {
            return Ok(None);
        }
        if let Some((name, value)) = first(PROTOCOLS)
            && value != PROTOCOL
        {
            return Err(
                UsageError::new(format!("{name}={value} is not supported")).hint(format!(
                    "set it to {PROTOCOL}, and the endpoint to the HTTP port of the collector, usually 4318"
                )),
            );
        }
        let number = |name: &str, default: usize| {
            let number = non_empty(name).and_then(|value| value.trim().parse().ok());
            number.filter(|number| *number > 0).unwrap_or(default)
        };
        let milliseconds =
            |name: &str, default| Duration::from_millis(number(name, default) as u64);
        let timeout = first(TIMEOUTS).map_or(TIMEOUTS[0], |(name, _)| name);
        Ok(Some(Self {
            service_name: non_empty("OTEL_SERVICE_NAME"),
            timeout: milliseconds(timeout, 10_000),
            batch_delay: milliseconds("OTEL_BSP_SCHEDULE_DELAY", 5_000),
            max_waiting: number("OTEL_BSP_MAX_QUEUE_SIZE", 2048),
            max_batch: number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Result<Option<OtelEnv>, UsageError> {
        OtelEnv::from(|name| {
            let pair = pairs.iter().find(|(key, _)| *key == name);
            pair.map(|(_, value)| (*value).to_owned())
        })
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");

    #[test]
    fn without_an_endpoint_nothing_is_exported() {
        assert_eq!(env(&[("OTEL_SERVICE_NAME", "a")]).unwrap(), None);
        assert_eq!(env(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]).unwrap(), None);
        for off in [
            ("OTEL_SDK_DISABLED", "TRUE"),
            ("OTEL_TRACES_EXPORTER", "none"),
        ] {
            assert_eq!(env(&[ENDPOINT, off]).unwrap(), None, "{off:?}");
        }
    }

    #[test]
    fn invalid_numbers_mean_the_defaults() {
        let read = env(&[
            ENDPOINT,
            ("OTEL_BSP_SCHEDULE_DELAY", "soon"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
        ]);
        let read = read.unwrap().unwrap();
        assert_eq!(read.batch_delay, Duration::from_secs(5));
        assert_eq!(read.max_waiting, 2048);
        assert_eq!(read.timeout, Duration::from_millis(250));
    }

    #[test]
    fn a_protocol_that_is_not_built_in_is_a_usage_error() {
        assert!(env(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]).is_ok());
        assert!(env(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).is_err());
        assert!(env(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).is_ok());
    }
}
