//! Hooks: HTTP servers of the operator that decide whether a job may run and what its output contains.
//!
//! A hook is asked while the job has its slot: the policy before the model starts, the moderation when the
//! model has succeeded and before the end is recorded. A hook that does not answer is asked again until its
//! timeout; then its [`OnHookFailure`] decides.

mod hooked_admission;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tidegate_core::chain;
use tidegate_net::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use tidegate_net::{Client, HttpRequest, Url, host_of};

pub(crate) use hooked_admission::hooked;

/// The pause before a hook is asked again.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// How much of a reply that is not JSON is shown.
const MAX_REASON: usize = 300;

/// The hooks of a director.
#[derive(Clone, Default)]
pub struct Hooks {
    /// Decides whether a job may run.
    pub policy: Option<Hook>,
    /// Judges the output of a job.
    pub moderation: Option<Hook>,
}

/// A hook.
#[derive(Clone)]
pub struct Hook {
    /// Makes the requests.
    pub net: Arc<Client>,
    /// The URL that gets the requests.
    pub url: Url,
    /// How long the hook is asked.
    pub timeout: Duration,
    /// What happens when it has not answered by then.
    pub on_failure: OnHookFailure,
}

/// What happens to a job whose hook does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnHookFailure {
    /// It fails.
    Fail,
    /// It continues as if there were no hook.
    Allow,
}

/// The answer of a hook.
enum HookReply<R> {
    /// What it decided.
    Decided(R),
    /// It has no objection.
    NoContent,
    /// It refuses, with a status instead of a decision.
    Refused(String),
    /// It did not answer in time.
    Unavailable(String),
}

impl Hook {
    /// Asks the hook until it answers or the timeout has passed.
    async fn ask<R: DeserializeOwned>(&self, call: &impl Serialize) -> HookReply<R> {
        let Ok(body) = serde_json::to_vec(call) else {
            return HookReply::Unavailable("the request cannot be written as JSON".to_owned());
        };
        let body = Bytes::from(body);
        let mut last_error = "no answer in time".to_owned();
        let asking = async {
            loop {
                match self.try_ask(body.clone()).await {
                    HookReply::Unavailable(error) => last_error = error,
                    answered => return answered,
                }
                tokio::time::sleep(RETRY_AFTER).await;
            }
        };
        match tokio::time::timeout(self.timeout, asking).await {
            Ok(answered) => answered,
            Err(_) => HookReply::Unavailable(format!("{}: {last_error}", host_of(&self.url))),
        }
    }

    async fn try_ask<R: DeserializeOwned>(&self, body: Bytes) -> HookReply<R> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let request = HttpRequest {
            url: self.url.clone(),
            headers,
            body: Some(body),
            limit: self.timeout,
        };
        let response = match self.net.send(request).await {
            Ok(response) => response,
            Err(error) => return HookReply::Unavailable(chain(&error).to_string()),
        };
        match response.status {
            204 => HookReply::NoContent,
            200..300 => match decided(&response.body) {
                Ok(decided) => HookReply::Decided(decided),
                Err(error) => HookReply::Unavailable(format!("invalid reply: {error}")),
            },
            402 | 403 => HookReply::Refused(reason_of(&response.body)),
            status => HookReply::Unavailable(format!("status {status}")),
        }
    }
}

/// What a JSON object says. A list is none, though serde reads structs from lists too.
fn decided<R: DeserializeOwned>(body: &[u8]) -> serde_json::Result<R> {
    let object: Map<String, Value> = serde_json::from_slice(body)?;
    R::deserialize(Value::Object(object))
}

/// The reason in the body of a refusal: its field `reason`, or its text.
fn reason_of(body: &[u8]) -> String {
    let json: Option<wire::Refusal> = serde_json::from_slice(body).ok();
    json.and_then(|refusal| refusal.reason).unwrap_or_else(|| {
        let text = String::from_utf8_lossy(body);
        text.trim().chars().take(MAX_REASON).collect()
    })
}
