//! The HTTP client of the platform: job-take, job-stop, job-done, job-stream and ping.

use std::time::Duration;

use bytes::Bytes;
use tidegate_core::chain;
use tidegate_net::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tidegate_net::{Client, Error, HttpRequest, HttpResponse, Url};

use crate::platform_urls::{OutputDelivery, PlatformUrls, WorkerLoad};
use crate::wire::{self, TakenJobs};

/// The timeout of a long poll.
const POLL: Duration = Duration::from_secs(90);
/// The timeout of a result or a part; large bodies get one more second per `BYTES_PER_SECOND`.
const POST: Duration = Duration::from_secs(60);
const BYTES_PER_SECOND: usize = 128 * 1024;
/// The timeout of a progress report, which is soon out of date.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a 429 without `Retry-After`.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(5);
/// The maximum of `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);
/// The version of Runpod's SDK that this worker is compatible with.
pub const SDK_VERSION: &str = "1.12.0";

/// The HTTP client of one worker.
pub struct PlatformClient {
    client: Client,
    addresses: PlatformUrls,
    /// Sent as it is, without `Bearer`.
    key: Option<HeaderValue>,
}

/// The outcome of a request for jobs.
#[derive(Debug)]
pub(crate) enum TakeOutcome {
    /// The platform handed out jobs.
    Jobs(TakenJobs),
    /// There are no jobs.
    Empty,
    /// The platform asks for a pause.
    RateLimited(Duration),
    /// The request failed.
    Failed(String),
}

/// The outcome of a report.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PostOutcome {
    /// The platform accepted it.
    Accepted,
    /// The platform will never accept it.
    Rejected(String),
    /// The platform may accept it later, after the pause if one is given.
    Retry(String, Option<Duration>),
}

impl PlatformClient {
    /// A client for these URLs. `key` is the value of `RUNPOD_AI_API_KEY`.
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

    /// Whether parts of an output can be streamed.
    pub(crate) fn accepts_stream(&self) -> bool {
        self.addresses.stream("x").is_some()
    }

    /// Whether the platform can stop jobs.
    pub(crate) fn supports_stops(&self) -> bool {
        self.addresses.stop().is_some()
    }

    /// Requests jobs. Dropping the future may lose a job in the response.
    pub(crate) async fn take(&self, count: usize, load: WorkerLoad) -> TakeOutcome {
        match self.get(self.addresses.take(count, load), POLL).await {
            Ok(reply) => take_outcome(reply),
            Err(Error::Unreachable { source, .. }) if source.is_timeout() => TakeOutcome::Empty,
            Err(error) => TakeOutcome::Failed(chain(&error).to_string()),
        }
    }

    /// Requests the jobs to stop. An error says what to do about it.
    pub(crate) async fn stops(&self) -> Result<Vec<String>, String> {
        let Some(url) = self.addresses.stop() else {
            return Ok(Vec::new());
        };
        match self.get(url, POLL).await {
            Ok(reply) if reply.status >= 400 => Err(status_error(reply.status)),
            Ok(reply) => Ok(wire::stops(&reply.body)),
            Err(Error::Unreachable { source, .. }) if source.is_timeout() => Ok(Vec::new()),
            Err(error) => Err(chain(&error).to_string()),
        }
    }

    /// Delivers the result of a job.
    pub(crate) async fn end(
        &self,
        job: &str,
        delivered: OutputDelivery,
        body: Bytes,
    ) -> PostOutcome {
        let limit = post_timeout(&body);
        self.post(self.addresses.done(job, delivered), job, body, limit)
            .await
    }

    /// Delivers a part of a job's output.
    pub(crate) async fn part(&self, job: &str, body: Bytes) -> PostOutcome {
        match self.addresses.stream(job) {
            Some(url) => {
                let limit = post_timeout(&body);
                self.post(url, job, body, limit).await
            }
            None => PostOutcome::Accepted,
        }
    }

    /// Reports the progress of a job.
    pub(crate) async fn progress(&self, job: &str, body: Bytes) -> PostOutcome {
        self.post(
            self.addresses.done(job, OutputDelivery::WithResult),
            job,
            body,
            PROGRESS_TIMEOUT,
        )
        .await
    }

    /// Sends a heartbeat with the ids of the worker's jobs.
    pub async fn ping(&self, jobs: &[String], limit: Duration) -> Result<(), String> {
        let named = jobs.join(",");
        let mut params = vec![("runpod_version", SDK_VERSION)];
        if !jobs.is_empty() {
            params.insert(0, ("job_id", &named));
        }
        self.send_ping(&params, limit).await
    }

    /// Reports that the worker is unhealthy, and why. Waits two seconds at most.
    pub async fn report_unhealthy(&self, check: &str, reason: &str) {
        let reason: String = reason.chars().take(256).collect();
        let params = [
            ("status", "unhealthy"),
            ("check", check),
            ("reason", &reason),
            ("runpod_version", SDK_VERSION),
        ];
        // The worker exits either way.
        self.send_ping(&params, Duration::from_secs(2)).await.ok();
    }

    async fn send_ping(&self, params: &[(&str, &str)], limit: Duration) -> Result<(), String> {
        let Some(url) = self.addresses.ping(params) else {
            return Ok(());
        };
        match self.get(url, limit).await {
            Ok(reply) if reply.status >= 400 => Err(status_error(reply.status)),
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
        // The body is JSON; Runpod's SDK sends this content type all the same.
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
            Ok(reply) => post_outcome(&reply),
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

/// A large body on a slow connection needs more time; a fixed timeout would retry it forever.
fn post_timeout(body: &Bytes) -> Duration {
    POST + Duration::from_secs((body.len() / BYTES_PER_SECOND) as u64)
}

fn take_outcome(reply: HttpResponse) -> TakeOutcome {
    match reply.status {
        // 400 means that the platform has paused the worker (FlashBoot) and has no jobs for it.
        204 | 400 => TakeOutcome::Empty,
        429 => TakeOutcome::RateLimited(pause(&reply)),
        200..300 => match wire::jobs(&reply.body) {
            Some(taken) if taken == TakenJobs::default() => TakeOutcome::Empty,
            Some(TakenJobs {
                jobs,
                without_input,
                without_id: 1..,
            }) if jobs.is_empty() && without_input.is_empty() => {
                TakeOutcome::Failed("the platform handed out a job without an id".to_owned())
            }
            Some(taken) => TakeOutcome::Jobs(taken),
            None => TakeOutcome::Failed(format!(
                "the platform's response is not a job: `{}`",
                beginning(&reply.body)
            )),
        },
        status => TakeOutcome::Failed(status_error(status)),
    }
}

/// The beginning of a body, for error messages.
fn beginning(body: &[u8]) -> String {
    String::from_utf8_lossy(body)
        .chars()
        .take(60)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

fn post_outcome(reply: &HttpResponse) -> PostOutcome {
    match reply.status {
        200..300 => PostOutcome::Accepted,
        429 => PostOutcome::Retry(status_error(429), Some(pause(reply))),
        // A wrong key can be corrected, and the result is not lost.
        status @ (401 | 403 | 408 | 425 | 500..) => PostOutcome::Retry(
            status_error(status),
            reply.retry_after.map(|pause| pause.min(MAX_RETRY_AFTER)),
        ),
        status => PostOutcome::Rejected(status_error(status)),
    }
}

fn pause(reply: &HttpResponse) -> Duration {
    reply
        .retry_after
        .unwrap_or(DEFAULT_RETRY_AFTER)
        .min(MAX_RETRY_AFTER)
}

/// The error message for a status, with a hint.
fn status_error(status: u16) -> String {
    let hint = match status {
        401 | 403 => "; is RUNPOD_AI_API_KEY the platform's key?",
        404 => "; are the addresses in RUNPOD_WEBHOOK_… those of this platform?",
        _ => "",
    };
    format!("the platform responded {status}{hint}")
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
    fn results_are_retried_after_temporary_errors() {
        for status in [401, 403, 408, 429, 500, 502, 503, 599] {
            assert!(
                matches!(post_outcome(&reply(status, None)), PostOutcome::Retry(..)),
                "{status}"
            );
        }
        for status in [301, 400, 404, 409, 410, 413, 422] {
            assert!(
                matches!(post_outcome(&reply(status, None)), PostOutcome::Rejected(_)),
                "{status}"
            );
        }
        assert_eq!(post_outcome(&reply(201, None)), PostOutcome::Accepted);
    }

    #[test]
    fn retry_after_is_honored_up_to_a_maximum() {
        assert!(matches!(
            take_outcome(reply(429, None)),
            TakeOutcome::RateLimited(DEFAULT_RETRY_AFTER)
        ));
        assert!(
            matches!(take_outcome(reply(429, Some(7))), TakeOutcome::RateLimited(pause) if pause.as_secs() == 7)
        );
        assert!(matches!(
            take_outcome(reply(429, Some(1 << 40))),
            TakeOutcome::RateLimited(MAX_RETRY_AFTER)
        ));
    }

    #[test]
    fn responses_without_jobs_are_not_errors() {
        for status in [200, 204, 400] {
            assert!(
                matches!(take_outcome(reply(status, None)), TakeOutcome::Empty),
                "{status}"
            );
        }
        assert!(matches!(
            take_outcome(reply(500, None)),
            TakeOutcome::Failed(_)
        ));
    }

    #[test]
    fn a_response_that_is_not_a_job_is_an_error() {
        for body in ["<html>", "{}", "[5]", r#"{"input":1}"#] {
            let reply = HttpResponse {
                status: 200,
                retry_after: None,
                body: body.into(),
            };
            assert!(
                matches!(take_outcome(reply), TakeOutcome::Failed(_)),
                "{body}"
            );
        }
    }
}
