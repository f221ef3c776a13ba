//! The bodies that clients and workers send.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use tidegate_core::queue::Priority;

use super::reply::ApiError;
use crate::shared::parse_body::parse_object;

const SECOND: u64 = 1000;
const WEEK: u64 = 7 * 24 * 60 * 60 * SECOND;

/// The body of `run` and `runsync`. The worker also gets the fields that are not parsed here.
#[derive(Debug, Default, Deserialize)]
struct RunBody<'a> {
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    webhook: Option<Cow<'a, str>>,
    #[serde(default)]
    policy: Option<Policy>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(try_from = "Value")]
struct Policy {
    execution_timeout: Option<f64>,
    ttl: Option<f64>,
    low_priority: Option<bool>,
}

/// Not derived: serde would accept a list as the fields in order, and its errors are unclear.
impl TryFrom<Value> for Policy {
    type Error = String;

    fn try_from(policy: Value) -> Result<Self, String> {
        let policy = policy
            .as_object()
            .ok_or_else(|| format!("policy is {policy}, which is not an object"))?;
        let given = |name: &str| policy.get(name).filter(|value| !value.is_null());
        let number = |name: &str| {
            let number = given(name).map(|value| {
                value
                    .as_f64()
                    .ok_or_else(|| format!("policy.{name} is {value}, which is not a number"))
            });
            number.transpose()
        };
        let low = given("lowPriority").map(|value| {
            value
                .as_bool()
                .ok_or_else(|| format!("policy.lowPriority is {value}; expected true or false"))
        });
        Ok(Self {
            execution_timeout: number("executionTimeout")?,
            ttl: number("ttl")?,
            low_priority: low.transpose()?,
        })
    }
}

/// A validated request for a job.
#[derive(Debug)]
pub(super) struct JobRequest {
    /// The body as the worker gets it, without the id.
    pub(super) envelope: Bytes,
    pub(super) webhook: Option<String>,
    pub(super) execution_timeout: Duration,
    pub(super) ttl: Duration,
    pub(super) priority: Priority,
}

impl JobRequest {
    /// A request of a batch: low priority, a default time to live of a week, and the id of the batch
    /// for the worker.
    pub(super) fn of_batch(body: &Bytes, batch: &str) -> Result<Self, ApiError> {
        let id = serde_json::value::to_raw_value(batch).expect("a string is JSON");
        let mut fields: BTreeMap<Cow<'_, str>, &RawValue> = parse_object(body)?.unwrap_or_default();
        fields.insert("batchId".into(), &id);
        let run: RunBody<'_> = parse_object(body)?.unwrap_or_default();
        let wanted = Self::read(
            &serde_json::to_vec(&fields)
                .expect("the keys are strings")
                .into(),
        )?;
        let ttl = run
            .policy
            .and_then(|policy| policy.ttl)
            .map_or(Duration::from_millis(WEEK), |_| wanted.ttl);
        Ok(Self {
            priority: Priority::Low,
            ttl,
            ..wanted
        })
    }

    pub(super) fn read(body: &Bytes) -> Result<Self, ApiError> {
        let missing = || {
            ApiError::InvalidRequest("the body has no `input`; send `{\"input\": …}`".to_owned())
        };
        let run: RunBody<'_> = parse_object(body)?.ok_or_else(missing)?;
        if run.input.is_none_or(|input| input.get() == "null") {
            return Err(missing());
        }
        let policy = run.policy.unwrap_or_default();
        Ok(Self {
            execution_timeout: within(
                "executionTimeout",
                policy.execution_timeout,
                600 * SECOND,
                5 * SECOND,
            )?,
            ttl: within("ttl", policy.ttl, 24 * 60 * 60 * SECOND, 10 * SECOND)?,
            priority: if policy.low_priority == Some(true) {
                Priority::Low
            } else {
                Priority::Normal
            },
            webhook: run
                .webhook
                .filter(|url| !url.is_empty())
                .map(Cow::into_owned),
            envelope: envelope(body)?,
        })
    }
}

/// The body without the client's id: the server assigns its own.
fn envelope(body: &[u8]) -> Result<Bytes, ApiError> {
    let mut fields: BTreeMap<Cow<'_, str>, &RawValue> = parse_object(body)?.unwrap_or_default();
    fields.remove("id");
    Ok(serde_json::to_vec(&fields)
        .expect("the keys are strings")
        .into())
}

/// A time in milliseconds. Some languages write whole numbers as floats.
fn within(name: &str, given: Option<f64>, usual: u64, least: u64) -> Result<Duration, ApiError> {
    let Some(ms) = given else {
        return Ok(Duration::from_millis(usual));
    };
    match Duration::try_from_secs_f64(ms / 1000.0) {
        Ok(time)
            if (Duration::from_millis(least)..=Duration::from_millis(WEEK)).contains(&time) =>
        {
            Ok(time)
        }
        Ok(_) | Err(_) => Err(ApiError::InvalidRequest(format!(
            "policy.{name} is {ms}; expected milliseconds from {least} to {WEEK}"
        ))),
    }
}

/// The input in a job's body, as JSON.
pub(crate) fn input_of(envelope: &Bytes) -> Option<Bytes> {
    let run: RunBody<'_> = serde_json::from_slice(envelope).ok()?;
    Some(envelope.slice_ref(run.input?.get().as_bytes()))
}

/// The body of a worker's report about a job.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ReportBody<'a> {
    /// `null` is an output; a missing field is not.
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) output: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) status: Option<Cow<'a, str>>,
}

fn present<'de, D: Deserializer<'de>>(given: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(given).map(Some)
}

impl ReportBody<'_> {
    /// The error as text, whatever JSON type the worker sent. Empty values are no error.
    pub(super) fn error(&self) -> Option<String> {
        let error = self.error?.get();
        let text = serde_json::from_str::<String>(error).unwrap_or_else(|_| error.to_owned());
        (!matches!(text.as_str(), "" | "null" | "false")).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &'static str) -> Result<JobRequest, ApiError> {
        JobRequest::read(&Bytes::from_static(body.as_bytes()))
    }

    #[test]
    fn everything_but_the_id_goes_to_the_worker() {
        let wanted =
            read(r#"{"s3Config": {"a": 1}, "input": [1], "id": "mine", "webhook": "https://x/"}"#)
                .unwrap();
        assert_eq!(
            wanted.envelope,
            r#"{"input":[1],"s3Config":{"a": 1},"webhook":"https://x/"}"#
        );
        assert_eq!(input_of(&wanted.envelope).unwrap(), "[1]");
        assert_eq!(
            (wanted.webhook.as_deref(), wanted.ttl.as_secs()),
            (Some("https://x/"), 86_400)
        );
    }

    #[test]
    fn bodies_without_input_and_times_out_of_range_are_rejected() {
        for bad in [
            "",
            "{}",
            "[]",
            "1",
            r#"{"input": null}"#,
            r#"{"input": 1, "policy": {"ttl": 9999}}"#,
            r#"{"input": 1, "policy": {"executionTimeout": 604800001}}"#,
            r#"{"input": 1, "policy": {"executionTimeout": "5000"}}"#,
            r#"{"input": 1, "policy": {"lowPriority": "no"}}"#,
            r#"{"input": 1, "policy": {"ttl": -10000}}"#,
            r#"{"input": 1, "policy": [5000, 10000, true]}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        let wanted = read(r#"{"input": {}, "policy": {"executionTimeout": 5000, "ttl": null, "lowPriority": true}}"#).unwrap();
        assert_eq!(
            (wanted.execution_timeout.as_secs(), wanted.priority),
            (5, Priority::Low)
        );
        let wanted = read(
            r#"{"input": {}, "policy": {"executionTimeout": 6e4, "ttl": 10000.0, "later": {}}}"#,
        )
        .unwrap();
        assert_eq!(
            (wanted.execution_timeout.as_secs(), wanted.ttl.as_secs()),
            (60, 10)
        );
    }

    #[test]
    fn a_batch_request_has_low_priority_and_a_week_to_live() {
        let read = |body: &'static str| {
            JobRequest::of_batch(&Bytes::from_static(body.as_bytes()), "b").unwrap()
        };
        let wanted = read(r#"{"input": 1.50, "policy": {"ttl": null}}"#);
        assert_eq!(
            wanted.envelope,
            r#"{"batchId":"b","input":1.50,"policy":{"ttl": null}}"#
        );
        assert_eq!(
            (wanted.priority, wanted.ttl.as_secs()),
            (Priority::Low, 604_800)
        );
        assert_eq!(
            read(r#"{"input": 1, "policy": {"ttl": 10000}}"#)
                .ttl
                .as_secs(),
            10
        );
    }

    #[test]
    fn errors_of_any_json_type_become_text() {
        let error = |body: &str| {
            serde_json::from_str::<ReportBody<'_>>(body)
                .unwrap()
                .error()
        };
        assert_eq!(error(r#"{"error": "a\nb"}"#).as_deref(), Some("a\nb"));
        assert_eq!(
            error(r#"{"error": {"k": 1}}"#).as_deref(),
            Some(r#"{"k": 1}"#)
        );
        for none in [r#"{"error": ""}"#, r#"{"error": null}"#, r#"{"output": 1}"#] {
            assert_eq!(error(none), None, "{none}");
        }
    }
}
