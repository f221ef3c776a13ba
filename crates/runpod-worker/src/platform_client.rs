//! The platform as this worker sees it: five kinds of calls, and what their answers mean.

use std::time::Duration;

use bytes::Bytes;
use tidegate_core::chain;
use tidegate_net::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tidegate_net::{Client, Error, HttpRequest, HttpResponse, Url};

use crate::platform_urls::{OutputDelivery, PlatformUrls, WorkerLoad};
use crate::wire::{self, TakenJobs};

/// The longest that the platform may hold a question that it has no answer to.
const POLL: Duration = Duration::from_secs(90);
/// The longest that a result or a part may take, and a second more for each so many bytes.
const POST: Duration = Duration::from_secs(60);
const BYTES_A_SECOND: usize = 128 * 1024;
/// The longest that a message may take that is out of date soon.
const BRIEF: Duration = Duration::from_secs(10);
/// The pause that a platform gets that says it is too much and does not say for how long.
const TOO_MUCH: Duration = Duration::from_secs(5);
/// The longest pause that a platform may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The version of the platform's own workers that this one behaves like.
pub const SDK_VERSION: &str = "1.12.0";

/// How to reach the platform.
pub struct PlatformClient {
    client: Client,
    addresses: PlatformUrls,
    /// Sent as it is, without any word in front of it.
    key: Option<HeaderValue>,
}

/// What became of a question for jobs.
#[derive(Debug)]
pub(crate) enum TakeOutcome {
    /// These were handed out.
    Jobs(TakenJobs),
    /// There are none.
    Empty,
    /// The platform wants to be left alone.
    RateLimited(Duration),
    /// It did not work.
    Failed(String),
}

/// What became of something that was brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PostOutcome {
    /// It is there.
    Accepted,
    /// It will never be taken.
    Rejected(String),
    /// It may be taken later, after a pause if one was asked for.
    Retry(String, Option<Duration>),
}

impl PlatformClient {
    /// A platform at these addresses. `key` is what `RUNPOD_AI_API_KEY` says.
    pub fn new(client: Client, addresses: PlatformUrls, key: Option<&str>) -> Self {
        let key = key
            .and_then(|key| HeaderValue::from_str(key.trim()).ok())
            .map(|mut key| {
                key.set_sensitive(true);
                key
            });
        Self {
            client,
            addresses,
            key,
        }
    }

    /// Whether parts of an output can be sent before its end.
    pub(crate) fn accepts_stream(&self) -> bool {
        self.addresses.stream("x").is_some()
    }

    /// Whether it can say which jobs to stop.
    pub(crate) fn supports_stops(&self) -> bool {
        self.addresses.stop().is_some()
    }

    /// Asks for jobs. Dropping it may lose one that is on its way.
    pub(crate) async fn take(&self, count: usize, load: WorkerLoad) -> TakeOutcome {
        match self.get(self.addresses.take(count, load), POLL).await {
            Ok(reply) => asked(reply),
            Err(Error::Unreachable { source, .. }) if source.is_timeout() => TakeOutcome::Empty,
            Err(error) => TakeOutcome::Failed(chain(&error).to_string()),
        }
    }

    /// Asks which jobs to stop. An error is told with what to do about it.
    pub(crate) async fn stops(&self) -> Result<Vec<String>, String> {
        let Some(url) = self.addresses.stop() else {
            return Ok(Vec::new());
        };
        match self.get(url, POLL).await {
            Ok(reply) if reply.status >= 400 => Err(told(reply.status)),
            Ok(reply) => Ok(wire::stops(&reply.body)),
            Err(Error::Unreachable { source, .. }) if source.is_timeout() => Ok(Vec::new()),
            Err(error) => Err(chain(&error).to_string()),
        }
    }

    /// Brings the end of a job.
    pub(crate) async fn end(
        &self,
        job: &str,
        delivered: OutputDelivery,
        body: Bytes,
    ) -> PostOutcome {
        let limit = long_enough(&body);
        self.post(self.addresses.done(job, delivered), job, body, limit)
            .await
    }

    /// Brings a part of a job's output.
    pub(crate) async fn part(&self, job: &str, body: Bytes) -> PostOutcome {
        match self.addresses.stream(job) {
            Some(url) => {
                let limit = long_enough(&body);
                self.post(url, job, body, limit).await
            }
            None => PostOutcome::Accepted,
        }
    }

    /// Tells how far a job is.
    pub(crate) async fn progress(&self, job: &str, body: Bytes) -> PostOutcome {
        self.post(
            self.addresses.done(job, OutputDelivery::WithResult),
            job,
            body,
            BRIEF,
        )
        .await
    }

    /// Says that the worker lives and what it works on.
    pub async fn ping(&self, jobs: &[String], limit: Duration) -> Result<(), String> {
        let named = jobs.join(",");
        let mut said = vec![("runpod_version", SDK_VERSION)];
        if !jobs.is_empty() {
            said.insert(0, ("job_id", &named));
        }
        self.say(&said, limit).await
    }

    /// Says that the worker cannot work, and why. Nobody waits long for that.
    pub async fn report_unhealthy(&self, check: &str, reason: &str) {
        let reason: String = reason.chars().take(256).collect();
        let said = [
            ("status", "unhealthy"),
            ("check", check),
            ("reason", &reason),
            ("runpod_version", SDK_VERSION),
        ];
        // The worker ends either way.
        self.say(&said, Duration::from_secs(2)).await.ok();
    }

    async fn say(&self, said: &[(&str, &str)], limit: Duration) -> Result<(), String> {
        let Some(url) = self.addresses.ping(said) else {
            return Ok(());
        };
        match self.get(url, limit).await {
            Ok(reply) if reply.status >= 400 => Err(told(reply.status)),
            Ok(_) => Ok(()),
            Err(error) => Err(chain(&error).to_string()),
        }
    }

    async fn get(&self, url: Url, limit: Duration) -> Result<HttpResponse, Error> {
        let mut headers = self.headers();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.client
            .send(HttpRequest {
                url,
                headers,
                body: None,
                limit,
            })
            .await
    }

    async fn post(&self, url: Url, job: &str, body: Bytes, limit: Duration) -> PostOutcome {
        let mut headers = self.headers();
        // It is JSON; platforms know their own workers by saying so.
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded"),
        );
        headers.insert(
            HeaderName::from_static("charset"),
            HeaderValue::from_static("utf-8"),
        );
        if let Ok(id) = HeaderValue::from_str(job) {
            headers.insert(HeaderName::from_static("x-request-id"), id);
        }
        match self
            .client
            .send(HttpRequest {
                url,
                headers,
                body: Some(body),
                limit,
            })
            .await
        {
            Ok(reply) => brought(&reply),
            Err(error) => PostOutcome::Retry(chain(&error).to_string(), None),
        }
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(key) = &self.key {
            headers.insert(AUTHORIZATION, key.clone());
        }
        headers
    }
}

/// What is large takes its time on a slow line, and would be brought again for ever.
fn long_enough(body: &Bytes) -> Duration {
    POST + Duration::from_secs((body.len() / BYTES_A_SECOND) as u64)
}

fn asked(reply: HttpResponse) -> TakeOutcome {
    match reply.status {
        // 400 means that the platform has frozen the worker and wants nothing.
        204 | 400 => TakeOutcome::Empty,
        429 => TakeOutcome::RateLimited(pause(&reply)),
        200..300 => match wire::jobs(&reply.body) {
            Some(taken) if taken == TakenJobs::default() => TakeOutcome::Empty,
            Some(TakenJobs {
                jobs,
                without_input,
                without_id: 1..,
            }) if jobs.is_empty() && without_input.is_empty() => TakeOutcome::Failed(
                "the platform handed out something without an id, which nobody can answer"
                    .to_owned(),
            ),
            Some(taken) => TakeOutcome::Jobs(taken),
            None => TakeOutcome::Failed(format!(
                "the platform's answer is no job: `{}`",
                beginning(&reply.body)
            )),
        },
        status => TakeOutcome::Failed(told(status)),
    }
}

/// As much of an answer as tells what it is.
fn beginning(body: &[u8]) -> String {
    String::from_utf8_lossy(body)
        .chars()
        .take(60)
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect()
}

fn brought(reply: &HttpResponse) -> PostOutcome {
    match reply.status {
        200..300 => PostOutcome::Accepted,
        429 => PostOutcome::Retry(told(429), Some(pause(reply))),
        // A key can be put right, and then the work was not in vain.
        status @ (401 | 403 | 408 | 425 | 500..) => PostOutcome::Retry(
            told(status),
            reply.retry_after.map(|pause| pause.min(LONGEST_PAUSE)),
        ),
        status => PostOutcome::Rejected(told(status)),
    }
}

fn pause(reply: &HttpResponse) -> Duration {
    reply.retry_after.unwrap_or(TOO_MUCH).min(LONGEST_PAUSE)
}

/// A status with what to do about it.
fn told(status: u16) -> String {
    let hint = match status {
        401 | 403 => "; is RUNPOD_AI_API_KEY the platform's key?",
        404 => "; are the addresses in RUNPOD_WEBHOOK_… those of this platform?",
        _ => "",
    };
    format!("the platform answered {status}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u16, retry_after: Option<u64>) -> HttpResponse {
        HttpResponse {
            status,
            retry_after: retry_after.map(Duration::from_secs),
            body: Bytes::new(),
        }
    }

    #[test]
    fn no_result_is_given_up_for_a_reason_that_passes() {
        for status in [401, 403, 408, 429, 500, 502, 503, 599] {
            assert!(
                matches!(brought(&reply(status, None)), PostOutcome::Retry(..)),
                "{status}"
            );
        }
        for status in [301, 400, 404, 409, 410, 413, 422] {
            assert!(
                matches!(brought(&reply(status, None)), PostOutcome::Rejected(_)),
                "{status}"
            );
        }
        assert_eq!(brought(&reply(201, None)), PostOutcome::Accepted);
    }

    #[test]
    fn a_platform_is_left_alone_as_long_as_it_says_within_reason() {
        assert!(matches!(
            asked(reply(429, None)),
            TakeOutcome::RateLimited(TOO_MUCH)
        ));
        assert!(
            matches!(asked(reply(429, Some(7))), TakeOutcome::RateLimited(pause) if pause.as_secs() == 7)
        );
        assert!(matches!(
            asked(reply(429, Some(1 << 40))),
            TakeOutcome::RateLimited(LONGEST_PAUSE)
        ));
    }

    #[test]
    fn answers_without_jobs_are_no_errors() {
        for status in [200, 204, 400] {
            assert!(
                matches!(asked(reply(status, None)), TakeOutcome::Empty),
                "{status}"
            );
        }
        assert!(matches!(asked(reply(500, None)), TakeOutcome::Failed(_)));
    }

    #[test]
    fn an_answer_that_is_no_job_is_not_asked_for_all_the_time() {
        for body in ["<html>", "{}", "[5]", r#"{"input":1}"#] {
            let reply = HttpResponse {
                status: 200,
                retry_after: None,
                body: body.into(),
            };
            assert!(matches!(asked(reply), TakeOutcome::Failed(_)), "{body}");
        }
    }
}
