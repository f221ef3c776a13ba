//! Backends that register themselves.

use std::net::IpAddr;

use tidegate_router::join::{JoinRefusal, JoinRequest, LeaveRequest};

use crate::control_kit::{TestControl, TestFile, eventually};

/// The SHA-256 of `key`.
const KEY_HASH: &str = "2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683";
const BACKEND: &str = "http://127.0.0.1:1";

/// The models of the key `key`, and those of another one.
fn fleet_file(models: &str, others: &str, extra: &str) -> String {
    let other_hash = "a".repeat(64);
    format!(
        "[[model]]\nname = \"m\"\naliases = [\"alias\"]\n[[model.endpoint]]\njoin = true\nkind = \"tidegate\"\n\
         [[model]]\nname = \"other\"\n[[model.endpoint]]\njoin = true\n\
         [[model]]\nname = \"static\"\n[[model.endpoint]]\nurl = \"http://127.0.0.1:2\"\n\
         [[join_key]]\nname = \"others\"\nkey_hash = \"sha256:{other_hash}\"\nmodels = [{others}]\n\
         networks = [\"127.0.0.0/8\"]\n\
         [[join_key]]\nname = \"gpus\"\nkey_hash = \"sha256:{KEY_HASH}\"\nmodels = [{models}]\n\
         networks = [\"127.0.0.0/8\"]\n{extra}\n"
    )
}

fn start() -> (TestControl, TestFile) {
    let file = TestFile::new(&fleet_file("\"m\", \"static\"", "\"other\"", ""));
    let fleet = TestControl::start(file.input()).expect("a valid file");
    (fleet, file)
}

fn request(model: &str) -> JoinRequest {
    JoinRequest {
        url: BACKEND.to_owned(),
        models: vec![model.to_owned()],
        kind: None,
        permits: Some(3),
        ttl_s: None,
    }
}

fn peer() -> IpAddr {
    "127.0.0.1".parse().expect("an address")
}

#[tokio::test]
async fn a_backend_joins_renews_and_leaves() {
    let (fleet, _file) = start();
    let join = || async {
        fleet
            .control
            .join(&request("alias"), Some("key"), peer())
            .await
    };
    let joined = join().await.unwrap();
    assert_eq!(
        (joined.models.as_slice(), joined.ttl_s),
        (&["m".to_owned()][..], 30.0)
    );
    assert_eq!(fleet.endpoints("m"), [BACKEND]);
    assert_eq!(fleet.limits()[BACKEND], 3);
    assert!(fleet.endpoints("other").is_empty());
    join().await.unwrap();
    assert_eq!(fleet.control.status().registrations, 1);
    let leave = LeaveRequest {
        url: BACKEND.to_owned(),
    };
    let left = fleet.control.leave(&leave, Some("key"), peer()).await;
    assert_eq!(left, Ok(true));
    assert!(fleet.endpoints("m").is_empty());
    let left = fleet.control.leave(&leave, Some("key"), peer()).await;
    assert_eq!(left, Ok(false));
}

#[tokio::test]
async fn a_host_name_is_pinned_to_the_address_that_was_checked() {
    let (fleet, _file) = start();
    let named = JoinRequest {
        url: "http://localhost:1".to_owned(),
        ..request("m")
    };
    let joined = fleet.control.join(&named, Some("key"), peer()).await;
    match joined {
        Ok(joined) => assert_eq!(joined.url, "http://127.0.0.1:1#localhost"),
        // The system may prefer `::1`, which is outside the networks of the key.
        Err(error) => assert_eq!(error.status(), 403),
    }
}

#[tokio::test]
async fn wrong_keys_models_and_networks_are_refused() {
    let (fleet, _file) = start();
    let join = |request: JoinRequest, key: Option<&'static str>, peer: &str| {
        let (control, peer) = (fleet.control.clone(), peer.parse().unwrap());
        async move { control.join(&request, key, peer).await.unwrap_err() }
    };
    let local = "127.0.0.1";
    for key in [None, Some("other"), Some("")] {
        assert_eq!(
            join(request("m"), key, local).await,
            JoinRefusal::Unauthorized
        );
    }
    let error = join(request("other"), Some("key"), local).await;
    assert_eq!(
        (error.status(), error.to_string().contains("`other`")),
        (403, true)
    );
    let error = join(request("missing"), Some("key"), local).await;
    assert_eq!(error.status(), 403);
    let error = join(request("static"), Some("key"), local).await;
    assert!(matches!(error, JoinRefusal::NotJoinable { .. }), "{error}");
    let error = join(request("m"), Some("key"), "10.0.0.1").await;
    assert!(
        error.to_string().contains("10.0.0.1 of this client"),
        "{error}"
    );
    let outside = JoinRequest {
        url: "http://10.0.0.1:1".to_owned(),
        ..request("m")
    };
    let error = join(outside, Some("key"), local).await;
    assert!(
        error.to_string().contains("10.0.0.1 of the backend"),
        "{error}"
    );
    let no_url = JoinRequest {
        url: "nonsense".to_owned(),
        ..request("m")
    };
    assert_eq!(join(no_url, Some("key"), local).await.status(), 400);
    let no_kind = JoinRequest {
        kind: Some("vllm".to_owned()),
        ..request("m")
    };
    assert_eq!(join(no_kind, Some("key"), local).await.status(), 400);
    let no_model = JoinRequest {
        models: Vec::new(),
        ..request("m")
    };
    assert_eq!(
        join(no_model, Some("key"), local).await,
        JoinRefusal::NoModel
    );
    assert_eq!(fleet.control.status().registrations, 0);
}

#[tokio::test]
async fn a_registration_that_is_not_renewed_ends() {
    let file = TestFile::new(&fleet_file("\"*\"", "\"*\"", "max_ttl = \"100ms\""));
    let fleet = TestControl::start(file.input()).unwrap();
    let joined = fleet.control.join(&request("m"), Some("key"), peer()).await;
    assert_eq!(joined.unwrap().ttl_s, 0.1);
    eventually(
        || fleet.endpoints("m").is_empty(),
        || "the registration stays".to_owned(),
    )
    .await;
    assert_eq!(fleet.control.status().registrations, 0);
}

#[tokio::test]
async fn a_reload_keeps_registrations_and_removes_those_of_a_key_that_is_gone() {
    let (fleet, file) = start();
    fleet
        .control
        .join(&request("m"), Some("key"), peer())
        .await
        .unwrap();
    file.write(&fleet_file("\"m\"", "\"other\"", "# changed"));
    fleet.control.reload().await.unwrap();
    assert_eq!(fleet.endpoints("m"), [BACKEND]);
    file.write(&fleet_file("\"other\"", "\"m\"", ""));
    fleet.control.reload().await.unwrap();
    assert!(fleet.endpoints("m").is_empty());
}
