//! The executor for a Cog server, with a fake server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tidegate_core::port::{Admitted, Executor, Running, WaitPolicy};
use tidegate_core::{Account, Event, JobId, JobKind, Outcome, Work};
use tidegate_director::CogServer;
use tidegate_net::Url;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::fake_model::within;

const STREAMING: &str = r#"{"paths":{"/predictions":{"post":{"x-cog-streaming":true}}}}"#;
const PLAIN: &str = r#"{"paths":{"/predictions":{"post":{}}}}"#;

/// A Cog server with one model.
struct FakeCog {
    schema: &'static str,
    /// How many requests are refused because no slot is free.
    busy: AtomicUsize,
    requests: Mutex<Vec<String>>,
    /// Cancelled when a request that never ends is dropped.
    dropped: CancellationToken,
}

async fn start(schema: &'static str, busy: usize) -> (CogServer, Arc<FakeCog>) {
    let cog = Arc::new(FakeCog {
        schema,
        busy: AtomicUsize::new(busy),
        requests: Mutex::default(),
        dropped: CancellationToken::new(),
    });
    let routes = Router::new()
        .route("/health-check", get(async || r#"{"status":"READY"}"#))
        .route(
            "/openapi.json",
            get(async |State(cog): State<Arc<FakeCog>>| cog.schema),
        )
        .route("/predictions", post(predict))
        .with_state(Arc::clone(&cog));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    TaskTracker::new().spawn(async move { axum::serve(listener, routes).await });
    let server = CogServer::start(url, 1);
    assert_eq!(within(server.ready()).await.as_ref(), schema);
    (server, cog)
}

async fn predict(State(cog): State<Arc<FakeCog>>, headers: HeaderMap, body: Bytes) -> Response {
    let body = String::from_utf8(body.to_vec()).unwrap();
    let is_endless = body.contains("endless");
    cog.requests.lock().unwrap().push(body);
    let left = cog.busy.load(Ordering::SeqCst);
    if left > 0 {
        cog.busy.store(left - 1, Ordering::SeqCst);
        return (StatusCode::CONFLICT, r#"{"error":"At capacity"}"#).into_response();
    }
    if is_endless {
        let _guard = cog.dropped.clone().drop_guard();
        return std::future::pending().await;
    }
    if headers
        .get(header::ACCEPT)
        .is_some_and(|accept| accept == "text/event-stream")
    {
        let stream = "event: start\ndata: {}\n\n\
            event: log\ndata: {\"source\":\"stderr\",\"data\":\"hi\\n\"}\n\n\
            event: output\ndata: {\"chunk\":\"a\",\"index\":0}\n\n\
            event: metric\ndata: {\"name\":\"n\",\"value\":2,\"mode\":\"replace\"}\n\n\
            event: completed\ndata: {\"id\":\"x\",\"status\":\"succeeded\",\"logs\":\"hi\\n\",\"output\":[\"a\"],\"metrics\":{}}\n\n";
        return (
            [(header::CONTENT_TYPE, "text/event-stream")],
            Body::from(stream),
        )
            .into_response();
    }
    let result = r#"{"id":"x","status":"succeeded","output":{"b":1},"logs":"line\n","metrics":{"predict_time":0.1,"tokens":3}}"#;
    result.into_response()
}

async fn run(server: &CogServer, input: &'static str) -> Box<dyn Running> {
    run_with_files(server, input, BTreeMap::new()).await
}

async fn run_with_files(
    server: &CogServer,
    input: &'static str,
    files: BTreeMap<String, PathBuf>,
) -> Box<dyn Running> {
    let admission = match server
        .admit(&Account::ANONYMOUS, WaitPolicy::Unbounded)
        .unwrap()
    {
        Admitted::Now(admission) => admission,
        Admitted::Queued(pending) => within(pending).await.unwrap(),
    };
    let work = Work {
        id: JobId::parse("job-1").unwrap(),
        kind: JobKind::Prediction,
        input: bytes::Bytes::from_static(input.as_bytes()),
        files,
        context: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
        scratch: "/nonexistent".into(),
    };
    admission.start(work).await
}

/// The events of a run, as text.
async fn events(mut running: Box<dyn Running>) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        let event = within(running.next()).await;
        let text = match &event {
            Event::Log { text, .. } => format!("log {}", text.trim()),
            Event::Output(value) => format!("output {}", String::from_utf8_lossy(&value.json)),
            Event::Metric(metric) => format!("metric {}={}", metric.name, metric.value),
            Event::Remote(_) => "remote".to_owned(),
            Event::Ended(Outcome::Succeeded { output }) => {
                let output = output.as_ref().map(|value| value.json.clone());
                format!(
                    "succeeded {}",
                    String::from_utf8_lossy(&output.unwrap_or_default())
                )
            }
            Event::Ended(Outcome::Failed { error }) => format!("failed {error}"),
            Event::Ended(Outcome::Canceled) => "canceled".to_owned(),
        };
        seen.push(text);
        if matches!(event, Event::Ended(_)) {
            return seen;
        }
    }
}

#[tokio::test]
async fn a_model_that_streams_is_followed_event_by_event() {
    let (server, _) = start(STREAMING, 0).await;
    let seen = events(run(&server, "{}").await).await;
    assert_eq!(seen, ["log hi", "output \"a\"", "metric n=2", "succeeded "]);
}

#[tokio::test]
async fn a_model_that_does_not_stream_returns_its_result() {
    let (server, cog) = start(PLAIN, 0).await;
    let seen = events(run(&server, r#"{"a":1}"#).await).await;
    assert_eq!(
        seen,
        ["log line", "metric tokens=3", r#"succeeded {"b":1}"#]
    );
    let requests = cog.requests.lock().unwrap().clone();
    assert_eq!(
        requests,
        [r#"{"id":"job-1","input":{"a":1},"context":{"k":"v"}}"#]
    );
}

#[tokio::test]
async fn a_server_that_has_just_become_free_is_asked_again() {
    let (server, cog) = start(PLAIN, 2).await;
    let seen = events(run(&server, "{}").await).await;
    assert_eq!(seen.last().unwrap(), r#"succeeded {"b":1}"#);
    assert_eq!(cog.requests.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_cancel_closes_the_connection_and_frees_the_slot() {
    let (server, cog) = start(PLAIN, 0).await;
    let mut running = run(&server, r#"{"x":"endless"}"#).await;
    within(async {
        while cog.requests.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(server.pool_status().free, 0);
    running.cancel();
    assert_eq!(events(running).await, ["canceled"]);
    within(cog.dropped.cancelled()).await;
    within(async {
        while server.pool_status().free == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// The Cog server has no token of the API.
#[tokio::test]
async fn stored_files_reach_the_server_as_data() {
    let (server, cog) = start(PLAIN, 0).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.txt");
    std::fs::write(&path, "hi").unwrap();
    let input = r#"{"a":"https://h/v1/files/f1","b":["https://h/b.png"]}"#;
    let files = [("/a".to_owned(), path.clone()), ("/b/0".to_owned(), path)];
    events(run_with_files(&server, input, files.into()).await).await;
    let sent = cog.requests.lock().unwrap().remove(0);
    assert!(
        sent.contains(r#""a":"data:text/plain;base64,aGk=""#)
            && sent.contains(r#""b":["https://h/b.png"]"#),
        "{sent}"
    );
}
