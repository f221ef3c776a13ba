//! The calls of a director to the API, over HTTP.
//!
//! The operator names one or more processes of the API. A call goes to the one that replied last; when it
//! does not reply, the others are tried in turn. If one of them replies that its store does not answer, that
//! is the result. Callers decide what is retried. Small calls that are made at the same time are sent together
//! ([`crate::call_batches`]); one that gets no reply that way is sent alone.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_core::chain;
use tidegate_core::director_api::{
    BatchedCall, BatchedReply, CallBatch, CallBatchReply, FILE_NAME_HEADER, FinishCall,
    FinishReply, HeartbeatCall, HeartbeatReply, LeaseCall, LeaseReply, LeaseToken, PublishCall,
    PublishReply, RegisterCall, RegisterReply, ReleaseCall, UpdateCall, UpdateReply, VersionCall,
    VersionReply, paths,
};
use tidegate_net::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use tidegate_net::{Client, HttpRequest, HttpResponse, Url, host_of};

use tidegate_service::file_name_of_url;

use crate::api_calls::ApiCalls;
use crate::api_error::{ApiError, is_unknown, status_error, transfer_error};
use crate::api_link::ApiLink;
use crate::call_batches::{CallBatches, LedBatch, Turn};

/// The longest time of one attempt of a small call.
const CALL_LIMIT: Duration = Duration::from_secs(10);
/// The longest time of one attempt of a call with a result, plus one second per MiB.
const RESULT_LIMIT: Duration = Duration::from_secs(30);
/// How many requests for leases are in flight before others wait. A free slot waits for a lease.
const LEASES_IN_FLIGHT: usize = 2;
/// How many requests with ends of jobs are in flight before others wait. Nothing but the client waits for them.
const ENDS_IN_FLIGHT: usize = 1;
/// The longest time of a batch. It is short, because its calls are repeated alone afterwards.
const BATCH_LIMIT: Duration = Duration::from_secs(3);
/// The largest end of a job in a batch.
const MAX_BATCHED_END: usize = 64 * 1024;

/// Makes the calls to the API.
pub struct ApiClient {
    net: Client,
    urls: Vec<Url>,
    authorization: HeaderValue,
    /// The position of the URL that replied last.
    current: AtomicUsize,
    link: ApiLink,
    leases: Arc<CallBatches>,
    ends: Arc<CallBatches>,
}

impl ApiClient {
    /// A client for the processes of the API at `urls`, of which there is at least one. `token` is the
    /// directors' token.
    pub fn new(net: Client, urls: Vec<Url>, token: &str) -> Result<Self, InvalidToken> {
        let mut authorization =
            HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| InvalidToken)?;
        authorization.set_sensitive(true);
        Ok(Self {
            net,
            urls,
            authorization,
            current: AtomicUsize::new(0),
            link: ApiLink::default(),
            leases: CallBatches::new(LEASES_IN_FLIGHT),
            ends: CallBatches::new(ENDS_IN_FLIGHT),
        })
    }

    async fn call<R: DeserializeOwned>(
        &self,
        path: &str,
        call: &impl Serialize,
        limit: Duration,
    ) -> Result<R, ApiError> {
        let body = serde_json::to_vec(call).map_err(ApiError::Unserializable)?;
        self.post(path, Bytes::from(body), limit).await
    }

    async fn post<R: DeserializeOwned>(
        &self,
        path: &str,
        body: Bytes,
        limit: Duration,
    ) -> Result<R, ApiError> {
        let headers = self.headers_of_json();
        let mut index = self.current.load(Ordering::Relaxed);
        let mut store_outage = None;
        for is_last in self.tries() {
            let base = &self.urls[index];
            let request = HttpRequest {
                url: url_of(base, path),
                headers: headers.clone(),
                body: Some(body.clone()),
                limit,
            };
            let response = self.net.send(request).await;
            let result = response.map_err(ApiError::Unreachable);
            let result = result.and_then(|response| read(base, response));
            if let Err(ApiError::StoreUnavailable { host, message }) = &result {
                store_outage = Some(ApiError::StoreUnavailable {
                    host: host.clone(),
                    message: message.clone(),
                });
            }
            match self.settle(index, is_last, result) {
                ControlFlow::Break(Err(error)) if !error.is_permanent() => {
                    return Err(store_outage.unwrap_or(error));
                }
                ControlFlow::Break(result) => return result,
                ControlFlow::Continue(next) => index = next,
            }
        }
        unreachable!("the last try is settled")
    }

    fn headers_of_json(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, self.authorization.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers
    }

    /// Makes a call together with others, or alone.
    async fn call_batched<R: DeserializeOwned>(
        &self,
        batches: &Arc<CallBatches>,
        batched: impl FnOnce() -> BatchedCall,
        reply: impl FnOnce(BatchedReply) -> Option<R>,
        alone: impl Future<Output = Result<R, ApiError>>,
    ) -> Result<R, ApiError> {
        let replied = match batches.turn(batched).await {
            Turn::Replied(replied) => Some(replied),
            Turn::Lead(batch) => self.lead(batches, batch).await,
            Turn::Alone(in_flight) => {
                let result = alone.await;
                drop(in_flight);
                return result;
            }
        };
        match replied.and_then(reply) {
            Some(reply) => Ok(reply),
            None => alone.await,
        }
    }

    /// Sends a batch and gives the others their replies; returns that of the leader. Each call that got none is
    /// repeated alone, so errors are not reported here.
    async fn lead(&self, batches: &CallBatches, batch: LedBatch) -> Option<BatchedReply> {
        let (calls, followers) = batch.into_calls();
        let body = serde_json::to_vec(&CallBatch { calls }).ok()?;
        let index = self.current.load(Ordering::Relaxed);
        let base = &self.urls[index];
        let request = HttpRequest {
            url: url_of(base, paths::CALLS),
            headers: self.headers_of_json(),
            body: Some(Bytes::from(body)),
            limit: BATCH_LIMIT,
        };
        let response = self.net.send(request).await.ok()?;
        match read::<CallBatchReply>(base, response) {
            Ok(reply) => {
                self.link.replied(&host_of(base));
                followers.distribute(reply.replies)
            }
            Err(error) => {
                if matches!(error, ApiError::NotAnApi { .. }) {
                    batches.pause();
                }
                None
            }
        }
    }

    /// Downloads a file into `folder`, which has no other files; `None` if the API does not have it.
    async fn fetch(
        &self,
        url: impl Fn(&Url) -> Url,
        path: impl Fn(&HeaderMap) -> PathBuf,
        folder: &Path,
    ) -> Result<Option<PathBuf>, ApiError> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, self.authorization.clone());
        let mut index = self.current.load(Ordering::Relaxed);
        for is_last in self.tries() {
            let base = &self.urls[index];
            let (url, headers) = (url(base), headers.clone());
            let download = self.net.download_from_operator(&url, headers, &path);
            let result = match download.await {
                Ok(path) => Ok(Some(path)),
                Err(tidegate_net::Error::Status { status, .. }) if is_unknown(status.as_u16()) => {
                    Ok(None)
                }
                Err(error) => Err(transfer_error(base, error)),
            };
            if result.is_err() {
                // A part of the file may be there; the next try creates it anew.
                remove_files(folder).await;
            }
            match self.settle(index, is_last, result) {
                ControlFlow::Break(result) => return result,
                ControlFlow::Continue(next) => index = next,
            }
        }
        unreachable!("the last try is settled")
    }

    /// One try for each URL: whether it is the last.
    fn tries(&self) -> impl Iterator<Item = bool> + use<> {
        let count = self.urls.len();
        (1..=count).map(move |number| number == count)
    }

    /// Decides after one try whether the call has ended, or which URL is next.
    fn settle<R>(
        &self,
        index: usize,
        is_last: bool,
        result: Result<R, ApiError>,
    ) -> ControlFlow<Result<R, ApiError>, usize> {
        match result {
            Err(error) if !error.is_permanent() => {
                if !is_last {
                    return ControlFlow::Continue((index + 1) % self.urls.len());
                }
                self.link.failed(&chain(&error).to_string());
                ControlFlow::Break(Err(error))
            }
            result => {
                self.current.store(index, Ordering::Relaxed);
                self.link.replied(&host_of(&self.urls[index]));
                ControlFlow::Break(result)
            }
        }
    }
}

#[async_trait]
impl ApiCalls for ApiClient {
    fn hosts(&self) -> String {
        let hosts: Vec<String> = self.urls.iter().map(host_of).collect();
        hosts.join(", ")
    }

    fn pause(&self) -> Duration {
        self.link.pause()
    }

    async fn heartbeat(
        &self,
        call: &HeartbeatCall,
        limit: Duration,
    ) -> Result<HeartbeatReply, ApiError> {
        self.call(paths::HEARTBEAT, call, limit).await
    }

    async fn register(&self, call: &RegisterCall) -> Result<RegisterReply, ApiError> {
        self.call(paths::MODELS, call, RESULT_LIMIT).await
    }

    async fn lease(&self, call: &LeaseCall) -> Result<LeaseReply, ApiError> {
        self.call_batched(
            &self.leases,
            || BatchedCall::Lease(call.clone()),
            |reply| match reply {
                BatchedReply::Lease(reply) => Some(reply),
                BatchedReply::Finish(_) => None,
            },
            self.call(paths::LEASE, call, CALL_LIMIT),
        )
        .await
    }

    async fn release(&self, call: &ReleaseCall) -> Result<(), ApiError> {
        let _: serde::de::IgnoredAny = self.call(paths::RELEASE, call, CALL_LIMIT).await?;
        Ok(())
    }

    async fn update(&self, call: &UpdateCall) -> Result<UpdateReply, ApiError> {
        let limit = limit_for(call.message.body.len());
        self.call(paths::UPDATES, call, limit).await
    }

    async fn finish(&self, call: &FinishCall) -> Result<FinishReply, ApiError> {
        let output = call.finish.completion.output.as_ref();
        let message = call.finish.message.as_ref();
        let size = output.map_or(0, Bytes::len)
            + call.finish.completion.logs.len()
            + message.map_or(0, |message| message.body.len());
        let alone = self.call(paths::FINISH, call, limit_for(size));
        if size > MAX_BATCHED_END {
            return alone.await;
        }
        self.call_batched(
            &self.ends,
            || BatchedCall::Finish(Box::new(call.clone())),
            |reply| match reply {
                BatchedReply::Finish(reply) => Some(reply),
                BatchedReply::Lease(_) => None,
            },
            alone,
        )
        .await
    }

    async fn publish(&self, call: &PublishCall) -> Result<PublishReply, ApiError> {
        self.call(paths::EVENTS, call, RESULT_LIMIT).await
    }

    async fn upload(
        &self,
        token: &LeaseToken,
        name: &str,
        mime: &str,
        (file, size): (&File, u64),
    ) -> Result<String, ApiError> {
        let mut headers = HeaderMap::new();
        let mime = HeaderValue::from_str(mime)
            .unwrap_or(HeaderValue::from_static("application/octet-stream"));
        headers.insert(CONTENT_TYPE, mime);
        headers.insert(AUTHORIZATION, self.authorization.clone());
        let mut index = self.current.load(Ordering::Relaxed);
        for is_last in self.tries() {
            let base = &self.urls[index];
            let url = file_url(base, token, name);
            let sent = self.net.upload(&url, headers.clone(), file, size).await;
            let result = sent.map_err(|error| transfer_error(base, error));
            match self.settle(index, is_last, result) {
                ControlFlow::Break(result) => return result,
                ControlFlow::Continue(next) => index = next,
            }
        }
        unreachable!("the last try is settled")
    }

    async fn download(
        &self,
        token: &LeaseToken,
        id: &str,
        folder: &Path,
    ) -> Result<Option<PathBuf>, ApiError> {
        let path = |headers: &HeaderMap| folder.join(file_name_in(headers));
        let url = |base: &Url| file_url(base, token, id);
        self.fetch(url, path, folder).await
    }

    async fn create_version(&self, call: &VersionCall) -> Result<VersionReply, ApiError> {
        self.call(paths::VERSIONS, call, RESULT_LIMIT).await
    }

    async fn download_weights(&self, key: &str, to: &Path) -> Result<bool, ApiError> {
        let url = |base: &Url| {
            let mut url = url_of(base, paths::WEIGHTS);
            if let Ok(mut segments) = url.path_segments_mut() {
                segments.push(key);
            }
            url
        };
        let folder = to.parent().unwrap_or(to);
        let found = self.fetch(url, |_| to.to_owned(), folder).await?;
        Ok(found.is_some())
    }
}

/// The directors' token has characters that a header cannot have.
#[derive(Debug, thiserror::Error)]
#[error("the directors' token has characters that an HTTP header cannot have")]
pub struct InvalidToken;

/// The limit of a call with this many bytes.
fn limit_for(bytes: usize) -> Duration {
    RESULT_LIMIT + Duration::from_secs(bytes as u64 >> 20)
}

/// A path below the URL of the API.
fn url_of(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments
            .pop_if_empty()
            .extend(path.trim_start_matches('/').split('/'));
    }
    url
}

fn read<R: DeserializeOwned>(base: &Url, response: HttpResponse) -> Result<R, ApiError> {
    let HttpResponse { status, body, .. } = response;
    if (200..300).contains(&status) {
        // A reply without content is `null`.
        let json: &[u8] = if body.is_empty() { b"null" } else { &body };
        return serde_json::from_slice(json).map_err(|source| ApiError::Malformed {
            host: host_of(base),
            source,
        });
    }
    Err(status_error(base, status, &body))
}

/// The URL of a file for the calls about one lease.
fn file_url(base: &Url, token: &LeaseToken, name: &str) -> Url {
    let mut url = url_of(base, paths::FILES);
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.push(&token.0).push(name);
    }
    url
}

/// The name of a downloaded file.
fn file_name_in(headers: &HeaderMap) -> String {
    let name = headers
        .get(FILE_NAME_HEADER)
        .and_then(|name| name.to_str().ok());
    let url = Url::parse(&format!("http://api/{}", name.unwrap_or_default()));
    url.map_or_else(|_| "file".to_owned(), |url| file_name_of_url(&url))
}

async fn remove_files(folder: &Path) {
    let Ok(mut entries) = tokio::fs::read_dir(folder).await else {
        return;
    };
    while let Ok(Some(entry)) = entries.next_entry().await {
        if let Err(error) = tokio::fs::remove_file(entry.path()).await {
            tracing::warn!(%error, "failed to remove incomplete file");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_below_the_url_of_the_api() {
        for (base, expected) in [
            ("http://api:5000", "http://api:5000/director/v1/lease"),
            ("http://api:5000/", "http://api:5000/director/v1/lease"),
            ("https://x/tide/", "https://x/tide/director/v1/lease"),
        ] {
            let url = url_of(&Url::parse(base).unwrap(), paths::LEASE);
            assert_eq!(url.as_str(), expected);
        }
    }
}
