//! The upkeep loops of several processes on one server: each job is handled, and ended once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tidegate_core::queue::{Claim, Disposition, Queue, QueueEntry, UpkeepHandler};
use tidegate_queue::redis::RedisQueue;
use tidegate_queue::upkeep::{self, UpkeepConfig};

use crate::redis_server::{RedisServer, drain, entry, eventually, push, queue_name, take};

/// The store of the test: which jobs have ended, and by what. All processes share it.
#[derive(Default)]
struct FakeStore {
    ends: Mutex<BTreeMap<String, Vec<&'static str>>>,
    requeued: Mutex<usize>,
}

impl FakeStore {
    /// Ends a job unless it has ended; counts both.
    fn end(&self, entry: &QueueEntry, how: &'static str) {
        let mut ends = self.ends.lock().expect("no panic");
        let ends = ends.entry(entry.id.to_string()).or_default();
        if ends.is_empty() {
            ends.push(how);
        }
    }

    fn end_of(&self, id: &str) -> Vec<&'static str> {
        let ends = self.ends.lock().expect("no panic");
        ends.get(id).cloned().unwrap_or_default()
    }
}

/// The handler of one process.
struct Handler(Arc<FakeStore>, Arc<RedisQueue>);

#[async_trait]
impl UpkeepHandler for Handler {
    async fn overdue(&self, entry: &QueueEntry) -> bool {
        self.0.end(entry, "overdue");
        true
    }

    fn active_claims(&self) -> Vec<Claim> {
        Vec::new()
    }

    async fn lost(&self, claim: &Claim) -> Disposition {
        if claim.entry.id.as_str().starts_with("again") {
            return Disposition::PutBack;
        }
        self.0.end(&claim.entry, "lost");
        Disposition::Remove
    }

    async fn exhausted(&self, claim: &Claim) -> Disposition {
        self.0.end(&claim.entry, "exhausted");
        Disposition::Bury("handed out too often".to_owned())
    }

    async fn prune(&self, entry: &QueueEntry) -> bool {
        self.0.end(entry, "old");
        true
    }

    async fn requeue(&self, _epoch: &str) -> bool {
        *self.0.requeued.lock().expect("no panic") += 1;
        self.1
            .push(&queue_name(), entry("ann", "requeued"))
            .await
            .is_ok()
    }

    async fn recheck(&self, _age: Duration) {}
}

/// Intervals that are short enough for a test. Nothing is old.
fn config() -> UpkeepConfig {
    let short = Duration::from_millis(20);
    UpkeepConfig {
        deadline_interval: short,
        sweep_interval: short,
        sweep_idle: short,
        collect_interval: short,
        prune_interval: short,
        prune_age: None,
        reconcile_interval: short,
        ..UpkeepConfig::default()
    }
}

/// Runs the loops of three processes until the condition holds.
async fn run_until(
    server: &RedisServer,
    store: &Arc<FakeStore>,
    config: UpkeepConfig,
    what: &str,
    condition: impl FnMut() -> bool,
) {
    let mut processes = tokio::task::JoinSet::new();
    for name in ["one", "two", "three"] {
        let queue = server.open(name).await;
        let handler = Arc::new(Handler(Arc::clone(store), Arc::clone(&queue)));
        processes.spawn(upkeep::run(queue, handler, config));
    }
    eventually(what, condition).await;
    processes.shutdown().await;
}

/// The number of messages, taken or not.
fn messages(server: &RedisServer) -> usize {
    let streams: Vec<String> = server.run(&["KEYS", "input:*"]);
    let length = |stream: &String| server.run::<usize>(&["XLEN", stream]);
    streams.iter().map(length).sum()
}

#[tokio::test]
async fn lost_and_overdue_jobs_are_ended_once_by_several_processes() {
    let server = RedisServer::start();
    let director = server.open("director").await;
    for n in 0..10 {
        push(&*director, "ann", &format!("lost-{n}")).await;
        take(&*director).await.expect("it waits");
    }
    for n in 0..10 {
        let late = QueueEntry {
            deadline: Some(Timestamp::now()),
            ..entry("bob", &format!("late-{n}"))
        };
        director.push(&queue_name(), late).await.expect("it runs");
    }
    let store = Arc::default();
    run_until(&server, &store, config(), "all messages to be gone", || {
        messages(&server) == 0
    })
    .await;
    for n in 0..10 {
        assert_eq!(store.end_of(&format!("lost-{n}")), ["lost"]);
        assert_eq!(store.end_of(&format!("late-{n}")), ["overdue"]);
    }
}

#[tokio::test]
async fn a_message_that_is_lost_too_often_becomes_a_dead_letter() {
    let server = RedisServer::start();
    let director = server.open("director").await;
    push(&*director, "ann", "again").await;
    let store = Arc::default();
    for round in 1..=3 {
        let mut claim = None;
        while claim.is_none() {
            claim = take(&*director).await;
        }
        assert_eq!(claim.expect("it waits").deliveries, round);
        let returned = || {
            let key = format!("meta:returned:{}", queue_name());
            server.run::<usize>(&["ZCARD", &key]) == 1 || messages(&server) == 0
        };
        run_until(
            &server,
            &store,
            config(),
            "the message to be swept",
            returned,
        )
        .await;
    }
    assert_eq!(store.end_of("again"), ["exhausted"]);
    let letters = director.dead_letters(None, 10).await.expect("it runs");
    assert_eq!(
        (letters.len(), letters[0].reason.as_str()),
        (1, "handed out too often")
    );
}

#[tokio::test]
async fn old_jobs_are_ended_before_their_messages_are_removed() {
    let server = RedisServer::start();
    let queue = server.open("director").await;
    push(&*queue, "ann", "taken").await;
    take(&*queue).await.expect("it waits");
    push(&*queue, "ann", "waits").await;
    let config = UpkeepConfig {
        prune_age: Some(Duration::from_millis(1)),
        sweep_idle: Duration::from_secs(3600),
        ..config()
    };
    let store = Arc::default();
    run_until(&server, &store, config, "all messages to be gone", || {
        messages(&server) == 0
    })
    .await;
    assert_eq!(store.end_of("taken"), ["old"]);
    assert_eq!(store.end_of("waits"), ["old"]);
}

#[tokio::test]
async fn jobs_are_pushed_again_when_the_data_is_lost() {
    let server = RedisServer::start();
    let queue = server.open("director").await;
    push(&*queue, "ann", "a").await;
    let store: Arc<FakeStore> = Arc::default();
    let mut is_flushed = false;
    run_until(
        &server,
        &store,
        config(),
        "the job to be pushed again",
        || {
            if !is_flushed {
                server.run::<String>(&["FLUSHALL"]);
                is_flushed = true;
            }
            messages(&server) == 1
        },
    )
    .await;
    assert_eq!(drain(&*queue).await, ["requeued"]);
    assert!(*store.requeued.lock().expect("no panic") >= 1);
}

#[tokio::test]
async fn messages_that_no_process_has_taken_are_not_swept() {
    let server = RedisServer::start();
    let queue = server.open("director").await;
    push(&*queue, "ann", "waits").await;
    push(&*queue, "bob", "lost").await;
    let mut claim = take(&*queue).await.expect("it waits");
    if claim.entry.id.as_str() != "lost" {
        let other = take(&*queue).await.expect("it waits");
        queue.put_back(&claim).await.expect("it runs");
        claim = other;
    }
    let store: Arc<FakeStore> = Arc::default();
    run_until(&server, &store, config(), "the other to be swept", || {
        !store.end_of(claim.entry.id.as_str()).is_empty()
    })
    .await;
    assert!(store.end_of("waits").is_empty());
    assert_eq!(drain(&*queue).await, ["waits"]);
}
