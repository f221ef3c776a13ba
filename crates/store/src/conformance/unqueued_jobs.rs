//! Jobs that no director runs and that are not in the queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cluster_leases::{LONG, LeasingStore, NO_TIME, granted, held, job, request, unqueued};
use super::samples::*;

/// A job is unqueued until it is marked, again when it is given back, and when the queue was lost.
pub async fn unqueued_jobs_are_found(store: Arc<dyn LeasingStore>) {
    for name in ["c", "a", "b", "leased", "over"] {
        store.insert(spec(name)).await.unwrap();
    }
    assert!(ends(&*store, finish("over", 0, 1)).await);
    let lease = granted(&*store, request("leased", "one", 1)).await;
    assert_eq!(unqueued(&*store).await, ["c", "a", "b"]);
    let some = store.claim_unqueued(NO_TIME, 2).await.unwrap();
    assert_eq!(names(&some), ["c", "a"]);
    assert!(
        store.claim_unqueued(LONG, 10).await.unwrap().is_empty(),
        "too young"
    );

    store
        .mark_queued(&[job("a"), job("c"), job("unknown")], "first")
        .await
        .unwrap();
    assert_eq!(unqueued(&*store).await, ["b"]);
    assert!(store.release(&held("leased", lease.fence)).await.unwrap());
    assert_eq!(unqueued(&*store).await, ["b", "leased"]);

    store
        .mark_queued(&[job("b"), job("leased")], "first")
        .await
        .unwrap();
    assert!(unqueued(&*store).await.is_empty());
    assert_eq!(store.queue_epoch().await.unwrap(), None);
    assert!(store.mark_all_unqueued("second").await.unwrap());
    assert_eq!(unqueued(&*store).await, ["c", "a", "b", "leased"]);
    assert_eq!(
        store.queue_epoch().await.unwrap().as_deref(),
        Some("second")
    );
}

/// A mark that arrives after the queue has lost the entry does not hide the job.
pub async fn a_late_mark_is_ignored(store: Arc<dyn LeasingStore>) {
    for name in ["a", "b"] {
        store.insert(spec(name)).await.unwrap();
    }
    store.mark_queued(&[job("a")], "first").await.unwrap();
    assert!(store.mark_all_unqueued("second").await.unwrap());
    store.mark_queued(&[job("a")], "first").await.unwrap();
    store.mark_queued(&[job("b")], "second").await.unwrap();
    assert_eq!(unqueued(&*store).await, ["a"]);
}

/// Of several processes one queues a job again, and another one later if that did not succeed.
pub async fn an_unqueued_job_is_claimed_once(store: Arc<dyn LeasingStore>) {
    const AGE: Duration = Duration::from_secs(1);
    store.insert(spec("a")).await.unwrap();
    for _ in 0..2 {
        let claimed_at = loop {
            let now = Instant::now();
            if !store.claim_unqueued(AGE, 10).await.unwrap().is_empty() {
                break now;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let second = store.claim_unqueued(AGE, 10).await.unwrap();
        assert!(second.is_empty() || claimed_at.elapsed() >= AGE);
    }
}

/// A job whose entry may have been deleted loses its mark, unless a director has it or it was rechecked since.
pub async fn jobs_that_have_waited_for_long_are_found_again(store: Arc<dyn LeasingStore>) {
    for name in ["a", "b", "leased", "over"] {
        store.insert(spec(name)).await.unwrap();
    }
    let all = ["a", "b", "leased", "over"].map(job);
    store.mark_queued(&all, "first").await.unwrap();
    assert!(ends(&*store, finish("over", 0, 1)).await);
    granted(&*store, request("leased", "one", 1)).await;
    assert_eq!(store.unmark_queued(LONG, 10).await.unwrap(), 0, "too young");
    assert_eq!(store.unmark_queued(NO_TIME, 1).await.unwrap(), 1);
    assert_eq!(unqueued(&*store).await, ["a"]);
    assert_eq!(store.unmark_queued(NO_TIME, 10).await.unwrap(), 1);
    assert_eq!(unqueued(&*store).await, ["a", "b"]);
    assert_eq!(store.unmark_queued(NO_TIME, 10).await.unwrap(), 0);
    store.mark_queued(&all, "first").await.unwrap();
    assert!(unqueued(&*store).await.is_empty());
}
