use axum::http::Method;
use axum::routing::{get, post};
use http_body_util::BodyExt;
use tower::{Layer, Service};

use super::*;

const ALICE: &str = "alice-has-a-token";
const BOB: &str = "bob-has-one-as-well";

fn table(entries: &[(&str, &str, Role)]) -> TokenTable {
    let mut table = TokenTable::default();
    for (token, account, role) in entries {
        table
            .add(
                TokenDigest::of(token.as_bytes()),
                Account::parse(account).unwrap(),
                *role,
            )
            .unwrap();
    }
    table
}

fn router() -> Router {
    Router::new()
        .route(
            "/who",
            get(|client: Identity| async move { format!("{} {:?}", client.account, client.role) }),
        )
        .route("/health-check", get(|| async { "healthy" }))
        .merge(
            Router::new()
                .route("/shutdown", post(|| async { "bye" }))
                .route_layer(middleware::from_fn(require_admin)),
        )
}

struct Reply {
    status: u16,
    challenge: Option<String>,
    body: String,
}

struct TestRequest<'a> {
    method: Method,
    path: &'a str,
    authorization: &'a [&'a str],
    peer: &'a str,
}

const REQUEST: TestRequest<'static> = TestRequest {
    method: Method::GET,
    path: "/who",
    authorization: &[],
    peer: "127.0.0.1:9",
};

async fn send(router: &Router, spec: TestRequest<'_>) -> Reply {
    let mut request = Request::builder().method(spec.method).uri(spec.path);
    for value in spec.authorization {
        request = request.header(AUTHORIZATION, *value);
    }
    let peer = spec.peer.parse().map_or(Peer::Unix, Peer::Tcp);
    let mut service = axum::Extension(peer).layer(router.clone());
    let response: Response = service
        .call(request.body(Body::empty()).unwrap())
        .await
        .unwrap();
    let challenge = response
        .headers()
        .get(WWW_AUTHENTICATE)
        .map(|value| value.to_str().unwrap().to_owned());
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    Reply {
        status,
        challenge,
        body: String::from_utf8(body.to_vec()).unwrap(),
    }
}

fn two_accounts() -> Router {
    require_token(
        router(),
        Tokens::new(table(&[
            (ALICE, "alice", Role::User),
            (BOB, "bob", Role::Admin),
        ])),
    )
}

#[tokio::test]
async fn a_token_identifies_the_account() {
    let router = two_accounts();
    for header in [
        "Bearer alice-has-a-token",
        "bearer  alice-has-a-token ",
        "TOKEN alice-has-a-token",
    ] {
        let reply = send(
            &router,
            TestRequest {
                authorization: &[header],
                ..REQUEST
            },
        )
        .await;
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (200, "alice User"),
            "{header}"
        );
    }
    let bob = send(
        &router,
        TestRequest {
            authorization: &["Token bob-has-one-as-well"],
            ..REQUEST
        },
    )
    .await;
    assert_eq!(bob.body, "bob Admin");
}

#[tokio::test]
async fn without_a_known_token_only_the_health_check_is_served() {
    let router = two_accounts();
    let cases: [&[&str]; 8] = [
        &[],
        &[""],
        &["Bearer"],
        &["Bearer "],
        &["Basic YTpi"],
        &["alice-has-a-token"],
        &["Bearer alice-has-a-toke"],
        &["Bearer alice-has-a-token", "Bearer alice-has-a-token"],
    ];
    for authorization in cases {
        for path in [
            "/who",
            "/nowhere",
            "/",
            "/health-check/",
            "//health-check",
            "/who?/health-check",
            "/%68ealth-check",
        ] {
            for method in [Method::GET, Method::POST, Method::OPTIONS] {
                let reply = send(
                    &router,
                    TestRequest {
                        authorization,
                        path,
                        method,
                        ..REQUEST
                    },
                )
                .await;
                assert_eq!(
                    (reply.status, reply.challenge.as_deref()),
                    (401, Some("Bearer")),
                    "{path} {authorization:?}"
                );
                assert!(reply.body.starts_with(r#"{"error":""#), "{}", reply.body);
            }
        }
        assert_eq!(
            send(
                &router,
                TestRequest {
                    authorization,
                    path: "/health-check",
                    ..REQUEST
                }
            )
            .await
            .body,
            "healthy"
        );
    }
}

#[tokio::test]
async fn with_several_accounts_only_administrators_may_shut_down() {
    let router = two_accounts();
    let shutdown = |authorization| TestRequest {
        method: Method::POST,
        path: "/shutdown",
        authorization,
        ..REQUEST
    };
    assert_eq!(send(&router, shutdown(&[])).await.status, 401);
    let refused = send(&router, shutdown(&["Bearer alice-has-a-token"])).await;
    assert_eq!(
        (refused.status, refused.body.as_str()),
        (
            403,
            r#"{"error":"this needs the token of an administrator"}"#
        )
    );
    assert_eq!(
        send(&router, shutdown(&["Bearer bob-has-one-as-well"]))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn the_only_account_may_shut_down() {
    let router = require_token(
        router(),
        Tokens::new(table(&[
            (ALICE, "one", Role::User),
            (BOB, "one", Role::User),
        ])),
    );
    let call = TestRequest {
        method: Method::POST,
        path: "/shutdown",
        authorization: &["Bearer alice-has-a-token"],
        peer: "203.0.113.9:1",
    };
    assert_eq!(send(&router, call).await.status, 200);
}

#[tokio::test]
async fn without_tokens_only_local_clients_may_shut_down() {
    let router = router();
    for (peer, status) in [
        ("127.0.0.1:9", 200),
        ("unix", 403),
        ("127.8.8.8:9", 200),
        ("[::1]:9", 200),
        ("[::ffff:127.0.0.1]:9", 200),
        ("192.168.0.5:9", 403),
        ("[fe80::1]:9", 403),
        ("[::ffff:10.0.0.1]:9", 403),
    ] {
        let reply = send(
            &router,
            TestRequest {
                method: Method::POST,
                path: "/shutdown",
                peer,
                ..REQUEST
            },
        )
        .await;
        assert_eq!(reply.status, status, "{peer}");
    }
    assert_eq!(
        send(
            &router,
            TestRequest {
                peer: "192.168.0.5:9",
                ..REQUEST
            }
        )
        .await
        .body,
        "anonymous User"
    );
}

#[tokio::test]
async fn a_revoked_token_is_rejected_from_the_next_request_on() {
    let tokens = Tokens::new(table(&[
        (ALICE, "alice", Role::User),
        (BOB, "bob", Role::User),
    ]));
    let router = require_token(router(), tokens.clone());
    let alice = || TestRequest {
        authorization: &["Bearer alice-has-a-token"],
        ..REQUEST
    };
    assert_eq!(send(&router, alice()).await.status, 200);
    tokens.reload(table(&[(BOB, "bob", Role::User)]));
    assert_eq!(
        send(&router, alice()).await.body,
        r#"{"error":"unknown token"}"#
    );
    tokens.reload(TokenTable::default());
    assert_eq!(
        send(
            &router,
            TestRequest {
                authorization: &["Bearer bob-has-one-as-well"],
                ..REQUEST
            }
        )
        .await
        .status,
        401
    );
    assert_eq!(
        send(&router, REQUEST).await.status,
        401,
        "an empty table does not disable the check"
    );
}

#[test]
fn a_digest_parses_its_own_display() {
    let digest = TokenDigest::of(b"abc");
    assert_eq!(
        digest.to_string(),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
    assert_eq!(
        TokenDigest::parse(&digest.to_string().to_uppercase()),
        Ok(digest)
    );
    for bad in [
        "",
        "ba78",
        &"g".repeat(64),
        &"a".repeat(65),
        &"é".repeat(32),
    ] {
        assert_eq!(TokenDigest::parse(bad), Err(InvalidTokenDigest), "{bad}");
    }
}

#[test]
fn a_token_belongs_to_one_account() {
    let mut table = table(&[(ALICE, "alice", Role::User)]);
    assert_eq!(
        table.add(
            TokenDigest::of(ALICE.as_bytes()),
            Account::parse("bob").unwrap(),
            Role::Admin
        ),
        Err(DuplicateToken)
    );
}
