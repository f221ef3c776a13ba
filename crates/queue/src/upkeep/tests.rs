//! The loops beside a real queue. The clock of tokio is paused: it jumps to the next sleep by itself.

use std::sync::Mutex;

use async_trait::async_trait;
use jiff::Timestamp;
use tidegate_core::queue::{Claim, Disposition, Priority, QueueEntry, QueueName};
use tidegate_core::{Account, JobId};

use super::*;
use crate::MemoryQueue;

/// Notes what it is told; jobs called `over…` are over.
#[derive(Default)]
struct Noting {
    told: Mutex<Vec<String>>,
    held: Mutex<Vec<Claim>>,
}

impl Noting {
    fn note(&self, what: &str, entry: &QueueEntry) {
        self.told
            .lock()
            .expect("nobody panics with it")
            .push(format!("{what} {}", entry.id));
    }
}

#[async_trait]
impl UpkeepHandler for Noting {
    async fn overdue(&self, entry: &QueueEntry) {
        self.note("overdue", entry);
    }

    async fn lost(&self, claim: &Claim) -> Disposition {
        self.note("lost", &claim.entry);
        if claim.entry.id.as_str().starts_with("unknown") {
            Disposition::Keep
        } else {
            Disposition::Remove
        }
    }

    fn in_hand(&self) -> Vec<Claim> {
        self.held.lock().expect("nobody panics with it").clone()
    }

    async fn is_over(&self, entry: &QueueEntry) -> bool {
        entry.id.as_str().starts_with("over")
    }
}

struct Place {
    queue: Arc<MemoryQueue>,
    keeper: Arc<Noting>,
    line: QueueName,
}

impl Place {
    fn new() -> Self {
        Self {
            queue: Arc::default(),
            keeper: Arc::default(),
            line: QueueName::new("l"),
        }
    }

    async fn push(&self, id: &str, deadline: Option<Timestamp>) {
        let entry = QueueEntry {
            account: Account::ANONYMOUS,
            id: JobId::parse(id).expect("an id"),
            priority: Priority::Normal,
            deadline,
        };
        self.queue.push(&self.line, entry).await.expect("memory");
    }

    async fn take(&self) -> Claim {
        self.queue
            .take(&self.line, &Consumer::new("h"), Duration::ZERO)
            .await
            .expect("memory")
            .expect("one waits")
    }

    /// What is told within this time.
    async fn told_within(&self, time: Duration, rules: UpkeepConfig) -> Vec<String> {
        let keeping = run(
            Arc::clone(&self.queue) as _,
            Arc::clone(&self.keeper) as _,
            Consumer::new("sweeper"),
            rules,
        );
        tokio::time::timeout(time, keeping)
            .await
            .expect_err("it runs for ever");
        std::mem::take(&mut *self.keeper.told.lock().expect("nobody panics with it"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_is_ended_at_its_deadline() {
    let place = Place::new();
    place
        .push("late", Some(Timestamp::now() - Duration::from_secs(1)))
        .await;
    place
        .push(
            "in-time",
            Some(Timestamp::now() + Duration::from_secs(3600)),
        )
        .await;
    assert_eq!(
        place
            .told_within(Duration::from_secs(3), UpkeepConfig::default())
            .await,
        ["overdue late"]
    );
    assert_eq!(place.take().await.entry.id.as_str(), "in-time");
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_holder_is_gone_is_found_once() {
    let place = Place::new();
    place.push("a", None).await;
    place.push("waits", None).await;
    let before = place.take().await;
    assert_eq!(
        place
            .told_within(Duration::from_secs(14), UpkeepConfig::default())
            .await,
        [""; 0],
        "it may still be at it"
    );
    assert_eq!(
        place
            .told_within(Duration::from_secs(200), UpkeepConfig::default())
            .await,
        ["lost a"]
    );
    assert!(!place.queue.ack(&before).await.expect("memory"));
    assert_eq!(
        place
            .queue
            .depth(&place.line)
            .await
            .expect("memory")
            .waiting,
        1,
        "who waits is not lost"
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_of_which_nothing_can_be_said_is_found_again() {
    let place = Place::new();
    place.push("unknown", None).await;
    place.take().await;
    let told = place
        .told_within(Duration::from_secs(200), UpkeepConfig::default())
        .await;
    assert!(
        told.len() > 1 && told.iter().all(|told| told == "lost unknown"),
        "{told:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_in_hand_here_is_not_lost_though_nobody_could_renew_it() {
    let place = Place::new();
    place.push("a", None).await;
    let claim = place.take().await;
    place
        .keeper
        .held
        .lock()
        .expect("nobody panics with it")
        .push(claim.clone());
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(
        place
            .told_within(Duration::from_secs(200), UpkeepConfig::default())
            .await,
        [""; 0]
    );
    assert!(place.queue.ack(&claim).await.expect("memory"));
}

#[tokio::test(start_paused = true)]
async fn what_is_renewed_is_left_alone() {
    let place = Place::new();
    place.push("a", None).await;
    let claim = place.take().await;
    let renews = async {
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_secs(2)).await;
            place
                .queue
                .renew(std::slice::from_ref(&claim))
                .await
                .expect("memory");
        }
    };
    let (told, ()) = tokio::join!(
        place.told_within(Duration::from_secs(200), UpkeepConfig::default()),
        renews
    );
    assert_eq!(told, [""; 0]);
    assert!(place.queue.ack(&claim).await.expect("memory"));
}

#[tokio::test(start_paused = true)]
async fn old_entries_of_jobs_that_are_over_go_and_those_that_wait_stay() {
    let place = Place::new();
    for id in ["over-1", "waits", "over-2"] {
        place.push(id, None).await;
    }
    let rules = UpkeepConfig {
        old_after: Duration::ZERO,
        ..UpkeepConfig::default()
    };
    place
        .told_within(Duration::from_secs(2 * 3600), rules)
        .await;
    assert_eq!(place.take().await.entry.id.as_str(), "waits");
    assert_eq!(
        place
            .queue
            .depth(&place.line)
            .await
            .expect("memory")
            .waiting,
        0
    );
}
