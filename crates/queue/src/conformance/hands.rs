//! Entries in somebody's hands.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_core::queue::{Consumer, Queue};

use super::{consumer, drained, entry, line, next};

/// Long enough for what is renewed, and short enough to wait for.
const IDLE: Duration = Duration::from_millis(200);

/// One who has it is the only one who has it, until it says that it is done.
pub async fn what_is_taken_is_nobody_elses(queue: Arc<dyn Queue>) {
    queue.push(&line(), entry("ann", "a")).await.unwrap();
    let claim = next(&*queue).await.unwrap();
    assert_eq!(claim.entry, entry("ann", "a"));
    assert_eq!(next(&*queue).await, None);
    assert!(queue.ack(&claim).await.unwrap());
    assert!(!queue.ack(&claim).await.unwrap(), "it is done once");
    assert_eq!(next(&*queue).await, None);
}

/// Many who take together share what is there.
pub async fn many_takers_get_each_job_once(queue: Arc<dyn Queue>) {
    for n in 0..400 {
        queue
            .push(&line(), entry(["ann", "bob", "cid"][n % 3], &n.to_string()))
            .await
            .unwrap();
    }
    let takers = (0..8).map(|_| {
        let queue = Arc::clone(&queue);
        async move { drained(&*queue).await }
    });
    let mut set = tokio::task::JoinSet::new();
    takers.for_each(|taker| drop(set.spawn(taker)));
    let ids: Vec<String> = set.join_all().await.into_iter().flatten().collect();
    assert_eq!(
        (ids.len(), ids.iter().collect::<HashSet<_>>().len()),
        (400, 400)
    );
}

/// What is put back is the next of its account again.
pub async fn what_is_put_back_stands_where_it_stood(queue: Arc<dyn Queue>) {
    for id in ["a", "b", "c"] {
        queue.push(&line(), entry("ann", id)).await.unwrap();
    }
    let claim = next(&*queue).await.unwrap();
    queue.put_back(&claim).await.unwrap();
    assert!(
        !queue.ack(&claim).await.unwrap(),
        "it is not in hand any more"
    );
    assert_eq!(drained(&*queue).await, ["a", "b", "c"]);
}

/// What is renewed stays with whoever has it.
pub async fn what_is_renewed_is_not_lost(queue: Arc<dyn Queue>) {
    queue.push(&line(), entry("ann", "a")).await.unwrap();
    let mut claim = next(&*queue).await.unwrap();
    tokio::time::sleep(IDLE + IDLE / 2).await;
    loop {
        let renewed = Instant::now();
        queue.renew(std::slice::from_ref(&claim)).await.unwrap();
        let lost = queue.lost(&Consumer::new("other"), IDLE, 10).await.unwrap();
        if renewed.elapsed() < IDLE {
            assert_eq!(lost, []);
            break;
        }
        // The machine stood still for so long: it may well be lost.
        claim = lost.into_iter().next().unwrap_or(claim);
    }
    assert!(queue.ack(&claim).await.unwrap());
}

/// What is not renewed goes to whoever asks for such, and who had it before has no say any more.
pub async fn what_is_not_renewed_goes_to_another(queue: Arc<dyn Queue>) {
    queue.push(&line(), entry("ann", "a")).await.unwrap();
    queue.push(&line(), entry("ann", "waits")).await.unwrap();
    let before = next(&*queue).await.unwrap();
    tokio::time::sleep(IDLE + IDLE / 2).await;
    let taken_over = Instant::now();
    let mut lost = queue.lost(&Consumer::new("other"), IDLE, 10).await.unwrap();
    assert_eq!(
        lost.iter()
            .map(|claim| claim.entry.id.as_str())
            .collect::<Vec<_>>(),
        ["a"],
        "who waits is not lost"
    );
    assert_ne!(lost[0].ticket, before.ticket);
    assert!(!queue.ack(&before).await.unwrap());
    queue.renew(&[before]).await.unwrap();
    let again = queue.lost(&consumer(), IDLE, 10).await.unwrap();
    if taken_over.elapsed() < IDLE {
        assert_eq!(again, [], "it was taken over just now");
    } else if !again.is_empty() {
        // The machine stood still for so long.
        lost = again;
    }
    assert!(queue.ack(&lost[0]).await.unwrap());
    assert_eq!(drained(&*queue).await, ["waits"]);
}

/// No more are taken over than were asked for.
pub async fn no_more_are_taken_over_than_wanted(queue: Arc<dyn Queue>) {
    for n in 0..5 {
        queue
            .push(&line(), entry("ann", &n.to_string()))
            .await
            .unwrap();
        next(&*queue).await.unwrap();
    }
    let first = queue.lost(&consumer(), Duration::ZERO, 3).await.unwrap();
    assert_eq!(first.len(), 3);
}
