//! The loopback: a stream of events with which a backend that batches asynchronously tells when it has
//! finished a request, so that the permit of the request is free after its response.
//!
//! Each event names the request: `event: GpuFree` with `data: {"request_id": "…"}`. A backend that knows all
//! requests it works on sends `ActiveRequests` with `{"request_ids": […]}` when the router connects; the
//! permits of all others are given back, and requests of a router that ran before this one, or beside it,
//! hold permits until their events. A permit without an event expires after `detach_timeout`.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::poll_fn;
use hyper::body::Body;
use hyper::header::{ACCEPT, HeaderValue};
use hyper::{Method, Request};
use serde::Deserialize;
use tidegate_net::upstream::{UpstreamBody, UpstreamPool, UpstreamRequestBody};
use tidegate_net::{SseEvent, SseParser};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::endpoint::{EndpointKey, LiveEndpoint, ResolvedEndpoint};
use crate::forward::endpoint_headers;
use crate::group::EndpointGroup;
use crate::permits::RequestId;
use crate::table::FleetRegistry;

/// How often the endpoints of the configuration are compared with the open streams.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The pause before a stream is opened again; doubled with each failure.
const RECONNECT: Duration = Duration::from_millis(200);
const RECONNECT_MAX: Duration = Duration::from_secs(5);
/// The largest event.
const MAX_EVENT: usize = 1024 * 1024;

#[derive(Deserialize)]
struct FinishedRequest {
    request_id: String,
}

#[derive(Deserialize)]
struct ActiveRequests {
    request_ids: Vec<String>,
}

/// Keeps a stream open to every endpoint with `loopback`, until `stop` is cancelled.
pub async fn run_loopbacks(
    registry: Arc<FleetRegistry>,
    pool: UpstreamPool,
    tasks: TaskTracker,
    stop: CancellationToken,
) {
    let mut open = HashMap::<EndpointKey, CancellationToken>::new();
    loop {
        let wanted = wanted(&registry);
        open.retain(|key, stream| {
            let stays = wanted.iter().any(|endpoint| endpoint.key == *key);
            if !stays {
                stream.cancel();
            }
            stays
        });
        for endpoint in wanted {
            open.entry(endpoint.key.clone()).or_insert_with(|| {
                let token = stop.child_token();
                let follow = follow(registry.clone(), pool.clone(), endpoint);
                let ended = token.clone();
                tasks.spawn(async move { ended.run_until_cancelled(follow).await });
                token
            });
        }
        let pause = tokio::time::sleep(CHECK_INTERVAL);
        if stop.run_until_cancelled(pause).await.is_none() {
            return;
        }
    }
}

/// The endpoints with a loopback.
fn wanted(registry: &FleetRegistry) -> Vec<ResolvedEndpoint> {
    let table = registry.table();
    let resolved = table.groups().iter().flat_map(|group| group.resolved());
    resolved
        .filter(|endpoint| endpoint.config.loopback.is_some())
        .collect()
}

/// Reads the events of one endpoint, forever.
async fn follow(registry: Arc<FleetRegistry>, pool: UpstreamPool, endpoint: ResolvedEndpoint) {
    let mut pause = RECONNECT;
    loop {
        match read_events(&registry, &pool, &endpoint).await {
            Ok(()) => pause = RECONNECT,
            Err(error) => {
                tracing::warn!(endpoint = %endpoint.key, error, "failed to read the loopback");
                pause = (pause * 2).min(RECONNECT_MAX);
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// Opens the stream and reads it to its end.
async fn read_events(
    registry: &FleetRegistry,
    pool: &UpstreamPool,
    endpoint: &ResolvedEndpoint,
) -> Result<(), String> {
    let path = endpoint.config.loopback.as_deref().unwrap_or_default();
    let mut request = Request::new(UpstreamRequestBody::Empty);
    *request.method_mut() = Method::GET;
    *request.uri_mut() = format!("{}{path}", endpoint.url.prefix)
        .parse()
        .map_err(|error| format!("the path `{path}` is invalid: {error}"))?;
    *request.headers_mut() = endpoint_headers(&endpoint.config)?;
    let events = HeaderValue::from_static("text/event-stream");
    request.headers_mut().insert(ACCEPT, events);
    let address = endpoint.url.upstream_address(endpoint.config.http);
    let response = pool.send(&address, request).await;
    let response = response.map_err(|error| error.to_string())?;
    if !response.status().is_success() {
        return Err(format!("status {}", response.status()));
    }
    let Some(live) = registry.endpoint(&endpoint.key) else {
        return Ok(());
    };
    let permits = LoopbackPermits {
        registry,
        endpoint,
        live: &live,
    };
    read_body(response.into_body(), &permits).await
}

async fn read_body(mut body: UpstreamBody, permits: &LoopbackPermits<'_>) -> Result<(), String> {
    let mut parser = SseParser::new(MAX_EVENT);
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|error| error.to_string())?;
        if let Some(data) = frame.data_ref() {
            parser
                .push(data, |event| permits.apply(&event))
                .map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// The permits that the events of one endpoint are about.
struct LoopbackPermits<'a> {
    registry: &'a FleetRegistry,
    endpoint: &'a ResolvedEndpoint,
    live: &'a LiveEndpoint,
}

impl LoopbackPermits<'_> {
    /// Applies one event.
    fn apply(&self, event: &SseEvent<'_>) {
        match event.name {
            b"GpuFree" | b"InferenceSuccess" | b"InferenceError" | b"WebsocketFinished" => {
                let finished = serde_json::from_slice::<FinishedRequest>(event.data).ok();
                let id = finished.and_then(|finished| RequestId::parse(&finished.request_id));
                match id {
                    Some(id) => {
                        self.live.release_detached(id);
                    }
                    None => {
                        tracing::debug!(endpoint = %self.live.key(), "a loopback event names no request")
                    }
                }
            }
            b"ActiveRequests" => {
                if let Ok(active) = serde_json::from_slice::<ActiveRequests>(event.data) {
                    let ids = active.request_ids.iter();
                    let ids: Vec<RequestId> = ids.filter_map(|id| RequestId::parse(id)).collect();
                    self.live.retain_detached(|id| ids.contains(&id));
                    self.adopt(&ids);
                }
            }
            _ => {}
        }
    }

    /// Holds permits for the requests of other processes. Those of this process have theirs.
    fn adopt(&self, ids: &[RequestId]) {
        let table = self.registry.table();
        let is_member = |group: &&Arc<EndpointGroup>| group.endpoints().contains(self.live.key());
        let Some(group) = table.groups().iter().find(is_member) else {
            return;
        };
        let held = self.live.detached_ids();
        let deadline = Instant::now() + self.endpoint.config.detach_timeout;
        for id in ids {
            if !id.is_of_this_process() && !held.contains(id) {
                group.adopt_detached(self.live.key(), *id, deadline);
            }
        }
    }
}
