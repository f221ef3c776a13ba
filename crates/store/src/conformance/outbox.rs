//! Outbox messages: the last webhook of a job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::lease::{Fence, Nonce};
use tidegate_core::outbox::{
    MessageClaim, MessageFilter, MessageLimits, MessageState, MessageSummary, OutboxCounts,
    OutboxMessage, Reopened, SendOutcome, Settlement, TakeRequest,
};
use tidegate_core::store::Store;
use tidegate_core::{Account, Status};
use tokio::task::JoinSet;

use super::samples::*;

const HOUR: Duration = Duration::from_secs(60 * 60);
const NOW: Duration = Duration::ZERO;

/// Finishes a new job with this message.
async fn end_with(store: &dyn Store, message: OutboxMessage) {
    let name = message.job.to_string();
    store.insert(spec(&name)).await.unwrap();
    let mut end = finish(&name, 0, 1);
    end.message = Some(message);
    store.finish(end).await.unwrap();
}

/// Finishes a new job with a message that no server has claimed.
async fn end(store: &dyn Store, message_id: &str, name: &str) {
    end_with(store, message(message_id, name, 5)).await;
}

/// The ids of the messages that `holder` can take now.
async fn take(store: &dyn Store, holder: &str) -> Vec<String> {
    let taken = store.take_messages(all_due(holder)).await.unwrap();
    ids(&taken).into_iter().map(str::to_owned).collect()
}

/// All messages in the store.
async fn listed(store: &dyn Store) -> Vec<MessageSummary> {
    let filter = MessageFilter {
        limit: 100,
        ..MessageFilter::default()
    };
    store.messages(filter).await.unwrap()
}

fn delivered(micros: i64) -> SendOutcome {
    SendOutcome::Settled(Settlement {
        at: at(micros),
        given_up: None,
    })
}

fn given_up(micros: i64) -> SendOutcome {
    SendOutcome::Settled(Settlement {
        at: at(micros),
        given_up: Some("connection refused".to_owned()),
    })
}

/// All fields of a message are stored, and the taker gets its claim.
pub async fn a_message_is_stored_with_the_end(store: Arc<dyn Store>) {
    end(&*store, "msg_1", "a").await;

    let taken = store.take_messages(all_due("one")).await.unwrap();
    let expected = OutboxMessage {
        claim: Some(claim("one")),
        ..message("msg_1", "a", 5)
    };
    assert_eq!(taken.messages, [expected]);
    assert_eq!(get(&*store, "a").await.status, Status::Succeeded);
}

/// An attempt that cannot finish the job stores no message.
pub async fn no_end_no_message(store: Arc<dyn Store>) {
    store.insert(spec("a")).await.unwrap();
    let fence = leased(&*store, lease("a", 0, 1)).await;
    let other = Fence {
        nonce: Nonce(2),
        ..fence
    };
    for mut end in [finish("a", 0, 1), finish_leased("a", other, 1)] {
        end.message = Some(message("msg_1", "a", 5));
        assert!(!ends(&*store, end).await);
    }
    assert!(take(&*store, "one").await.is_empty());
}

/// The server that ends a job makes the first attempt itself.
pub async fn a_message_can_be_stored_with_a_claim(store: Arc<dyn Store>) {
    let claimed = OutboxMessage {
        claim: Some(claim("one")),
        ..message("msg_1", "a", 5)
    };
    end_with(&*store, claimed).await;
    assert!(take(&*store, "two").await.is_empty());
    assert_eq!(listed(&*store).await[0].state, MessageState::Claimed);

    store.release_message("msg_1", "two").await.unwrap();
    assert!(take(&*store, "two").await.is_empty(), "not its claim");
    store.release_message("msg_1", "one").await.unwrap();
    let taken = store.take_messages(all_due("two")).await.unwrap();
    assert_eq!(
        (ids(&taken), taken.messages[0].attempts),
        (vec!["msg_1"], 0),
        "a release is no attempt"
    );
}

/// Another server sends the messages of one that died.
pub async fn a_message_is_taken_again_when_its_claim_has_ended(store: Arc<dyn Store>) {
    end(&*store, "msg_1", "a").await;
    let ended = TakeRequest {
        claim: MessageClaim {
            holder: "one".to_owned(),
            lasts: Duration::ZERO,
        },
        ..all_due("one")
    };
    for _ in 0..2 {
        let taken = store.take_messages(ended.clone()).await.unwrap();
        assert_eq!(ids(&taken), ["msg_1"]);
    }
    assert_eq!(take(&*store, "two").await, ["msg_1"]);
    assert!(take(&*store, "one").await.is_empty());
}

/// Concurrent servers get different messages.
pub async fn every_message_is_taken_once(store: Arc<dyn Store>) {
    const COUNT: usize = 200;
    for n in 0..COUNT {
        end(&*store, &format!("msg_{n}"), &format!("{n}")).await;
    }
    let mut takers = JoinSet::new();
    for taker in 0..8 {
        let store = Arc::clone(&store);
        takers.spawn(async move {
            let request = TakeRequest {
                total: MessageLimits {
                    messages: 7,
                    ..UNLIMITED
                },
                ..all_due(&format!("taker {taker}"))
            };
            let mut own = Vec::new();
            loop {
                let taken = store.take_messages(request.clone()).await.unwrap();
                own.extend(ids(&taken).into_iter().map(str::to_owned));
                if taken.next_due != Some(Duration::ZERO) {
                    return own;
                }
            }
        });
    }
    let taken: Vec<String> = takers.join_all().await.into_iter().flatten().collect();
    let different: BTreeSet<&String> = taken.iter().collect();
    assert_eq!((taken.len(), different.len()), (COUNT, COUNT));
}

/// The schedule and the number of attempts are stored.
pub async fn a_retry_is_due_after_its_pause(store: Arc<dyn Store>) {
    end(&*store, "msg_1", "a").await;
    take(&*store, "one").await;
    let retry = |pause| store.record_attempt("msg_1", "one", SendOutcome::Retry(pause));
    retry(HOUR).await.unwrap();

    let later = store.take_messages(all_due("one")).await.unwrap();
    assert!(later.messages.is_empty());
    let due = later.next_due.unwrap();
    assert!(due <= HOUR && due > HOUR / 2, "{due:?}");
    assert!(matches!(
        listed(&*store).await[..],
        [MessageSummary {
            attempts: 1,
            state: MessageState::Waiting(_),
            ..
        }]
    ));

    let ahead = TakeRequest {
        ahead: 2 * HOUR,
        ..all_due("one")
    };
    let early = store.take_messages(ahead.clone()).await.unwrap();
    assert_eq!(
        (early.messages[0].attempts, early.messages[0].retry_until),
        (1, message("msg_1", "a", 5).retry_until),
        "the window does not change"
    );
    let again = store.take_messages(ahead).await.unwrap();
    assert!(again.messages.is_empty(), "it is claimed");
    retry(NOW).await.unwrap();
    let taken = store.take_messages(all_due("one")).await.unwrap();
    assert_eq!(taken.messages[0].attempts, 2);
}

/// A server that was slower than its claim does not change the schedule of the next one.
pub async fn only_the_holder_of_the_claim_can_reschedule(store: Arc<dyn Store>) {
    end(&*store, "msg_1", "a").await;
    take(&*store, "two").await;
    let stale = |outcome| store.record_attempt("msg_1", "one", outcome);
    stale(SendOutcome::Retry(NOW)).await.unwrap();
    stale(given_up(9)).await.unwrap();
    assert!(matches!(
        listed(&*store).await[..],
        [MessageSummary {
            attempts: 0,
            state: MessageState::Claimed,
            ..
        }]
    ));
    stale(delivered(9)).await.unwrap();
    assert!(matches!(
        listed(&*store).await[0].state,
        MessageState::Settled(_)
    ));
}

fn to(receiver: &str, number: usize) -> OutboxMessage {
    let name = format!("{receiver}-{number}");
    OutboxMessage {
        receiver: receiver.to_owned(),
        ..message(&name, &name, 5)
    }
}

/// A receiver with many messages does not delay the messages to others.
pub async fn receivers_get_equal_parts(store: Arc<dyn Store>) {
    for n in 0..5 {
        end_with(&*store, to("many", n)).await;
    }
    for receiver in ["few", "zero"] {
        end_with(&*store, to(receiver, 0)).await;
    }
    let limited = |messages, per_receiver, skip: &[&str]| TakeRequest {
        total: MessageLimits {
            messages,
            ..UNLIMITED
        },
        per_receiver: MessageLimits {
            messages: per_receiver,
            ..UNLIMITED
        },
        skip: skip.iter().map(|text| (*text).to_owned()).collect(),
        ..all_due("one")
    };
    let taken = store.take_messages(limited(4, 4, &["zero"])).await.unwrap();
    assert_eq!(ids(&taken), ["many-0", "many-1", "few-0"]);
    assert_eq!(taken.next_due, Some(Duration::ZERO));
    let taken = store.take_messages(limited(4, 1, &[])).await.unwrap();
    assert_eq!(ids(&taken), ["many-2", "zero-0"]);
    let taken = store.take_messages(limited(4, 4, &["many"])).await.unwrap();
    assert!(taken.messages.is_empty());
    assert_ne!(taken.next_due, Some(Duration::ZERO), "skipped");
    assert_eq!(take(&*store, "one").await, ["many-3", "many-4"]);
}

/// The last message may exceed the limit.
pub async fn the_bytes_of_taken_messages_are_limited(store: Arc<dyn Store>) {
    for (receiver, count) in [("a", 3), ("b", 2)] {
        for n in 0..count {
            let large = OutboxMessage {
                body: vec![b'x'; 100].into(),
                ..to(receiver, n)
            };
            end_with(&*store, large).await;
        }
    }
    let bytes = |total, per_receiver| TakeRequest {
        total: MessageLimits {
            bytes: total,
            ..UNLIMITED
        },
        per_receiver: MessageLimits {
            bytes: per_receiver,
            ..UNLIMITED
        },
        ..all_due("one")
    };
    let taken = store.take_messages(bytes(1000, 1)).await.unwrap();
    assert_eq!(ids(&taken), ["a-0", "b-0"]);
    let taken = store.take_messages(bytes(101, 1000)).await.unwrap();
    assert_eq!(ids(&taken), ["a-1", "a-2"]);
    assert_eq!(taken.next_due, Some(Duration::ZERO));
    let taken = store.take_messages(bytes(0, 1000)).await.unwrap();
    assert!(taken.messages.is_empty());
}

/// Other messages are not affected.
pub async fn a_settled_message_is_not_pending(store: Arc<dyn Store>) {
    end(&*store, "msg_1", "a").await;
    take(&*store, "one").await;
    end(&*store, "msg_2", "b").await;

    let record = |id, outcome| store.record_attempt(id, "one", outcome);
    record("msg_1", delivered(8)).await.unwrap();
    record("msg_1", delivered(9)).await.unwrap();
    record("msg_1", SendOutcome::Retry(NOW)).await.unwrap();
    record("msg_0", delivered(9)).await.unwrap();
    assert_eq!(take(&*store, "one").await, ["msg_2"]);
    assert!(
        matches!(&listed(&*store).await[1].state, MessageState::Settled(settled) if settled.at == at(8))
    );
}

/// Pending ones first, then the last settled one first, with its result.
pub async fn messages_are_listed(store: Arc<dyn Store>) {
    for name in ["a", "b", "c"] {
        end(&*store, &format!("msg_{name}"), name).await;
    }
    take(&*store, "one").await;
    let record = |id, outcome| store.record_attempt(id, "one", outcome);
    record("msg_a", delivered(8)).await.unwrap();
    record("msg_b", given_up(9)).await.unwrap();
    let all = listed(&*store).await;
    assert_eq!(
        all.iter()
            .map(|message| (&*message.id, message.attempts))
            .collect::<Vec<_>>(),
        [("msg_c", 0), ("msg_b", 1), ("msg_a", 1)]
    );
    let SendOutcome::Settled(lost) = given_up(9) else {
        unreachable!()
    };
    let sent = message("msg_b", "b", 5);
    let expected = MessageSummary {
        id: sent.id,
        account: sent.account,
        job: sent.job,
        model: sent.model,
        url: sent.hook.url,
        created_at: sent.created_at,
        attempts: 1,
        state: MessageState::Settled(lost),
    };
    assert_eq!(all[1], expected);

    let filtered = async |account, job, limit| {
        let filter = MessageFilter {
            account,
            job,
            limit,
        };
        store.messages(filter).await.unwrap()
    };
    assert_eq!(filtered(None, None, 1).await, all[..2], "one of each state");
    assert_eq!(filtered(Some(ann()), Some(id("a")), 10).await, all[2..]);
    assert_eq!(filtered(None, Some(id("c")), 10).await, all[..1]);
    assert!(
        filtered(Some(Account::ANONYMOUS), None, 10)
            .await
            .is_empty()
    );
}

/// All of them, and by model those that failed before.
pub async fn pending_messages_are_counted(store: Arc<dyn Store>) {
    for (name, model) in [("a", "x"), ("b", "x"), ("c", "y"), ("d", "y"), ("e", "y")] {
        let message = OutboxMessage {
            model: model.to_owned(),
            ..message(&format!("msg_{name}"), name, 5)
        };
        end_with(&*store, message).await;
    }
    take(&*store, "one").await;
    let record = |id, outcome| store.record_attempt(id, "one", outcome);
    for id in ["msg_a", "msg_b", "msg_c"] {
        record(id, SendOutcome::Retry(HOUR)).await.unwrap();
    }
    record("msg_c", delivered(9)).await.unwrap();
    record("msg_d", delivered(9)).await.unwrap();
    assert_eq!(
        store.outbox_counts().await.unwrap(),
        OutboxCounts {
            pending: 3,
            retrying: BTreeMap::from([("x".to_owned(), 2)]),
        }
    );
}

/// With a new window, and its old attempts.
pub async fn a_settled_message_can_be_reopened(store: Arc<dyn Store>) {
    end(&*store, "msg_1", "a").await;
    take(&*store, "one").await;
    store
        .record_attempt("msg_1", "one", delivered(8))
        .await
        .unwrap();
    let reopen = |id, account| store.reopen_message(id, account, HOUR);
    assert_eq!(reopen("msg_2", None).await.unwrap(), Reopened::Unknown);
    assert_eq!(
        reopen("msg_1", Some(Account::ANONYMOUS)).await.unwrap(),
        Reopened::Unknown
    );

    assert_eq!(reopen("msg_1", Some(ann())).await.unwrap(), Reopened::Due);
    let taken = store.take_messages(all_due("two")).await.unwrap();
    let again = &taken.messages[0];
    assert!(again.retry_until > message("msg_1", "a", 5).retry_until);
    assert_eq!(
        *again,
        OutboxMessage {
            attempts: 1,
            retry_until: again.retry_until,
            claim: Some(claim("two")),
            ..message("msg_1", "a", 5)
        }
    );
}

/// Its window stays the same.
pub async fn a_waiting_message_can_be_made_due(store: Arc<dyn Store>) {
    end(&*store, "msg_1", "a").await;
    take(&*store, "one").await;
    let reopen = || store.reopen_message("msg_1", None, HOUR);
    assert_eq!(reopen().await.unwrap(), Reopened::Claimed);
    store
        .record_attempt("msg_1", "one", SendOutcome::Retry(HOUR))
        .await
        .unwrap();
    assert_eq!(reopen().await.unwrap(), Reopened::Due);
    let taken = store.take_messages(all_due("one")).await.unwrap();
    assert_eq!(
        taken.messages[0].retry_until,
        message("msg_1", "a", 5).retry_until
    );
}

/// After their retention, or when the data of their job is removed.
pub async fn settled_messages_are_deleted(store: Arc<dyn Store>) {
    let settle = async |name: &str, micros| {
        let message_id = format!("msg_{name}");
        end(&*store, &message_id, name).await;
        let outcome = delivered(micros);
        store
            .record_attempt(&message_id, "one", outcome)
            .await
            .unwrap();
    };
    settle("a", 10).await;
    settle("b", 20).await;
    store.forget(at(15), 10).await.unwrap();
    let left = listed(&*store).await;
    assert_eq!(
        left.iter().map(|message| &*message.id).collect::<Vec<_>>(),
        ["msg_b"]
    );
    settle("c", 30).await;
    store.remove_data(at(100), 10).await.unwrap();
    assert_eq!(
        store.reopen_message("msg_c", None, HOUR).await.unwrap(),
        Reopened::Unknown
    );
}

/// A webhook is still sent after its job was deleted.
pub async fn messages_outlive_their_jobs(store: Arc<dyn Store>) {
    end(&*store, "msg_1", "a").await;
    assert_eq!(store.remove_data(at(100), 10).await.unwrap(), 1);
    assert_eq!(store.forget(at(100), 10).await.unwrap(), 1);

    assert_eq!(take(&*store, "one").await, ["msg_1"]);
}
