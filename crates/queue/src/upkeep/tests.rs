//! The loops with a real queue. Tokio's clock is paused: it advances to the next sleep by itself.

use std::sync::Mutex;

use async_trait::async_trait;
use jiff::Timestamp;
use tidegate_core::queue::{Claim, Disposition, Priority, QueueEntry, QueueName, TakeOptions};
use tidegate_core::{Account, JobId};

use super::*;
use crate::MemoryQueue;

/// Records its calls; jobs with the id `over…` have ended.
#[derive(Default)]
struct RecordingHandler {
    calls: Mutex<Vec<String>>,
    claims: Mutex<Vec<Claim>>,
}

impl RecordingHandler {
    fn record(&self, what: &str, entry: &QueueEntry) {
        self.calls
            .lock()
            .expect("no test panics while it holds the lock")
            .push(format!("{what} {}", entry.id));
    }
}

#[async_trait]
impl UpkeepHandler for RecordingHandler {
    async fn overdue(&self, entry: &QueueEntry) -> bool {
        self.record("overdue", entry);
        !entry.id.as_str().starts_with("unsettled")
    }

    async fn exhausted(&self, claim: &Claim) -> Disposition {
        self.record("exhausted", &claim.entry);
        Disposition::Bury("handed out too often".to_owned())
    }

    async fn requeue(&self, _epoch: &str) -> bool {
        true
    }

    async fn recheck(&self, age: Duration) {
        let mut calls = self
            .calls
            .lock()
            .expect("no test panics while it holds the lock");
        calls.push(format!("recheck {}", age.as_secs()));
    }

    async fn lost(&self, claim: &Claim) -> Disposition {
        self.record("lost", &claim.entry);
        match claim.entry.id.as_str() {
            id if id.starts_with("unknown") => Disposition::Keep,
            id if id.starts_with("again") => Disposition::PutBack,
            _ => Disposition::Remove,
        }
    }

    fn active_claims(&self) -> Vec<Claim> {
        self.claims
            .lock()
            .expect("no test panics while it holds the lock")
            .clone()
    }

    async fn prune(&self, entry: &QueueEntry) -> bool {
        entry.id.as_str().starts_with("over")
    }
}

struct TestQueue {
    queue: Arc<MemoryQueue>,
    handler: Arc<RecordingHandler>,
    name: QueueName,
}

impl TestQueue {
    fn new() -> Self {
        Self {
            queue: Arc::default(),
            handler: Arc::default(),
            name: QueueName::new("l"),
        }
    }

    async fn push(&self, id: &str, deadline: Option<Timestamp>) {
        let entry = QueueEntry {
            account: Account::ANONYMOUS,
            id: JobId::parse(id).expect("an id"),
            priority: Priority::Normal,
            deadline,
            details: None,
        };
        self.queue.push(&self.name, entry).await.expect("memory");
    }

    async fn take(&self) -> Claim {
        self.queue
            .take(&self.name, TakeOptions::within(Duration::ZERO))
            .await
            .expect("memory")
            .expect("one waits")
    }

    /// The calls of the handler within this time.
    async fn calls_within(&self, time: Duration, config: UpkeepConfig) -> Vec<String> {
        let upkeep = run(
            Arc::clone(&self.queue) as _,
            Arc::clone(&self.handler) as _,
            config,
        );
        tokio::time::timeout(time, upkeep)
            .await
            .expect_err("it never returns");
        std::mem::take(
            &mut *self
                .handler
                .calls
                .lock()
                .expect("no test panics while it holds the lock"),
        )
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_is_ended_at_its_deadline() {
    let test = TestQueue::new();
    test.push("late", Some(Timestamp::now() - Duration::from_secs(1)))
        .await;
    test.push(
        "in-time",
        Some(Timestamp::now() + Duration::from_secs(3600)),
    )
    .await;
    assert_eq!(
        test.calls_within(Duration::from_secs(3), UpkeepConfig::default())
            .await,
        ["overdue late"]
    );
    assert_eq!(test.take().await.entry.id.as_str(), "in-time");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_is_not_settled_is_found_again() {
    let test = TestQueue::new();
    let passed = Timestamp::now() - Duration::from_secs(1);
    test.push("unsettled", Some(passed)).await;
    let calls = test
        .calls_within(Duration::from_millis(3500), UpkeepConfig::default())
        .await;
    assert_eq!(calls, ["overdue unsettled"; 4]);
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_is_put_back_by_the_sweep_can_be_taken_again() {
    let test = TestQueue::new();
    test.push("again", None).await;
    test.take().await;
    assert_eq!(
        test.calls_within(Duration::from_secs(80), UpkeepConfig::default())
            .await,
        ["lost again"]
    );
    assert_eq!(
        test.take().await.deliveries,
        2,
        "it was handed out and lost"
    );
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_was_handed_out_too_often_is_a_dead_letter() {
    let test = TestQueue::new();
    test.push("poison", None).await;
    test.take().await;
    let config = UpkeepConfig {
        max_deliveries: 1,
        ..UpkeepConfig::default()
    };
    assert_eq!(
        test.calls_within(Duration::from_secs(80), config).await,
        ["exhausted poison"]
    );
    let letters = test.queue.dead_letters(None, 10).await.expect("memory");
    assert_eq!(letters[0].reason, "handed out too often");
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_consumer_is_gone_is_found_once() {
    let test = TestQueue::new();
    test.push("a", None).await;
    test.push("waits", None).await;
    let before = test.take().await;
    assert_eq!(
        test.calls_within(Duration::from_secs(14), UpkeepConfig::default())
            .await,
        [""; 0],
        "the consumer may still be alive"
    );
    assert_eq!(
        test.calls_within(Duration::from_secs(200), UpkeepConfig::default())
            .await,
        ["lost a"]
    );
    assert!(!test.queue.ack(&before).await.expect("memory"));
    assert_eq!(
        test.queue.depth(&test.name).await.expect("memory").waiting,
        1,
        "a waiting job is not lost"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_job_that_the_handler_keeps_is_found_again() {
    let test = TestQueue::new();
    test.push("unknown", None).await;
    test.take().await;
    let calls = test
        .calls_within(Duration::from_secs(200), UpkeepConfig::default())
        .await;
    assert!(
        calls.len() > 1 && calls.iter().all(|call| call == "lost unknown"),
        "{calls:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn claims_of_a_suspended_process_are_not_lost() {
    let test = TestQueue::new();
    test.push("a", None).await;
    let claim = test.take().await;
    test.handler
        .claims
        .lock()
        .expect("no test panics while it holds the lock")
        .push(claim.clone());
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(
        test.calls_within(Duration::from_secs(200), UpkeepConfig::default())
            .await,
        [""; 0]
    );
    assert!(test.queue.ack(&claim).await.expect("memory"));
}

#[tokio::test(start_paused = true)]
async fn a_renewed_claim_is_not_lost() {
    let test = TestQueue::new();
    test.push("a", None).await;
    let claim = test.take().await;
    let renews = async {
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_secs(2)).await;
            test.queue
                .renew(std::slice::from_ref(&claim))
                .await
                .expect("memory");
        }
    };
    let (calls, ()) = tokio::join!(
        test.calls_within(Duration::from_secs(200), UpkeepConfig::default()),
        renews
    );
    assert_eq!(calls, [""; 0]);
    assert!(test.queue.ack(&claim).await.expect("memory"));
}

#[tokio::test(start_paused = true)]
async fn old_entries_of_ended_jobs_are_removed_and_waiting_ones_stay() {
    let test = TestQueue::new();
    for id in ["over-1", "waits", "over-2"] {
        test.push(id, None).await;
    }
    let config = UpkeepConfig {
        prune_age: Some(Duration::ZERO),
        ..UpkeepConfig::default()
    };
    test.calls_within(Duration::from_secs(2 * 3600), config)
        .await;
    assert_eq!(test.take().await.entry.id.as_str(), "waits");
    assert_eq!(
        test.queue.depth(&test.name).await.expect("memory").waiting,
        0
    );
}

#[tokio::test(start_paused = true)]
async fn waiting_jobs_are_pushed_again_once_per_interval() {
    let test = TestQueue::new();
    let config = UpkeepConfig {
        recheck_interval: Duration::from_secs(60),
        ..UpkeepConfig::default()
    };
    let calls = test.calls_within(Duration::from_secs(150), config).await;
    assert_eq!(calls, ["recheck 60", "recheck 60"]);
}
