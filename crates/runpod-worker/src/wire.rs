//! The bodies of Runpod's worker protocol: jobs from the platform, and reports to it.

use std::collections::HashMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_core::lenient::{self, InfinityEncoding};

/// A job from the platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The platform's id of the job.
    pub id: String,
    /// The whole object, for handlers.
    pub json: Bytes,
}

/// The jobs of one response.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TakenJobs {
    pub(crate) jobs: Vec<Job>,
    /// The ids of jobs without `input`, which fail at once.
    pub(crate) without_input: Vec<String>,
    /// The number of jobs without an id.
    pub(crate) without_id: usize,
}

impl Job {
    /// The job's input, as its client wrote it.
    pub fn input(&self) -> Bytes {
        let members: HashMap<String, &RawValue> =
            serde_json::from_slice(&self.json).unwrap_or_default();
        members
            .get("input")
            .map_or(Bytes::from_static(b"null"), |input| {
                self.json.slice_ref(input.get().as_bytes())
            })
    }

    /// The id of the job's batch, for log messages.
    pub(crate) fn batch(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Members {
            #[serde(rename = "batchId")]
            batch: Option<String>,
        }
        serde_json::from_slice::<Members>(&self.json).ok()?.batch
    }
}

/// Parses the response to a request for jobs: one job, a list of jobs, or nothing. `None` when it is
/// something else.
pub(crate) fn jobs(body: &Bytes) -> Option<TakenJobs> {
    if body.trim_ascii().is_empty() {
        return Some(TakenJobs::default());
    }
    let body = lenient::as_json(body, InfinityEncoding::OutOfRange)?;
    let mut taken = TakenJobs::default();
    if let Ok(list) = serde_json::from_slice::<Vec<&RawValue>>(&body) {
        for item in list {
            add_job(&mut taken, body.slice_ref(item.get().as_bytes()));
        }
    } else if &body[..] != b"null" {
        add_job(&mut taken, body);
    }
    Some(taken)
}

fn add_job(taken: &mut TakenJobs, json: Bytes) {
    let members: HashMap<String, &RawValue> = serde_json::from_slice(&json).unwrap_or_default();
    match (
        members.get("id").and_then(|id| parse_id(id.get())),
        members.contains_key("input"),
    ) {
        (Some(id), true) => taken.jobs.push(Job { id, json }),
        (Some(id), false) => taken.without_input.push(id),
        (None, _) => taken.without_id += 1,
    }
}

/// An id: a string, or a number, which becomes a string in URLs.
fn parse_id(json: &str) -> Option<String> {
    let text = serde_json::from_str::<String>(json).ok();
    let number = || {
        serde_json::from_str::<i64>(json)
            .ok()
            .map(|number| number.to_string())
    };
    text.or_else(number).filter(|id| !id.is_empty())
}

/// The ids in the response to a request for jobs to stop.
pub(crate) fn stops(body: &[u8]) -> Vec<String> {
    #[derive(Deserialize)]
    struct Stops<'a> {
        #[serde(rename = "jobsToStop", borrow, default)]
        jobs: Vec<&'a RawValue>,
    }
    let stops: Stops<'_> = serde_json::from_slice(body).unwrap_or(Stops { jobs: Vec::new() });
    stops
        .jobs
        .iter()
        .filter_map(|id| serde_json::from_str(id.get()).ok())
        .collect()
}

/// The body of `job-done`.
#[derive(Debug, Default, Serialize)]
pub struct JobDone<'a> {
    /// The output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<&'a RawValue>,
    /// Why the job failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'a str>,
    /// Whether the platform should replace the worker.
    #[serde(rename = "stopPod", skip_serializing_if = "Option::is_none")]
    pub stop_pod: Option<bool>,
}

impl JobDone<'_> {
    /// The body as JSON.
    pub fn to_bytes(&self) -> Bytes {
        serde_json::to_vec(self)
            .expect("the output is valid JSON")
            .into()
    }
}

/// The body of a failed job.
pub(crate) fn failure(error: &str) -> Bytes {
    JobDone {
        error: Some(error),
        ..JobDone::default()
    }
    .to_bytes()
}

/// The body of a part of an output.
pub(crate) fn part(json: &[u8]) -> Bytes {
    [b"{\"output\":", json, b"}"].concat().into()
}

/// The body of a progress report.
pub(crate) fn progress(json: &[u8]) -> Bytes {
    [b"{\"status\":\"IN_PROGRESS\",\"output\":", json, b"}"]
        .concat()
        .into()
}

/// A JSON list of these values.
pub(crate) fn list(parts: &[Bytes]) -> Vec<u8> {
    let mut text = vec![b'['];
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            text.push(b',');
        }
        text.extend_from_slice(part);
    }
    text.push(b']');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<String>, Vec<String>, usize) {
        let taken = jobs(&Bytes::copy_from_slice(text.as_bytes())).unwrap();
        (
            taken.jobs.into_iter().map(|job| job.id).collect(),
            taken.without_input,
            taken.without_id,
        )
    }

    #[test]
    fn one_job_a_list_or_nothing() {
        let none: Vec<String> = Vec::new();
        assert_eq!(
            read(r#"{"id":"a","input":{"x":1}}"#),
            (vec!["a".to_owned()], none.clone(), 0)
        );
        assert_eq!(
            read(r#"[{"id":"a","input":1},{"id":"b","input":[]}]"#).0,
            ["a", "b"]
        );
        for nothing in ["", "null", "[]", "   "] {
            assert_eq!(
                read(nothing),
                (none.clone(), none.clone(), 0),
                "{nothing:?}"
            );
        }
        assert_eq!(
            read(r#"{"id":"a"}"#),
            (none.clone(), vec!["a".to_owned()], 0)
        );
        assert_eq!(
            read(r#"[{"input":{}}, 5, {"id":"","input":{}}]"#),
            (none, Vec::new(), 3)
        );
        assert_eq!(read(r#"{"id":7,"input":{"x":NaN}}"#).0, ["7"]);
        assert_eq!(jobs(&Bytes::from_static(b"<html>")), None);
    }

    #[test]
    fn a_job_keeps_its_original_bytes() {
        let text = r#"{"id":"a", "webhook" : "x","input": {"n": 1.50} }"#;
        let taken = jobs(&Bytes::from_static(text.as_bytes())).unwrap();
        assert_eq!(taken.jobs[0].json, text);
        assert_eq!(taken.jobs[0].input(), r#"{"n": 1.50}"#);
    }

    #[test]
    fn only_strings_are_ids_to_stop() {
        assert_eq!(stops(br#"{"jobsToStop":["a",3,null,"b"]}"#), ["a", "b"]);
        assert!(stops(b"[]").is_empty() && stops(b"").is_empty() && stops(b"{}").is_empty());
    }

    #[test]
    fn bodies_are_built_without_parsing_outputs() {
        assert_eq!(part(b"1"), r#"{"output":1}"#);
        assert_eq!(
            progress(b"\"x\""),
            r#"{"status":"IN_PROGRESS","output":"x"}"#
        );
        assert_eq!(list(&["1".into(), "2".into()]), b"[1,2]");
        assert_eq!(failure("no"), r#"{"error":"no"}"#);
    }
}
