//! Claims: entries that a consumer has taken.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_core::queue::Queue;

use super::{drain, entry, queue_name, take_next};

/// The time after which a claim that is not renewed is lost.
const IDLE: Duration = Duration::from_millis(200);

/// A taken entry is not taken again, and its claim is acked once.
pub async fn a_taken_entry_has_one_consumer(queue: Arc<dyn Queue>) {
    queue.push(&queue_name(), entry("ann", "a")).await.unwrap();
    let claim = take_next(&*queue).await.unwrap();
    assert_eq!(claim.entry, entry("ann", "a"));
    assert_eq!(take_next(&*queue).await, None);
    assert!(queue.ack(&claim).await.unwrap());
    assert!(!queue.ack(&claim).await.unwrap(), "a claim is acked once");
    assert_eq!(take_next(&*queue).await, None);
}

/// Consumers that take concurrently share the entries.
pub async fn concurrent_consumers_get_each_job_once(queue: Arc<dyn Queue>) {
    for n in 0..400 {
        queue
            .push(
                &queue_name(),
                entry(["ann", "bob", "cid"][n % 3], &n.to_string()),
            )
            .await
            .unwrap();
    }
    let consumers = (0..8).map(|_| {
        let queue = Arc::clone(&queue);
        async move { drain(&*queue).await }
    });
    let mut set = tokio::task::JoinSet::new();
    consumers.for_each(|consumer| drop(set.spawn(consumer)));
    let ids: Vec<String> = set.join_all().await.into_iter().flatten().collect();
    assert_eq!(
        (ids.len(), ids.iter().collect::<HashSet<_>>().len()),
        (400, 400)
    );
}

/// An entry that is put back is the next of its account again.
pub async fn an_entry_put_back_keeps_its_position(queue: Arc<dyn Queue>) {
    for id in ["a", "b", "c"] {
        queue.push(&queue_name(), entry("ann", id)).await.unwrap();
    }
    let claim = take_next(&*queue).await.unwrap();
    queue.put_back(&claim).await.unwrap();
    assert!(
        !queue.ack(&claim).await.unwrap(),
        "the claim is no longer valid"
    );
    assert_eq!(drain(&*queue).await, ["a", "b", "c"]);
}

/// A delivery counts when its consumer is lost, and not when the consumer puts the entry back.
pub async fn deliveries_are_counted(queue: Arc<dyn Queue>) {
    queue.push(&queue_name(), entry("ann", "a")).await.unwrap();
    let first = take_next(&*queue).await.unwrap();
    assert_eq!(first.deliveries, 1);
    queue.put_back(&first).await.unwrap();
    assert_eq!(take_next(&*queue).await.unwrap().deliveries, 1);
    let lost = queue.lost(Duration::ZERO, 1).await.unwrap();
    assert_eq!(lost[0].deliveries, 1);
    queue.put_back(&lost[0]).await.unwrap();
    let second = take_next(&*queue).await.unwrap();
    assert_eq!(second.deliveries, 2);
    assert!(!queue.ack(&lost[0]).await.unwrap() && queue.ack(&second).await.unwrap());
}

/// A renewed claim stays with its consumer.
pub async fn a_renewed_claim_is_not_lost(queue: Arc<dyn Queue>) {
    queue.push(&queue_name(), entry("ann", "a")).await.unwrap();
    let mut claim = take_next(&*queue).await.unwrap();
    tokio::time::sleep(IDLE + IDLE / 2).await;
    loop {
        let renewed = Instant::now();
        queue.renew(std::slice::from_ref(&claim)).await.unwrap();
        let lost = queue.lost(IDLE, 10).await.unwrap();
        if renewed.elapsed() < IDLE {
            assert_eq!(lost, []);
            break;
        }
        // The machine paused for longer than `IDLE`: the claim may be lost.
        claim = lost.into_iter().next().unwrap_or(claim);
    }
    assert!(queue.ack(&claim).await.unwrap());
    let lost = queue.renew(std::slice::from_ref(&claim)).await.unwrap();
    assert_eq!(lost, [claim], "an acked claim is no longer held");
}

/// A claim that is not renewed is transferred to the caller of `lost`; the old claim is invalid.
pub async fn an_expired_claim_is_transferred(queue: Arc<dyn Queue>) {
    queue.push(&queue_name(), entry("ann", "a")).await.unwrap();
    queue
        .push(&queue_name(), entry("ann", "waits"))
        .await
        .unwrap();
    let before = take_next(&*queue).await.unwrap();
    tokio::time::sleep(IDLE + IDLE / 2).await;
    let transferred = Instant::now();
    let mut lost = queue.lost(IDLE, 10).await.unwrap();
    assert_eq!(
        lost.iter()
            .map(|claim| claim.entry.id.as_str())
            .collect::<Vec<_>>(),
        ["a"],
        "a waiting entry is not lost"
    );
    assert_ne!(lost[0].ticket, before.ticket);
    assert!(!queue.ack(&before).await.unwrap());
    let renewed = queue.renew(std::slice::from_ref(&before)).await.unwrap();
    assert_eq!(renewed, [before], "the claim is lost");
    let again = queue.lost(IDLE, 10).await.unwrap();
    if transferred.elapsed() < IDLE {
        assert_eq!(again, [], "it was transferred just now");
    } else if !again.is_empty() {
        // The machine paused for longer than `IDLE`.
        lost = again;
    }
    assert!(queue.ack(&lost[0]).await.unwrap());
    assert_eq!(drain(&*queue).await, ["waits"]);
}

/// `lost` returns at most `limit` claims.
pub async fn at_most_limit_claims_are_transferred(queue: Arc<dyn Queue>) {
    for n in 0..5 {
        queue
            .push(&queue_name(), entry("ann", &n.to_string()))
            .await
            .unwrap();
        take_next(&*queue).await.unwrap();
    }
    let first = queue.lost(Duration::ZERO, 3).await.unwrap();
    assert_eq!(first.len(), 3);
}
