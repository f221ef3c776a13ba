//! Deadlines, lost consumers, old messages, stale consumers and dead letters on the server.

use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::queue::{Queue, QueueEntry};
use tidegate_queue::redis::{RedisQueue, RedisQueueConfig};

use crate::redis_server::{RedisServer, drain, entry, eventually, push, queue_name, stream, take};

/// Pushes a job with a deadline that passed this long ago.
async fn push_overdue(queue: &dyn Queue, id: &str, ago: Duration) {
    let job = QueueEntry {
        deadline: Some(Timestamp::now() - ago),
        ..entry("ann", id)
    };
    queue.push(&queue_name(), job).await.expect("it runs");
}

async fn overdue(queue: &dyn Queue) -> Vec<String> {
    let overdue = queue.overdue(10).await.expect("it runs");
    overdue
        .iter()
        .map(|found| found.entry.id.to_string())
        .collect()
}

#[tokio::test]
async fn only_deadlines_of_the_last_seconds_are_found() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    push_overdue(&*queue, "recent", Duration::from_secs(3)).await;
    push_overdue(&*queue, "long-ago", Duration::from_secs(60)).await;
    assert_eq!(overdue(&*queue).await, ["recent"]);
    let config = RedisQueueConfig {
        deadline_window: None,
        ..server.config("two")
    };
    let all = RedisQueue::open(config).await.expect("it runs");
    assert_eq!(overdue(&all).await, ["long-ago", "recent"]);
}

#[tokio::test]
async fn a_settled_message_is_garbage_until_it_is_collected() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    push_overdue(&*queue, "a", Duration::from_secs(1)).await;
    let found = queue.overdue(10).await.expect("it runs");
    queue.settle(&found[0]).await.expect("it runs");
    assert_eq!(server.run::<usize>(&["ZCARD", "meta:garbage"]), 1);
    assert_eq!(server.run::<usize>(&["ZCARD", "meta:deadlines"]), 0);
    assert_eq!(queue.collect().await.expect("it runs"), 1);
    assert_eq!(server.run::<usize>(&["ZCARD", "meta:garbage"]), 0);
    let depth = queue.depth(&queue_name()).await.expect("it runs");
    assert_eq!((depth.waiting, depth.claimed), (0, 0));
}

#[tokio::test]
async fn a_deadline_outlives_its_message() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    push_overdue(&*queue, "a", Duration::from_secs(1)).await;
    for shard in 0..8 {
        server.run::<usize>(&["XTRIM", &stream(shard), "MAXLEN", "0"]);
    }
    assert_eq!(overdue(&*queue).await, ["a"]);
}

#[tokio::test]
async fn only_messages_without_a_live_consumer_are_lost() {
    let server = RedisServer::start();
    let (director, api) = (server.open("director").await, server.open("api").await);
    push(&*director, "ann", "claimed").await;
    push(&*director, "bob", "put-back").await;
    push(&*director, "cid", "never-delivered").await;
    let mut claims = Vec::new();
    for _ in 0..2 {
        claims.push(take(&*director).await.expect("it waits"));
    }
    director.put_back(&claims[1]).await.expect("it runs");
    let idle = Duration::from_millis(50);
    let (stream, _) = (claims[0].stream.to_string(), ());
    eventually("the message is idle", || {
        let found: Vec<redis::Value> = server.run(&[
            "XPENDING", &stream, "director", "IDLE", "50", "-", "+", "10", "director",
        ]);
        !found.is_empty()
    })
    .await;
    assert_eq!(
        api.lost(Duration::from_secs(30), 10)
            .await
            .expect("it runs"),
        []
    );
    let lost = api.lost(idle, 10).await.expect("it runs");
    assert_eq!(lost.len(), 1, "not the one that was put back: {lost:?}");
    assert_eq!(lost[0].entry, claims[0].entry);
    assert_eq!(
        director.renew(&claims[..1]).await.expect("it runs"),
        claims[..1]
    );
    assert!(!director.ack(&claims[0]).await.expect("it runs"));
    api.put_back(&lost[0]).await.expect("it runs");
    let mut ids = drain(&*director).await;
    ids.sort();
    assert_eq!(ids, ["claimed", "never-delivered", "put-back"]);
}

#[tokio::test]
async fn a_lost_message_goes_to_one_of_several_processes() {
    let server = RedisServer::start();
    let director = server.open("director").await;
    for n in 0..20 {
        push(&*director, "ann", &format!("{n}")).await;
        take(&*director).await.expect("it waits");
    }
    let (one, two) = (server.open("one").await, server.open("two").await);
    let idle = Duration::from_millis(1);
    tokio::time::sleep(idle * 2).await;
    let (first, second) = tokio::join!(
        one.lost(idle, 100),
        two.lost(Duration::from_secs(3600), 100)
    );
    assert_eq!(first.expect("it runs").len(), 20);
    assert_eq!(second.expect("it runs"), []);
}

#[tokio::test]
async fn old_messages_are_removed_in_chunks() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    for n in 0..120 {
        push(&*queue, "ann", &format!("{n:03}")).await;
    }
    take(&*queue).await.expect("it waits");
    let mut old = Vec::new();
    while old.len() < 120 {
        old = queue
            .old(Duration::from_millis(1), 200)
            .await
            .expect("it runs");
    }
    server.run::<String>(&["CONFIG", "RESETSTAT"]);
    assert_eq!(queue.remove_old(&old).await.expect("it runs"), 120);
    assert_eq!((server.calls("xack"), server.calls("xdel")), (3, 3));
    let depth = queue.depth(&queue_name()).await.expect("it runs");
    assert_eq!((depth.waiting, depth.claimed), (0, 0));
}

#[tokio::test]
async fn a_consumer_with_messages_is_never_stale() {
    let server = RedisServer::start();
    let (busy, idle) = (server.open("busy").await, server.open("idle").await);
    let (stream, _) = push(&*busy, "ann", "a").await;
    take(&*busy).await.expect("it waits");
    push(&*idle, "ann", "b").await;
    let claim = take(&*idle).await.expect("it waits");
    idle.ack(&claim).await.expect("it runs");
    assert_eq!(
        idle.remove_stale_consumers(Duration::from_secs(3600))
            .await
            .expect("it runs"),
        0
    );
    idle.remove_stale_consumers(Duration::ZERO)
        .await
        .expect("it runs");
    let consumers: Vec<std::collections::BTreeMap<String, redis::Value>> =
        server.run(&["XINFO", "CONSUMERS", &stream, "director"]);
    let names: Vec<String> = consumers
        .iter()
        .map(|consumer| redis::from_redis_value(consumer["name"].clone()).expect("a text"))
        .collect();
    assert_eq!(names, ["busy"]);
}

#[tokio::test]
async fn messages_that_name_no_job_become_dead_letters() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    let large = "x".repeat(100_000);
    server.run::<String>(&["XADD", &stream(0), "*", "hello", "world"]);
    server.run::<String>(&["XADD", &stream(1), "*", "account", "ann", "id", "../etc"]);
    server.run::<String>(&[
        "XADD",
        &stream(2),
        "*",
        "account",
        "ann",
        "id",
        "a",
        "data",
        &large,
    ]);
    push(&*queue, "ann", "good").await;
    assert_eq!(drain(&*queue).await, ["good"]);
    let letters = queue.dead_letters(None, 10).await.expect("it runs");
    let mut reasons: Vec<&str> = letters
        .iter()
        .map(|letter| letter.reason.as_str())
        .collect();
    reasons.sort_unstable();
    assert!(reasons[0].contains("`id`"), "{reasons:?}");
    assert!(reasons[1].contains("100017 bytes"), "{reasons:?}");
    assert!(reasons[2].contains("no field `account`"), "{reasons:?}");
    assert!(letters.iter().all(|letter| letter.queue == queue_name()));
    let first = letters
        .iter()
        .find(|letter| letter.data.contains("world"))
        .expect("its data");
    assert!(
        !queue.replay_dead_letter(&first.id).await.expect("it runs"),
        "it names no job"
    );
    assert!(queue.drop_dead_letter(&first.id).await.expect("it runs"));
    for shard in 0..3 {
        assert_eq!(server.run::<usize>(&["XLEN", &stream(shard)]), 0);
    }
}

#[tokio::test]
async fn dead_letters_that_are_not_utf8_are_listed_and_dropped() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    let cut = "é".repeat(40_000);
    for pad in ["", "a"] {
        let id = format!("y{pad}");
        let fields = ["account", "", "id", &id, "prompt", &cut];
        server.run::<String>(&[&["XADD", &stream(0), "*"][..], &fields[..]].concat());
    }
    let add =
        "return redis.call('XADD', KEYS[1], '*', 'account', 'ann', 'id', 'z', 'x\\255', '\\255')";
    server.run::<String>(&["EVAL", add, "1", &stream(1)]);
    let invalid = "return redis.call('XADD', 'meta:dead', '*', 'queue', '\\255', 'reason', '\\255', 'data', '\\255')";
    server.run::<String>(&["EVAL", invalid, "0"]);
    push(&*queue, "ann", "good").await;
    assert!(drain(&*queue).await.contains(&"good".to_owned()));
    let letters = queue.dead_letters(None, 10).await.expect("it runs");
    assert!(letters.len() >= 3, "{letters:?}");
    for letter in letters {
        // One that names a job can be replayed.
        queue.replay_dead_letter(&letter.id).await.expect("it runs");
        assert!(queue.drop_dead_letter(&letter.id).await.expect("it runs"));
    }
    assert_eq!(queue.dead_letters(None, 10).await.expect("it runs"), []);
}

#[tokio::test]
async fn a_deleted_message_is_not_lost_and_its_job_can_be_pushed_again() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    let (stream, message) = push(&*queue, "ann", "a").await;
    let claim = take(&*queue).await.expect("it waits");
    server.run::<usize>(&["XDEL", &stream, &message]);
    assert_eq!(queue.lost(Duration::ZERO, 10).await.expect("it runs"), []);
    assert_eq!(
        queue
            .renew(std::slice::from_ref(&claim))
            .await
            .expect("it runs"),
        [claim]
    );
    push(&*queue, "ann", "a").await;
    assert_eq!(drain(&*queue).await, ["a"]);
}
