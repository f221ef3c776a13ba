//! Active health checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tidegate_router::HealthState;
use tokio::time::Instant;

use crate::control_kit::{TestControl, TestFile, eventually};
use crate::stub_server::{StubRequest, StubResponse, StubServer, reply};

fn file(url: &str, endpoint: &str) -> TestFile {
    TestFile::new(&format!(
        "[probe]\ninterval = \"20ms\"\ntimeout = \"5s\"\n\
         [[model]]\nname = \"m\"\n[[model.endpoint]]\nurl = \"{url}\"\n{endpoint}\n"
    ))
}

fn health(fleet: &TestControl) -> HealthState {
    fleet.registry.endpoints()[0].state(Instant::now())
}

async fn wait_health(fleet: &TestControl, expected: HealthState) {
    eventually(
        || health(fleet) == expected,
        || format!("{:?} instead of {expected:?}", health(fleet)),
    )
    .await;
}

async fn wait_requests(server: &StubServer, count: usize) {
    eventually(
        || server.requests().len() >= count,
        || format!("{:?}", server.paths()),
    )
    .await;
}

/// Answers this path and no other one.
fn only(path: &'static str, body: &'static str) -> impl Fn(&StubRequest) -> StubResponse {
    move |request| match request.path == path {
        true => reply(200, body),
        false => reply(404, ""),
    }
}

#[tokio::test]
async fn each_kind_is_asked_at_its_own_path() {
    for (kind, path, body) in [
        ("openai", "/health", ""),
        ("openai", "/v1/models", "{}"),
        ("tgi", "/health", ""),
        ("tei", "/health", ""),
        ("triton", "/v2/health/ready", ""),
        ("cog", "/health-check", r#"{"status":"READY"}"#),
        ("tidegate", "/health-check", r#"{"status":"BUSY"}"#),
    ] {
        let server = StubServer::start(only(path, body)).await;
        let config = format!("kind = \"{kind}\"\nheaders = {{ authorization = \"key\" }}");
        let fleet = TestControl::start(file(&server.url(), &config).input()).unwrap();
        eventually(
            || server.paths().iter().any(|asked| asked == path),
            || format!("{kind}: {:?}", server.paths()),
        )
        .await;
        assert_eq!(health(&fleet), HealthState::Healthy, "{kind}");
        let authorization = &server.requests()[0].headers["authorization"];
        assert_eq!(authorization, "Bearer key");
    }
}

#[tokio::test]
async fn a_backend_fails_after_two_checks_and_comes_back() {
    let status = Arc::new(AtomicU16::new(200));
    let current = status.clone();
    let server = StubServer::start(move |_| reply(current.load(Ordering::SeqCst), "")).await;
    let fleet = TestControl::start(file(&server.url(), "kind = \"tei\"\npermits = 1").input());
    let fleet = fleet.unwrap();
    wait_requests(&server, 1).await;
    assert_eq!(health(&fleet), HealthState::Healthy);
    status.store(503, Ordering::SeqCst);
    wait_health(&fleet, HealthState::Unhealthy).await;
    status.store(200, Ordering::SeqCst);
    wait_health(&fleet, HealthState::Healthy).await;
}

#[tokio::test]
async fn a_single_failure_changes_nothing() {
    // Every second check fails.
    let asked = AtomicUsize::new(0);
    let answer = move |_: &StubRequest| match asked.fetch_add(1, Ordering::SeqCst) % 2 {
        0 => reply(200, ""),
        _ => reply(500, ""),
    };
    let server = StubServer::start(answer).await;
    let config = "kind = \"tei\"\npermits = 1";
    let fleet = TestControl::start(file(&server.url(), config).input()).unwrap();
    for count in 1..20 {
        wait_requests(&server, count).await;
        assert_eq!(health(&fleet), HealthState::Healthy);
    }
}

#[tokio::test]
async fn a_refused_connection_takes_a_backend_out_until_it_listens_again() {
    let server = StubServer::start(|_| reply(200, "")).await;
    let address = server.address.to_string();
    let fleet = TestControl::start(file(&server.url(), "kind = \"triton\"").input()).unwrap();
    wait_requests(&server, 1).await;
    drop(server);
    wait_health(&fleet, HealthState::Unhealthy).await;
    let _server = StubServer::bind(&address, |_| async { reply(200, "") }.boxed()).await;
    wait_health(&fleet, HealthState::Healthy).await;
}

#[tokio::test]
async fn a_cog_server_that_starts_is_not_healthy() {
    let ready = Arc::new(AtomicBool::new(false));
    let is_ready = ready.clone();
    let server = StubServer::start(move |_| {
        let status = if is_ready.load(Ordering::SeqCst) {
            "READY"
        } else {
            "STARTING"
        };
        reply(200, &format!(r#"{{"status":"{status}"}}"#))
    })
    .await;
    let fleet = TestControl::start(file(&server.url(), "kind = \"cog\"").input()).unwrap();
    wait_health(&fleet, HealthState::Unhealthy).await;
    ready.store(true, Ordering::SeqCst);
    wait_health(&fleet, HealthState::Healthy).await;
}

#[tokio::test]
async fn a_backend_without_a_health_path_is_healthy_if_it_answers() {
    let server = StubServer::start(|_| reply(404, "")).await;
    let fleet = TestControl::start(file(&server.url(), "").input()).unwrap();
    wait_requests(&server, 8).await;
    assert_eq!(health(&fleet), HealthState::Healthy);
    assert!(server.paths().contains(&"/v1/models".to_owned()));
}

#[tokio::test]
async fn the_path_of_the_configuration_replaces_the_one_of_the_kind() {
    let found = Arc::new(AtomicBool::new(true));
    let is_found = found.clone();
    let server = StubServer::start(move |request| {
        match request.path == "/alive" && is_found.load(Ordering::SeqCst) {
            true => reply(200, ""),
            false => reply(404, ""),
        }
    })
    .await;
    let config = "kind = \"triton\"\nprobe_path = \"/alive\"";
    let fleet = TestControl::start(file(&server.url(), config).input()).unwrap();
    wait_requests(&server, 3).await;
    assert_eq!(health(&fleet), HealthState::Healthy);
    found.store(false, Ordering::SeqCst);
    wait_health(&fleet, HealthState::Unhealthy).await;
    assert!(server.paths().iter().all(|path| path == "/alive"));
}

#[tokio::test]
async fn a_check_that_exceeds_its_time_fails() {
    let server = StubServer::start_async(|_| {
        async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            reply(200, "")
        }
        .boxed()
    })
    .await;
    let file = TestFile::new(&format!(
        "[probe]\ninterval = \"20ms\"\ntimeout = \"50ms\"\n\
         [[model]]\nname = \"m\"\n[[model.endpoint]]\nurl = \"{}\"\n",
        server.url()
    ));
    let fleet = TestControl::start(file.input()).unwrap();
    wait_health(&fleet, HealthState::Unhealthy).await;
}

#[tokio::test]
async fn tgi_tells_its_permits_unless_the_configuration_does() {
    let answer = |request: &StubRequest| match request.path.as_str() {
        "/info" => reply(200, r#"{"model_id":"a/b","max_concurrent_requests":128}"#),
        _ => reply(200, ""),
    };
    let server = StubServer::start(answer).await;
    let fleet = TestControl::start(file(&server.url(), "kind = \"tgi\"").input()).unwrap();
    let limit = || fleet.limits()[&server.url()];
    eventually(|| limit() == 128, || format!("{}", limit())).await;
    let other = StubServer::start(answer).await;
    let config = "kind = \"tgi\"\npermits = 2";
    let fleet = TestControl::start(file(&other.url(), config).input()).unwrap();
    wait_requests(&other, 4).await;
    assert_eq!(fleet.limits()[&other.url()], 2);
    assert!(!other.paths().contains(&"/info".to_owned()));
}

#[tokio::test]
async fn one_request_at_a_time_reaches_a_backend_and_redirects_are_not_followed() {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, peak) = (running.clone(), most.clone());
    let server = StubServer::start_async(move |_| {
        let (now, peak) = (now.clone(), peak.clone());
        async move {
            peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(5)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            let mut response = reply(307, "");
            let to = "/elsewhere".parse().expect("a header");
            response.headers_mut().insert("location", to);
            response
        }
        .boxed()
    })
    .await;
    let fleet = TestControl::start(file(&server.url(), "").input()).unwrap();
    wait_requests(&server, 12).await;
    assert_eq!(most.load(Ordering::SeqCst), 1);
    assert_eq!(health(&fleet), HealthState::Healthy);
    assert!(!server.paths().contains(&"/elsewhere".to_owned()));
}
