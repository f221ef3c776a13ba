//! A database that the previous version of the program wrote: everything in it is read back through the ports.
//! `tests/product/test_upgrade.py` starts a server on the same data.

use bytes::Bytes;
use rusqlite::Connection;
use tempfile::TempDir;
use tidegate_core::outbox::{MessageFilter, MessageState};
use tidegate_core::record::{Api, DeploymentRef, JobRecord, WebhookSpec};
use tidegate_core::store::{Documents, JobFilter, JobQuery, Store};
use tidegate_core::{Account, JobId, JobKind, Status};
use tidegate_store::conformance::samples::all_due;
use tidegate_store::{SqliteOptions, SqliteStore};

const DUMP: &str = include_str!("../data/previous_version/tidegate.sql");
const VERSION: &str = "6ee243b5ad125063caf3d83eb12c75e9e41490e4fc3e9e68f6203dc8e4ec8bea";
const TUNED: &str = "16cacea83ae37e1452c6b6a273ba47978e443356f6e2d8e1604234537d425422";

fn open() -> (TempDir, SqliteStore) {
    let folder = TempDir::new().expect("the fixture is valid");
    let conn = Connection::open(folder.path().join("tidegate.db")).expect("the fixture is valid");
    conn.execute_batch(DUMP).expect("the fixture is valid");
    drop(conn);
    let store =
        SqliteStore::open(folder.path(), &SqliteOptions::default()).expect("the fixture is valid");
    (folder, store)
}

fn ann() -> Account {
    Account::parse("ann").expect("the fixture is valid")
}

async fn get(store: &SqliteStore, id: &str) -> JobRecord {
    let id = JobId::parse(id).expect("the fixture is valid");
    store
        .get(&ann(), &id)
        .await
        .expect("the fixture is valid")
        .expect("the fixture is valid")
}

#[tokio::test]
async fn finished_jobs_are_read() {
    let (_folder, store) = open();
    for (id, status, output, error, logs) in [
        (
            "cog-succeeded",
            Status::Succeeded,
            Some(&b"\"echo one\""[..]),
            None,
            "text: one\n",
        ),
        (
            "cog-failed",
            Status::Failed,
            None,
            Some("Prediction failed: Prediction failed: ValueError: no luck"),
            "text: two\n",
        ),
        (
            "cog-canceled",
            Status::Canceled,
            None,
            None,
            "text: three\n",
        ),
    ] {
        let job = get(&store, id).await;
        assert_eq!((job.status, job.attempt), (status, 1), "{id}");
        assert_eq!(
            (job.spec.api, job.spec.kind),
            (Api::Cog, JobKind::Prediction)
        );
        assert_eq!(job.spec.target.version, VERSION);
        let completion = job.completion.expect("the fixture is valid");
        assert_eq!(completion.output.as_deref(), output, "{id}");
        assert_eq!(completion.error.as_deref(), error, "{id}");
        assert!(completion.logs.starts_with(logs), "{}", completion.logs);
        assert!(completion.metrics["predict_time"].is_f64(), "{id}");
    }
    assert!(get(&store, "cog-canceled").await.cancel_requested);
    let job = get(&store, "cog-succeeded").await;
    assert_eq!(
        job.spec.created_at.to_string(),
        "2026-11-16T07:24:03.558947Z"
    );
    assert_eq!(job.spec.input, Bytes::from_static(b"{\"text\": \"one\"}"));
    assert_eq!(job.spec.hook, Some(hook("/ok", None)));
}

fn hook(path: &str, origin: Option<&str>) -> WebhookSpec {
    WebhookSpec {
        url: format!("http://127.0.0.1:9{path}"),
        events: vec!["completed".to_owned()],
        headers: Default::default(),
        origin: origin.map(str::to_owned),
        streams: false,
        streams_files: false,
        stream_url: None,
    }
}

#[tokio::test]
async fn jobs_of_deployments_trainings_and_trained_versions_are_read() {
    let (_folder, store) = open();
    let deployed = get(&store, "76767rsnsmc4f029jbpxkpkne6").await;
    assert_eq!(
        deployed.spec.target.deployment,
        Some(DeploymentRef {
            deployment: "ann/app".to_owned(),
            release: Some(2)
        })
    );
    let training = get(&store, "4fy92xv5s1673vqvj8qdsxxqbe").await;
    assert_eq!(
        (training.spec.kind, training.spec.destination.as_deref()),
        (JobKind::Training, Some("ann/tuned"))
    );
    let tuned = get(&store, "493qwsggpvb27m73qbnbn5k0wf").await;
    assert_eq!(
        (&*tuned.spec.target.model, &*tuned.spec.target.version),
        ("ann/tuned", TUNED)
    );
    assert_eq!(tuned.spec.api, Api::Replicate);
}

#[tokio::test]
async fn unfinished_jobs_come_in_the_order_of_acceptance() {
    let (_folder, store) = open();
    let unfinished = store.open(0, 100).await.expect("the fixture is valid");
    let seen: Vec<_> = unfinished
        .iter()
        .map(|job| {
            let record = &job.record;
            (
                job.number,
                record.spec.id.as_str(),
                record.status,
                record.attempt,
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (8, "cog-running", Status::Processing, 1),
            (9, "3es9zys1y12tyb0vqhasqawda9", Status::Queued, 0)
        ]
    );
    let waiting = &unfinished[1].record;
    assert_eq!(
        waiting.spec.hook,
        Some(hook("/waiting", Some("http://127.0.0.1:5000/")))
    );
    assert_eq!(waiting.completion, None);
}

#[tokio::test]
async fn lists_and_summaries_have_every_job() {
    let (_folder, store) = open();
    let count = async |kind| {
        let query = JobQuery {
            account: ann(),
            kind,
            created_after: None,
            created_before: None,
            from: None,
            limit: 100,
        };
        store
            .list(query)
            .await
            .expect("the fixture is valid")
            .items
            .len()
    };
    assert_eq!(
        (
            count(JobKind::Prediction).await,
            count(JobKind::Training).await
        ),
        (8, 1)
    );
    let filter = JobFilter {
        limit: 100,
        ..JobFilter::default()
    };
    assert_eq!(
        store
            .recent(filter)
            .await
            .expect("the fixture is valid")
            .len(),
        9
    );
}

#[tokio::test]
async fn pending_and_settled_webhooks_are_read() {
    let (_folder, store) = open();
    let taken = store
        .take_messages(all_due("this test"))
        .await
        .expect("the fixture is valid");
    let [message] = &taken.messages[..] else {
        panic!("{taken:?}")
    };
    assert_eq!(
        (message.job.as_str(), message.attempts, &*message.model),
        ("cog-pending-webhook", 5, "ann/upgrade")
    );
    assert_eq!(
        (&*message.receiver, message.retry_until),
        ("127.0.0.1:9", None)
    );
    assert_eq!(message.hook, hook("/unavailable", None));
    assert!(message.body.starts_with(br#"{"id":"cog-pending-webhook","#));

    let filter = MessageFilter {
        limit: 100,
        ..MessageFilter::default()
    };
    let messages = store.messages(filter).await.expect("the fixture is valid");
    let settled: Vec<_> = messages
        .iter()
        .filter_map(|message| match &message.state {
            MessageState::Settled(settled) => {
                Some((message.job.as_str(), settled.given_up.as_deref()))
            }
            MessageState::Claimed | MessageState::Waiting(_) => None,
        })
        .collect();
    assert_eq!(
        settled,
        [
            ("cog-failed", Some("the receiver says that it is gone")),
            ("cog-succeeded", None)
        ]
    );
}

#[tokio::test]
async fn documents_are_read() {
    let (_folder, store) = open();
    for (namespace, count) in [
        ("deployments", 1),
        ("files", 3),
        ("models", 1),
        ("replicate", 3),
        ("trained", 1),
    ] {
        let documents = store
            .all(namespace, "")
            .await
            .expect("the fixture is valid");
        assert_eq!(documents.len(), count, "{namespace}");
        for (name, json) in documents {
            serde_json::from_slice::<serde_json::Value>(&json)
                .unwrap_or_else(|error| panic!("{namespace} {name}: {error}"));
        }
    }
    assert!(
        store
            .fetch("deployments", "ann/app")
            .await
            .expect("the fixture is valid")
            .is_some()
    );
}
