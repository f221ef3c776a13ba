//! Jobs, completions and messages for the cases.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::json;
use tidegate_core::lease::{Fence, LeaseDurability, LeaseRequest, LeaseResult, Nonce};
use tidegate_core::outbox::{
    MessageClaim, MessageLimits, OutboxMessage, TakeRequest, TakenMessages,
};
use tidegate_core::record::{
    Api, Completion, DeploymentRef, JobRecord, JobSpec, Target, WebhookSpec,
};
use tidegate_core::remote::RemoteFacts;
use tidegate_core::store::{FinishOutcome, JobFinish, JobQuery, Store};
use tidegate_core::{Account, JobId, JobKind, Status};

/// A timestamp, in microseconds after a fixed one.
pub fn at(microseconds: i64) -> Timestamp {
    Timestamp::from_microsecond(1_700_000_000_000_000 + microseconds).unwrap()
}

/// An id.
pub fn id(text: &str) -> JobId {
    JobId::parse(text).unwrap()
}

/// The account that most cases use.
pub fn ann() -> Account {
    Account::parse("ann").unwrap()
}

/// A minimal spec: a prediction of Ann, created at timestamp 0.
pub fn spec(name: &str) -> JobSpec {
    JobSpec {
        id: id(name),
        account: ann(),
        kind: JobKind::Prediction,
        target: Target {
            model: "ann/echo".to_owned(),
            version: "0f".repeat(32),
            deployment: None,
        },
        input: Bytes::from_static(br#"{"text":"hi"}"#),
        files: Vec::new(),
        secrets: Vec::new(),
        context: BTreeMap::new(),
        destination: None,
        hook: None,
        api: Api::Cog,
        policies: Api::Cog.policies(),
        deadline: None,
        created_at: at(0),
    }
}

/// Like [`spec`], created at another timestamp.
pub fn spec_at(name: &str, created_at: i64) -> JobSpec {
    JobSpec {
        created_at: at(created_at),
        ..spec(name)
    }
}

/// A training with every field.
pub fn full_spec(name: &str) -> JobSpec {
    JobSpec {
        kind: JobKind::Training,
        target: Target {
            deployment: Some(DeploymentRef {
                deployment: "ann/fast".to_owned(),
                release: Some(2),
            }),
            ..spec(name).target
        },
        files: vec!["/image".to_owned(), "/more/0".to_owned()],
        secrets: vec!["token".to_owned()],
        context: BTreeMap::from([
            ("trace".to_owned(), "42".to_owned()),
            (String::new(), String::new()),
        ]),
        destination: Some("ann/tuned".to_owned()),
        hook: Some(hook()),
        api: Api::Replicate,
        policies: Api::Runpod.policies(),
        deadline: Some(at(60_000_000)),
        created_at: at(-1),
        ..spec(name)
    }
}

/// A webhook with every field.
pub fn hook() -> WebhookSpec {
    WebhookSpec {
        url: "https://example.com/hook?a=1".to_owned(),
        events: vec!["start".to_owned(), "completed".to_owned()],
        headers: BTreeMap::from([("x-key".to_owned(), "value".to_owned())]),
        streams: true,
        streams_files: true,
        stream_url: None,
        origin: Some("https://models.example.com".to_owned()),
    }
}

/// A completion with every field.
pub fn completion(completed_at: i64) -> Completion {
    let serde_json::Value::Object(metrics) =
        json!({"predict_time": 0.1, "tokens": 12, "deep": {"a": [1, null]}})
    else {
        unreachable!()
    };
    Completion {
        completed_at: at(completed_at),
        output: Some(Bytes::from_static(br#"["a", "b"]"#)),
        logs: "one\ntwo\n".to_owned(),
        error: Some("it broke".to_owned()),
        metrics,
        remote: Some(RemoteFacts {
            worker: Some("worker-1".to_owned()),
            retries: Some(2),
            final_output: Some(json!({"a": 1})),
            timed_out: true,
            ..RemoteFacts::default()
        }),
    }
}

/// The end of a job of Ann as succeeded, without a message.
pub fn finish(name: &str, attempt: u32, completed_at: i64) -> JobFinish {
    JobFinish {
        account: ann(),
        id: id(name),
        fence: Fence {
            attempt,
            // Not the nonce of a lease of these tests.
            nonce: Nonce((1 << 64) | u128::from(completed_at.unsigned_abs())),
        },
        began_at: None,
        status: Status::Succeeded,
        completion: completion(completed_at),
        message: None,
    }
}

/// A durable request for the lease of a job of Ann.
pub fn lease(name: &str, after_attempt: u32, nonce: u128) -> LeaseRequest {
    LeaseRequest {
        account: ann(),
        id: id(name),
        nonce: Nonce(nonce),
        after_attempt,
        began_at: at(i64::from(after_attempt) + 1),
        durability: LeaseDurability::Machine,
    }
}

/// Takes a lease that must be granted.
pub async fn leased(store: &dyn Store, request: LeaseRequest) -> Fence {
    match store.lease(request).await.unwrap() {
        LeaseResult::Granted(fence) => fence,
        other => panic!("the lease was refused: {other:?}"),
    }
}

/// Ends a job; returns whether this call did.
pub async fn ends(store: &dyn Store, finish: JobFinish) -> bool {
    store.finish(finish).await.unwrap() == FinishOutcome::Committed
}

/// The end of a job of Ann by its lease.
pub fn finish_leased(name: &str, fence: Fence, completed_at: i64) -> JobFinish {
    JobFinish {
        fence,
        began_at: Some(at(i64::from(fence.attempt))),
        ..finish(name, 0, completed_at)
    }
}

/// A message about a job of Ann, with every field except the claim.
pub fn message(message_id: &str, name: &str, created_at: i64) -> OutboxMessage {
    OutboxMessage {
        id: message_id.to_owned(),
        account: ann(),
        job: id(name),
        model: "ann/echo".to_owned(),
        receiver: "example.com".to_owned(),
        hook: hook(),
        body: Bytes::from(format!(r#"{{"id":"{name}"}}"#)),
        created_at: at(created_at),
        retry_until: Some(at(created_at + 1_000_000)),
        attempts: 0,
        claim: None,
    }
}

/// A claim that lasts longer than any test.
pub fn claim(holder: &str) -> MessageClaim {
    MessageClaim {
        holder: holder.to_owned(),
        lasts: Duration::from_secs(60 * 60),
    }
}

/// No limit.
pub const UNLIMITED: MessageLimits = MessageLimits {
    messages: usize::MAX,
    bytes: usize::MAX,
};

/// A request for all messages that are due, with a claim of `holder`.
pub fn all_due(holder: &str) -> TakeRequest {
    TakeRequest {
        claim: claim(holder),
        ahead: Duration::ZERO,
        total: UNLIMITED,
        per_receiver: UNLIMITED,
        skip: Vec::new(),
    }
}

/// The ids of these messages.
pub fn ids(taken: &TakenMessages) -> Vec<&str> {
    taken.messages.iter().map(|message| &*message.id).collect()
}

/// The record of a job that was only inserted.
pub fn queued(spec: JobSpec) -> JobRecord {
    JobRecord {
        spec,
        attempt: 0,
        released: 0,
        status: Status::Queued,
        started_at: None,
        completion: None,
        data_removed: false,
        cancel_requested: false,
    }
}

/// The list of Ann's predictions.
pub fn query(limit: usize) -> JobQuery {
    JobQuery {
        account: ann(),
        kind: JobKind::Prediction,
        created_after: None,
        created_before: None,
        from: None,
        limit,
    }
}

/// A job of Ann that must exist.
pub async fn get(store: &dyn Store, name: &str) -> JobRecord {
    store.get(&ann(), &id(name)).await.unwrap().unwrap()
}

/// Inserts and finishes a job of Ann.
pub async fn over(store: &dyn Store, name: &str, completed_at: i64) {
    store.insert(spec(name)).await.unwrap();
    assert!(ends(store, finish(name, 0, completed_at)).await);
}

/// The names of these jobs.
pub fn names(records: &[JobRecord]) -> Vec<&str> {
    records
        .iter()
        .map(|record| record.spec.id.as_str())
        .collect()
}
