//! The last messages about jobs.

use std::sync::Arc;

use tidegate_core::Status;
use tidegate_core::store::Store;

use super::samples::*;

type Subject = Arc<dyn Store>;

async fn ids(store: &dyn Store, limit: usize) -> Vec<String> {
    store.letters(limit).await.unwrap().into_iter().map(|letter| letter.id).collect()
}

/// Ends a new job with a letter.
async fn end_with(store: &dyn Store, message: &str, name: &str, next_at: i64) {
    store.insert(order(name)).await.unwrap();
    let mut end = finish(name, 0, 1);
    end.letter = Some(letter(message, name, next_at));
    assert!(store.finish(end).await.unwrap());
}

/// All of it comes back.
pub async fn a_letter_is_kept_with_the_end(store: Subject) {
    end_with(&*store, "msg_1", "a", 5).await;

    assert_eq!(store.letters(10).await.unwrap(), [letter("msg_1", "a", 5)]);
    assert_eq!(get(&*store, "a").await.status, Status::Succeeded);
}

/// Whoever has no say about the end has none about the letter.
pub async fn no_end_no_letter(store: Subject) {
    store.insert(order("a")).await.unwrap();
    store.begin(&ann(), &id("a"), at(1)).await.unwrap();
    for attempt in [0, 2] {
        let mut end = finish("a", attempt, 1);
        end.letter = Some(letter("msg_1", "a", 5));
        assert!(!store.finish(end).await.unwrap());
    }
    assert!(store.letters(10).await.unwrap().is_empty());
}

/// A letter that failed goes behind those that are due earlier.
pub async fn letters_come_by_their_next_attempt(store: Subject) {
    for (message, next_at) in [("late", 30), ("early", 10), ("middle", 20)] {
        end_with(&*store, message, message, next_at).await;
    }
    assert_eq!(ids(&*store, 10).await, ["early", "middle", "late"]);
    assert_eq!(ids(&*store, 2).await, ["early", "middle"]);

    store.letter_tried("early", Some(at(25))).await.unwrap();
    let letters = store.letters(10).await.unwrap();
    assert_eq!(ids(&*store, 10).await, ["middle", "early", "late"]);
    assert_eq!((letters[1].attempts, letters[1].next_at), (1, at(25)));
}

/// And only that one.
pub async fn a_letter_that_is_done_with_is_gone(store: Subject) {
    end_with(&*store, "msg_1", "a", 5).await;
    end_with(&*store, "msg_2", "b", 6).await;

    store.letter_tried("msg_1", None).await.unwrap();
    store.letter_tried("msg_1", None).await.unwrap();
    store.letter_tried("msg_1", Some(at(9))).await.unwrap();
    assert_eq!(ids(&*store, 10).await, ["msg_2"]);
}

/// Somebody still wants to be told of a job that we have forgotten.
pub async fn letters_outlive_their_jobs(store: Subject) {
    end_with(&*store, "msg_1", "a", 5).await;
    assert_eq!(store.remove_data(at(100), 10).await.unwrap(), 1);
    assert_eq!(store.forget(at(100), 10).await.unwrap(), 1);

    assert_eq!(store.letters(10).await.unwrap(), [letter("msg_1", "a", 5)]);
}
