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

fn faces() -> Router {
    Router::new()
        .route(
            "/who",
            get(|caller: Identity| async move { format!("{} {:?}", caller.account, caller.role) }),
        )
        .route("/health-check", get(|| async { "well" }))
        .merge(
            Router::new()
                .route("/shutdown", post(|| async { "bye" }))
                .route_layer(middleware::from_fn(require_admin)),
        )
}

struct Answer {
    status: u16,
    challenge: Option<String>,
    body: String,
}

struct Call<'a> {
    method: Method,
    path: &'a str,
    authorization: &'a [&'a str],
    peer: &'a str,
}

const CALL: Call<'static> = Call {
    method: Method::GET,
    path: "/who",
    authorization: &[],
    peer: "127.0.0.1:9",
};

async fn answer(faces: &Router, call: Call<'_>) -> Answer {
    let mut request = Request::builder().method(call.method).uri(call.path);
    for value in call.authorization {
        request = request.header(AUTHORIZATION, *value);
    }
    let peer = Peer(call.peer.parse().unwrap());
    let mut service = axum::Extension(peer).layer(faces.clone());
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
    Answer {
        status,
        challenge,
        body: String::from_utf8(body.to_vec()).unwrap(),
    }
}

fn two_accounts() -> Router {
    require_token(
        faces(),
        Tokens::new(table(&[
            (ALICE, "alice", Role::User),
            (BOB, "bob", Role::Admin),
        ])),
    )
}

#[tokio::test]
async fn a_token_says_whose_the_request_is() {
    let faces = two_accounts();
    for header in [
        "Bearer alice-has-a-token",
        "bearer  alice-has-a-token ",
        "TOKEN alice-has-a-token",
    ] {
        let answer = answer(
            &faces,
            Call {
                authorization: &[header],
                ..CALL
            },
        )
        .await;
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (200, "alice User"),
            "{header}"
        );
    }
    let bob = answer(
        &faces,
        Call {
            authorization: &["Token bob-has-one-as-well"],
            ..CALL
        },
    )
    .await;
    assert_eq!(bob.body, "bob Admin");
}

#[tokio::test]
async fn without_a_known_token_nothing_is_answered_but_health() {
    let faces = two_accounts();
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
                let answer = answer(
                    &faces,
                    Call {
                        authorization,
                        path,
                        method,
                        ..CALL
                    },
                )
                .await;
                assert_eq!(
                    (answer.status, answer.challenge.as_deref()),
                    (401, Some("Bearer")),
                    "{path} {authorization:?}"
                );
                assert!(answer.body.starts_with(r#"{"error":""#), "{}", answer.body);
            }
        }
        assert_eq!(
            answer(
                &faces,
                Call {
                    authorization,
                    path: "/health-check",
                    ..CALL
                }
            )
            .await
            .body,
            "well"
        );
    }
}

#[tokio::test]
async fn with_several_accounts_only_administrators_may_end_the_server() {
    let faces = two_accounts();
    let shutdown = |authorization| Call {
        method: Method::POST,
        path: "/shutdown",
        authorization,
        ..CALL
    };
    assert_eq!(answer(&faces, shutdown(&[])).await.status, 401);
    let refused = answer(&faces, shutdown(&["Bearer alice-has-a-token"])).await;
    assert_eq!(
        (refused.status, refused.body.as_str()),
        (403, r#"{"error":"this needs a token of an administrator"}"#)
    );
    assert_eq!(
        answer(&faces, shutdown(&["Bearer bob-has-one-as-well"]))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn the_only_account_may_end_the_server() {
    let faces = require_token(
        faces(),
        Tokens::new(table(&[
            (ALICE, "one", Role::User),
            (BOB, "one", Role::User),
        ])),
    );
    let call = Call {
        method: Method::POST,
        path: "/shutdown",
        authorization: &["Bearer alice-has-a-token"],
        peer: "203.0.113.9:1",
    };
    assert_eq!(answer(&faces, call).await.status, 200);
}

#[tokio::test]
async fn without_tokens_only_this_machine_may_end_the_server() {
    let faces = faces();
    for (peer, status) in [
        ("127.0.0.1:9", 200),
        ("127.8.8.8:9", 200),
        ("[::1]:9", 200),
        ("[::ffff:127.0.0.1]:9", 200),
        ("192.168.0.5:9", 403),
        ("[fe80::1]:9", 403),
        ("[::ffff:10.0.0.1]:9", 403),
    ] {
        let answer = answer(
            &faces,
            Call {
                method: Method::POST,
                path: "/shutdown",
                peer,
                ..CALL
            },
        )
        .await;
        assert_eq!(answer.status, status, "{peer}");
    }
    assert_eq!(
        answer(
            &faces,
            Call {
                peer: "192.168.0.5:9",
                ..CALL
            }
        )
        .await
        .body,
        "anonymous User"
    );
}

#[tokio::test]
async fn a_revoked_token_is_refused_from_the_next_request_on() {
    let tokens = Tokens::new(table(&[
        (ALICE, "alice", Role::User),
        (BOB, "bob", Role::User),
    ]));
    let faces = require_token(faces(), tokens.clone());
    let alice = || Call {
        authorization: &["Bearer alice-has-a-token"],
        ..CALL
    };
    assert_eq!(answer(&faces, alice()).await.status, 200);
    tokens.reload(table(&[(BOB, "bob", Role::User)]));
    assert_eq!(
        answer(&faces, alice()).await.body,
        r#"{"error":"unknown token"}"#
    );
    tokens.reload(TokenTable::default());
    assert_eq!(
        answer(
            &faces,
            Call {
                authorization: &["Bearer bob-has-one-as-well"],
                ..CALL
            }
        )
        .await
        .status,
        401
    );
    assert_eq!(
        answer(&faces, CALL).await.status,
        401,
        "no tokens left is not the same as no guard"
    );
}

#[test]
fn a_hash_is_read_as_it_is_written() {
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
fn a_token_cannot_be_two_accounts() {
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
