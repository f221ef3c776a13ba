//! A fake API: an HTTP server that keeps the jobs in memory, records the calls, and fails as a test says.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{post, put};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_core::director_api::{
    AssignedQueue, FILE_NAME_HEADER, FinishCall, FinishReply, HeartbeatCall, HeartbeatReply,
    LeaseCall, LeaseReply, LeaseToken, LeasedJob, PublishCall, PublishReply, RefusedModel,
    RegisterCall, RegisterReply, ReleaseCall, UnlistedLease, UpdateCall, UpdateReply, VersionCall,
    VersionReply, paths,
};
use tidegate_core::lease::{Fence, Nonce};
use tidegate_core::leases::{HeldLease, JobRef};
use tidegate_core::record::JobSpec;
use tidegate_core::store::{FinishOutcome, JobFinish};
use tidegate_core::{JobId, Status};
use tidegate_net::Url;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The token of the directors.
pub(crate) const TOKEN: &str = "secret-token";
/// The queue that the director is assigned.
pub(crate) const QUEUE: &str = "input:prediction:vp-0";

/// The server.
pub(crate) struct FakeApi {
    pub(crate) url: Url,
    pub(crate) state: Arc<ApiState>,
    _stop: DropGuard,
}

/// What the server knows, and how it fails.
#[derive(Default)]
pub(crate) struct ApiState {
    /// Whether every call fails.
    is_down: AtomicBool,
    /// Whether every call fails because the store does not answer.
    is_store_down: AtomicBool,
    /// The number of calls that failed.
    failures: AtomicUsize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    jobs: HashMap<JobId, FakeJob>,
    /// How many replies to the calls of a path are lost, after the call took effect.
    lost_replies: HashMap<&'static str, usize>,
    calls: Calls,
    /// What the next heartbeats reply.
    superseded: bool,
    lost: Vec<JobRef>,
    unlisted: Vec<UnlistedLease>,
    known_versions: bool,
    refuse_models: bool,
    /// The offset that the next reply to events asks for.
    rewind_to: Option<u64>,
    failed_uploads: usize,
    stores_no_files: bool,
    is_full: bool,
}

struct FakeJob {
    spec: JobSpec,
    fence: Option<Fence>,
    end: Option<JobFinish>,
    cancel_requested: bool,
    held_by_another: bool,
}

/// The calls that were received.
#[derive(Default, Clone)]
pub(crate) struct Calls {
    pub(crate) heartbeats: Vec<HeartbeatCall>,
    pub(crate) registered: Vec<RegisterCall>,
    pub(crate) leases: Vec<LeaseCall>,
    pub(crate) released: Vec<ReleaseCall>,
    pub(crate) finished: Vec<JobFinish>,
    pub(crate) published: Vec<PublishCall>,
    pub(crate) updates: Vec<UpdateCall>,
    pub(crate) versions: Vec<VersionCall>,
    /// Uploaded files: token, name, type and content.
    pub(crate) files: Vec<(String, String, String, Bytes)>,
}

/// The length of a lease, and the pause between heartbeats.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    pub(crate) lease: Duration,
    pub(crate) interval: Duration,
}

#[derive(Clone)]
struct AppState {
    api: Arc<ApiState>,
    timing: Timing,
    version: String,
}

impl FakeApi {
    pub(crate) async fn start(timing: Timing, version: &str) -> Self {
        let state = Arc::<ApiState>::default();
        let routes = Router::new()
            .route(paths::HEARTBEAT, post(heartbeat))
            .route(paths::MODELS, post(register))
            .route(paths::LEASE, post(lease))
            .route(paths::RELEASE, post(release))
            .route(paths::FINISH, post(finish))
            .route(paths::EVENTS, post(publish))
            .route(paths::UPDATES, post(update))
            .route(paths::VERSIONS, post(create_version))
            .route(
                &format!("{}/{{token}}/{{name}}", paths::FILES),
                put(file).get(stored_file),
            )
            .with_state(AppState {
                api: Arc::clone(&state),
                timing,
                version: version.to_owned(),
            });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let serve = axum::serve(listener, routes)
            .with_graceful_shutdown(async move { stopped.cancelled().await });
        tokio_util::task::TaskTracker::new().spawn(async move { serve.await });
        Self {
            url,
            state,
            _stop: stop.drop_guard(),
        }
    }
}

impl ApiState {
    fn with<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        f(&mut self.inner.lock().unwrap())
    }

    pub(crate) fn add(&self, spec: JobSpec) {
        let id = spec.id.clone();
        let job = FakeJob {
            spec,
            fence: None,
            end: None,
            cancel_requested: false,
            held_by_another: false,
        };
        self.with(|inner| inner.jobs.insert(id, job));
    }

    pub(crate) fn calls(&self) -> Calls {
        self.with(|inner| inner.calls.clone())
    }

    pub(crate) fn end(&self, id: &JobId) -> Option<JobFinish> {
        self.with(|inner| inner.jobs[id].end.clone())
    }

    pub(crate) fn status(&self, id: &JobId) -> Option<Status> {
        self.end(id).map(|end| end.status)
    }

    /// Makes every call fail, or not.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::SeqCst);
    }

    /// Makes every call fail because the store does not answer, or not.
    pub(crate) fn set_store_down(&self, is_down: bool) {
        self.is_store_down.store(is_down, Ordering::SeqCst);
    }

    /// Whether this call fails; counts it.
    fn fails(&self) -> bool {
        let is_down = self.is_down.load(Ordering::SeqCst);
        if is_down {
            self.failures.fetch_add(1, Ordering::SeqCst);
        }
        is_down
    }

    /// The number of calls that failed.
    pub(crate) fn failures(&self) -> usize {
        self.failures.load(Ordering::SeqCst)
    }

    /// Loses the replies to the next calls of a path: they take effect.
    pub(crate) fn lose_replies(&self, path: &'static str, count: usize) {
        self.with(|inner| inner.lost_replies.insert(path, count));
    }

    /// Records a cancel.
    pub(crate) fn cancel(&self, id: &JobId) {
        self.with(|inner| inner.jobs.get_mut(id).unwrap().cancel_requested = true);
    }

    /// Another director has the lease of the job.
    pub(crate) fn hold_elsewhere(&self, id: &JobId) {
        self.with(|inner| inner.jobs.get_mut(id).unwrap().held_by_another = true);
    }

    /// The lease of the job is lost: another director has a later one.
    pub(crate) fn lose_lease(&self, id: &JobId) {
        self.with(|inner| {
            let job = inner.jobs.get_mut(id).unwrap();
            let fence = job.fence.as_mut().unwrap();
            *fence = Fence {
                attempt: fence.attempt + 1,
                nonce: Nonce(0),
            };
            let lost = JobRef {
                account: job.spec.account.clone(),
                id: id.clone(),
            };
            inner.lost.push(lost);
        });
    }

    /// Heartbeats report these leases as not listed.
    pub(crate) fn report_unlisted(&self, leases: &[HeldLease]) {
        let unlisted = |lease: &HeldLease| UnlistedLease {
            lease: lease.clone(),
            token: LeaseToken(format!("late-{}", lease.job.id)),
        };
        self.with(|inner| inner.unlisted = leases.iter().map(unlisted).collect());
    }

    /// The lease of a job.
    pub(crate) fn lease_of(&self, id: &JobId) -> HeldLease {
        self.with(|inner| {
            let job = &inner.jobs[id];
            HeldLease {
                job: JobRef::from(&job.spec),
                fence: job.fence.unwrap(),
            }
        })
    }

    pub(crate) fn failed_uploads(&self) -> usize {
        self.with(|inner| inner.failed_uploads)
    }

    /// There is no space for files.
    pub(crate) fn fill(&self) {
        self.with(|inner| inner.is_full = true);
    }

    pub(crate) fn store_no_files(&self) {
        self.with(|inner| inner.stores_no_files = true);
    }

    pub(crate) fn supersede(&self) {
        self.with(|inner| inner.superseded = true);
    }

    pub(crate) fn refuse_models(&self) {
        self.with(|inner| inner.refuse_models = true);
    }

    pub(crate) fn rewind_events_to(&self, offset: u64) {
        self.with(|inner| inner.rewind_to = Some(offset));
    }

    /// Handles a call.
    fn answer<C: DeserializeOwned, R: Serialize>(
        &self,
        path: &'static str,
        headers: &HeaderMap,
        body: &Bytes,
        f: impl FnOnce(&mut Inner, C) -> R,
    ) -> Response {
        let token = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        if token != Some(&format!("Bearer {TOKEN}")) {
            return StatusCode::UNAUTHORIZED.into_response();
        }
        if self.fails() {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        if self.is_store_down.load(Ordering::SeqCst) {
            self.failures.fetch_add(1, Ordering::SeqCst);
            let body = r#"{"detail":"the store is unavailable","code":"store_unavailable"}"#;
            return (StatusCode::SERVICE_UNAVAILABLE, body).into_response();
        }
        let call = serde_json::from_slice(body).expect("the call can be read");
        self.with(|inner| {
            let reply = f(inner, call);
            let lost = inner.lost_replies.get_mut(path);
            if let Some(lost) = lost.filter(|lost| **lost > 0) {
                *lost -= 1;
                return StatusCode::BAD_GATEWAY.into_response();
            }
            serde_json::to_vec(&reply).unwrap().into_response()
        })
    }
}

async fn heartbeat(State(app): State<AppState>, headers: HeaderMap, body: Bytes) -> Response {
    app.api.answer(
        paths::HEARTBEAT,
        &headers,
        &body,
        |inner, call: HeartbeatCall| {
            let is_canceled = |job: &JobRef| {
                inner
                    .jobs
                    .get(&job.id)
                    .is_some_and(|job| job.cancel_requested && job.end.is_none())
            };
            let cancel = call
                .leases
                .iter()
                .map(|lease| lease.job.clone())
                .filter(is_canceled);
            let reply = HeartbeatReply {
                is_superseded: inner.superseded,
                cancel: cancel.collect(),
                lost: inner.lost.clone(),
                unlisted: inner.unlisted.clone(),
                unknown_versions: if inner.known_versions {
                    Vec::new()
                } else {
                    vec![app.version.clone()]
                },
                queues: vec![AssignedQueue {
                    name: QUEUE.to_owned(),
                    version: app.version.clone(),
                }],
                trained_queues: Vec::new(),
                lease: app.timing.lease,
                interval: app.timing.interval,
            };
            inner.calls.heartbeats.push(call);
            reply
        },
    )
}

async fn register(State(app): State<AppState>, headers: HeaderMap, body: Bytes) -> Response {
    app.api.answer(
        paths::MODELS,
        &headers,
        &body,
        |inner, call: RegisterCall| {
            inner.known_versions = true;
            let refused = call.models.iter().filter(|_| inner.refuse_models);
            let refused = refused.map(|model| RefusedModel {
                model: model.model.clone(),
                version: model.version.clone(),
                reason: "another schema".to_owned(),
            });
            let reply = RegisterReply {
                refused: refused.collect(),
            };
            inner.calls.registered.push(call);
            reply
        },
    )
}

async fn lease(State(app): State<AppState>, headers: HeaderMap, body: Bytes) -> Response {
    app.api
        .answer(paths::LEASE, &headers, &body, |inner, call: LeaseCall| {
            inner.calls.leases.push(call.clone());
            let Some(job) = inner.jobs.get_mut(&call.job.id) else {
                return LeaseReply::Over;
            };
            if job.held_by_another {
                return LeaseReply::HeldByAnother;
            }
            if job.end.is_some() {
                return LeaseReply::Over;
            }
            let attempt = match job.fence {
                Some(fence) if fence.nonce == call.nonce => fence.attempt,
                Some(fence) => fence.attempt + 1,
                None => 1,
            };
            let fence = Fence {
                attempt,
                nonce: call.nonce,
            };
            job.fence = Some(fence);
            LeaseReply::Granted(Box::new(LeasedJob {
                spec: job.spec.clone(),
                fence,
                began_at: Timestamp::now(),
                remaining_ms: None,
                token: LeaseToken(format!("lease-{}", call.job.id)),
                trained: None,
            }))
        })
}

async fn release(State(app): State<AppState>, headers: HeaderMap, body: Bytes) -> Response {
    app.api.answer(
        paths::RELEASE,
        &headers,
        &body,
        |inner, call: ReleaseCall| {
            inner.calls.released.push(call);
        },
    )
}

async fn finish(State(app): State<AppState>, headers: HeaderMap, body: Bytes) -> Response {
    app.api
        .answer(paths::FINISH, &headers, &body, |inner, call: FinishCall| {
            let FinishCall { finish, .. } = call;
            inner.calls.finished.push(finish.clone());
            let job = inner.jobs.get_mut(&finish.id).unwrap();
            let outcome = match &job.end {
                Some(end) if end.fence == finish.fence => FinishOutcome::AlreadyCommitted,
                Some(_) => FinishOutcome::ByAnother,
                None if job.fence != Some(finish.fence) => FinishOutcome::ByAnother,
                None if job.cancel_requested && finish.status != Status::Canceled => {
                    FinishOutcome::CancelRequested
                }
                None => {
                    job.end = Some(finish);
                    FinishOutcome::Committed
                }
            };
            FinishReply { outcome }
        })
}

async fn publish(State(app): State<AppState>, headers: HeaderMap, body: Bytes) -> Response {
    app.api.answer(
        paths::EVENTS,
        &headers,
        &body,
        |inner, call: PublishCall| {
            let end = call.batch.offset + call.batch.events.len() as u64;
            inner.calls.published.push(call);
            PublishReply {
                next_offset: inner.rewind_to.take().unwrap_or(end),
                cancel_requested: false,
            }
        },
    )
}

async fn update(State(app): State<AppState>, headers: HeaderMap, body: Bytes) -> Response {
    app.api.answer(
        paths::UPDATES,
        &headers,
        &body,
        |inner, call: UpdateCall| {
            inner.calls.updates.push(call);
            UpdateReply { is_current: true }
        },
    )
}

async fn create_version(State(app): State<AppState>, headers: HeaderMap, body: Bytes) -> Response {
    app.api.answer(
        paths::VERSIONS,
        &headers,
        &body,
        |inner, call: VersionCall| {
            inner.calls.versions.push(call);
            VersionReply::Created("ann/mine:1".to_owned())
        },
    )
}

async fn file(
    State(app): State<AppState>,
    Path((token, name)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if app.api.fails() {
        app.api.with(|inner| inner.failed_uploads += 1);
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    if app.api.with(|inner| inner.stores_no_files) {
        return StatusCode::NOT_FOUND.into_response();
    }
    if app.api.with(|inner| inner.is_full) {
        return StatusCode::INSUFFICIENT_STORAGE.into_response();
    }
    let mime = headers[header::CONTENT_TYPE].to_str().unwrap().to_owned();
    let location = format!("tidegate-file:{name}");
    app.api
        .with(|inner| inner.calls.files.push((token, name, mime, body)));
    (StatusCode::CREATED, [(header::LOCATION, location)]).into_response()
}

/// The stored file `f1`.
async fn stored_file(
    State(app): State<AppState>,
    Path((token, id)): Path<(String, String)>,
) -> Response {
    if app.api.fails() {
        app.api.with(|inner| inner.failed_uploads += 1);
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    if id != "f1" {
        return StatusCode::NOT_FOUND.into_response();
    }
    (
        [(FILE_NAME_HEADER, "caf%C3%A9%2F1.txt")],
        format!("for {token}"),
    )
        .into_response()
}
