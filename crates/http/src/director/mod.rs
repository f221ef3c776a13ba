//! The API of directors: `POST` requests with the JSON of `tidegate_core::director_api`, and files.
//!
//! Every request needs the token of the directors. The access layer lets these paths pass, because this
//! token is not the token of an account.

mod files;
mod reply;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post, put};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_core::director_api::paths;
use tidegate_service::{CallError, DirectorCalls};

use crate::shared::body_limit::{BodyLimit, read_json_body};
use reply::CallRefusal;

/// The prefix of the paths.
const ROOT: &str = "/director/";

/// Whether a path belongs to the API of directors.
pub(crate) fn is_director_path(path: &str) -> bool {
    path.starts_with(ROOT)
}

/// The configuration of the API of directors.
#[derive(Clone)]
pub struct Config {
    /// The token that directors send.
    pub token: Arc<str>,
    /// The largest body, in bytes: the end of a job has its output and logs.
    pub max_body: usize,
    /// How long a director may pause while it sends a body.
    pub body_timeout: Duration,
    /// The largest output file, in bytes.
    pub max_file: u64,
}

#[derive(Clone)]
struct Calls {
    calls: Arc<DirectorCalls>,
    limit: BodyLimit,
    max_file: u64,
}

/// The routes.
pub fn routes(calls: Arc<DirectorCalls>, config: Config) -> Router {
    let limit = BodyLimit::of_flags(config.max_body, config.body_timeout);
    Router::new()
        .route(paths::HEARTBEAT, post(heartbeat))
        .route(paths::MODELS, post(register))
        .route(paths::LEASE, post(lease))
        .route(paths::RELEASE, post(release))
        .route(paths::FINISH, post(finish))
        .route(paths::CALLS, post(batch))
        .route(paths::EVENTS, post(publish))
        .route(paths::UPDATES, post(update))
        .route(
            &format!("{}/{{token}}/{{name}}", paths::FILES),
            put(files::upload).get(files::download),
        )
        .route(paths::VERSIONS, post(create_version))
        .route(&format!("{}/{{key}}", paths::WEIGHTS), get(files::weights))
        .route("/director/{*rest}", any(reply::no_such_path))
        .layer(middleware::from_fn_with_state(config.token, check_token))
        .with_state(Calls {
            calls,
            limit,
            max_file: config.max_file,
        })
}

async fn heartbeat(State(state): State<Calls>, headers: HeaderMap, body: Body) -> Response {
    state
        .answer(&headers, body, async |calls, call| {
            calls.heartbeat(call).await
        })
        .await
}

async fn register(State(state): State<Calls>, headers: HeaderMap, body: Body) -> Response {
    state
        .answer(&headers, body, async |calls, call| {
            calls.register(call).await
        })
        .await
}

async fn lease(State(state): State<Calls>, headers: HeaderMap, body: Body) -> Response {
    state
        .answer(&headers, body, async |calls, call| calls.lease(call).await)
        .await
}

async fn release(State(state): State<Calls>, headers: HeaderMap, body: Body) -> Response {
    state
        .answer(&headers, body, async |calls, call| {
            calls.release(call).await
        })
        .await
}

async fn finish(State(state): State<Calls>, headers: HeaderMap, body: Body) -> Response {
    state
        .answer(&headers, body, async |calls, call| calls.finish(call).await)
        .await
}

async fn batch(State(state): State<Calls>, headers: HeaderMap, body: Body) -> Response {
    state
        .answer(&headers, body, async |calls, call| calls.batch(call).await)
        .await
}

async fn publish(State(state): State<Calls>, headers: HeaderMap, body: Body) -> Response {
    state
        .answer(&headers, body, async |calls, call| {
            calls.publish(call).await
        })
        .await
}

async fn update(State(state): State<Calls>, headers: HeaderMap, body: Body) -> Response {
    state
        .answer(&headers, body, async |calls, call| calls.update(call).await)
        .await
}

async fn create_version(State(state): State<Calls>, headers: HeaderMap, body: Body) -> Response {
    state
        .answer(&headers, body, async |calls, call| {
            calls.create_version(call).await
        })
        .await
}

impl Calls {
    /// Reads a call and answers it. If the director disconnects, the call is completed all the same; the
    /// director repeats it, and every call can be repeated.
    async fn answer<C, R, F, Fut>(&self, headers: &HeaderMap, body: Body, handle: F) -> Response
    where
        C: DeserializeOwned + Send + 'static,
        R: Serialize + Send + 'static,
        F: FnOnce(Arc<DirectorCalls>, C) -> Fut,
        Fut: Future<Output = Result<R, CallError>> + Send + 'static,
    {
        let body = match read_json_body(headers, body, self.limit).await {
            Ok(body) => body,
            Err(error) => return CallRefusal::Body(error).into_response(),
        };
        let call = match serde_json::from_slice(&body) {
            Ok(call) => call,
            Err(error) => return CallRefusal::Unreadable(error).into_response(),
        };
        let call = handle(Arc::clone(&self.calls), call);
        match self.calls.complete(call).await {
            Ok(result) => reply::ok(&result),
            Err(error) => CallRefusal::Call(error).into_response(),
        }
    }
}

/// Requires the token of the directors.
async fn check_token(State(token): State<Arc<str>>, request: Request, next: Next) -> Response {
    let sent = request.headers().get(AUTHORIZATION);
    let sent = sent.and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    if sent.is_some_and(|sent| is_equal(sent, token.as_bytes())) {
        return next.run(request).await;
    }
    tracing::warn!(target: "audit", status = 401, path = request.uri().path(), "refused director");
    CallRefusal::WrongToken.into_response()
}

/// Compares in a time that does not depend on where the texts differ.
fn is_equal(sent: &[u8], token: &[u8]) -> bool {
    let hash = |text| ring::digest::digest(&ring::digest::SHA256, text);
    hash(sent).as_ref() == hash(token).as_ref()
}
