//! The models of backends that are given by `--backend`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use hyper::Method;
use tidegate_router::control::{FleetInput, SourceCondition};
use tidegate_router::fleet::BackendKind;

use crate::control_kit::{TestControl, eventually};
use crate::stub_server::{StubRequest, StubResponse, StubServer, reply};

/// Paths and bodies.
type Answers<'a> = &'a [(&'a str, &'a str)];

fn start(flags: &[&str]) -> TestControl {
    let flags = flags.iter().map(|flag| flag.parse().expect("a flag"));
    TestControl::start(FleetInput::Backends(flags.collect())).expect("flags are valid")
}

async fn wait_models(fleet: &TestControl, expected: &[&str]) {
    eventually(
        || fleet.models() == expected,
        || format!("{:?} instead of {expected:?}", fleet.models()),
    )
    .await;
}

/// Answers these paths and no others.
async fn server(answers: Answers<'static>) -> StubServer {
    StubServer::start(move |request| answer(request, answers)).await
}

fn answer(request: &StubRequest, answers: Answers<'_>) -> StubResponse {
    let method = match request.path.as_str() {
        "/v2/repository/index" => Method::POST,
        _ => Method::GET,
    };
    let known = answers.iter().find(|(path, _)| *path == request.path);
    let known = known.filter(|_| request.method == method);
    known.map_or_else(|| reply(404, ""), |(_, body)| reply(200, body))
}

const VLLM: Answers<'_> = &[
    ("/health", ""),
    (
        "/v1/models",
        r#"{"object":"list","data":[{"id":"meta/llama","object":"model","owned_by":"vllm"}]}"#,
    ),
];
const COG: Answers<'_> = &[
    ("/health-check", r#"{"status":"READY"}"#),
    (
        "/openapi.json",
        r#"{"info":{"title":"Cog","version":"0.1.0"},"components":{"schemas":{"Input":{}}}}"#,
    ),
];

#[tokio::test]
async fn each_kind_is_recognized() {
    let cases: [(Answers<'_>, &str, BackendKind); 6] = [
        (VLLM, "meta/llama", BackendKind::OpenAi),
        (
            &[(
                "/v1/models",
                r#"{"data":[{"id":"t"}],"results":[{"name":"t"}]}"#,
            )],
            "t",
            BackendKind::Tidegate,
        ),
        (
            &[
                (
                    "/info",
                    r#"{"model_id":"big/science","max_concurrent_requests":128}"#,
                ),
                ("/v1/models", r#"{"data":[{"id":"big/science"}]}"#),
            ],
            "big/science",
            BackendKind::Tgi,
        ),
        (
            &[(
                "/info",
                r#"{"model_id":"bge","model_type":{"embedding":{"pooling":"cls"}}}"#,
            )],
            "bge",
            BackendKind::Tei,
        ),
        (
            &[
                (
                    "/v2",
                    r#"{"name":"triton","version":"2.1","extensions":[]}"#,
                ),
                (
                    "/v2/repository/index",
                    r#"[{"name":"a","state":"READY"},{"name":"b","state":"UNAVAILABLE"}]"#,
                ),
            ],
            "a",
            BackendKind::Triton,
        ),
        (
            &[
                ("/health-check", r#"{"status":"STARTING"}"#),
                ("/openapi.json", r#"{"info":{"title":"Upscaler"}}"#),
            ],
            "Upscaler",
            BackendKind::Cog,
        ),
    ];
    for (answers, model, kind) in cases {
        let backend = server(answers).await;
        let fleet = start(&[&backend.url()]);
        fleet.control.ready().await;
        assert_eq!(fleet.models(), [model]);
        let table = fleet.registry.table();
        let (learned, _) = table.route("default").expect("the only model");
        assert_eq!(learned.endpoints[0].kind, kind);
        assert_eq!(fleet.endpoints(model), [backend.url()]);
    }
}

#[tokio::test]
async fn a_cog_server_is_reached_by_its_address_and_as_the_only_model() {
    let (one, two) = (server(COG).await, server(COG).await);
    let named = format!("cog={}", one.url());
    let fleet = start(&[&named, &two.url()]);
    fleet.control.ready().await;
    let mut both = [one.url(), two.url()];
    both.sort();
    for name in [
        "default",
        &one.address.to_string(),
        &two.address.to_string(),
    ] {
        fleet.wait_endpoints(name, &both).await;
    }
    assert_eq!(fleet.models().len(), 1);
}

#[tokio::test]
async fn a_backend_that_starts_later_is_learned() {
    let first = server(VLLM).await;
    let address = first.address.to_string();
    let url = first.url();
    drop(first);
    let fleet = start(&[&url]);
    fleet.control.ready().await;
    assert!(fleet.models().is_empty());
    let status = &fleet.control.status().sources[0];
    assert_eq!(status.condition, SourceCondition::Failing);
    let handler = |request: StubRequest| async move { answer(&request, VLLM) }.boxed();
    let _server = StubServer::bind(&address, handler).await;
    wait_models(&fleet, &["meta/llama"]).await;
}

#[tokio::test]
async fn a_reload_asks_the_backends_and_a_failure_keeps_the_models() {
    let changed = Arc::new(AtomicBool::new(false));
    let is_changed = changed.clone();
    let backend = StubServer::start(move |request| match request.path.as_str() {
        "/v1/models" if is_changed.load(Ordering::SeqCst) => {
            reply(200, r#"{"data":[{"id":"other"},{"id":""}]}"#)
        }
        _ => answer(request, VLLM),
    })
    .await;
    let fleet = start(&[&backend.url()]);
    fleet.control.ready().await;
    changed.store(true, Ordering::SeqCst);
    let diff = fleet.control.reload().await.unwrap();
    assert_eq!(
        (diff.models_added, diff.models_removed),
        (vec!["other".to_owned()], vec!["meta/llama".to_owned()])
    );
    assert_eq!(fleet.models(), ["other"]);
    drop(backend);
    fleet.control.reload().await.unwrap();
    assert_eq!(fleet.models(), ["other"]);
}

#[tokio::test]
async fn an_unknown_server_is_an_error_that_says_what_to_do() {
    // The base URL of OpenAI's client is understood too.
    let vllm = server(VLLM).await;
    let fleet = start(&[&format!("{}/v1", vllm.url())]);
    fleet.control.ready().await;
    assert_eq!(fleet.endpoints("meta/llama"), [vllm.url()]);

    let backend = server(&[("/", "hello")]).await;
    let fleet = start(&[&backend.url(), &format!("triton={}", backend.url())]);
    fleet.control.ready().await;
    let status = fleet.control.status();
    let error = |n: usize| status.sources[n].error.clone().unwrap_or_default();
    assert!(error(0).contains("--backend KIND=http"), "{}", error(0));
    assert!(error(1).contains("kind triton"), "{}", error(1));
}
