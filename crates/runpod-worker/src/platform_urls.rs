//! The platform's URLs, built from the templates in the worker's environment.
//!
//! `$ID` and `$RUNPOD_POD_ID` in a template stand for ids. Parameters are appended with `&` whether or
//! not there is a `?`: Runpod's SDK does this, so platforms expect it. Unlike the SDK, this worker
//! replaces `$RUNPOD_POD_ID` in every template.

use std::fmt::Write;

use tidegate_net::Url;

/// The part of the take template that is replaced for the URLs of batches and stops.
const TAKE: &str = "/job-take/";
const POD: &str = "$RUNPOD_POD_ID";
const ID: &str = "$ID";

/// The templates in the environment.
#[derive(Debug, Clone, Default)]
pub struct UrlTemplates {
    /// `RUNPOD_WEBHOOK_GET_JOB`
    pub take: String,
    /// `RUNPOD_WEBHOOK_POST_OUTPUT`
    pub done: String,
    /// `RUNPOD_WEBHOOK_POST_STREAM`
    pub stream: Option<String>,
    /// `RUNPOD_WEBHOOK_PING`
    pub ping: Option<String>,
}

/// A template that is not a URL.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{variable} is `{template}`, which is not an http or https URL")]
pub struct InvalidUrlTemplate {
    /// The environment variable.
    pub variable: &'static str,
    /// Its value.
    pub template: String,
}

/// Whether a worker that requests jobs has any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerLoad {
    /// It has none.
    Idle,
    /// It has at least one.
    Busy,
}

/// How the output of a job is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputDelivery {
    /// With the result.
    WithResult,
    /// In parts, before the result.
    Streamed,
}

/// The URLs for one worker.
#[derive(Debug, Clone)]
pub struct PlatformUrls {
    take: String,
    batch: String,
    stop: Option<String>,
    done: String,
    stream: Option<String>,
    ping: Option<String>,
}

impl PlatformUrls {
    /// Only the URL for pings, for a server that takes no jobs from the platform.
    pub fn ping_only(ping: &str, worker: &str) -> Result<Self, InvalidUrlTemplate> {
        let templates = UrlTemplates {
            take: ping.to_owned(),
            done: ping.to_owned(),
            stream: None,
            ping: Some(ping.to_owned()),
        };
        Self::from_templates(&templates, worker).map_err(|bad| InvalidUrlTemplate {
            variable: "RUNPOD_WEBHOOK_PING",
            ..bad
        })
    }

    /// Inserts the worker's id and checks that every template is a URL.
    pub fn from_templates(
        templates: &UrlTemplates,
        worker: &str,
    ) -> Result<Self, InvalidUrlTemplate> {
        let worker = encoded(worker);
        let filled = |template: &str| template.replace(POD, &worker);
        let take = filled(&templates.take).replace(ID, &worker);
        let addresses = Self {
            batch: take.replace(TAKE, "/job-take-batch/"),
            stop: take
                .contains(TAKE)
                .then(|| take.replace(TAKE, "/job-stop/")),
            take,
            done: filled(&templates.done),
            stream: templates.stream.as_deref().map(filled),
            ping: templates.ping.as_deref().map(filled),
        };
        let all = [
            ("RUNPOD_WEBHOOK_GET_JOB", Some(&addresses.take)),
            ("RUNPOD_WEBHOOK_POST_OUTPUT", Some(&addresses.done)),
            ("RUNPOD_WEBHOOK_POST_STREAM", addresses.stream.as_ref()),
            ("RUNPOD_WEBHOOK_PING", addresses.ping.as_ref()),
        ];
        for (variable, template) in all {
            if let Some(template) = template.filter(|template| !is_address(template)) {
                return Err(InvalidUrlTemplate {
                    variable,
                    template: template.clone(),
                });
            }
        }
        Ok(addresses)
    }

    /// The URL for requests of `count` jobs.
    pub fn take(&self, count: usize, load: WorkerLoad) -> Url {
        let busy = match load {
            WorkerLoad::Idle => 0,
            WorkerLoad::Busy => 1,
        };
        match count {
            1 => parsed(&format!("{}&job_in_progress={busy}", self.take)),
            _ => parsed(&format!(
                "{}&batch_size={count}&job_in_progress={busy}",
                self.batch
            )),
        }
    }

    /// The URL for jobs to stop, if it can be derived.
    pub fn stop(&self) -> Option<Url> {
        self.stop.as_deref().map(parsed)
    }

    /// The URL for the result and the progress of a job.
    pub fn done(&self, job: &str, delivered: OutputDelivery) -> Url {
        let streamed = delivered == OutputDelivery::Streamed;
        parsed(&format!(
            "{}&isStream={streamed}",
            self.done.replace(ID, &encoded(job))
        ))
    }

    /// The URL for the parts of a job's output.
    pub fn stream(&self, job: &str) -> Option<Url> {
        Some(parsed(&format!(
            "{}&isStream=false",
            self.stream.as_ref()?.replace(ID, &encoded(job))
        )))
    }

    /// The URL for pings, with these parameters.
    pub fn ping(&self, params: &[(&str, &str)]) -> Option<Url> {
        let mut url = parsed(self.ping.as_ref()?);
        url.query_pairs_mut().extend_pairs(params);
        Some(url)
    }
}

fn is_address(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// Parses a URL; appended parameters and encoded ids keep it valid.
fn parsed(text: &str) -> Url {
    Url::parse(text).expect("the template was checked")
}

/// Percent-encodes an id.
fn encoded(id: &str) -> String {
    let mut text = String::with_capacity(id.len());
    for byte in id.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                text.push(char::from(byte))
            }
            _ => write!(text, "%{byte:02X}").expect("writing to a String cannot fail"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(take: &str) -> PlatformUrls {
        let templates = UrlTemplates {
            take: take.to_owned(),
            done: "http://p/v2/e/job-done/$RUNPOD_POD_ID/$ID?gpu=X".to_owned(),
            stream: Some("http://p/v2/e/job-stream/$RUNPOD_POD_ID/$ID?gpu=X".to_owned()),
            ping: Some("http://p/v2/e/ping/$RUNPOD_POD_ID?gpu=X".to_owned()),
        };
        PlatformUrls::from_templates(&templates, "pod 1").unwrap()
    }

    #[test]
    fn urls_have_the_format_that_the_platform_expects() {
        let at = addresses("http://p/v2/e/job-take/$ID?gpu=X");
        let all = [
            at.take(1, WorkerLoad::Idle),
            at.take(3, WorkerLoad::Busy),
            at.stop().unwrap(),
            at.done("a/b", OutputDelivery::WithResult),
            at.done("j", OutputDelivery::Streamed),
            at.stream("j").unwrap(),
            at.ping(&[("job_id", "a,b"), ("runpod_version", "1")])
                .unwrap(),
        ];
        let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "http://p/v2/e/job-take/pod%201?gpu=X&job_in_progress=0",
                "http://p/v2/e/job-take-batch/pod%201?gpu=X&batch_size=3&job_in_progress=1",
                "http://p/v2/e/job-stop/pod%201?gpu=X",
                "http://p/v2/e/job-done/pod%201/a%2Fb?gpu=X&isStream=false",
                "http://p/v2/e/job-done/pod%201/j?gpu=X&isStream=true",
                "http://p/v2/e/job-stream/pod%201/j?gpu=X&isStream=false",
                "http://p/v2/e/ping/pod%201?gpu=X&job_id=a%2Cb&runpod_version=1",
            ]
        );
    }

    #[test]
    fn parameters_are_appended_to_a_template_without_a_query() {
        let at = addresses("http://p/job-take/$RUNPOD_POD_ID");
        assert_eq!(
            at.take(1, WorkerLoad::Idle).as_str(),
            "http://p/job-take/pod%201&job_in_progress=0"
        );
    }

    #[test]
    fn a_take_template_without_job_take_has_no_stop_url_and_one_url_for_batches() {
        let at = addresses("http://p/jobs?w=$ID");
        assert!(at.stop().is_none());
        assert_eq!(
            at.take(2, WorkerLoad::Idle).as_str(),
            "http://p/jobs?w=pod%201&batch_size=2&job_in_progress=0"
        );
    }

    #[test]
    fn an_invalid_template_is_reported_with_its_variable() {
        let templates = UrlTemplates {
            take: "http://p/".to_owned(),
            done: "job-done/$ID".to_owned(),
            ..UrlTemplates::default()
        };
        let bad = PlatformUrls::from_templates(&templates, "w").unwrap_err();
        assert_eq!(bad.variable, "RUNPOD_WEBHOOK_POST_OUTPUT");
    }
}
