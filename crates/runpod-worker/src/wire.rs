//! The platform's words: jobs as it hands them out, and what it is sent.

use std::collections::HashMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_core::lenient::{self, Infinities};

/// A job that the platform handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The platform's name for it.
    pub id: String,
    /// The json object, for handlers that want to see it.
    pub json: Bytes,
}

/// What an answer to a take holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TakenJobs {
    pub(crate) jobs: Vec<Job>,
    /// Jobs that can only be sent back: they have an id and no input.
    pub(crate) without_input: Vec<String>,
    /// What cannot even be named.
    pub(crate) without_id: usize,
}

impl Job {
    /// The job's input, as its caller wrote it.
    pub fn input(&self) -> Bytes {
        let members: HashMap<String, &RawValue> =
            serde_json::from_slice(&self.json).unwrap_or_default();
        members
            .get("input")
            .map_or(Bytes::from_static(b"null"), |input| {
                self.json.slice_ref(input.get().as_bytes())
            })
    }

    /// The batch that it came with, for log lines.
    pub(crate) fn batch(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Members {
            #[serde(rename = "batchId")]
            batch: Option<String>,
        }
        serde_json::from_slice::<Members>(&self.json).ok()?.batch
    }
}

/// Reads the answer to a take: one job, a list of jobs, or nothing. `None` when it is something else.
pub(crate) fn jobs(body: &Bytes) -> Option<TakenJobs> {
    if body.trim_ascii().is_empty() {
        return Some(TakenJobs::default());
    }
    let body = lenient::as_json(body, Infinities::TooLarge)?;
    let mut taken = TakenJobs::default();
    if let Ok(list) = serde_json::from_slice::<Vec<&RawValue>>(&body) {
        for item in list {
            take_in(&mut taken, body.slice_ref(item.get().as_bytes()));
        }
    } else if &body[..] != b"null" {
        take_in(&mut taken, body);
    }
    Some(taken)
}

fn take_in(taken: &mut TakenJobs, json: Bytes) {
    let members: HashMap<String, &RawValue> = serde_json::from_slice(&json).unwrap_or_default();
    match (
        members.get("id").and_then(|id| name(id.get())),
        members.contains_key("input"),
    ) {
        (Some(id), true) => taken.jobs.push(Job { id, json }),
        (Some(id), false) => taken.without_input.push(id),
        (None, _) => taken.without_id += 1,
    }
}

/// An id: a text, or a number, which in an address is a text too.
fn name(json: &str) -> Option<String> {
    let text = serde_json::from_str::<String>(json).ok();
    let number = || {
        serde_json::from_str::<i64>(json)
            .ok()
            .map(|number| number.to_string())
    };
    text.or_else(number).filter(|id| !id.is_empty())
}

/// The ids in an answer to the question what to stop.
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

/// The end of a job, as the platform is told.
#[derive(Debug, Default, Serialize)]
pub struct JobDone<'a> {
    /// What the job gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<&'a RawValue>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'a str>,
    /// Whether the worker wants to be replaced.
    #[serde(rename = "stopPod", skip_serializing_if = "Option::is_none")]
    pub stop_pod: Option<bool>,
}

impl JobDone<'_> {
    /// As bytes.
    pub fn to_bytes(&self) -> Bytes {
        serde_json::to_vec(self).expect("it is JSON already").into()
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

/// The body of one part of an output.
pub(crate) fn part(json: &[u8]) -> Bytes {
    [b"{\"output\":", json, b"}"].concat().into()
}

/// The body of a message about progress.
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
    fn the_job_stays_the_bytes_it_was() {
        let text = r#"{"id":"a", "webhook" : "x","input": {"n": 1.50} }"#;
        let taken = jobs(&Bytes::from_static(text.as_bytes())).unwrap();
        assert_eq!(taken.jobs[0].json, text);
        assert_eq!(taken.jobs[0].input(), r#"{"n": 1.50}"#);
    }

    #[test]
    fn only_texts_are_stops() {
        assert_eq!(stops(br#"{"jobsToStop":["a",3,null,"b"]}"#), ["a", "b"]);
        assert!(stops(b"[]").is_empty() && stops(b"").is_empty() && stops(b"{}").is_empty());
    }

    #[test]
    fn bodies_are_joined_without_being_read() {
        assert_eq!(part(b"1"), r#"{"output":1}"#);
        assert_eq!(
            progress(b"\"x\""),
            r#"{"status":"IN_PROGRESS","output":"x"}"#
        );
        assert_eq!(list(&["1".into(), "2".into()]), b"[1,2]");
        assert_eq!(failure("no"), r#"{"error":"no"}"#);
    }
}
