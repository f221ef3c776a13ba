//! Dead letters: entries that no consumer gets any more.

use std::sync::Arc;

use tidegate_core::queue::Queue;

use super::{drain, entry, queue_name, take_next};

/// Pushes a job, takes it and moves it to the dead letters.
async fn bury(queue: &dyn Queue, id: &str) {
    queue.push(&queue_name(), entry("ann", id)).await.unwrap();
    let claim = take_next(queue).await.unwrap();
    assert!(queue.bury(&claim, "for a reason").await.unwrap());
    assert!(!queue.ack(&claim).await.unwrap(), "the claim has ended");
    assert!(!queue.bury(&claim, "again").await.unwrap());
}

/// A dead letter says what it was and why it is dead, and is not handed out.
pub async fn a_buried_entry_is_not_taken(queue: Arc<dyn Queue>) {
    bury(&*queue, "a").await;
    assert_eq!(take_next(&*queue).await, None);
    let letters = queue.dead_letters(None, 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!(
        (
            &letters[0].queue,
            &letters[0].entry,
            letters[0].reason.as_str()
        ),
        (&queue_name(), &Some(entry("ann", "a")), "for a reason")
    );
}

/// A dead letter that is replayed waits again.
pub async fn a_dead_letter_is_replayed_once(queue: Arc<dyn Queue>) {
    bury(&*queue, "a").await;
    let letters = queue.dead_letters(None, 10).await.unwrap();
    assert!(queue.replay_dead_letter(&letters[0].id).await.unwrap());
    assert!(!queue.replay_dead_letter(&letters[0].id).await.unwrap());
    assert_eq!(queue.dead_letters(None, 10).await.unwrap(), []);
    let claim = take_next(&*queue).await.unwrap();
    assert_eq!((claim.entry.id.as_str(), claim.deliveries), ("a", 1));
}

/// A dead letter that is dropped is gone.
pub async fn a_dead_letter_is_dropped(queue: Arc<dyn Queue>) {
    bury(&*queue, "a").await;
    let letters = queue.dead_letters(None, 10).await.unwrap();
    assert!(queue.drop_dead_letter(&letters[0].id).await.unwrap());
    assert!(!queue.drop_dead_letter(&letters[0].id).await.unwrap());
    assert!(!queue.replay_dead_letter(&letters[0].id).await.unwrap());
    assert_eq!(queue.dead_letters(None, 10).await.unwrap(), []);
    assert!(drain(&*queue).await.is_empty());
}

/// A page begins after the last dead letter of the page before it.
pub async fn dead_letters_are_listed_in_pages(queue: Arc<dyn Queue>) {
    for id in ["a", "b", "c"] {
        bury(&*queue, id).await;
    }
    let first = queue.dead_letters(None, 2).await.unwrap();
    let last = first.last().unwrap().id.clone();
    let second = queue.dead_letters(Some(&last), 2).await.unwrap();
    let ids: Vec<&str> = [&first, &second]
        .into_iter()
        .flatten()
        .filter_map(|letter| Some(letter.entry.as_ref()?.id.as_str()))
        .collect();
    assert_eq!(ids, ["a", "b", "c"]);
}
