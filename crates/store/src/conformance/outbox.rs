//! Outbox messages: the last webhook of a job.

use std::sync::Arc;

use tidegate_core::Status;
use tidegate_core::record::{OutboxMessage, Settlement};
use tidegate_core::store::{Reopened, SendOutcome, Store};

use super::samples::*;

async fn ids(store: &dyn Store, limit: usize) -> Vec<String> {
    all(store, limit)
        .await
        .into_iter()
        .map(|message| message.id)
        .collect()
}

async fn all(store: &dyn Store, limit: usize) -> Vec<OutboxMessage> {
    store
        .pending_messages(0, limit)
        .await
        .unwrap()
        .into_iter()
        .map(|(_, message)| message)
        .collect()
}

/// Finishes a new job with a message.
async fn end_with(store: &dyn Store, message_id: &str, name: &str, next_at: i64) {
    store.insert(spec(name)).await.unwrap();
    let mut end = finish(name, 0, 1);
    end.message = Some(message(message_id, name, next_at));
    assert!(store.finish(end).await.unwrap());
}

/// All fields of a message are stored.
pub async fn a_message_is_stored_with_the_end(store: Arc<dyn Store>) {
    end_with(&*store, "msg_1", "a", 5).await;

    assert_eq!(all(&*store, 10).await, [message("msg_1", "a", 5)]);
    assert_eq!(get(&*store, "a").await.status, Status::Succeeded);
}

/// An attempt that cannot finish the job stores no message.
pub async fn no_end_no_message(store: Arc<dyn Store>) {
    store.insert(spec("a")).await.unwrap();
    store.begin(&ann(), &id("a"), at(1)).await.unwrap();
    for attempt in [0, 2] {
        let mut end = finish("a", attempt, 1);
        end.message = Some(message("msg_1", "a", 5));
        assert!(!store.finish(end).await.unwrap());
    }
    assert!(all(&*store, 10).await.is_empty());
}

/// Independently of when they are due. Paging continues after a number, also if messages have
/// changed meanwhile.
pub async fn messages_come_in_the_order_of_their_insertion(store: Arc<dyn Store>) {
    for (message, next_at) in [("first", 30), ("second", 10), ("third", 20)] {
        end_with(&*store, message, message, next_at).await;
    }
    assert_eq!(ids(&*store, 10).await, ["first", "second", "third"]);
    let page = store.pending_messages(0, 2).await.unwrap();
    assert_eq!(
        page.iter()
            .map(|(_, message)| &*message.id)
            .collect::<Vec<_>>(),
        ["first", "second"]
    );

    store.record_attempt("first", delivered(40)).await.unwrap();
    store
        .record_attempt("second", SendOutcome::Retry(at(45)))
        .await
        .unwrap();
    let rest = store.pending_messages(page[1].0, 10).await.unwrap();
    assert_eq!(
        rest.iter()
            .map(|(_, message)| &*message.id)
            .collect::<Vec<_>>(),
        ["third"]
    );
    assert_eq!(store.pending_messages(rest[0].0, 10).await.unwrap(), []);
    let left = all(&*store, 10).await;
    assert_eq!(
        (left.len(), left[0].attempts, left[0].next_at),
        (2, 1, at(45))
    );
}

fn delivered(micros: i64) -> SendOutcome {
    SendOutcome::Settled(Settlement {
        at: at(micros),
        given_up: None,
    })
}

/// Other messages are not affected.
pub async fn a_settled_message_is_not_pending(store: Arc<dyn Store>) {
    end_with(&*store, "msg_1", "a", 5).await;
    end_with(&*store, "msg_2", "b", 6).await;

    store.record_attempt("msg_1", delivered(8)).await.unwrap();
    store.record_attempt("msg_1", delivered(9)).await.unwrap();
    store
        .record_attempt("msg_1", SendOutcome::Retry(at(9)))
        .await
        .unwrap();
    store.record_attempt("msg_0", delivered(9)).await.unwrap();
    assert_eq!(ids(&*store, 10).await, ["msg_2"]);
}

/// The last settled one first, with its result.
pub async fn settled_messages_are_listed(store: Arc<dyn Store>) {
    for name in ["a", "b", "c"] {
        end_with(&*store, &format!("msg_{name}"), name, 5).await;
    }
    store
        .record_attempt("msg_a", SendOutcome::Retry(at(7)))
        .await
        .unwrap();
    store.record_attempt("msg_a", delivered(8)).await.unwrap();
    let lost = Settlement {
        at: at(9),
        given_up: Some("connection refused".to_owned()),
    };
    store
        .record_attempt("msg_b", SendOutcome::Settled(lost.clone()))
        .await
        .unwrap();

    let all = store.settled_messages(None, None, 10).await.unwrap();
    assert_eq!(
        all.iter()
            .map(|message| (&*message.id, message.attempts))
            .collect::<Vec<_>>(),
        [("msg_b", 1), ("msg_a", 2)]
    );
    assert_eq!(
        (&all[0].settled, all[0].model.as_str()),
        (&lost, "ann/echo")
    );
    assert_eq!(all[0].url, message("msg_b", "b", 5).hook.url);
    assert_eq!(
        store.settled_messages(None, None, 1).await.unwrap(),
        all[..1]
    );
    assert_eq!(
        store
            .settled_messages(Some(ann()), Some(id("a")), 10)
            .await
            .unwrap(),
        all[1..]
    );
    assert!(
        store
            .settled_messages(Some(tidegate_core::Account::ANONYMOUS), None, 10)
            .await
            .unwrap()
            .is_empty()
    );
}

/// With its body, as if it had never been settled.
pub async fn a_settled_message_can_be_reopened(store: Arc<dyn Store>) {
    end_with(&*store, "msg_1", "a", 5).await;
    assert_eq!(
        store.reopen_message("msg_1", None, at(9)).await.unwrap(),
        Reopened::StillPending
    );
    store.record_attempt("msg_1", delivered(8)).await.unwrap();

    assert_eq!(
        store.reopen_message("msg_2", None, at(9)).await.unwrap(),
        Reopened::Unknown
    );
    let other = Some(tidegate_core::Account::ANONYMOUS);
    assert_eq!(
        store.reopen_message("msg_1", other, at(9)).await.unwrap(),
        Reopened::Unknown
    );
    let again = OutboxMessage {
        attempts: 1,
        ..message("msg_1", "a", 9)
    };
    assert_eq!(
        store
            .reopen_message("msg_1", Some(ann()), at(9))
            .await
            .unwrap(),
        Reopened::Message(Box::new(again.clone()))
    );
    assert_eq!(all(&*store, 10).await, [again]);
    assert!(
        store
            .settled_messages(None, None, 10)
            .await
            .unwrap()
            .is_empty()
    );
}

/// After their retention, or when the data of their job is removed.
pub async fn settled_messages_are_deleted(store: Arc<dyn Store>) {
    for (name, micros) in [("a", 10), ("b", 20)] {
        end_with(&*store, &format!("msg_{name}"), name, 5).await;
        store
            .record_attempt(&format!("msg_{name}"), delivered(micros))
            .await
            .unwrap();
    }
    store.forget(at(15), 10).await.unwrap();
    let left = store.settled_messages(None, None, 10).await.unwrap();
    assert_eq!(
        left.iter().map(|message| &*message.id).collect::<Vec<_>>(),
        ["msg_b"]
    );
    end_with(&*store, "msg_c", "c", 5).await;
    store.record_attempt("msg_c", delivered(30)).await.unwrap();
    store.remove_data(at(100), 10).await.unwrap();
    assert_eq!(
        store.reopen_message("msg_c", None, at(9)).await.unwrap(),
        Reopened::Unknown
    );
}

/// A webhook is still sent after its job was deleted.
pub async fn messages_outlive_their_jobs(store: Arc<dyn Store>) {
    end_with(&*store, "msg_1", "a", 5).await;
    assert_eq!(store.remove_data(at(100), 10).await.unwrap(), 1);
    assert_eq!(store.forget(at(100), 10).await.unwrap(), 1);

    assert_eq!(all(&*store, 10).await, [message("msg_1", "a", 5)]);
}
