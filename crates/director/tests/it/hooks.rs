//! Hooks: a policy before a job, and a moderation after it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_core::record::JobSpec;
use tidegate_core::store::JobFinish;
use tidegate_core::{JobId, Status};
use tidegate_director::{Hook, Hooks, OnHookFailure};
use tidegate_net::{Client, Url};
use tokio::task::JoinSet;

use crate::harness::{Harness, LONG, Options, spec, with_hook};

/// A server of hooks with fixed replies; it keeps the requests.
struct HookServer {
    url: Url,
    state: Arc<HookState>,
    _server: JoinSet<()>,
}

struct HookState {
    /// The replies in order; the last one is repeated.
    replies: Vec<(u16, String)>,
    requests: Mutex<Vec<Value>>,
}

impl HookServer {
    async fn start(replies: &[(u16, Value)]) -> Self {
        let state = Arc::new(HookState {
            replies: replies
                .iter()
                .map(|(status, body)| (*status, body.to_string()))
                .collect(),
            requests: Mutex::default(),
        });
        let routes = Router::new()
            .route("/hook", post(answer))
            .with_state(Arc::clone(&state));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self {
            url: Url::parse(&format!("http://{address}/hook")).unwrap(),
            state,
            _server: server,
        }
    }

    fn requests(&self) -> Vec<Value> {
        self.state.requests.lock().unwrap().clone()
    }
}

async fn answer(State(state): State<Arc<HookState>>, body: Bytes) -> Response {
    let count = {
        let mut requests = state.requests.lock().unwrap();
        requests.push(serde_json::from_slice(&body).unwrap());
        requests.len()
    };
    let (status, text) = &state.replies[(count - 1).min(state.replies.len() - 1)];
    (StatusCode::from_u16(*status).unwrap(), text.clone()).into_response()
}

fn hook(url: &Url, timeout: Duration, on_failure: OnHookFailure) -> Option<Hook> {
    Some(Hook {
        net: Arc::new(Client::new(tidegate_net::Config::default())),
        url: url.clone(),
        timeout,
        on_failure,
    })
}

fn policy(server: &HookServer) -> Hooks {
    Hooks {
        policy: hook(&server.url, LONG, OnHookFailure::Fail),
        moderation: None,
    }
}

fn moderation(server: &HookServer) -> Hooks {
    Hooks {
        policy: None,
        moderation: hook(&server.url, LONG, OnHookFailure::Fail),
    }
}

async fn start(hooks: Hooks) -> Harness {
    Harness::start(Options {
        hooks,
        ..Options::default()
    })
    .await
}

/// Waits for the acknowledgement; returns the end.
async fn end(harness: &Harness, id: &JobId) -> JobFinish {
    harness.wait_for_messages((0, 0)).await;
    harness.api.end(id).unwrap()
}

#[tokio::test]
async fn a_job_that_the_policy_refuses_fails_and_never_runs() {
    let reply = json!({"allowed": false, "reason": "the limit of spending is reached"});
    let server = HookServer::start(&[(200, reply), (200, json!({"allowed": true}))]).await;
    let harness = start(policy(&server)).await;
    let id = harness.add_spec(with_hook(spec("a"), &["completed"])).await;
    let end = end(&harness, &id).await;
    assert_eq!(end.status, Status::Failed);
    let error = end.completion.error.unwrap();
    assert!(
        error.contains("not allowed") && error.contains("the limit of spending is reached"),
        "{error}"
    );
    assert!(end.message.is_some(), "the client gets its webhook");
    let requests = server.requests();
    let job = &requests[0]["job"];
    assert_eq!(job["id"], "a");
    assert_eq!(
        (&job["model"], &job["director"]),
        (&json!("ann/echo"), &json!("gpu-1"))
    );
    assert_eq!((&job["account"], &job["attempt"]), (&json!(""), &json!(1)));

    let next = harness.add("b").await;
    let run = harness.model.started().await;
    assert_eq!(
        run.work.id, next,
        "the first job never ran, and its slot is free"
    );
}

#[tokio::test]
async fn a_policy_can_refuse_with_a_status() {
    let server = HookServer::start(&[(403, json!({"reason": "unknown principal"}))]).await;
    let harness = start(policy(&server)).await;
    let id = harness.add("a").await;
    let error = end(&harness, &id).await.completion.error.unwrap();
    assert!(error.contains("unknown principal"), "{error}");
}

#[tokio::test]
async fn a_policy_that_fails_is_asked_again() {
    let server = HookServer::start(&[(503, json!({})), (200, json!({"allowed": true}))]).await;
    let harness = start(policy(&server)).await;
    let id = harness.add("a").await;
    harness.model.started().await.succeed("1");
    assert_eq!(end(&harness, &id).await.status, Status::Succeeded);
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn the_operator_chooses_what_happens_without_an_answer() {
    let server = HookServer::start(&[(500, json!({}))]).await;
    let hooks = |on_failure| Hooks {
        policy: hook(&server.url, Duration::from_millis(50), on_failure),
        moderation: None,
    };
    let closed = start(hooks(OnHookFailure::Fail)).await;
    let id = closed.add("a").await;
    let error = end(&closed, &id).await.completion.error.unwrap();
    assert!(error.contains("policy hook did not answer"), "{error}");

    let open = start(hooks(OnHookFailure::Allow)).await;
    let id = open.add("a").await;
    open.model.started().await.succeed("1");
    assert_eq!(end(&open, &id).await.status, Status::Succeeded);
}

/// Such as the error of a proxy with status 200.
#[tokio::test]
async fn a_reply_that_decides_nothing_is_no_answer() {
    for reply in [json!({}), json!({"error": "no quota"}), json!([true])] {
        let server = HookServer::start(&[(200, reply.clone())]).await;
        let hook = hook(&server.url, Duration::from_millis(50), OnHookFailure::Fail);
        let asked = start(Hooks {
            policy: hook.clone(),
            moderation: None,
        })
        .await;
        let id = asked.add("a").await;
        let error = end(&asked, &id).await.completion.error.unwrap();
        assert!(
            error.contains("policy hook did not answer"),
            "{reply}: {error}"
        );

        let moderated = start(Hooks {
            policy: None,
            moderation: hook,
        })
        .await;
        let id = moderated.add("a").await;
        moderated.model.started().await.succeed("1");
        let error = end(&moderated, &id).await.completion.error.unwrap();
        assert!(
            error.contains("moderation hook did not answer"),
            "{reply}: {error}"
        );
    }
}

#[tokio::test]
async fn a_reply_without_content_is_no_objection() {
    let server = HookServer::start(&[(204, json!({}))]).await;
    let harness = start(Hooks {
        policy: policy(&server).policy,
        moderation: moderation(&server).moderation,
    })
    .await;
    let id = harness.add("a").await;
    harness.model.started().await.succeed("1");
    let end = end(&harness, &id).await;
    assert_eq!(end.status, Status::Succeeded);
    assert_eq!(
        end.completion.metrics["moderation"],
        json!({"flagged": false})
    );
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_moderation_marks_the_job() {
    let reply = json!({"flagged": true, "reason": "violence", "categories": ["violence"]});
    let server = HookServer::start(&[(200, reply)]).await;
    let harness = start(moderation(&server)).await;
    let id = harness
        .add_spec(JobSpec {
            input: Bytes::from_static(b"{\"prompt\": \"a\", \"key\": \"hidden\"}"),
            secrets: vec!["key".to_owned()],
            ..spec("a")
        })
        .await;
    harness.model.started().await.succeed("\"an image\"");
    let end = end(&harness, &id).await;
    assert_eq!(end.status, Status::Succeeded);
    assert_eq!(end.completion.output.as_deref(), Some(&b"\"an image\""[..]));
    assert_eq!(
        end.completion.metrics["moderation"],
        json!({"flagged": true, "reason": "violence", "categories": ["violence"]})
    );
    let [request] = &server.requests()[..] else {
        panic!("one request");
    };
    assert_eq!(request["output"], json!(["an image"]));
    assert_eq!(
        request["input"],
        json!({"prompt": "a"}),
        "without the secret"
    );
}

#[tokio::test]
async fn a_moderation_can_refuse_the_output() {
    let reply = json!({"flagged": true, "action": "fail", "reason": "violence"});
    let server = HookServer::start(&[(200, reply)]).await;
    let harness = start(moderation(&server)).await;
    let id = harness.add("a").await;
    harness.model.started().await.succeed("\"an image\"");
    let end = end(&harness, &id).await;
    assert_eq!(end.status, Status::Failed);
    assert_eq!(end.completion.output, None);
    let error = end.completion.error.unwrap();
    assert!(error.contains("moderation: violence"), "{error}");
}

#[tokio::test]
async fn a_job_that_fails_is_not_moderated() {
    let server = HookServer::start(&[(200, json!({"flagged": true, "action": "fail"}))]).await;
    let harness = start(moderation(&server)).await;
    let id = harness.add("a").await;
    let run = harness.model.started().await;
    run.send(tidegate_core::Event::Ended(
        tidegate_core::Outcome::Failed {
            error: "no".to_owned(),
        },
    ));
    let end = end(&harness, &id).await;
    assert_eq!(end.completion.error.as_deref(), Some("no"));
    assert_eq!(server.requests().len(), 0);
}
