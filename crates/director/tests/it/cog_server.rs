//! The executor for a Cog server, with a fake server.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
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
    /// The statuses of the next requests, which are refused.
    refusals: Mutex<VecDeque<StatusCode>>,
    requests: Mutex<Vec<String>>,
    /// Cancelled when a request that never ends is dropped.
    dropped: CancellationToken,
}

impl FakeCog {
    fn new(schema: &'static str, refusals: &[StatusCode]) -> Arc<Self> {
        Arc::new(Self {
            schema,
            refusals: Mutex::new(refusals.iter().copied().collect()),
            requests: Mutex::default(),
            dropped: CancellationToken::new(),
        })
    }
}

async fn start(schema: &'static str, refusals: &[StatusCode]) -> (CogServer, Arc<FakeCog>) {
    let (listener, url) = listen("127.0.0.1:0").await;
    let cog = FakeCog::new(schema, refusals);
    TaskTracker::new().spawn(serve(listener, Arc::clone(&cog)));
    let server = CogServer::start(url, 1);
    assert_eq!(within(server.ready()).await.as_ref(), schema);
    (server, cog)
}

async fn listen(address: &str) -> (TcpListener, Url) {
    let listener = TcpListener::bind(address).await.unwrap();
    let url = Url::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    (listener, url)
}

async fn serve(listener: TcpListener, cog: Arc<FakeCog>) {
    let routes = Router::new()
        .route("/health-check", get(async || r#"{"status":"READY"}"#))
        .route(
            "/openapi.json",
            get(async |State(cog): State<Arc<FakeCog>>| cog.schema),
        )
        .route("/predictions", post(predict))
        // A process that ends closes its connections.
        .layer(axum::middleware::map_response(
            async |mut response: Response| {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
                response
            },
        ))
        .with_state(cog);
    axum::serve(listener, routes).await.unwrap();
}

async fn predict(State(cog): State<Arc<FakeCog>>, headers: HeaderMap, body: Bytes) -> Response {
    let body = String::from_utf8(body.to_vec()).unwrap();
    let is_endless = body.contains("endless");
    cog.requests.lock().unwrap().push(body);
    let refusal = cog.refusals.lock().unwrap().pop_front();
    if let Some(status) = refusal {
        return (status, r#"{"error":"not now"}"#).into_response();
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
    let (server, _) = start(STREAMING, &[]).await;
    let seen = events(run(&server, "{}").await).await;
    assert_eq!(seen, ["log hi", "output \"a\"", "metric n=2", "succeeded "]);
}

#[tokio::test]
async fn a_model_that_does_not_stream_returns_its_result() {
    let (server, cog) = start(PLAIN, &[]).await;
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
    let (server, cog) = start(PLAIN, &[StatusCode::CONFLICT; 2]).await;
    let seen = events(run(&server, "{}").await).await;
    assert_eq!(seen.last().unwrap(), r#"succeeded {"b":1}"#);
    assert_eq!(cog.requests.lock().unwrap().len(), 3);
}

/// Cog responds with 503 while it starts and while it shuts down.
#[tokio::test]
async fn a_server_that_is_not_ready_is_asked_again() {
    for schema in [PLAIN, STREAMING] {
        let (server, cog) = start(schema, &[StatusCode::SERVICE_UNAVAILABLE]).await;
        let seen = events(run(&server, "{}").await).await;
        assert!(seen.last().unwrap().starts_with("succeeded"), "{seen:?}");
        assert_eq!(cog.requests.lock().unwrap().len(), 2);
    }
}

#[tokio::test]
async fn a_job_waits_while_the_server_is_started_again() {
    for schema in [PLAIN, STREAMING] {
        let (listener, url) = listen("127.0.0.1:0").await;
        let address = listener.local_addr().unwrap().to_string();
        let first = TaskTracker::new().spawn(serve(listener, FakeCog::new(schema, &[])));
        let server = CogServer::start(url, 1);
        within(server.ready()).await;

        first.abort();
        first.await.unwrap_err();
        let mut running = run(&server, "{}").await;
        let no_event = tokio::time::timeout(Duration::from_millis(200), running.next()).await;
        assert!(no_event.is_err(), "it waits");
        let refused = server.admit(&Account::ANONYMOUS, WaitPolicy::NoWait);
        assert!(refused.is_err(), "no other job is taken meanwhile");

        let (listener, _) = listen(&address).await;
        let cog = FakeCog::new(schema, &[]);
        TaskTracker::new().spawn(serve(listener, Arc::clone(&cog)));
        let seen = events(running).await;
        assert!(seen.last().unwrap().starts_with("succeeded"), "{seen:?}");
        assert_eq!(cog.requests.lock().unwrap().len(), 1);
    }
}

/// The server may have begun the job, so it must not run a second time.
#[tokio::test]
async fn a_job_fails_when_the_server_ends_after_the_request() {
    let (listener, url) = listen("127.0.0.1:0").await;
    let server = CogServer::start(url.clone(), 1);
    let cog = FakeCog::new(PLAIN, &[]);
    let (ended, requests) = (CancellationToken::new(), Arc::clone(&cog));
    let process = ended
        .clone()
        .run_until_cancelled_owned(serve(listener, cog));
    let thread = std::thread::spawn(|| {
        // Its connections end with the runtime, as with a process.
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(process);
    });
    within(server.ready()).await;
    let running = run(&server, r#"{"x":"endless"}"#).await;
    within(async {
        while requests.requests.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    ended.cancel();
    let seen = events(running).await;
    thread.join().unwrap();
    assert!(
        seen[0].starts_with("failed the Cog server did not run the job"),
        "{seen:?}"
    );
}

#[tokio::test]
async fn a_cancel_closes_the_connection_and_frees_the_slot() {
    let (server, cog) = start(PLAIN, &[]).await;
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
    let (server, cog) = start(PLAIN, &[]).await;
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
